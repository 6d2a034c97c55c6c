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
pub struct Digest([u8; 32]);

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        blake3::Hash::from_bytes(digest.0).to_hex().to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = blake3::HexError;

    fn try_from(hex: String) -> Result<Self, Self::Error> {
        blake3::Hash::from_hex(hex).map(|hash| Self(*hash.as_bytes()))
    }
}

impl Digest {
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

/// A change of the roster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A new agent with its first token.
    Added {
        /// Who.
        agent: AgentId,
        /// The hash of its token.
        digest: Digest,
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
        digest: Digest,
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

impl Change {
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

/// One agent of the roster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The hash of its token.
    digest: Digest,
    /// When it was added, in milliseconds since 1970.
    pub added_ms: u64,
    /// When its token was made.
    pub made_ms: u64,
    /// From then on its token is good for nothing.
    pub not_after_ms: Option<u64>,
}

impl Entry {
    /// True from the moment on that the token is good for nothing.
    #[must_use]
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.not_after_ms.is_some_and(|end| end <= now_ms)
    }
}

/// Why a change cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
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
pub enum NotGood {
    /// Nobody's, or no longer anybody's.
    Unknown,
    /// It was good until then, in milliseconds since 1970.
    Expired(AgentId, u64),
}

/// The agents that have a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roster {
    agents: BTreeMap<AgentId, Entry>,
    tokens: HashMap<Digest, AgentId>,
}

impl Roster {
    /// Whose a token is, and until when.
    ///
    /// # Errors
    /// [`NotGood`].
    pub fn judge(&self, digest: Digest, now_ms: u64) -> Result<(&AgentId, &Entry), NotGood> {
        let found = self
            .tokens
            .get(&digest)
            .and_then(|agent| self.agents.get_key_value(agent));
        match found.filter(|(_, entry)| entry.digest.matches(digest)) {
            None => Err(NotGood::Unknown),
            Some((agent, entry)) if entry.is_expired(now_ms) => Err(NotGood::Expired(
                agent.clone(),
                entry.not_after_ms.unwrap_or(now_ms),
            )),
            Some(found) => Ok(found),
        }
    }

    /// One agent.
    #[must_use]
    pub fn get(&self, agent: &AgentId) -> Option<&Entry> {
        self.agents.get(agent)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&AgentId, &Entry)> {
        self.agents.iter()
    }

