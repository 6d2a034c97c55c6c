//! How a node joins: tickets, proofs of their secrets, and nodes that wait for a person's approval.
//!
//! A ticket is for one node: the first one that proves the secret. That node may use it again until it expires, so
//! that a lost link does no harm; no other node may.

mod ticket;
mod words;

use std::collections::BTreeMap;

use mgp_protocol::federation::assertion::LinkBinding;
use mgp_protocol::federation::hello::{NodeName, ReportedRole};
use mgp_protocol::federation::node_id::pairing_words;
use mgp_protocol::federation::pairing::{
    PairingCommitted, PairingProof, TicketId, WordCommitment, WordNonce, WordNonces,
};
use mgp_protocol::ids::NodeId;

pub use self::ticket::{BadTicket, PairingSecret, PairingTicket};
pub(crate) use self::words::NONCE_DRAWS_MAX;
pub use self::words::{JoinNonce, PairingSide, RevealError};

/// Open tickets; a person hands out a few.
pub(crate) const TICKETS_MAX: usize = 16;
/// The default lifetime of a ticket.
pub const LIFETIME_MS: u64 = 15 * 60 * 1000;

/// The two ends of one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairingEnds {
    /// The node that issued the ticket.
    pub inviter: NodeId,
    /// The node that presents it.
    pub joiner: NodeId,
    /// A secret that only the two ends of the link share.
    pub binding: LinkBinding,
}

impl PairingEnds {
    /// The proof of the joiner.
    #[must_use]
    pub fn joiner_proof(&self, secret: &PairingSecret) -> PairingProof {
        self.compute_proof(secret, b"mgp pairing asks 1")
    }

    /// The proof of the inviter.
    #[must_use]
    pub fn inviter_proof(&self, secret: &PairingSecret) -> PairingProof {
        self.compute_proof(secret, b"mgp pairing answers 1")
    }

    /// The words that both sides display if one of them does not support nonces; `name` is what the joiner wants to
    /// be called.
    #[must_use]
    pub fn words(&self, name: &NodeName, secret: &PairingSecret) -> String {
        pairing_words(&self.inviter, &self.joiner, name, &secret.0)
    }

    fn compute_proof(&self, secret: &PairingSecret, side: &[u8]) -> PairingProof {
        let mut hasher = blake3::Hasher::new_keyed(&secret.0);
        hasher.update(side).update(&self.binding.0);
        hasher.update(&self.inviter.0).update(&self.joiner.0);
        PairingProof(hasher.finalize().into())
    }
}

/// Compares in constant time.
#[must_use]
pub fn is_valid_proof(presented: &PairingProof, expected: &PairingProof) -> bool {
    blake3::Hash::from_bytes(presented.0) == blake3::Hash::from_bytes(expected.0)
}

/// The terms of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketTerms {
    /// The role of the node.
    pub role: ReportedRole,
    /// The node is admitted without a person's approval.
    pub preapproved: bool,
    /// When it expires, in milliseconds since 1970.
    pub expires_ms: u64,
}

/// A node that asks to be admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairingNode {
    /// The node.
    pub node: NodeId,
    /// Its key.
    pub key: [u8; 32],
    /// The name it asks for.
    pub name: NodeName,
    /// The name it asked for before.
    pub previous_name: Option<NodeName>,
    /// The words both sides display. They are derived from its key and name: another name gives other words.
    pub words: String,
    /// The words were derived without nonces, as older nodes do: the holder of the ticket can search for matching
    /// words.
    pub has_fixed_words: bool,
    /// Since when it waits, in milliseconds since 1970.
    pub waiting_since_ms: u64,
}

/// The stage of a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TicketStage {
    /// Not presented yet.
    Open,
    /// A node waits for approval.
    Waiting(PairingNode),
    /// A person approved, and the admission is being stored.
    Admitting(PairingNode),
    /// The admission is stored; the node has not confirmed it yet.
    Admitted(PairingNode),
}

