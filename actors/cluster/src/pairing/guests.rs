//! The side of the node that made a ticket: one task for each link, and as many as the transport lets in.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use mgp_protocol::federation::assertion::LinkBinding;
use mgp_protocol::federation::pairing::{PairingAsk, PairingMessage, TicketId};
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
#[derive(Debug)]
pub struct AskedOver {
    pub(super) ask: PairingAsk,
    pub(super) node: NodeId,
    pub(super) key: [u8; 32],
    pub(super) binding: LinkBinding,
    pub(super) from: SocketAddr,
}

/// Hears one node, until it is let in or sent away, or its link ends.
pub(super) async fn host(mut link: PairingLink, mailbox: Mailbox<PairingMsg>) {
    let asked = link.first().await.ok().flatten();
    let asked = asked.and_then(|bytes| PairingMessage::decode(&bytes).ok());
    let Some(PairingMessage::Ask(ask)) = asked else {
        return;
    };
    let id = ask.ticket;
    let asked = AskedOver {
        ask,
        node: link.peer(),
        key: link.peer_key(),
        binding: link.binding(),
        from: link.address(),
    };
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
            if said(&mut link, &PairingMessage::Heard(shown.proof)).await {
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
