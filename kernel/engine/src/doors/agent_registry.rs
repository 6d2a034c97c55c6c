//! The agents with a token of their own: the agent of a token, and its expiry.
//!
//! Only the hash of a token is stored. It is hashed once, without salt: 256 random bits cannot be guessed, so a slow
//! hash would only make requests slower.

use std::collections::{BTreeMap, HashMap};

use mgp_protocol::ids::AgentId;
use serde::{Deserialize, Serialize};

/// Most agents with a token; more are refused. Far above what one machine's owner adds, and small enough to
/// publish the whole registry at every change.
pub(crate) const MAX_AGENTS: usize = 4096;

/// The prefix of every agent's token, so that people and secret scanners recognise it.
pub const TOKEN_PREFIX: &str = "mgp_";

/// The hash of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TokenDigest([u8; 32]);

impl From<TokenDigest> for String {
    fn from(digest: TokenDigest) -> Self {
        blake3::Hash::from_bytes(digest.0).to_hex().to_string()
    }
}

impl TryFrom<String> for TokenDigest {
    type Error = blake3::HexError;

    fn try_from(hex: String) -> Result<Self, Self::Error> {
        blake3::Hash::from_hex(hex).map(|hash| Self(*hash.as_bytes()))
    }
}

impl TokenDigest {
    /// Hashes a token.
    #[must_use]
    pub fn new(token: &str) -> Self {
        Self(*blake3::hash(token.as_bytes()).as_bytes())
    }

    /// Compares in constant time.
    pub(super) fn matches(self, other: Self) -> bool {
        blake3::Hash::from_bytes(self.0) == blake3::Hash::from_bytes(other.0)
    }
}

/// A change of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentChange {
    /// A new agent with its first token.
    Added {
        /// The agent.
        agent: AgentId,
        /// The hash of its token.
        digest: TokenDigest,
        /// When, in milliseconds since 1970.
        at_ms: u64,
        /// When the token expires.
        not_after_ms: Option<u64>,
    },
    /// A new token in place of the old one.
    Renewed {
        /// The agent.
        agent: AgentId,
        /// The hash of its token.
        digest: TokenDigest,
        /// When, in milliseconds since 1970.
        at_ms: u64,
        /// When the token expires.
        not_after_ms: Option<u64>,
    },
    /// An agent was removed.
    Removed {
        /// The agent.
        agent: AgentId,
        /// When, in milliseconds since 1970.
        at_ms: u64,
    },
}

impl AgentChange {
    /// The agent it concerns.
    #[must_use]
    pub fn agent(&self) -> &AgentId {
        match self {
            Self::Added { agent, .. }
            | Self::Renewed { agent, .. }
            | Self::Removed { agent, .. } => agent,
        }
    }

    /// True if it makes a valid token invalid.
    #[must_use]
    pub fn is_revocation(&self) -> bool {
        !matches!(self, Self::Added { .. })
    }
}

/// One agent of the registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisteredAgent {
    /// The hash of its token.
    digest: TokenDigest,
    /// When it was added, in milliseconds since 1970.
    pub added_ms: u64,
    /// When its token was made.
    pub made_ms: u64,
    /// When its token expires.
    pub not_after_ms: Option<u64>,
}

impl RegisteredAgent {
    /// True once the token has expired.
    #[must_use]
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.not_after_ms.is_some_and(|end| end <= now_ms)
    }
}

/// Why a change is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentChangeError {
    /// An agent of that name exists.
    #[error("{0} is there already; `mgp agents token {0} --rotate` makes a new token for it")]
    AlreadyExists(AgentId),
    /// No agent of that name exists.
    #[error("no agent {0}; `mgp agents list` shows the known ones, `mgp agents add` makes one")]
    Unknown(AgentId),
    /// There are [`MAX_AGENTS`] agents already.
    #[error("there are {MAX_AGENTS} agents already, as many as can be; remove one first")]
    Full,
    /// Two agents with one token, which cannot happen by chance.
    #[error("the token is another agent's")]
    DuplicateToken,
}

/// Why a token is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadAgentToken {
    /// It belongs to no agent, or not any more.
    Unknown,
    /// It expired at this time, in milliseconds since 1970.
    Expired(AgentId, u64),
}

/// The agents that have a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentRegistry {
    agents: BTreeMap<AgentId, RegisteredAgent>,
    tokens: HashMap<TokenDigest, AgentId>,
}