/// An open ticket.
#[derive(Clone, Debug)]
pub struct OpenTicket {
    secret: PairingSecret,
    /// Its terms.
    pub terms: TicketTerms,
    /// Its stage.
    pub stage: TicketStage,
    /// The last commitment, and the nonce that answers it.
    nonce_exchange: Option<NonceExchange>,
    nonces_drawn: u32,
}

/// A joiner's commitment and this side's nonce, which is revealed for that commitment alone.
#[derive(Clone, Debug)]
struct NonceExchange {
    joiner: NodeId,
    name: NodeName,
    commitment: WordCommitment,
    nonce: WordNonce,
}

/// A node presents a ticket over a link.
#[derive(Clone, Debug)]
pub struct PairingRequest {
    /// Which ticket.
    pub ticket: TicketId,
    /// Proof that the node has its secret.
    pub proof: PairingProof,
    /// The shared secret of the link.
    pub binding: LinkBinding,
    /// This node.
    pub inviter: NodeId,
    /// The node's key, as proven by the link.
    pub key: [u8; 32],
    /// The name it asks for.
    pub name: NodeName,
    /// The commitment to its nonce; `None` for an older node.
    pub commitment: Option<WordCommitment>,
}

/// Why a ticket is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairingRejection {
    /// Unknown, used, withdrawn or expired: an unauthenticated peer does not learn which.
    #[error("the ticket is not good, or not any more: ask for another one")]
    NoTicket,
    /// The secret was not proven.
    #[error("the ticket's secret was not proven")]
    Unproven,
    /// Another node has presented it already.
    #[error("another node has shown this ticket already: ask for another one")]
    UsedByOther,
    /// [`TICKETS_MAX`] tickets are open.
    #[error("{TICKETS_MAX} tickets are out already: withdraw one")]
    TooMany,
    /// A nonce without a commitment, or one that does not match it.
    #[error("the words are not made of what was committed to: join again")]
    CommitmentMismatch,
    /// Too many nonces were drawn, as in a search for matching words.
    #[error("{NONCE_DRAWS_MAX} words were made with this ticket already: ask for another one")]
    TooManyAttempts,
    /// No node waits with it.
    #[error("no node waits with this ticket")]
    NoWaitingNode,
    /// The approval is for another node than the one that waits now.
    #[error(
        "this node does not ask, or asks no longer, under these words: `mgp pending` lists the nodes that ask now"
    )]
    Changed,
}

/// The reply to a node that presents a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairingReply {
    /// Proof that this side has the secret, too.
    pub proof: PairingProof,
    /// The node is approved, or needs no approval.
    pub approved: bool,
    /// This is its first request, or its first one under this name.
    pub is_new: bool,
}

impl OpenTicket {
    /// The node that uses the ticket.
    fn node(&self) -> Option<&PairingNode> {
        match &self.stage {
            TicketStage::Open => None,
            TicketStage::Waiting(node)
            | TicketStage::Admitting(node)
            | TicketStage::Admitted(node) => Some(node),
        }
    }

    /// The nonce that answers this node's commitment under this name, if that is the latest.
    fn nonce_for(&self, request: &PairingRequest, ends: &PairingEnds) -> Option<WordNonce> {
        let last = self.nonce_exchange.as_ref()?;
        let is_same = last.joiner == ends.joiner
            && last.name == request.name
            && Some(last.commitment) == request.commitment;
        is_same.then_some(last.nonce)
    }

