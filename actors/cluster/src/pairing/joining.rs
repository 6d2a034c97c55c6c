//! The joining node's side of pairing: dials until somebody at the inviter decides.

use std::time::Duration;

use mgp_engine::cluster::pairing::{
    JoinNonce, PairingEnds, PairingSide, PairingTicket, RevealError, is_valid_proof,
};
use mgp_engine::node_key::PublicKey;
use mgp_engine::policy::grants::ClusterId;
use mgp_protocol::federation::hello::NodeName;
use mgp_protocol::federation::pairing::{
    PARTS_MAX, PairingAsk, PairingMessage, WelcomeBundle, WelcomePart, WordCommitment, WordNonce,
    WordNonces,
};
use mgp_protocol::ids::NodeId;
use mgp_runtime::time::unix_ms;
use mgp_runtime::{EventSink, Mailbox, Reply, randomness};
use mgp_transports::quic::{LinkError, PairingLink};

use super::inviting::{receive_message, send_message};
use super::{JoinProgress, NodeAdmission, PairingEvent, PairingMsg};
use crate::links::LinksHandle;

/// The delay between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How much later than by this clock a ticket may expire: the inviter's clock counts, and may be behind.
pub(super) const CLOCK_SKEW_MS: u64 = 10 * 60 * 1000;

/// The task of one join.
pub(super) struct JoinTask {
    pub(super) number: u64,
    pub(super) node: NodeId,
    pub(super) ticket: PairingTicket,
    pub(super) name: NodeName,
    pub(super) nonce: JoinNonce,
    pub(super) links: LinksHandle,
    pub(super) events: EventSink<PairingEvent>,
    pub(super) mailbox: Mailbox<PairingMsg>,
}

/// Why an attempt failed.
enum AttemptError {
    /// A later attempt may succeed.
    Retry(String),
    /// No attempt will succeed.
    Fatal(JoinProgress),
}

