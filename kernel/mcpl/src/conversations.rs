//! Maps ids of inferences and conversations between servers and agents (MCPL-155).
//!
//! Each side reads its own id for what another side made: two agents' `conv_1` never collide, a server cannot tell
//! whether it and another one serve the same conversation, and no id can be guessed. The id is a keyed hash of its
//! maker, its reader and its kind, so that it survives a restart. Only the reverse mapping needs a table.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use mgp_protocol::ids::{AgentId, ConnectionId, ServerId};

/// Ids remembered of one side. The oldest is evicted; from then on it names a conversation of that side alone.
pub(crate) const IDS_MAX: usize = 1024;
/// Sides with remembered ids. Ids of a further side cannot be mapped back.
pub(crate) const SIDES_MAX: usize = 1024;

/// Bytes of the hash in an id.
const HASH_BYTES: usize = 16;

/// The maker or reader of an id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// A server; each instance is a side of its own.
    Server(ServerId),
    /// An agent, with the connection where several clients share one agent, as all local ones do.
    Agent(AgentId, Option<ConnectionId>),
    /// The kernel, for the inferences that it runs itself.
    Kernel,
}

impl Side {
    /// An agent over one of its connections. Clients without an identity of their own share nothing.
    #[must_use]
    pub fn agent(agent: &AgentId, connection: ConnectionId) -> Self {
        let nobody = [AgentId::LOCAL, AgentId::ANONYMOUS].contains(&agent.as_str());
        // The operator is no agent, and may be many clients, too.
        let is_own = agent.as_str().starts_with(AgentId::PREFIX) && !nobody;
        Self::Agent(agent.clone(), (!is_own).then_some(connection))
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

/// The kind of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IdKind {
    /// One inference.
    Inference,
    /// Several inferences.
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

/// The ids that each side received, with their origins.
pub struct ForeignIds {
    key: [u8; 32],
    issued: BTreeMap<Side, IssuedIds>,
}

#[derive(Default)]
struct IssuedIds {
    targets: BTreeMap<(IdKind, String), (Side, String)>,
    /// In the order of first use.
    order: VecDeque<(IdKind, String)>,
}

/// Omits the key, which would make ids traceable.
impl fmt::Debug for ForeignIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let issued = self.issued.values().map(|issued| issued.order.len());
        f.debug_struct("ForeignIds")
            .field("sides", &self.issued.len())
            .field("ids", &issued.sum::<usize>())
            .finish_non_exhaustive()
    }
}

impl ForeignIds {
    /// The key must be known to this node only.
    #[must_use]
    pub fn new(key: [u8; 32]) -> Self {
        Self {
            key,
            issued: BTreeMap::new(),
        }
    }

    /// The id that `to` reads for an id of `from`: its own id if `from` received it from `to`, else one that only `to`
    /// ever reads.
    pub fn map_id(&mut self, from: &Side, to: &Side, kind: IdKind, id: &str) -> String {
        let key = (kind, id.to_owned());
        let known = self
            .issued
            .get(from)
            .and_then(|issued| issued.targets.get(&key));
        match known {
            Some((owner, owners_id)) if owner == to => owners_id.clone(),
            // An id of a third side counts as the sender's own: no chain leads back to its maker.
            Some(_) | None => {
                let issued = self.derive_id(from, to, kind, id);
                self.remember(to, (kind, issued.clone()), (from.clone(), id.to_owned()));
                issued
            }
        }
    }

    /// Forgets the ids of a side that is gone.
    pub fn forget(&mut self, side: &Side) {
        self.issued.remove(side);
    }