    /// Marks the ticket as used by the node, which waits with the words of these nonces.
    fn set_waiting(
        &mut self,
        request: &PairingRequest,
        ends: &PairingEnds,
        nonces: Option<&WordNonces>,
        now_ms: u64,
    ) -> PairingReply {
        let (name, secret) = (&request.name, &self.secret);
        let words = match nonces {
            Some(nonces) => ends.words_with_nonces(name, secret, nonces),
            None => ends.words(name, secret),
        };
        let proof = ends.inviter_proof(&self.secret);
        let before = self.node();
        let renamed_from = before.filter(|before| before.name != request.name);
        let previous_name = match (renamed_from, before) {
            (Some(renamed), _) => Some(renamed.name.clone()),
            (None, before) => before.and_then(|before| before.previous_name.clone()),
        };
        // Another name or nonce gives other words.
        let is_new = before.is_none_or(|before| before.words != words);
        let node = PairingNode {
            node: ends.joiner,
            key: request.key,
            name: request.name.clone(),
            previous_name,
            words,
            has_fixed_words: nonces.is_none(),
            waiting_since_ms: now_ms,
        };
        let approved = match &self.stage {
            TicketStage::Open | TicketStage::Waiting(_) => {
                self.stage = TicketStage::Waiting(node);
                self.terms.preapproved
            }
            TicketStage::Admitting(_) | TicketStage::Admitted(_) => true,
        };
        PairingReply {
            proof,
            approved,
            is_new,
        }
    }
}

/// The open tickets.
#[derive(Debug, Default)]
pub struct OpenTickets(BTreeMap<TicketId, OpenTicket>);

impl OpenTickets {
    /// Adds a ticket.
    ///
    /// # Errors
    /// [`PairingRejection::TooMany`].
    pub fn add(
        &mut self,
        secret: PairingSecret,
        terms: TicketTerms,
    ) -> Result<TicketId, PairingRejection> {
        if self.0.len() >= TICKETS_MAX {
            return Err(PairingRejection::TooMany);
        }
        let id = secret.id();
        let stage = TicketStage::Open;
        self.0.insert(
            id,
            OpenTicket {
                secret,
                terms,
                stage,
                nonce_exchange: None,
                nonces_drawn: 0,
            },
        );
        Ok(id)
    }

    /// All open tickets.
    pub fn iter(&self) -> impl Iterator<Item = (TicketId, &OpenTicket)> {
        self.0.iter().map(|(id, ticket)| (*id, ticket))
    }

    /// True when no ticket is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes expired tickets, and returns them with the time of the next expiry. One whose admission is being
    /// stored stays until that is done.
    pub fn expire(&mut self, now_ms: u64) -> (Vec<TicketId>, Option<u64>) {
        let is_expired = |ticket: &OpenTicket| {
            let is_being_stored = matches!(ticket.stage, TicketStage::Admitting(_));
            ticket.terms.expires_ms <= now_ms && !is_being_stored
        };
        let expired = self.0.extract_if(.., |_, ticket| is_expired(ticket));
        let expired = expired.map(|(id, _)| id).collect();
        let next = self.0.values().map(|ticket| ticket.terms.expires_ms);
        (expired, next.min())
    }

    /// An older node presents a ticket: its words are derived without nonces.
    ///
    /// # Errors
    /// [`PairingRejection`]. None of them uses up the ticket.
    pub fn request_without_nonces(
        &mut self,
        request: &PairingRequest,
        now_ms: u64,
    ) -> Result<PairingReply, PairingRejection> {
        let (ticket, ends) = self.verify_request(request, now_ms)?;
        Ok(ticket.set_waiting(request, &ends, None, now_ms))
    }