impl JoinTask {
    pub(super) async fn run(mut self) {
        let ends = self.ticket.expires_ms.saturating_add(CLOCK_SKEW_MS);
        while unix_ms() < ends {
            match self.attempt().await {
                Ok(admission) => {
                    return self.report_progress(JoinProgress::Admitted(Box::new(admission)));
                }
                Err(AttemptError::Fatal(progress)) => return self.report_progress(progress),
                Err(AttemptError::Retry(reason)) => {
                    self.report_progress(JoinProgress::Dialing(Some(reason)))
                }
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        self.report_progress(JoinProgress::Expired);
    }

    fn report_progress(&self, progress: JoinProgress) {
        let _ended = self
            .mailbox
            .send_to_self(PairingMsg::Progress(self.number, progress));
    }

    async fn attempt(&mut self) -> Result<NodeAdmission, AttemptError> {
        let mut link = self.dial().await?;
        let ends = PairingEnds {
            inviter: NodeId::from_key(&self.ticket.inviter),
            joiner: self.node,
            binding: link.binding(),
        };
        self.show_ticket(&mut link, &ends).await?;
        self.report_progress(JoinProgress::Waiting);
        let admission = self.receive_admission(&mut link).await?;
        let (reply, persisted) = Reply::new();
        self.events
            .send(PairingEvent::Joined(admission.clone(), reply));
        match persisted.await {
            Ok(Ok(())) => {}
            Ok(Err(reason)) => return Err(AttemptError::Fatal(JoinProgress::Failed(reason))),
            Err(_ended) => {
                let reason = "the kernel shut down meanwhile".to_owned();
                return Err(AttemptError::Fatal(JoinProgress::Failed(reason)));
            }
        }
        self.links.add_hint(ends.inviter, link.address());
        // If this is lost, the ticket stays open until it expires, and is useless to others.
        let _told = send_message(&mut link, &PairingMessage::Taken).await;
        link.finish().await;
        Ok(admission)
    }

    /// Shows the ticket, and derives the words together with the inviter if it supports nonces.
    async fn show_ticket(
        &mut self,
        link: &mut PairingLink,
        ends: &PairingEnds,
    ) -> Result<(), AttemptError> {
        let secret = &self.ticket.secret;
        let (side, nonce) = (PairingSide::Joiner, self.nonce.nonce());
        let ask = PairingMessage::Ask(PairingAsk {
            ticket: secret.id(),
            name: self.name.clone(),
            proof: ends.joiner_proof(secret),
            commitment: Some(ends.commitment(side, &self.name, nonce, secret)),
        });
        if !send_message(link, &ask).await {
            return Err(link_lost(link));
        }
        let expected = ends.inviter_proof(secret);
        match receive_message(link).await {
            Some(PairingMessage::Committed(other_commitment))
                if is_valid_proof(&other_commitment.proof, &expected) =>
            {
                self.exchange_nonces(link, ends, &other_commitment.commitment)
                    .await
            }
            Some(PairingMessage::Heard(proof)) if is_valid_proof(&proof, &expected) => {
                if secret.has_nonces() {
                    Err(fatal_error(
                        "the other side answers like an older version, and the ticket is of a newer one: \
                         somebody may be trying to choose the words; ask for another ticket",
                    ))
                } else {
                    Ok(())
                }
            }
            Some(PairingMessage::Refused(reason)) => Err(fatal_error(&reason)),
            Some(
                PairingMessage::Heard(_)
                | PairingMessage::Committed(_)
                | PairingMessage::Reveal(_)
                | PairingMessage::Ask(_)
                | PairingMessage::Part(_)
                | PairingMessage::Taken,
            ) => Err(fatal_error(
                "the other side does not know the ticket's secret",
            )),
            None => Err(link_lost(link)),
        }
    }

    /// Reveals the nonce of this side to this commitment, reads the other nonce, and shows the words.
    async fn exchange_nonces(
        &mut self,
        link: &mut PairingLink,
        ends: &PairingEnds,
        other_commitment: &WordCommitment,
    ) -> Result<(), AttemptError> {
        let local_nonce = match self
            .nonce
            .reveal(other_commitment, WordNonce(randomness::random_bytes()))
        {
            Ok(local_nonce) => local_nonce,
            Err(RevealError::Redrawn) => {
                return Err(AttemptError::Retry("the words are made anew".to_owned()));
            }
            Err(RevealError::TooManyDraws) => {
                return Err(fatal_error(
                    "the other side changes the words again and again",
                ));
            }
        };
        if !send_message(link, &PairingMessage::Reveal(local_nonce)).await {
            return Err(link_lost(link));
        }
        let (name, secret) = (&self.name, &self.ticket.secret);
        match receive_message(link).await {
            Some(PairingMessage::Reveal(inviter))
                if ends.commitment(PairingSide::Inviter, name, &inviter, secret)
                    == *other_commitment =>
            {
                let nonces = WordNonces {
                    inviter,
                    joiner: local_nonce,
                };
                let words = ends.words_with_nonces(name, secret, &nonces);
                let _ended = self
                    .mailbox
                    .send_to_self(PairingMsg::Words(self.number, words));
                Ok(())
            }
            Some(PairingMessage::Refused(reason)) => Err(fatal_error(&reason)),
            Some(
                PairingMessage::Reveal(_)
                | PairingMessage::Heard(_)
                | PairingMessage::Committed(_)
                | PairingMessage::Ask(_)
                | PairingMessage::Part(_)
                | PairingMessage::Taken,
            ) => Err(fatal_error(
                "the other side reveals what it did not commit to",
            )),
            None => Err(link_lost(link)),
        }
    }

    async fn dial(&self) -> Result<PairingLink, AttemptError> {
        let inviter = NodeId::from_key(&self.ticket.inviter);
        let endpoint = self.links.endpoint();
        let closed = || AttemptError::Retry("links to other nodes are not open here".to_owned());
        let endpoint = endpoint.ok_or_else(closed)?;
        let mut last =
            LinkError::Unresolved(inviter.short_id(), "the ticket names no address".to_owned());
        for address in &self.ticket.addresses {
            match endpoint.dial_pairing(inviter, address).await {
                Ok(link) => return Ok(link),
                Err(LinkError::PairingRefused) => return Err(pairing_refused()),
                Err(reason) => last = reason,
            }
        }
        Err(AttemptError::Retry(last.to_string()))
    }

    /// Receives the admission, once a person at the inviter has decided.
    async fn receive_admission(
        &self,
        link: &mut PairingLink,
    ) -> Result<NodeAdmission, AttemptError> {
        let mut bytes = Vec::new();
        loop {
            match receive_message(link).await {
                Some(PairingMessage::Part(WelcomePart { bytes: part, more })) => {
                    bytes.extend(part);
                    if bytes.len() > PARTS_MAX {
                        return Err(fatal_error("the other side sends more than it may"));
                    }
                    if !more {
                        break;
                    }
                }
                Some(PairingMessage::Refused(reason)) => {
                    return Err(AttemptError::Fatal(JoinProgress::Refused(reason)));
                }
                Some(
                    PairingMessage::Ask(_)
                    | PairingMessage::Heard(_)
                    | PairingMessage::Committed(_)
                    | PairingMessage::Reveal(_)
                    | PairingMessage::Taken,
                ) => {
                    return Err(fatal_error("the other side sends what cannot be read"));
                }
                None => {
                    return Err(AttemptError::Retry(
                        "nobody there has decided yet".to_owned(),
                    ));
                }
            }
        }
        let book = WelcomeBundle::decode(&bytes);
        let book = book.map_err(|_| fatal_error("the other side sends what cannot be read"))?;
        let (cluster, inviter) = (
            ClusterId(self.ticket.cluster),
            PublicKey(self.ticket.inviter),
        );
        let admission = NodeAdmission::from_welcome_bundle(book, cluster, inviter);
        admission.ok_or_else(|| {
            fatal_error("the other side lets it into another cluster than the ticket said")
        })
    }
}

fn fatal_error(reason: &str) -> AttemptError {
    AttemptError::Fatal(JoinProgress::Refused(reason.to_owned()))
}

/// Describes why the link ended.
fn link_lost(link: &PairingLink) -> AttemptError {
    if link.is_refused() {
        pairing_refused()
    } else {
        AttemptError::Retry("the link was lost".to_owned())
    }
}

fn pairing_refused() -> AttemptError {
    let reason = "the other side takes no ticket now: this one was used or withdrawn, its time is over, or the kernel there was started again; ask for another one";
    AttemptError::Fatal(JoinProgress::Refused(reason.to_owned()))
}