    /// Says whether a change can be; the roster stays as it is.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn check(&self, change: &Change) -> Result<(), Refused> {
        let known = self.agents.contains_key(change.agent());
        match change {
            Change::Added { agent, .. } if known => Err(Refused::Known(agent.clone())),
            Change::Added { .. } if self.agents.len() >= MAX_AGENTS => Err(Refused::Full),
            Change::Renewed { agent, .. } | Change::Removed { agent, .. } if !known => {
                Err(Refused::Unknown(agent.clone()))
            }
            Change::Added { digest, .. } | Change::Renewed { digest, .. }
                if self.tokens.contains_key(digest) =>
            {
                Err(Refused::Twice)
            }
            Change::Added { .. } | Change::Renewed { .. } | Change::Removed { .. } => Ok(()),
        }
    }

    /// Takes a change over.
    ///
    /// # Errors
    /// [`Refused`]; then nothing has changed.
    pub fn apply(&mut self, change: &Change) -> Result<(), Refused> {
        self.check(change)?;
        let before = self.agents.remove(change.agent());
        if let Some(before) = &before {
            self.tokens.remove(&before.digest);
        }
        match change {
            Change::Removed { .. } => {}
            Change::Added {
                agent,
                digest,
                at_ms,
                not_after_ms,
            }
            | Change::Renewed {
                agent,
                digest,
                at_ms,
                not_after_ms,
            } => {
                let entry = Entry {
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
    pub fn kept(&self) -> Vec<Kept> {
        let kept = |(agent, entry): (&AgentId, &Entry)| Kept {
            agent: agent.clone(),
            entry: entry.clone(),
        };
        self.agents.iter().map(kept).collect()
    }

    /// The roster that was kept so.
    ///
    /// # Errors
    /// The first name or token that stands twice, or one agent too many.
    pub fn of(kept: Vec<Kept>) -> Result<Self, Refused> {
        let mut roster = Self::default();
        for Kept { agent, entry } in kept {
            let (digest, not_after_ms) = (entry.digest, entry.not_after_ms);
            roster.check(&Change::Added {
                agent: agent.clone(),
                digest,
                at_ms: entry.added_ms,
                not_after_ms,
            })?;
            roster.tokens.insert(digest, agent.clone());
            roster.agents.insert(agent, entry);
        }
        Ok(roster)
    }
}

/// An agent as it is kept on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Who.
    pub agent: AgentId,
    /// What is known of it.
    #[serde(flatten)]
    pub entry: Entry,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn alice() -> AgentId {
        AgentId::parse("alice").unwrap()
    }

    fn added(token: &str, not_after_ms: Option<u64>) -> Change {
        Change::Added {
            agent: alice(),
            digest: Digest::of(token),
            at_ms: 5,
            not_after_ms,
        }
    }

    #[test]
    fn a_token_names_its_agent_until_it_is_rotated_or_removed() {
        let mut roster = Roster::default();
        roster.apply(&added("one", None)).unwrap();
        let of = |roster: &Roster, token: &str| {
            roster
                .judge(Digest::of(token), 10)
                .map(|(agent, _)| agent.clone())
        };
        assert_eq!(of(&roster, "one"), Ok(alice()));
        assert_eq!(of(&roster, "two"), Err(NotGood::Unknown));
        let renewed = Change::Renewed {
            agent: alice(),
            digest: Digest::of("two"),
            at_ms: 7,
            not_after_ms: None,
        };
        roster.apply(&renewed).unwrap();
        assert_eq!(of(&roster, "one"), Err(NotGood::Unknown));
        assert_eq!(of(&roster, "two"), Ok(alice()));
        assert_eq!(roster.get(&alice()).unwrap().added_ms, 5);
        roster
            .apply(&Change::Removed {
                agent: alice(),
                at_ms: 9,
            })
            .unwrap();
        assert_eq!(of(&roster, "two"), Err(NotGood::Unknown));
        assert_eq!(roster, Roster::default());
    }

    #[test]
    fn a_token_is_good_before_its_end_only() {
        let mut roster = Roster::default();
        roster.apply(&added("one", Some(100))).unwrap();
        assert!(roster.judge(Digest::of("one"), 99).is_ok());
        assert_eq!(
            roster.judge(Digest::of("one"), 100),
            Err(NotGood::Expired(alice(), 100))
        );
    }

    #[test]
    fn the_roster_has_a_bound() {
        let mut roster = Roster::default();
        let nth = |n: usize| Change::Added {
            agent: AgentId::parse(&format!("a{n}")).unwrap(),
            digest: Digest::of(&n.to_string()),
            at_ms: 1,
            not_after_ms: None,
        };
        for n in 0..MAX_AGENTS {
            roster.apply(&nth(n)).unwrap();
        }
        assert_eq!(roster.apply(&nth(MAX_AGENTS)), Err(Refused::Full));
    }

    proptest! {
        /// Against the plainest thing there could be: a list of pairs.
        #[test]
        fn a_roster_is_a_list_of_names_and_tokens(steps in prop::collection::vec((0..4u8, 0..3u8, 0..6u8), 0..40)) {
            let (mut roster, mut list) = (Roster::default(), Vec::<(AgentId, Digest)>::new());
            for (what, who, token) in steps {
                let agent = AgentId::parse(&format!("a{who}")).unwrap();
                let digest = Digest::of(&token.to_string());
                let known = list.iter().position(|(a, _)| *a == agent);
                let used = list.iter().any(|(_, d)| *d == digest);
                let change = match what {
                    0 => Change::Removed { agent: agent.clone(), at_ms: 1 },
                    1 => Change::Renewed { agent: agent.clone(), digest, at_ms: 1, not_after_ms: None },
                    _ => Change::Added { agent: agent.clone(), digest, at_ms: 1, not_after_ms: None },
                };
                let done = roster.apply(&change).is_ok();
                match (&change, known) {
                    (Change::Removed { .. }, Some(at)) => { prop_assert!(done); list.remove(at); }
                    (Change::Renewed { .. }, Some(at)) if !used => { prop_assert!(done); list[at].1 = digest; }
                    (Change::Added { .. }, None) if !used => { prop_assert!(done); list.push((agent, digest)); }
                    _ => prop_assert!(!done),
                }
                for (agent, digest) in &list {
                    prop_assert_eq!(roster.judge(*digest, 0).map(|found| found.0), Ok(agent));
                }
                prop_assert_eq!(roster.iter().count(), list.len());
                let kept = serde_json::to_string(&roster.kept()).unwrap();
                let again = Roster::of(serde_json::from_str(&kept).unwrap());
                prop_assert_eq!(again.as_ref(), Ok(&roster));
            }
        }
    }
}