    /// A node presents a ticket and commits to its nonce. Returns this side's commitment: to `fresh`, or to the
    /// earlier nonce if the node repeats its commitment.
    ///
    /// # Errors
    /// [`PairingRejection`]. None of them uses up the ticket.
    pub fn commit(
        &mut self,
        request: &PairingRequest,
        fresh: WordNonce,
        now_ms: u64,
    ) -> Result<PairingCommitted, PairingRejection> {
        let commitment = request
            .commitment
            .ok_or(PairingRejection::CommitmentMismatch)?;
        let (ticket, ends) = self.verify_request(request, now_ms)?;
        let nonce = match ticket.nonce_for(request, &ends) {
            Some(nonce) => nonce,
            None if ticket.nonces_drawn >= NONCE_DRAWS_MAX => {
                return Err(PairingRejection::TooManyAttempts);
            }
            None => {
                ticket.nonces_drawn += 1;
                ticket.nonce_exchange = Some(NonceExchange {
                    joiner: ends.joiner,
                    name: request.name.clone(),
                    commitment,
                    nonce: fresh,
                });
                fresh
            }
        };
        let (side, secret) = (PairingSide::Inviter, &ticket.secret);
        Ok(PairingCommitted {
            proof: ends.inviter_proof(secret),
            commitment: ends.commitment(side, &request.name, &nonce, secret),
        })
    }

    /// A node that has committed reveals its nonce and waits from now on. Returns the nonce of this side, too.
    ///
    /// # Errors
    /// [`PairingRejection`]. None of them uses up the ticket.
    pub fn reveal(
        &mut self,
        request: &PairingRequest,
        nonce: &WordNonce,
        now_ms: u64,
    ) -> Result<(PairingReply, WordNonce), PairingRejection> {
        let (ticket, ends) = self.verify_request(request, now_ms)?;
        let local_nonce = ticket.nonce_for(request, &ends);
        let local_nonce = local_nonce.ok_or(PairingRejection::CommitmentMismatch)?;
        let (side, secret) = (PairingSide::Joiner, &ticket.secret);
        let committed = ends.commitment(side, &request.name, nonce, secret);
        if request.commitment != Some(committed) {
            return Err(PairingRejection::CommitmentMismatch);
        }
        let nonces = WordNonces {
            inviter: local_nonce,
            joiner: *nonce,
        };
        let reply = ticket.set_waiting(request, &ends, Some(&nonces), now_ms);
        Ok((reply, local_nonce))
    }

    /// The ticket, if this node may present it.
    fn verify_request(
        &mut self,
        request: &PairingRequest,
        now_ms: u64,
    ) -> Result<(&mut OpenTicket, PairingEnds), PairingRejection> {
        let ticket = self.0.get_mut(&request.ticket);
        let ticket = ticket.ok_or(PairingRejection::NoTicket)?;
        let ends = PairingEnds {
            inviter: request.inviter,
            joiner: NodeId::from_key(&request.key),
            binding: request.binding,
        };
        if !is_valid_proof(&request.proof, &ends.joiner_proof(&ticket.secret)) {
            return Err(PairingRejection::Unproven);
        }
        if ticket.terms.expires_ms <= now_ms {
            return Err(PairingRejection::NoTicket);
        }
        if ticket.node().is_some_and(|node| node.node != ends.joiner) {
            Err(PairingRejection::UsedByOther)
        } else {
            Ok((ticket, ends))
        }
    }

    /// Approves a node, either by a person who compared these words or because the ticket is preapproved. Returns the
    /// node to be stored; `None` if it is stored already.
    ///
    /// # Errors
    /// [`PairingRejection::NoWaitingNode`]; [`PairingRejection::Changed`] where the words belong to another key or
    /// name.
    pub fn approve(
        &mut self,
        id: TicketId,
        displayed_words: Option<&str>,
    ) -> Result<Option<PairingNode>, PairingRejection> {
        let ticket = self.0.get_mut(&id).ok_or(PairingRejection::NoWaitingNode)?;
        let is_changed =
            |node: &PairingNode| displayed_words.is_some_and(|words| words != node.words);
        match &ticket.stage {
            TicketStage::Open => Err(PairingRejection::NoWaitingNode),
            TicketStage::Waiting(node)
            | TicketStage::Admitting(node)
            | TicketStage::Admitted(node)
                if is_changed(node) =>
            {
                Err(PairingRejection::Changed)
            }
            TicketStage::Admitting(_) | TicketStage::Admitted(_) => Ok(None),
            TicketStage::Waiting(node) => {
                let node = node.clone();
                ticket.stage = TicketStage::Admitting(node.clone());
                Ok(Some(node))
            }
        }
    }

