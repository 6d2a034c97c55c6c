//! The inviter's side of pairing: one task for each link, bounded by the transport.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use mgp_engine::cluster::pairing::PairingRequest;
use mgp_protocol::federation::assertion::LinkBinding;
use mgp_protocol::federation::pairing::{PairingAsk, PairingMessage, TicketId, WordNonce};
use mgp_protocol::ids::NodeId;
use mgp_runtime::{Mailbox, Reply};
use mgp_transports::quic::PairingLink;
use tokio::sync::watch;

use super::PairingMsg;

/// The decision about a waiting node.
#[derive(Clone, Debug, Default)]
pub enum PairingDecision {
    /// No decision yet.
    #[default]
    Pending,
    /// The node is admitted: the messages to send to it.
    Approved(Arc<Vec<PairingMessage>>),
    /// The node is denied, with the reason.
    Denied(String),
}

/// Receives the decision about a ticket.
pub(super) type DecisionReceiver = watch::Receiver<PairingDecision>;

/// A shown ticket.
#[derive(Clone, Debug)]
pub struct TicketRequest {
    pub(super) request: PairingAsk,
    /// The revealed nonce of a node that committed to it.
    pub(super) nonce: Option<WordNonce>,
    pub(super) node: NodeId,
    pub(super) key: [u8; 32],
    pub(super) binding: LinkBinding,
    pub(super) address: SocketAddr,
}

impl TicketRequest {
    pub(super) fn into_request(self, inviter: NodeId) -> PairingRequest {
        PairingRequest {
            ticket: self.request.ticket,
            proof: self.request.proof,
            binding: self.binding,
            inviter,
            key: self.key,
            name: self.request.name,
            commitment: self.request.commitment,
        }
    }
}

/// Serves one node, until it is admitted or rejected, or its link ends.
pub(super) async fn serve_node(mut link: PairingLink, mailbox: Mailbox<PairingMsg>) {
    let request = link.first_message().await.ok().flatten();
    let request = request.and_then(|bytes| PairingMessage::decode(&bytes).ok());
    let Some(PairingMessage::Ask(ask)) = request else {
        return;
    };
    let id = ask.ticket;
    let commits = ask.commitment.is_some();
    let mut request = TicketRequest {
        request: ask,
        nonce: None,
        node: link.peer(),
        key: link.peer_key(),
        binding: link.binding(),
        address: link.address(),
    };
    if commits {
        request.nonce = exchange_nonces(&mut link, &request, &mailbox).await;
        if request.nonce.is_none() {
            return link.finish().await;
        }
    }
    let (reply, answer) = Reply::new();
    if mailbox
        .send_to_self(PairingMsg::ShowTicket(Box::new(request), reply))
        .is_err()
    {
        return;
    }
    match answer.await {
        Ok(Ok((shown, decided))) => {
            link.mark_proven();
            let answer = match shown.nonce {
                Some(nonce) => PairingMessage::Reveal(nonce),
                None => PairingMessage::Heard(shown.reply.proof),
            };
            if send_message(&mut link, &answer).await {
                wait_for_decision(link, id, decided, &mailbox).await;
            }
        }
        Ok(Err(refusal)) => {
            send_message(&mut link, &PairingMessage::Refused(refusal.to_string())).await;
            link.finish().await;
        }
        Err(_ended) => {}
    }
}

/// Commits to this side's nonce and reads the node's; `None` if it is refused or sends something else.
async fn exchange_nonces(
    link: &mut PairingLink,
    request: &TicketRequest,
    mailbox: &Mailbox<PairingMsg>,
) -> Option<WordNonce> {
    let (reply, answer) = Reply::new();
    let commit = PairingMsg::Commit(Box::new(request.clone()), reply);
    mailbox.send_to_self(commit).ok()?;
    match answer.await.ok()? {
        Ok(committed) => {
            link.mark_proven();
            if !send_message(link, &PairingMessage::Committed(committed)).await {
                return None;
            }
            let revealed = link.first_message().await.ok()??;
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
            send_message(link, &PairingMessage::Refused(refusal.to_string())).await;
            None
        }
    }
}

async fn wait_for_decision(
    mut link: PairingLink,
    id: TicketId,
    mut decided: DecisionReceiver,
    mailbox: &Mailbox<PairingMsg>,
) {
    let decision = tokio::select! {
        decision = next_decision(&mut decided) => decision,
        // The node sends nothing meanwhile: the link is gone or timed out, and the node reconnects.
        _said = link.next() => return,
    };
    match decision {
        PairingDecision::Pending => {}
        PairingDecision::Denied(why) => {
            send_message(&mut link, &PairingMessage::Refused(why)).await;
            link.finish().await;
        }
        PairingDecision::Approved(parts) => {
            for part in parts.iter() {
                if !send_message(&mut link, part).await {
                    return;
                }
            }
            if let Some(PairingMessage::Taken) = receive_message(&mut link).await {
                let _ended = mailbox.send_to_self(PairingMsg::Delivered(id));
                link.finish().await;
            }
        }
    }
}

/// Waits for the decision; pending if the ticket is gone without one.
async fn next_decision(decided: &mut DecisionReceiver) -> PairingDecision {
    let is_made = |decision: &PairingDecision| !matches!(decision, PairingDecision::Pending);
    match decided.wait_for(is_made).await {
        Ok(decision) => PairingDecision::clone(&decision),
        Err(_gone) => PairingDecision::Pending,
    }
}

/// The next message; `None` for an invalid one.
pub(super) async fn receive_message(link: &mut PairingLink) -> Option<PairingMessage> {
    let bytes = link.next().await.ok()??;
    PairingMessage::decode(&bytes).ok()
}

pub(super) async fn send_message(link: &mut PairingLink, message: &PairingMessage) -> bool {
    let bytes = Bytes::from(message.encode());
    link.send(bytes).await.is_ok()
}
