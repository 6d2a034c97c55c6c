//! Ids of inferences and conversations, as others are told them (MCPL-155).
//!
//! Each side reads an id of its own for what another side made: two agents' `conv_1` never meet, a server cannot tell
//! whether it and another one serve the same conversation, and no id can be guessed. The id is a keyed hash of who
//! made it, who reads it and what it is, so that it is the same after a restart. Only the way back needs a table.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Write as _};

use mgp_protocol::ids::{AgentId, ConnectionId, ServerId};

/// Ids that one side was given and may say again: the oldest goes, and what it then stands for is a conversation of
/// that side alone.
pub(crate) const IDS_MAX: usize = 1024;
/// Sides that ids are remembered for. A further one reads ids that nobody follows back.
pub(crate) const SIDES_MAX: usize = 1024;

/// Bytes of the hash in an id.
const HASH_BYTES: usize = 16;

/// Who makes or reads an id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// A server; an instance of one stands for itself.
    Server(ServerId),
    /// An agent. The connection is named where several clients are one agent, as all local ones are.
    Agent(AgentId, Option<ConnectionId>),
    /// The kernel, for the inferences that it runs itself.
    Kernel,
}

impl Side {
    /// An agent over one of its connections. Clients that are nobody in particular share nothing.
    #[must_use]
    pub fn agent(agent: &AgentId, connection: ConnectionId) -> Self {
        let nobody = [AgentId::LOCAL, AgentId::ANONYMOUS].contains(&agent.as_str());
        // The operator is none of the agents, and may be many clients, too.
        let own = agent.as_str().starts_with(AgentId::PREFIX) && !nobody;
        Self::Agent(agent.clone(), (!own).then_some(connection))
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(server) => write!(f, "server {server}"),
            Self::Agent(agent, None) => write!(f, "agent {agent}"),
            Self::Agent(agent, Some(connection)) => write!(f, "agent {agent} {connection:?}"),
            Self::Kernel => f.write_str("kernel"),
        }
    }
}

/// What an id names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IdKind {
    /// One inference.
    Inference,
    /// What several belong to.
    Conversation,
}

impl IdKind {
    fn prefix(self) -> &'static str {
        match self {
            Self::Inference => "inf_",
            Self::Conversation => "conv_",
        }
    }
}

/// The ids that each side was told, and what they stand for.
pub struct ForeignIds {
    key: [u8; 32],
    issued: BTreeMap<Side, IssuedIds>,
}

#[derive(Default)]
struct IssuedIds {
    targets: BTreeMap<(IdKind, String), (Side, String)>,
    /// In the order in which they were first told.
    order: VecDeque<(IdKind, String)>,
}

/// The key makes ids that can be followed: it is shown nowhere.
impl fmt::Debug for ForeignIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = self.issued.values().map(|told| told.order.len());
        f.debug_struct("ForeignIds")
            .field("sides", &self.issued.len())
            .field("ids", &told.sum::<usize>())
            .finish_non_exhaustive()
    }
}

impl ForeignIds {
    /// Made with a key that only this node has.
    #[must_use]
    pub fn new(key: [u8; 32]) -> Self {
        Self {
            key,
            issued: BTreeMap::new(),
        }
    }

    /// What `to` reads for an id that `from` says: its own, where `from` was told it, and else one that nobody but
    /// `to` is ever told.
    pub fn map_id(&mut self, from: &Side, to: &Side, kind: IdKind, id: &str) -> String {
        let place = (kind, id.to_owned());
        let known = self
            .issued
            .get(from)
            .and_then(|told| told.targets.get(&place));
        match known {
            Some((owner, own)) if owner == to => own.clone(),
            // What a third one made is one of the teller's to all others: no chain leads back to who made it.
            Some(_) | None => {
                let told = self.derive_id(from, to, kind, id);
                self.remember(to, (kind, told.clone()), (from.clone(), id.to_owned()));
                told
            }
        }
    }

    /// Forgets what a side was told: it is gone.
    pub fn forget(&mut self, side: &Side) {
        self.issued.remove(side);
    }

