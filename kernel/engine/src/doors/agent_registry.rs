//! The agents that have a token of their own: whose a token is, and until when.
//!
//! Of a token only the hash is known. It is hashed once and without salt: 256 random bits cannot be
//! guessed, so a slow hash would only cost each request.

use std::collections::{BTreeMap, HashMap};

use mgp_protocol::ids::AgentId;
use serde::{Deserialize, Serialize};

/// Agents with a token; one more is refused. Far above what one machine's owner hands out, and small
/// enough to be published whole at every change.
pub const MAX_AGENTS: usize = 4096;

/// What every token of an agent begins with, so that people and scanners know one when they see it.
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
    /// Of this token.
    #[must_use]
    pub fn of(token: &str) -> Self {
        Self(*blake3::hash(token.as_bytes()).as_bytes())
    }

    /// Compares in a time that does not depend on where the two differ.
    fn matches(self, other: Self) -> bool {
        blake3::Hash::from_bytes(self.0) == blake3::Hash::from_bytes(other.0)
    }
}

/// A change of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentChange {
    /// A new agent with its first token.
    Added {
        /// Who.
        agent: AgentId,
        /// The hash of its token.
        digest: TokenDigest,
        /// When, in milliseconds since 1970.
        at_ms: u64,
        /// From then on the token is good for nothing.
        not_after_ms: Option<u64>,
    },
    /// Another token in place of the one before.
    Renewed {
        /// Whose.
        agent: AgentId,
        /// The hash of its token.
        digest: TokenDigest,
        /// When, in milliseconds since 1970.
        at_ms: u64,
        /// From then on the token is good for nothing.
        not_after_ms: Option<u64>,
    },
    /// An agent is none any more.
    Removed {
        /// Who.
        agent: AgentId,
        /// When, in milliseconds since 1970.
        at_ms: u64,
    },
}

impl AgentChange {
    /// Whom it is about.
    #[must_use]
    pub fn agent(&self) -> &AgentId {
        match self {
            Self::Added { agent, .. }
            | Self::Renewed { agent, .. }
            | Self::Removed { agent, .. } => agent,
        }
    }

    /// True when a token that was good before is not any more.
    #[must_use]
    pub fn ends_a_token(&self) -> bool {
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
    /// From then on its token is good for nothing.
    pub not_after_ms: Option<u64>,
}

impl RegisteredAgent {
    /// True from the moment on that the token is good for nothing.
    #[must_use]
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.not_after_ms.is_some_and(|end| end <= now_ms)
    }
}

/// Why a change cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryRefusal {
    /// There is one of that name.
    #[error("{0} is there already; `mgp agents token {0} --rotate` makes a new token for it")]
    Known(AgentId),
    /// There is none of that name.
    #[error("no agent {0}; `mgp agents list` shows the known ones, `mgp agents add` makes one")]
    Unknown(AgentId),
    /// There are [`MAX_AGENTS`].
    #[error("there are {MAX_AGENTS} agents already, as many as can be; remove one first")]
    Full,
    /// Two agents with one token: chance does not do that.
    #[error("the token is another agent's")]
    Twice,
}

/// Why a token opens nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadAgentToken {
    /// Nobody's, or no longer anybody's.
    Unknown,
    /// It was good until then, in milliseconds since 1970.
    Expired(AgentId, u64),
}

/// The agents that have a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentRegistry {
    agents: BTreeMap<AgentId, RegisteredAgent>,
    tokens: HashMap<TokenDigest, AgentId>,
}

impl AgentRegistry {
    /// Whose a token is, and until when.
    ///
    /// # Errors
    /// [`BadAgentToken`].
    pub fn judge(
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

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&AgentId, &RegisteredAgent)> {
        self.agents.iter()
    }