    fn derive_id(&self, from: &Side, to: &Side, kind: IdKind, id: &str) -> String {
        let mut hash = blake3::Hasher::new_keyed(&self.key);
        // Length-prefixed parts: no two lists hash alike.
        for part in [kind.prefix(), &from.to_string(), &to.to_string(), id] {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        let digits = hash.finalize().to_hex();
        [kind.prefix(), &digits[..2 * HASH_BYTES]].concat()
    }

    fn remember(&mut self, side: &Side, key: (IdKind, String), origin: (Side, String)) {
        if !self.issued.contains_key(side) && self.issued.len() >= SIDES_MAX {
            return;
        }
        let issued = self.issued.entry(side.clone()).or_default();
        if issued.targets.insert(key.clone(), origin).is_none() {
            issued.order.push_back(key);
        }
        if issued.order.len() > IDS_MAX
            && let Some(oldest) = issued.order.pop_front()
        {
            issued.targets.remove(&oldest);
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

    /// MCPL-155: two agents' `conv_1` never collide, and each maps back to itself.
    #[test]
    fn one_name_of_two_agents_is_two_ids_and_each_finds_home() {
        let mut ids = ForeignIds::new([7; 32]);
        let (alice, bob, memory, notes) = (
            agent("agent.a"),
            agent("agent.b"),
            server("memory"),
            server("notes"),
        );
        let alices_id = ids.map_id(&alice, &memory, CONVERSATION, "conv_1");
        let bobs_id = ids.map_id(&bob, &memory, CONVERSATION, "conv_1");
        assert_ne!(alices_id, bobs_id);
        assert_eq!(
            alices_id,
            ids.map_id(&alice, &memory, CONVERSATION, "conv_1")
        );
        assert_ne!(
            alices_id,
            ids.map_id(&alice, &notes, CONVERSATION, "conv_1")
        );
        assert_eq!(
            ids.map_id(&memory, &alice, CONVERSATION, &alices_id),
            "conv_1"
        );
        assert_eq!(ids.map_id(&memory, &bob, CONVERSATION, &bobs_id), "conv_1");
        // Another agent's id maps to nothing known.
        let strange = ids.map_id(&memory, &bob, CONVERSATION, &alices_id);
        assert!(strange != "conv_1" && strange != alices_id && strange.starts_with("conv_"));
        // Nor does another server's.
        let strange = ids.map_id(&notes, &alice, CONVERSATION, &alices_id);
        assert_ne!(strange, "conv_1");
        // The kind is part of the id.
        let inference = ids.map_id(&alice, &memory, IdKind::Inference, "conv_1");
        assert!(inference.starts_with("inf_") && inference[4..] != alices_id[5..]);
    }

    #[test]
    fn a_conversation_of_a_server_comes_back_to_it() {
        let mut ids = ForeignIds::new([7; 32]);
        let (alice, memory, notes) = (agent("agent.a"), server("memory"), server("notes"));
        let issued = ids.map_id(&memory, &alice, CONVERSATION, "nightly");
        assert_eq!(
            ids.map_id(&alice, &memory, CONVERSATION, &issued),
            "nightly"
        );
        assert_ne!(ids.map_id(&alice, &notes, CONVERSATION, &issued), "nightly");
    }

    /// MCPL-155: ids cannot be forged without the key, and a restart changes none.
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

    /// At the bound the oldest id of the same side is evicted.
    #[test]
    fn what_is_remembered_is_bounded() {
        let mut ids = ForeignIds::new([7; 32]);
        let (memory, notes) = (server("memory"), server("notes"));
        let remembered = ids.map_id(&agent("agent.a"), &notes, CONVERSATION, "mine");
        let first = ids.map_id(&agent("agent.a"), &memory, CONVERSATION, "first");
        for n in 0..IDS_MAX {
            ids.map_id(&agent("agent.b"), &memory, CONVERSATION, &n.to_string());
        }
        assert_ne!(
            ids.map_id(&memory, &agent("agent.a"), CONVERSATION, &first),
            "first"
        );
        assert_eq!(
            ids.map_id(&notes, &agent("agent.a"), CONVERSATION, &remembered),
            "mine"
        );
        for n in 0..2 * SIDES_MAX {
            ids.map_id(&memory, &agent(&format!("agent.{n}")), CONVERSATION, "x");
        }
        assert!(ids.issued.len() <= SIDES_MAX);
        ids.forget(&notes);
        assert_ne!(
            ids.map_id(&notes, &agent("agent.a"), CONVERSATION, &remembered),
            "mine"
        );
    }
}