impl AgentRegistry {
    /// The agent of a token, if it is valid.
    ///
    /// # Errors
    /// [`BadAgentToken`].
    pub fn authenticate(
        &self,
        digest: TokenDigest,
        now_ms: u64,
    ) -> Result<(&AgentId, &RegisteredAgent), BadAgentToken> {
        let found = self
            .tokens
            .get(&digest)
            .and_then(|agent| self.agents.get_key_value(agent));
        match found.filter(|(_, entry)| entry.digest.matches(digest)) {
            None => Err(BadAgentToken::Unknown),
            Some((agent, entry)) if entry.is_expired(now_ms) => Err(BadAgentToken::Expired(
                agent.clone(),
                entry.not_after_ms.unwrap_or(now_ms),
            )),
            Some(found) => Ok(found),
        }
    }

    /// One agent.
    #[must_use]
    pub fn get(&self, agent: &AgentId) -> Option<&RegisteredAgent> {
        self.agents.get(agent)
    }

    /// All agents, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&AgentId, &RegisteredAgent)> {
        self.agents.iter()
    }

    /// Checks whether a change is possible, without making it.
    ///
    /// # Errors
    /// [`AgentChangeError`].
    pub fn check(&self, change: &AgentChange) -> Result<(), AgentChangeError> {
        let is_known = self.agents.contains_key(change.agent());
        match change {
            AgentChange::Added { agent, .. } if is_known => {
                Err(AgentChangeError::AlreadyExists(agent.clone()))
            }
            AgentChange::Added { .. } if self.agents.len() >= MAX_AGENTS => {
                Err(AgentChangeError::Full)
            }
            AgentChange::Renewed { agent, .. } | AgentChange::Removed { agent, .. }
                if !is_known =>
            {
                Err(AgentChangeError::Unknown(agent.clone()))
            }
            AgentChange::Added { digest, .. } | AgentChange::Renewed { digest, .. }
                if self.tokens.contains_key(digest) =>
            {
                Err(AgentChangeError::DuplicateToken)
            }
            AgentChange::Added { .. }
            | AgentChange::Renewed { .. }
            | AgentChange::Removed { .. } => Ok(()),
        }
    }

    /// Applies a change.
    ///
    /// # Errors
    /// [`AgentChangeError`]; then nothing has changed.
    pub fn apply(&mut self, change: &AgentChange) -> Result<(), AgentChangeError> {
        self.check(change)?;
        let before = self.agents.remove(change.agent());
        if let Some(before) = &before {
            self.tokens.remove(&before.digest);
        }
        match change {
            AgentChange::Removed { .. } => {}
            AgentChange::Added {
                agent,
                digest,
                at_ms,
                not_after_ms,
            }
            | AgentChange::Renewed {
                agent,
                digest,
                at_ms,
                not_after_ms,
            } => {
                let entry = RegisteredAgent {
                    digest: *digest,
                    added_ms: before.map_or(*at_ms, |before| before.added_ms),
                    made_ms: *at_ms,
                    not_after_ms: *not_after_ms,
                };
                self.agents.insert(agent.clone(), entry);
                self.tokens.insert(*digest, agent.clone());
            }
        }
        Ok(())
    }

    /// The agents, as they are stored.
    #[must_use]
    pub fn to_records(&self) -> Vec<AgentRecord> {
        let kept = |(agent, entry): (&AgentId, &RegisteredAgent)| AgentRecord {
            agent: agent.clone(),
            entry: entry.clone(),
        };
        self.agents.iter().map(kept).collect()
    }

    /// Restores the registry from stored records.
    ///
    /// # Errors
    /// The first duplicate name or token, or one agent too many.
    pub fn from_records(kept: Vec<AgentRecord>) -> Result<Self, AgentChangeError> {
        let mut registry = Self::default();
        for AgentRecord { agent, entry } in kept {
            let (digest, not_after_ms) = (entry.digest, entry.not_after_ms);
            registry.check(&AgentChange::Added {
                agent: agent.clone(),
                digest,
                at_ms: entry.added_ms,
                not_after_ms,
            })?;
            registry.tokens.insert(digest, agent.clone());
            registry.agents.insert(agent, entry);
        }
        Ok(registry)
    }
}

