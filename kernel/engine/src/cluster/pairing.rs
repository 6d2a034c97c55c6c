//! How a node comes in: tickets, what proves their secrets, and who waits for a person's yes.
//!
//! A ticket is for one node: the first one that proves the secret. It may come again until the ticket ends, so
//! that a link that is lost costs nothing; nobody else may.

mod ticket;

use std::collections::BTreeMap;

use mgp_protocol::federation::assertion::LinkBinding;
use mgp_protocol::federation::hello::{NodeName, ToldRole};
use mgp_protocol::federation::node_id::pairing_words;
use mgp_protocol::federation::pairing::{PairingProof, TicketId};
use mgp_protocol::ids::NodeId;

pub use self::ticket::{BadTicket, PairingSecret, PairingTicket};

/// Tickets at a time: a person hands out a few.
pub const TICKETS: usize = 16;
/// How long a ticket lives when nobody says so.
pub const LIVES_MS: u64 = 15 * 60 * 1000;

/// The two ends of one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairingEnds {
    /// Who made the ticket.
    pub inviter: NodeId,
    /// Who shows it.
    pub joiner: NodeId,
    /// What both ends of the link know, and nobody else.
    pub binding: LinkBinding,
}

impl PairingEnds {
    /// What the joiner shows.
    #[must_use]
    pub fn asking(&self, secret: &PairingSecret) -> PairingProof {
        self.proof(secret, b"mgp pairing asks 1")
    }

    /// What the inviter shows.
    #[must_use]
    pub fn answering(&self, secret: &PairingSecret) -> PairingProof {
        self.proof(secret, b"mgp pairing answers 1")
    }

    /// The words that both sides show, where the joiner wants to be called so.
    #[must_use]
    pub fn words(&self, name: &NodeName, secret: &PairingSecret) -> String {
        pairing_words(&self.inviter, &self.joiner, name, &secret.0)
    }

    fn proof(&self, secret: &PairingSecret, side: &[u8]) -> PairingProof {
        let mut hasher = blake3::Hasher::new_keyed(&secret.0);
        hasher.update(side).update(&self.binding.0);
        hasher.update(&self.inviter.0).update(&self.joiner.0);
        PairingProof(hasher.finalize().into())
    }
}

/// Compares in a time that does not depend on what differs.
#[must_use]
pub fn is_proven(shown: &PairingProof, expected: &PairingProof) -> bool {
    blake3::Hash::from_bytes(shown.0) == blake3::Hash::from_bytes(expected.0)
}

/// What a ticket is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketTerms {
    /// What the node may do.
    pub role: ToldRole,
    /// Who shows it is let in without a person's yes.
    pub approved_before: bool,
    /// When it ends, in milliseconds since 1970.
    pub expires_ms: u64,
}

/// Who asks to be let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairingNode {
    /// The node.
    pub node: NodeId,
    /// Its key.
    pub key: [u8; 32],
    /// What it wants to be called.
    pub name: NodeName,
    /// What it wanted to be called when it asked before.
    pub called_before: Option<NodeName>,
    /// What both sides show. They are of its key and its name: under another name it shows other ones.
    pub words: String,
    /// Since when it waits, in milliseconds since 1970.
    pub since_ms: u64,
}

/// How far a ticket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TicketStage {
    /// Nobody has shown it.
    Open,
    /// A node waits for a person.
    Waiting(PairingNode),
    /// A person said yes, and it is being written down.
    Admitting(PairingNode),
    /// It is written down; the node has yet to take it.
    Admitted(PairingNode),
}

/// A ticket that is out.
#[derive(Clone, Debug)]
pub struct OpenTicket {
    secret: PairingSecret,
    /// What it is good for.
    pub terms: TicketTerms,
    /// How far it is.
    pub stage: TicketStage,
}