    /// Says whether a change can be; the registry stays as it is.
    ///
    /// # Errors
    /// [`RegistryRefusal`].
    pub fn check(&self, change: &AgentChange) -> Result<(), RegistryRefusal> {
        let known = self.agents.contains_key(change.agent());
        match change {
            AgentChange::Added { agent, .. } if known => Err(RegistryRefusal::Known(agent.clone())),
            AgentChange::Added { .. } if self.agents.len() >= MAX_AGENTS => {
                Err(RegistryRefusal::Full)
            }
            AgentChange::Renewed { agent, .. } | AgentChange::Removed { agent, .. } if !known => {
                Err(RegistryRefusal::Unknown(agent.clone()))
            }
            AgentChange::Added { digest, .. } | AgentChange::Renewed { digest, .. }
                if self.tokens.contains_key(digest) =>
            {
                Err(RegistryRefusal::Twice)
            }
            AgentChange::Added { .. }
            | AgentChange::Renewed { .. }
            | AgentChange::Removed { .. } => Ok(()),
        }
    }

    /// Takes a change over.
    ///
    /// # Errors
    /// [`RegistryRefusal`]; then nothing has changed.
    pub fn apply(&mut self, change: &AgentChange) -> Result<(), RegistryRefusal> {
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

    /// Who is in it, as it is kept on disk.
    #[must_use]
    pub fn kept(&self) -> Vec<AgentRecord> {
        let kept = |(agent, entry): (&AgentId, &RegisteredAgent)| AgentRecord {
            agent: agent.clone(),
            entry: entry.clone(),
        };
        self.agents.iter().map(kept).collect()
    }

    /// The registry that was kept so.
    ///
    /// # Errors
    /// The first name or token that stands twice, or one agent too many.
    pub fn of(kept: Vec<AgentRecord>) -> Result<Self, RegistryRefusal> {
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

/// An agent as it is kept on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRecord {
    /// Who.
    pub agent: AgentId,
    /// What is known of it.
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
            digest: TokenDigest::of(token),
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
                .judge(TokenDigest::of(token), 10)
                .map(|(agent, _)| agent.clone())
        };
        assert_eq!(of(&registry, "one"), Ok(alice()));
        assert_eq!(of(&registry, "two"), Err(BadAgentToken::Unknown));
        let renewed = AgentChange::Renewed {
            agent: alice(),
            digest: TokenDigest::of("two"),
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
    fn a_token_is_good_before_its_end_only() {
        let mut registry = AgentRegistry::default();
        registry.apply(&added("one", Some(100))).unwrap();
        assert!(registry.judge(TokenDigest::of("one"), 99).is_ok());
        assert_eq!(
            registry.judge(TokenDigest::of("one"), 100),
            Err(BadAgentToken::Expired(alice(), 100))
        );
    }

    #[test]
    fn the_registry_has_a_bound() {
        let mut registry = AgentRegistry::default();
        let nth = |n: usize| AgentChange::Added {
            agent: AgentId::parse(&format!("a{n}")).unwrap(),
            digest: TokenDigest::of(&n.to_string()),
            at_ms: 1,
            not_after_ms: None,
        };
        for n in 0..MAX_AGENTS {
            registry.apply(&nth(n)).unwrap();
        }
        assert_eq!(registry.apply(&nth(MAX_AGENTS)), Err(RegistryRefusal::Full));
    }

    proptest! {
        /// Against the plainest thing there could be: a list of pairs.
        #[test]
        fn a_registry_is_a_list_of_names_and_tokens(steps in prop::collection::vec((0..4u8, 0..3u8, 0..6u8), 0..40)) {
            let (mut registry, mut list) = (AgentRegistry::default(), Vec::<(AgentId, TokenDigest)>::new());
            for (what, who, token) in steps {
                let agent = AgentId::parse(&format!("a{who}")).unwrap();
                let digest = TokenDigest::of(&token.to_string());
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
                    prop_assert_eq!(registry.judge(*digest, 0).map(|found| found.0), Ok(agent));
                }
                prop_assert_eq!(registry.iter().count(), list.len());
                let kept = serde_json::to_string(&registry.kept()).unwrap();
                let again = AgentRegistry::of(serde_json::from_str(&kept).unwrap());
                prop_assert_eq!(again.as_ref(), Ok(&registry));
            }
        }
    }
}
