//! The side of the node that made a ticket: one task for each link, and as many as the transport lets in.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use mgp_engine::cluster::pairing::PairingRequest;
use mgp_protocol::federation::assertion::LinkBinding;
use mgp_protocol::federation::pairing::{PairingAsk, PairingMessage, TicketId, WordNonce};
use mgp_protocol::ids::NodeId;
use mgp_runtime::mailbox::{Mailbox, Reply};
use mgp_transports::quic::PairingLink;
use tokio::sync::watch;

use super::PairingMsg;

/// What becomes of a node that waits.
#[derive(Clone, Debug, Default)]
pub enum PairingDecision {
    /// Nobody has decided.
    #[default]
    Open,
    /// It is let in: the messages that it is sent.
    Yes(Arc<Vec<PairingMessage>>),
    /// It is not, and why.
    No(String),
}

/// Follows what becomes of a ticket.
pub(super) type WaitForDecision = watch::Receiver<PairingDecision>;

/// A ticket that was shown.
#[derive(Clone, Debug)]
pub struct AskedOver {
    pub(super) ask: PairingAsk,
    /// Revealed, of a node that committed to it.
    pub(super) nonce: Option<WordNonce>,
    pub(super) node: NodeId,
    pub(super) key: [u8; 32],
    pub(super) binding: LinkBinding,
    pub(super) from: SocketAddr,
}

impl AskedOver {
    pub(super) fn request(self, inviter: NodeId) -> PairingRequest {
        PairingRequest {
            ticket: self.ask.ticket,
            proof: self.ask.proof,
            binding: self.binding,
            inviter,
            key: self.key,
            name: self.ask.name,
            commitment: self.ask.commitment,
        }
    }
}

/// Hears one node, until it is let in or sent away, or its link ends.
pub(super) async fn host(mut link: PairingLink, mailbox: Mailbox<PairingMsg>) {
    let asked = link.prompt().await.ok().flatten();
    let asked = asked.and_then(|bytes| PairingMessage::decode(&bytes).ok());
    let Some(PairingMessage::Ask(ask)) = asked else {
        return;
    };
    let id = ask.ticket;
    let commits = ask.commitment.is_some();
    let mut asked = AskedOver {
        ask,
        nonce: None,
        node: link.peer(),
        key: link.peer_key(),
        binding: link.binding(),
        from: link.address(),
    };
    if commits {
        asked.nonce = exchange(&mut link, &asked, &mailbox).await;
        if asked.nonce.is_none() {
            return link.finish().await;
        }
    }
    let (reply, answer) = Reply::new();
    if mailbox
        .remind(PairingMsg::Shown(Box::new(asked), reply))
        .is_err()
    {
        return;
    }
    match answer.await {
        Ok(Ok((shown, decided))) => {
            link.proven();
            let answer = match shown.nonce {
                Some(nonce) => PairingMessage::Reveal(nonce),
                None => PairingMessage::Heard(shown.heard.proof),
            };
            if said(&mut link, &answer).await {
                wait(link, id, decided, &mailbox).await;
            }
        }
        Ok(Err(refusal)) => {
            said(&mut link, &PairingMessage::Refused(refusal.to_string())).await;
            link.finish().await;
        }
        Err(_ended) => {}
    }
}

/// Commits to this side's nonce and reads the node's; nothing where it is refused, or says something else.
async fn exchange(
    link: &mut PairingLink,
    asked: &AskedOver,
    mailbox: &Mailbox<PairingMsg>,
) -> Option<WordNonce> {
    let (reply, answer) = Reply::new();
    let commit = PairingMsg::Commit(Box::new(asked.clone()), reply);
    mailbox.remind(commit).ok()?;
    match answer.await.ok()? {
        Ok(committed) => {
            link.proven();
            if !said(link, &PairingMessage::Committed(committed)).await {
                return None;
            }
            let revealed = link.prompt().await.ok()??;
            match PairingMessage::decode(&revealed).ok()? {
                PairingMessage::Reveal(nonce) => Some(nonce),
                PairingMessage::Ask(_)
                | PairingMessage::Heard(_)
                | PairingMessage::Committed(_)
                | PairingMessage::Refused(_)
                | PairingMessage::Part(_)
                | PairingMessage::Taken => None,
            }
        }
        Err(refusal) => {
            said(link, &PairingMessage::Refused(refusal.to_string())).await;
            None
        }
    }
}

async fn wait(
    mut link: PairingLink,
    id: TicketId,
    mut decided: WaitForDecision,
    mailbox: &Mailbox<PairingMsg>,
) {
    let decision = tokio::select! {
        decision = made(&mut decided) => decision,
        // Nothing is said meanwhile: the link is gone, or took too long, and comes again.
        _said = link.next() => return,
    };
    match decision {
        PairingDecision::Open => {}
        PairingDecision::No(why) => {
            said(&mut link, &PairingMessage::Refused(why)).await;
            link.finish().await;
        }
        PairingDecision::Yes(parts) => {
            for part in parts.iter() {
                if !said(&mut link, part).await {
                    return;
                }
            }
            if let Some(PairingMessage::Taken) = heard(&mut link).await {
                let _ended = mailbox.remind(PairingMsg::Delivered(id));
                link.finish().await;
            }
        }
    }
}

/// The decision, once there is one; none where the ticket is gone without.
async fn made(decided: &mut WaitForDecision) -> PairingDecision {
    let is_made = |decision: &PairingDecision| !matches!(decision, PairingDecision::Open);
    match decided.wait_for(is_made).await {
        Ok(decision) => PairingDecision::clone(&decision),
        Err(_gone) => PairingDecision::Open,
    }
}

/// The next message; `None` for anything that is none.
pub(super) async fn heard(link: &mut PairingLink) -> Option<PairingMessage> {
    let bytes = link.next().await.ok()??;
    PairingMessage::decode(&bytes).ok()
}

pub(super) async fn said(link: &mut PairingLink, message: &PairingMessage) -> bool {
    let bytes = Bytes::from(message.encode());
    link.send(bytes).await.is_ok()
}