/// Why nothing comes of a ticket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairingRefusal {
    /// Not known, used, withdrawn or over: a stranger is not told which.
    #[error("the ticket is not good, or not any more: ask for another one")]
    NoTicket,
    /// The secret was not proven.
    #[error("the ticket's secret was not proven")]
    Unproven,
    /// Another node has shown it already.
    #[error("another node has shown this ticket already: ask for another one")]
    Taken,
    /// There are as many as there may be.
    #[error("{TICKETS} tickets are out already: withdraw one")]
    TooMany,
    /// Nobody waits with it.
    #[error("no node waits with this ticket")]
    NobodyWaits,
    /// The yes is to another question.
    #[error(
        "who waits is not, or no longer, who was looked at: `mgp node tickets` shows who asks now"
    )]
    Changed,
}

/// What a node that asks is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairingHeard {
    /// That this side has the secret, too.
    pub proof: PairingProof,
    /// A person has said yes already, or need not.
    pub approved: bool,
    /// This is the first time that it asks, or that it does under this name.
    pub is_new: bool,
}

/// The tickets that are out.
#[derive(Debug, Default)]
pub struct TicketsOut(BTreeMap<TicketId, OpenTicket>);

impl TicketsOut {
    /// Puts one out.
    ///
    /// # Errors
    /// [`PairingRefusal::TooMany`].
    pub fn put(
        &mut self,
        secret: PairingSecret,
        terms: TicketTerms,
    ) -> Result<TicketId, PairingRefusal> {
        if self.0.len() >= TICKETS {
            return Err(PairingRefusal::TooMany);
        }
        let id = secret.id();
        let stage = TicketStage::Open;
        self.0.insert(
            id,
            OpenTicket {
                secret,
                terms,
                stage,
            },
        );
        Ok(id)
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = (TicketId, &OpenTicket)> {
        self.0.iter().map(|(id, ticket)| (*id, ticket))
    }

    /// True when no ticket is out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes those away whose time is over, and says when the next one's is. One that is being written down
    /// stays until that is done.
    pub fn expire(&mut self, now_ms: u64) -> (Vec<TicketId>, Option<u64>) {
        let over = |ticket: &OpenTicket| {
            let busy = matches!(ticket.stage, TicketStage::Admitting(_));
            ticket.terms.expires_ms <= now_ms && !busy
        };
        let gone = self.0.extract_if(.., |_, ticket| over(ticket));
        let gone = gone.map(|(id, _)| id).collect();
        let next = self.0.values().map(|ticket| ticket.terms.expires_ms);
        (gone, next.min())
    }

    /// A node shows a ticket.
    ///
    /// # Errors
    /// [`PairingRefusal`]. None of them uses the ticket up.
    pub fn asked(
        &mut self,
        id: TicketId,
        shown: &PairingProof,
        binding: LinkBinding,
        inviter: NodeId,
        (key, name): ([u8; 32], NodeName),
        now_ms: u64,
    ) -> Result<PairingHeard, PairingRefusal> {
        let ticket = self.0.get_mut(&id).ok_or(PairingRefusal::NoTicket)?;
        let joiner = NodeId::of_key(&key);
        let ends = PairingEnds {
            inviter,
            joiner,
            binding,
        };
        if !is_proven(shown, &ends.asking(&ticket.secret)) {
            return Err(PairingRefusal::Unproven);
        }
        if ticket.terms.expires_ms <= now_ms {
            return Err(PairingRefusal::NoTicket);
        }
        let proof = ends.answering(&ticket.secret);
        let before = match &ticket.stage {
            TicketStage::Open => None,
            TicketStage::Waiting(other)
            | TicketStage::Admitting(other)
            | TicketStage::Admitted(other) => Some(other),
        };
        if before.is_some_and(|before| before.node != joiner) {
            return Err(PairingRefusal::Taken);
        }
        let renamed = before.filter(|before| before.name != name);
        let called_before = match (renamed, before) {
            (Some(renamed), _) => Some(renamed.name.clone()),
            (None, before) => before.and_then(|before| before.called_before.clone()),
        };
        let is_new = before.is_none() || renamed.is_some();
        let words = ends.words(&name, &ticket.secret);
        let node = PairingNode {
            node: joiner,
            key,
            name,
            called_before,
            words,
            since_ms: now_ms,
        };
        let approved = match &ticket.stage {
            TicketStage::Open | TicketStage::Waiting(_) => {
                ticket.stage = TicketStage::Waiting(node);
                ticket.terms.approved_before
            }
            TicketStage::Admitting(_) | TicketStage::Admitted(_) => true,
        };
        Ok(PairingHeard {
            proof,
            approved,
            is_new,
        })
    }

    /// A person who looked at these words says yes, or the ticket did before: what is to be written down. Of one that
    /// is written down already, `None`.
    ///
    /// # Errors
    /// [`PairingRefusal::NobodyWaits`]; [`PairingRefusal::Changed`] where the words are those of another key or name.
    pub fn approve(
        &mut self,
        id: TicketId,
        looked_at: Option<&str>,
    ) -> Result<Option<PairingNode>, PairingRefusal> {
        let ticket = self.0.get_mut(&id).ok_or(PairingRefusal::NobodyWaits)?;
        let other = |node: &PairingNode| looked_at.is_some_and(|words| words != node.words);
        match &ticket.stage {
            TicketStage::Open => Err(PairingRefusal::NobodyWaits),
            TicketStage::Waiting(node)
            | TicketStage::Admitting(node)
            | TicketStage::Admitted(node)
                if other(node) =>
            {
                Err(PairingRefusal::Changed)
            }
            TicketStage::Admitting(_) | TicketStage::Admitted(_) => Ok(None),
            TicketStage::Waiting(node) => {
                let node = node.clone();
                ticket.stage = TicketStage::Admitting(node.clone());
                Ok(Some(node))
            }
        }
    }

    /// It is written down, or cannot be: then the ticket is as if nobody had shown it, and the node may come
    /// again under another name.
    pub fn written(&mut self, id: TicketId, is_admitted: bool) {
        let Some(ticket) = self.0.get_mut(&id) else {
            return;
        };
        if let TicketStage::Admitting(node) = &ticket.stage {
            ticket.stage = match is_admitted {
                true => TicketStage::Admitted(node.clone()),
                false => TicketStage::Open,
            };
        }
    }

    /// The ticket is good for nothing any more: used, refused or withdrawn.
    pub fn end(&mut self, id: TicketId) -> Option<OpenTicket> {
        self.0.remove(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INVITER: NodeId = NodeId([1; 32]);
    const TERMS: TicketTerms = TicketTerms {
        role: ToldRole::Member,
        approved_before: false,
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
                joiner: NodeId::of_key(&self.key),
                binding: self.binding,
            };
            ends.asking(&self.secret)
        }

        fn ask(
            &self,
            tickets: &mut TicketsOut,
            now_ms: u64,
        ) -> Result<PairingHeard, PairingRefusal> {
            self.ask_as("nas", tickets, now_ms)
        }

        fn ask_as(
            &self,
            name: &str,
            tickets: &mut TicketsOut,
            now_ms: u64,
        ) -> Result<PairingHeard, PairingRefusal> {
            let name = NodeName::parse(name).unwrap();
            let (id, proof) = (self.secret.id(), self.proof());
            tickets.asked(id, &proof, self.binding, INVITER, (self.key, name), now_ms)
        }
    }

    fn asking(key: u8) -> Asking {
        Asking {
            secret: PairingSecret([7; 32]),
            key: [key; 32],
            binding: LinkBinding([5; 32]),
        }
    }

    fn out(terms: TicketTerms) -> (TicketsOut, TicketId) {
        let mut tickets = TicketsOut::default();
        let id = tickets.put(PairingSecret([7; 32]), terms).unwrap();
        (tickets, id)
    }

    /// FED-016: a ticket is for one node, once.
    #[test]
    fn the_first_node_that_proves_the_secret_has_the_ticket() {
        let (mut tickets, id) = out(TERMS);
        let first = asking(2).ask(&mut tickets, 1).unwrap();
        assert!(first.is_new && !first.approved);
        let again = asking(2).ask(&mut tickets, 2).unwrap();
        assert!(!again.is_new);
        assert_eq!(asking(3).ask(&mut tickets, 2), Err(PairingRefusal::Taken));
        assert_eq!(tickets.approve(id, None).unwrap().unwrap().key, [2; 32]);
        assert_eq!(tickets.approve(id, None), Ok(None));
        tickets.written(id, true);
        assert!(asking(2).ask(&mut tickets, 3).unwrap().approved);
        tickets.end(id);
        assert_eq!(
            asking(2).ask(&mut tickets, 4),
            Err(PairingRefusal::NoTicket)
        );
    }

    /// what a person looked at is what is let in. A node that asks under another name asks anew.
    #[test]
    fn a_yes_is_to_the_name_and_the_words_that_were_looked_at() {
        let (mut tickets, id) = out(TERMS);
        let waits = |tickets: &TicketsOut| match &tickets.all().next().unwrap().1.stage {
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
        assert_eq!(nas.called_before, Some(desk.name.clone()));
        assert!(!asking(2).ask_as("nas", &mut tickets, 3).unwrap().is_new);
        assert_eq!(
            waits(&tickets).called_before,
            Some(desk.name),
            "it is remembered"
        );
        let changed = Err(PairingRefusal::Changed);
        assert_eq!(tickets.approve(id, Some(&desk.words)), changed);
        let approved = tickets.approve(id, Some(&nas.words)).unwrap().unwrap();
        assert_eq!(approved.name, nas.name);
        assert_eq!(tickets.approve(id, Some(&desk.words)), changed);
        assert_eq!(tickets.approve(id, Some(&nas.words)), Ok(None));
    }

    /// A proof is worth nothing over another link, for another key or with another secret.
    #[test]
    fn what_was_shown_on_one_link_proves_nothing_on_another() {
        let (mut tickets, id) = out(TERMS);
        let good = asking(2);
        let shown = good.proof();
        let name = || NodeName::parse("nas").unwrap();
        let unproven = Err(PairingRefusal::Unproven);
        let other = LinkBinding([6; 32]);
        let elsewhere = tickets.asked(id, &shown, other, INVITER, (good.key, name()), 1);
        assert_eq!(elsewhere, unproven);
        let stolen = tickets.asked(id, &shown, good.binding, INVITER, ([3; 32], name()), 1);
        assert_eq!(stolen, unproven);
        let ends = PairingEnds {
            inviter: INVITER,
            joiner: NodeId::of_key(&good.key),
            binding: good.binding,
        };
        let mirrored = ends.answering(&good.secret);
        let mirrored = tickets.asked(id, &mirrored, good.binding, INVITER, (good.key, name()), 1);
        assert_eq!(mirrored, unproven);
        let guessed = ends.asking(&PairingSecret([8; 32]));
        let guessed = tickets.asked(id, &guessed, good.binding, INVITER, (good.key, name()), 1);
        assert_eq!(guessed, unproven);
        assert!(good.ask(&mut tickets, 1).is_ok(), "none of them used it up");
    }

    /// FED-016.
    #[test]
    fn a_ticket_ends_with_its_time_and_there_are_not_many() {
        let (mut tickets, id) = out(TERMS);
        assert_eq!(
            asking(2).ask(&mut tickets, 1000),
            Err(PairingRefusal::NoTicket)
        );
        assert_eq!(tickets.expire(999), (vec![], Some(1000)));
        assert_eq!(tickets.expire(1000), (vec![id], None));
        for n in 0..TICKETS {
            let secret = PairingSecret([u8::try_from(n).unwrap(); 32]);
            tickets.put(secret, TERMS).unwrap();
        }
        let beyond = tickets.put(PairingSecret([99; 32]), TERMS);
        assert_eq!(beyond, Err(PairingRefusal::TooMany));
    }

    /// A name that is taken is told, and the node may come again under another one.
    #[test]
    fn what_cannot_be_written_down_uses_no_ticket_up() {
        let (mut tickets, id) = out(TERMS);
        asking(2).ask(&mut tickets, 1).unwrap();
        tickets.approve(id, None).unwrap();
        assert_eq!(
            tickets.expire(2000),
            (vec![], Some(1000)),
            "it is being written"
        );
        tickets.written(id, false);
        assert!(asking(2).ask(&mut tickets, 1).unwrap().is_new);
    }

    /// FED-018.
    #[test]
    fn a_ticket_that_was_approved_before_needs_no_person() {
        let approved_before = true;
        let (mut tickets, _) = out(TicketTerms {
            approved_before,
            ..TERMS
        });
        assert!(asking(2).ask(&mut tickets, 1).unwrap().approved);
    }
}