/// An agent as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRecord {
    /// Its id.
    pub(crate) agent: AgentId,
    /// Its entry.
    #[serde(flatten)]
    pub entry: RegisteredAgent,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn alice() -> AgentId {
        AgentId::parse("alice").unwrap()
    }

    fn added(token: &str, not_after_ms: Option<u64>) -> AgentChange {
        AgentChange::Added {
            agent: alice(),
            digest: TokenDigest::new(token),
            at_ms: 5,
            not_after_ms,
        }
    }

    #[test]
    fn a_token_names_its_agent_until_it_is_rotated_or_removed() {
        let mut registry = AgentRegistry::default();
        registry.apply(&added("one", None)).unwrap();
        let of = |registry: &AgentRegistry, token: &str| {
            registry
                .authenticate(TokenDigest::new(token), 10)
                .map(|(agent, _)| agent.clone())
        };
        assert_eq!(of(&registry, "one"), Ok(alice()));
        assert_eq!(of(&registry, "two"), Err(BadAgentToken::Unknown));
        let renewed = AgentChange::Renewed {
            agent: alice(),
            digest: TokenDigest::new("two"),
            at_ms: 7,
            not_after_ms: None,
        };
        registry.apply(&renewed).unwrap();
        assert_eq!(of(&registry, "one"), Err(BadAgentToken::Unknown));
        assert_eq!(of(&registry, "two"), Ok(alice()));
        assert_eq!(registry.get(&alice()).unwrap().added_ms, 5);
        registry
            .apply(&AgentChange::Removed {
                agent: alice(),
                at_ms: 9,
            })
            .unwrap();
        assert_eq!(of(&registry, "two"), Err(BadAgentToken::Unknown));
        assert_eq!(registry, AgentRegistry::default());
    }

    #[test]
    fn a_token_is_valid_until_its_expiry() {
        let mut registry = AgentRegistry::default();
        registry.apply(&added("one", Some(100))).unwrap();
        assert!(registry.authenticate(TokenDigest::new("one"), 99).is_ok());
        assert_eq!(
            registry.authenticate(TokenDigest::new("one"), 100),
            Err(BadAgentToken::Expired(alice(), 100))
        );
    }

    #[test]
    fn the_registry_is_bounded() {
        let mut registry = AgentRegistry::default();
        let nth = |n: usize| AgentChange::Added {
            agent: AgentId::parse(&format!("a{n}")).unwrap(),
            digest: TokenDigest::new(&n.to_string()),
            at_ms: 1,
            not_after_ms: None,
        };
        for n in 0..MAX_AGENTS {
            registry.apply(&nth(n)).unwrap();
        }
        assert_eq!(
            registry.apply(&nth(MAX_AGENTS)),
            Err(AgentChangeError::Full)
        );
    }

    proptest! {
        /// Against a list of pairs.
        #[test]
        fn the_registry_behaves_like_a_simple_model(steps in prop::collection::vec((0..4u8, 0..3u8, 0..6u8), 0..40)) {
            let (mut registry, mut list) = (AgentRegistry::default(), Vec::<(AgentId, TokenDigest)>::new());
            for (what, who, token) in steps {
                let agent = AgentId::parse(&format!("a{who}")).unwrap();
                let digest = TokenDigest::new(&token.to_string());
                let known = list.iter().position(|(a, _)| *a == agent);
                let used = list.iter().any(|(_, d)| *d == digest);
                let change = match what {
                    0 => AgentChange::Removed { agent: agent.clone(), at_ms: 1 },
                    1 => AgentChange::Renewed { agent: agent.clone(), digest, at_ms: 1, not_after_ms: None },
                    _ => AgentChange::Added { agent: agent.clone(), digest, at_ms: 1, not_after_ms: None },
                };
                let done = registry.apply(&change).is_ok();
                match (&change, known) {
                    (AgentChange::Removed { .. }, Some(at)) => { prop_assert!(done); list.remove(at); }
                    (AgentChange::Renewed { .. }, Some(at)) if !used => { prop_assert!(done); list[at].1 = digest; }
                    (AgentChange::Added { .. }, None) if !used => { prop_assert!(done); list.push((agent, digest)); }
                    _ => prop_assert!(!done),
                }
                for (agent, digest) in &list {
                    prop_assert_eq!(registry.authenticate(*digest, 0).map(|found| found.0), Ok(agent));
                }
                prop_assert_eq!(registry.iter().count(), list.len());
                let kept = serde_json::to_string(&registry.to_records()).unwrap();
                let again = AgentRegistry::from_records(serde_json::from_str(&kept).unwrap());
                prop_assert_eq!(again.as_ref(), Ok(&registry));
            }
        }
    }
}