    fn derive_id(&self, from: &Side, to: &Side, kind: IdKind, id: &str) -> String {
        let mut hash = blake3::Hasher::new_keyed(&self.key);
        // Each part with its length before it: no two lists of parts are one text.
        for part in [kind.prefix(), &from.to_string(), &to.to_string(), id] {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        let mut name = kind.prefix().to_owned();
        for byte in &hash.finalize().as_bytes()[..HASH_BYTES] {
            let _ = write!(name, "{byte:02x}");
        }
        name
    }

    fn remember(&mut self, side: &Side, place: (IdKind, String), stands: (Side, String)) {
        if !self.issued.contains_key(side) && self.issued.len() >= SIDES_MAX {
            return;
        }
        let told = self.issued.entry(side.clone()).or_default();
        if told.targets.insert(place.clone(), stands).is_none() {
            told.order.push_back(place);
        }
        if told.order.len() > IDS_MAX
            && let Some(oldest) = told.order.pop_front()
        {
            told.targets.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(id: &str) -> Side {
        Side::Server(ServerId::new(id))
    }

    fn agent(id: &str) -> Side {
        Side::Agent(AgentId::new(id), None)
    }

    const CONVERSATION: IdKind = IdKind::Conversation;

    /// MCPL-155: two agents' `conv_1` never meet, and each comes back as it was said.
    #[test]
    fn one_name_of_two_agents_is_two_ids_and_each_finds_home() {
        let mut ids = ForeignIds::new([7; 32]);
        let (alice, bob, memory, notes) = (
            agent("agent.a"),
            agent("agent.b"),
            server("memory"),
            server("notes"),
        );
        let of_alice = ids.map_id(&alice, &memory, CONVERSATION, "conv_1");
        let of_bob = ids.map_id(&bob, &memory, CONVERSATION, "conv_1");
        assert_ne!(of_alice, of_bob);
        assert_eq!(
            of_alice,
            ids.map_id(&alice, &memory, CONVERSATION, "conv_1")
        );
        assert_ne!(of_alice, ids.map_id(&alice, &notes, CONVERSATION, "conv_1"));
        assert_eq!(
            ids.map_id(&memory, &alice, CONVERSATION, &of_alice),
            "conv_1"
        );
        assert_eq!(ids.map_id(&memory, &bob, CONVERSATION, &of_bob), "conv_1");
        // What is another agent's is none of its own, and says nothing.
        let strange = ids.map_id(&memory, &bob, CONVERSATION, &of_alice);
        assert!(strange != "conv_1" && strange != of_alice && strange.starts_with("conv_"));
        // Nor does another server's id lead anywhere.
        let strange = ids.map_id(&notes, &alice, CONVERSATION, &of_alice);
        assert_ne!(strange, "conv_1");
        // The kind is part of it.
        let inference = ids.map_id(&alice, &memory, IdKind::Inference, "conv_1");
        assert!(inference.starts_with("inf_") && inference[4..] != of_alice[5..]);
    }

    /// MCPL-155: a server's own conversation comes back to it as its own.
    #[test]
    fn a_conversation_of_a_server_comes_back_to_it() {
        let mut ids = ForeignIds::new([7; 32]);
        let (alice, memory, notes) = (agent("agent.a"), server("memory"), server("notes"));
        let told = ids.map_id(&memory, &alice, CONVERSATION, "nightly");
        assert_eq!(ids.map_id(&alice, &memory, CONVERSATION, &told), "nightly");
        assert_ne!(ids.map_id(&alice, &notes, CONVERSATION, &told), "nightly");
    }

    /// MCPL-155: nobody who does not have the key can name an id, and a restart changes none.
    #[test]
    fn ids_outlast_a_restart_and_depend_on_the_key() {
        let pass = |key: u8| {
            ForeignIds::new([key; 32]).map_id(&agent("agent.a"), &server("m"), CONVERSATION, "c")
        };
        assert_eq!(pass(1), pass(1));
        assert_ne!(pass(1), pass(2));
        assert_eq!(pass(1).len(), "conv_".len() + 2 * HASH_BYTES);
        assert!(!format!("{:?}", ForeignIds::new([0xab; 32])).contains("171"));
    }

    #[test]
    fn clients_that_are_nobody_in_particular_share_no_conversation() {
        let side =
            |agent: &str, connection| Side::agent(&AgentId::new(agent), ConnectionId(connection));
        assert_ne!(side(AgentId::LOCAL, 1), side(AgentId::LOCAL, 2));
        assert_ne!(side(AgentId::ANONYMOUS, 1), side(AgentId::ANONYMOUS, 2));
        assert_ne!(side("operator", 1), side("operator", 2));
        assert_eq!(side("agent.a", 1), side("agent.a", 2));
    }

    /// At the bound the oldest is forgotten, of the same side only.
    #[test]
    fn what_is_remembered_is_bounded() {
        let mut ids = ForeignIds::new([7; 32]);
        let (memory, notes) = (server("memory"), server("notes"));
        let kept = ids.map_id(&agent("agent.a"), &notes, CONVERSATION, "mine");
        let first = ids.map_id(&agent("agent.a"), &memory, CONVERSATION, "first");
        for n in 0..IDS_MAX {
            ids.map_id(&agent("agent.b"), &memory, CONVERSATION, &n.to_string());
        }
        assert_ne!(
            ids.map_id(&memory, &agent("agent.a"), CONVERSATION, &first),
            "first"
        );
        assert_eq!(
            ids.map_id(&notes, &agent("agent.a"), CONVERSATION, &kept),
            "mine"
        );
        for n in 0..2 * SIDES_MAX {
            ids.map_id(&memory, &agent(&format!("agent.{n}")), CONVERSATION, "x");
        }
        assert!(ids.issued.len() <= SIDES_MAX);
        ids.forget(&notes);
        assert_ne!(
            ids.map_id(&notes, &agent("agent.a"), CONVERSATION, &kept),
            "mine"
        );
    }
}