    /// The admission was stored or could not be. In the second case the ticket is open again, and the node may return
    /// under another name.
    pub fn finish_admission(&mut self, id: TicketId, is_admitted: bool) {
        let Some(ticket) = self.0.get_mut(&id) else {
            return;
        };
        if let TicketStage::Admitting(node) = &ticket.stage {
            ticket.stage = if is_admitted {
                TicketStage::Admitted(node.clone())
            } else {
                TicketStage::Open
            };
        }
    }

    /// Removes a ticket that was used, rejected or withdrawn.
    pub fn remove(&mut self, id: TicketId) -> Option<OpenTicket> {
        self.0.remove(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INVITER: NodeId = NodeId([1; 32]);
    const TERMS: TicketTerms = TicketTerms {
        role: ReportedRole::Member,
        preapproved: false,
        expires_ms: 1000,
    };

    struct Asking {
        secret: PairingSecret,
        key: [u8; 32],
        binding: LinkBinding,
    }

    impl Asking {
        fn proof(&self) -> PairingProof {
            let ends = PairingEnds {
                inviter: INVITER,
                joiner: NodeId::from_key(&self.key),
                binding: self.binding,
            };
            ends.joiner_proof(&self.secret)
        }

        fn ask(
            &self,
            tickets: &mut OpenTickets,
            now_ms: u64,
        ) -> Result<PairingReply, PairingRejection> {
            self.ask_as("nas", tickets, now_ms)
        }

        fn ask_as(
            &self,
            name: &str,
            tickets: &mut OpenTickets,
            now_ms: u64,
        ) -> Result<PairingReply, PairingRejection> {
            tickets.request_without_nonces(&self.request(name, self.proof()), now_ms)
        }

        fn request(&self, name: &str, proof: PairingProof) -> PairingRequest {
            PairingRequest {
                ticket: self.secret.id(),
                proof,
                binding: self.binding,
                inviter: INVITER,
                key: self.key,
                name: NodeName::parse(name).unwrap(),
                commitment: None,
            }
        }

        /// A request of a node that commits to this nonce.
        fn committing(&self, name: &str, nonce: u8) -> PairingRequest {
            let request = self.request(name, self.proof());
            let ends = PairingEnds {
                inviter: INVITER,
                joiner: NodeId::from_key(&self.key),
                binding: self.binding,
            };
            let nonce = WordNonce([nonce; 32]);
            let side = PairingSide::Joiner;
            let commitment = ends.commitment(side, &request.name, &nonce, &self.secret);
            PairingRequest {
                commitment: Some(commitment),
                ..request
            }
        }
    }

    fn shown_words(tickets: &OpenTickets) -> String {
        let (_, ticket) = tickets.iter().next().unwrap();
        ticket.node().unwrap().words.clone()
    }

    /// Decision 86: a side that knows the other nonce cannot change its own any more.
    #[test]
    fn both_sides_commit_to_nonces_before_either_is_revealed() {
        let (mut tickets, _) = out(TERMS);
        let desk = asking(2);
        let nonce = |n: u8| WordNonce([n; 32]);
        let first = desk.committing("nas", 1);
        let committed = tickets.commit(&first, nonce(11), 1).unwrap();
        let uncommitted = Err(PairingRejection::CommitmentMismatch);
        assert_eq!(tickets.reveal(&first, &nonce(2), 1), uncommitted);
        let other = desk.committing("nas", 2);
        assert_eq!(tickets.reveal(&other, &nonce(2), 1), uncommitted);
        let renamed = PairingRequest {
            name: NodeName::parse("na5").unwrap(),
            ..first.clone()
        };
        assert_eq!(tickets.reveal(&renamed, &nonce(1), 1), uncommitted);
        assert!(tickets.iter().all(|(_, ticket)| ticket.node().is_none()));
        let (reply, inviter_nonce) = tickets.reveal(&first, &nonce(1), 1).unwrap();
        assert!(reply.is_new && inviter_nonce == nonce(11));
        let words = shown_words(&tickets);
        // A link that was lost: the same commitment has the same answer, and the words stay.
        assert_eq!(tickets.commit(&first, nonce(12), 2), Ok(committed.clone()));
        let (reply, inviter_nonce) = tickets.reveal(&first, &nonce(1), 2).unwrap();
        assert!(!reply.is_new && inviter_nonce == nonce(11));
        assert_eq!(shown_words(&tickets), words);
        // Who knows the inviter's nonce and commits anew meets another one.
        let again = tickets.commit(&other, nonce(13), 3).unwrap();
        assert_ne!(again.commitment, committed.commitment);
        let (reply, inviter_nonce) = tickets.reveal(&other, &nonce(2), 3).unwrap();
        assert!(reply.is_new && inviter_nonce == nonce(13));
        assert_ne!(shown_words(&tickets), words);
    }

    #[test]
    fn nonce_draws_of_a_ticket_are_bounded() {
        let (mut tickets, _) = out(TERMS);
        let desk = asking(2);
        for n in 0..u8::try_from(NONCE_DRAWS_MAX).unwrap() {
            let request = desk.committing("nas", n);
            tickets.commit(&request, WordNonce([n; 32]), 1).unwrap();
        }
        let last = desk.committing("nas", 63);
        assert!(tickets.commit(&last, WordNonce([0; 32]), 1).is_ok());
        let beyond = desk.committing("nas", 64);
        let refused = tickets.commit(&beyond, WordNonce([0; 32]), 1);
        assert_eq!(refused, Err(PairingRejection::TooManyAttempts));
    }

    fn asking(key: u8) -> Asking {
        Asking {
            secret: PairingSecret([7; 32]),
            key: [key; 32],
            binding: LinkBinding([5; 32]),
        }
    }

    fn out(terms: TicketTerms) -> (OpenTickets, TicketId) {
        let mut tickets = OpenTickets::default();
        let id = tickets.add(PairingSecret([7; 32]), terms).unwrap();
        (tickets, id)
    }

    /// FED-016: a ticket is for one node, once.
    #[test]
    fn the_first_node_that_proves_the_secret_owns_the_ticket() {
        let (mut tickets, id) = out(TERMS);
        let first = asking(2).ask(&mut tickets, 1).unwrap();
        assert!(first.is_new && !first.approved);
        let again = asking(2).ask(&mut tickets, 2).unwrap();
        assert!(!again.is_new);
        assert_eq!(
            asking(3).ask(&mut tickets, 2),
            Err(PairingRejection::UsedByOther)
        );
        assert_eq!(tickets.approve(id, None).unwrap().unwrap().key, [2; 32]);
        assert_eq!(tickets.approve(id, None), Ok(None));
        tickets.finish_admission(id, true);
        assert!(asking(2).ask(&mut tickets, 3).unwrap().approved);
        tickets.remove(id);
        assert_eq!(
            asking(2).ask(&mut tickets, 4),
            Err(PairingRejection::NoTicket)
        );
    }

    /// what a person looked at is what is let in. A node that asks under another name asks anew.
    #[test]
    fn an_approval_applies_to_the_displayed_name_and_words() {
        let (mut tickets, id) = out(TERMS);
        let waits = |tickets: &OpenTickets| match &tickets.iter().next().unwrap().1.stage {
            TicketStage::Waiting(node) => node.clone(),
            other @ (TicketStage::Open | TicketStage::Admitting(_) | TicketStage::Admitted(_)) => {
                panic!("{other:?}")
            }
        };
        assert!(asking(2).ask_as("desk", &mut tickets, 1).unwrap().is_new);
        let desk = waits(&tickets);
        assert!(asking(2).ask_as("nas", &mut tickets, 2).unwrap().is_new);
        let nas = waits(&tickets);
        assert_ne!(desk.words, nas.words);
        assert_eq!(nas.previous_name, Some(desk.name.clone()));
        assert!(!asking(2).ask_as("nas", &mut tickets, 3).unwrap().is_new);
        assert_eq!(
            waits(&tickets).previous_name,
            Some(desk.name),
            "it is remembered"
        );
        let changed = Err(PairingRejection::Changed);
        assert_eq!(tickets.approve(id, Some(&desk.words)), changed);
        let approved = tickets.approve(id, Some(&nas.words)).unwrap().unwrap();
        assert_eq!(approved.name, nas.name);
        assert_eq!(tickets.approve(id, Some(&desk.words)), changed);
        assert_eq!(tickets.approve(id, Some(&nas.words)), Ok(None));
    }

    /// Nor for another key, or with another secret.
    #[test]
    fn a_proof_is_valid_on_one_link_only() {
        let (mut tickets, _) = out(TERMS);
        let good = asking(2);
        let request = good.request("nas", good.proof());
        let unproven = Err(PairingRejection::Unproven);
        let elsewhere = PairingRequest {
            binding: LinkBinding([6; 32]),
            ..request.clone()
        };
        assert_eq!(tickets.request_without_nonces(&elsewhere, 1), unproven);
        let stolen = PairingRequest {
            key: [3; 32],
            ..request.clone()
        };
        assert_eq!(tickets.request_without_nonces(&stolen, 1), unproven);
        let ends = PairingEnds {
            inviter: INVITER,
            joiner: NodeId::from_key(&good.key),
            binding: good.binding,
        };
        let mirrored = good.request("nas", ends.inviter_proof(&good.secret));
        assert_eq!(tickets.request_without_nonces(&mirrored, 1), unproven);
        let guessed = good.request("nas", ends.joiner_proof(&PairingSecret([8; 32])));
        assert_eq!(tickets.request_without_nonces(&guessed, 1), unproven);
        assert!(good.ask(&mut tickets, 1).is_ok(), "none of them used it up");
    }

    /// FED-016.
    #[test]
    fn tickets_expire_and_are_bounded() {
        let (mut tickets, id) = out(TERMS);
        assert_eq!(
            asking(2).ask(&mut tickets, 1000),
            Err(PairingRejection::NoTicket)
        );
        assert_eq!(tickets.expire(999), (vec![], Some(1000)));
        assert_eq!(tickets.expire(1000), (vec![id], None));
        for n in 0..TICKETS_MAX {
            let secret = PairingSecret([u8::try_from(n).unwrap(); 32]);
            tickets.add(secret, TERMS).unwrap();
        }
        let beyond = tickets.add(PairingSecret([99; 32]), TERMS);
        assert_eq!(beyond, Err(PairingRejection::TooMany));
    }

    /// The node may ask again under another name.
    #[test]
    fn a_failed_admission_does_not_use_up_the_ticket() {
        let (mut tickets, id) = out(TERMS);
        asking(2).ask(&mut tickets, 1).unwrap();
        tickets.approve(id, None).unwrap();
        assert_eq!(
            tickets.expire(2000),
            (vec![], Some(1000)),
            "it is being written"
        );
        tickets.finish_admission(id, false);
        assert!(asking(2).ask(&mut tickets, 1).unwrap().is_new);
    }

    /// FED-018.
    #[test]
    fn a_preapproved_ticket_needs_no_approval() {
        let approved_before = true;
        let (mut tickets, _) = out(TicketTerms {
            preapproved: approved_before,
            ..TERMS
        });
        assert!(asking(2).ask(&mut tickets, 1).unwrap().approved);
    }
}
