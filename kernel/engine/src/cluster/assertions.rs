//! Assertions of which agent calls over a link: signed by the peer, verified here.
//!
//! There is one signature for each agent and link, none for a call. The node that owns a server accepts an assertion
//! only if the peer itself signed it for this link. It stores a bounded number of them; an evicted one is sent again
//! with the next call, so no state can lock an agent out.

use std::collections::HashMap;
use std::sync::Arc;

use mgp_protocol::federation::assertion::{Assertion, AssertionId, LinkBinding, SignedAssertion};
use mgp_protocol::federation::reported_agent::BadNodeAgent;
use mgp_protocol::ids::{AgentId, NodeAgent, NodeId};

use crate::node_key::{NodeKey, PublicKey, Signature};

/// Longest lifetime of an assertion. Revoking an agent at its home node ends its calls there at once; this bounds how
/// long the other node may still accept its name.
pub(crate) const LIFETIME_MAX_MS: u64 = 15 * 60 * 1000;

/// Lifetime of assertions issued here: shorter, to tolerate a small clock offset.
const ISSUED_LIFETIME_MS: u64 = 10 * 60 * 1000;

/// An assertion issued here is renewed when less than this is left, so that no call arrives after its expiry.
const RENEW_BEFORE_MS: u64 = 60 * 1000;

/// Agents stored for a link, on either side: one machine seldom has a hundred. The next one replaces an expired one,
/// or the least recently used.
pub(crate) const ASSERTIONS_MAX: usize = 256;

/// Longest signed bytes that are examined; the longest valid ones have 400.
const ASSERTION_BYTES_MAX: usize = 1024;

/// The two ends of a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkEnds {
    /// The node whose agents call: it signs.
    pub home: PublicKey,
    /// The node whose servers are called: it verifies.
    pub owner: NodeId,
    /// A secret that only these two nodes share.
    pub binding: LinkBinding,
}

/// Why an assertion is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssertionError {
    /// It cannot be parsed.
    #[error("it cannot be read")]
    Unreadable,
    /// It is signed for another link, by or for another node.
    #[error("it was signed for another link")]
    LinkMismatch,
    /// The peer's key did not sign it.
    #[error("it was not signed by the node that shows it")]
    BadSignature,
    /// It has expired.
    #[error("it expired")]
    Expired,
    /// Its lifetime is longer than allowed.
    #[error("it would hold longer than {} minutes", LIFETIME_MAX_MS / 60_000)]
    LifetimeTooLong,
    /// Its id belongs to another assertion on this link.
    #[error("its id is used by another one")]
    Reused,
    /// The call names another id than that of the assertion it carries.
    #[error("it is not the one the call names")]
    IdMismatch,
    /// Its subject cannot be an agent.
    #[error("it names no agent: {0}")]
    Agent(#[from] BadNodeAgent),
    /// It is unknown, or evicted: it must be sent again.
    #[error("it is not known here")]
    Unknown,
}

#[derive(Debug)]
struct VerifiedAssertion {
    signed: SignedAssertion,
    agent: NodeAgent,
    expires_ms: u64,
    last_used: u64,
}

/// The assertions received from the peer of one link. Ends with the link.
#[derive(Debug)]
pub struct AssertionVerifier {
    ends: LinkEnds,
    verified: HashMap<AssertionId, VerifiedAssertion>,
    use_count: u64,
}

impl AssertionVerifier {
    /// A verifier without assertions.
    #[must_use]
    pub fn new(ends: LinkEnds) -> Self {
        Self {
            ends,
            verified: HashMap::new(),
            use_count: 0,
        }
    }

    /// Authenticates the agent of a call that names this assertion and carries it if it was not sent before. `now` is
    /// the peer's wall clock, as measured.
    ///
    /// # Errors
    /// [`AssertionError`]; after `Unknown` the call may be retried with the assertion.
    pub fn authenticate(
        &mut self,
        id: AssertionId,
        presented: Option<&SignedAssertion>,
        now_ms: u64,
    ) -> Result<NodeAgent, AssertionError> {
        self.use_count += 1;
        if let Some(stored) = self.verified.get_mut(&id) {
            if presented.is_some_and(|presented| *presented != stored.signed) {
                return Err(AssertionError::Reused);
            }
            if stored.expires_ms <= now_ms {
                return Err(AssertionError::Expired);
            }
            stored.last_used = self.use_count;
            return Ok(stored.agent.clone());
        }
        let presented = presented.ok_or(AssertionError::Unknown)?;
        let (agent, until_ms) = self.verify(id, presented, now_ms)?;
        if self.verified.len() >= ASSERTIONS_MAX {
            self.evict_one(now_ms);
        }
        let stored = VerifiedAssertion {
            signed: presented.clone(),
            agent: agent.clone(),
            expires_ms: until_ms,
            last_used: self.use_count,
        };
        self.verified.insert(id, stored);
        Ok(agent)
    }

    /// The signature is verified last, after all cheaper checks.
    fn verify(
        &self,
        id: AssertionId,
        presented: &SignedAssertion,
        now_ms: u64,
    ) -> Result<(NodeAgent, u64), AssertionError> {
        let LinkEnds {
            home,
            owner,
            binding,
        } = &self.ends;
        if presented.bytes.len() > ASSERTION_BYTES_MAX {
            return Err(AssertionError::Unreadable);
        }
        let assertion =
            Assertion::decode(&presented.bytes).map_err(|_| AssertionError::Unreadable)?;
        if assertion.id != id {
            return Err(AssertionError::IdMismatch);
        }
        if (assertion.home, assertion.owner, assertion.binding)
            != (home.node_id(), *owner, *binding)
        {
            return Err(AssertionError::LinkMismatch);
        }
        if assertion.until_ms <= now_ms {
            return Err(AssertionError::Expired);
        }
        if assertion.until_ms - now_ms > LIFETIME_MAX_MS {
            return Err(AssertionError::LifetimeTooLong);
        }
        let agent = NodeAgent::from_reported(assertion.home, &assertion.agent)?;
        let signature = <[u8; 64]>::try_from(presented.signature.as_slice());
        let signature = signature.map_err(|_| AssertionError::BadSignature)?;
        if home.verify(&presented.bytes, &Signature(signature)) {
            Ok((agent, assertion.until_ms))
        } else {
            Err(AssertionError::BadSignature)
        }
    }

    fn evict_one(&mut self, now_ms: u64) {
        self.verified.retain(|_, stored| stored.expires_ms > now_ms);
        if self.verified.len() >= ASSERTIONS_MAX {
            let oldest = self
                .verified
                .iter()
                .min_by_key(|(_, stored)| stored.last_used);
            if let Some(id) = oldest.map(|(id, _)| *id) {
                self.verified.remove(&id);
            }
        }
    }

    /// The number of stored assertions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.verified.len()
    }

    /// True when none is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.verified.is_empty()
    }
}

/// What a call carries about its agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallAssertion {
    /// The id of the assertion.
    pub id: AssertionId,
    /// The assertion itself, until the owner has accepted it.
    pub signed: Option<Arc<SignedAssertion>>,
}

#[derive(Debug)]
struct IssuedAssertion {
    id: AssertionId,
    signed: Arc<SignedAssertion>,
    expires_ms: u64,
    is_accepted: bool,
    last_used: u64,
}

/// The assertions this node issued for its agents on one link. Ends with the link.
#[derive(Debug)]
pub struct AssertionIssuer {
    key: NodeKey,
    owner: NodeId,
    binding: LinkBinding,
    issued: HashMap<AgentId, IssuedAssertion>,
    use_count: u64,
}

impl AssertionIssuer {
    /// An issuer without assertions.
    #[must_use]
    pub fn new(key: NodeKey, owner: NodeId, binding: LinkBinding) -> Self {
        Self {
            key,
            owner,
            binding,
            issued: HashMap::new(),
            use_count: 0,
        }
    }

    /// The assertion for a call of an agent. `now_ms` is this node's wall clock, `random` 16 bytes of good
    /// randomness.
    pub fn assertion_for(
        &mut self,
        agent: &AgentId,
        now_ms: u64,
        random: [u8; 16],
    ) -> CallAssertion {
        self.use_count += 1;
        let uses = self.use_count;
        let is_fresh = |issued: &IssuedAssertion| {
            let left = issued.expires_ms.saturating_sub(now_ms);
            // After the clock was set back, an existing assertion would be valid for too long.
            (RENEW_BEFORE_MS..=ISSUED_LIFETIME_MS).contains(&left)
        };
        if let Some(issued) = self.issued.get_mut(agent).filter(|issued| is_fresh(issued)) {
            issued.last_used = uses;
            return CallAssertion {
                id: issued.id,
                signed: (!issued.is_accepted).then(|| Arc::clone(&issued.signed)),
            };
        }
        if self.issued.len() >= ASSERTIONS_MAX && !self.issued.contains_key(agent) {
            let oldest = self
                .issued
                .iter()
                .min_by_key(|(_, issued)| issued.last_used);
            if let Some(agent) = oldest.map(|(agent, _)| agent.clone()) {
                self.issued.remove(&agent);
            }
        }
        let issued = self.sign(agent, now_ms.saturating_add(ISSUED_LIFETIME_MS), random);
        let (id, signed) = (issued.id, Some(Arc::clone(&issued.signed)));
        self.issued.insert(agent.clone(), issued);
        CallAssertion { id, signed }
    }

    fn sign(&self, agent: &AgentId, until_ms: u64, random: [u8; 16]) -> IssuedAssertion {
        let id = AssertionId(random);
        let assertion = Assertion {
            id,
            agent: agent.as_str().to_owned(),
            home: self.key.public_key().node_id(),
            owner: self.owner,
            binding: self.binding,
            until_ms,
        };
        let bytes = assertion.to_signing_bytes();
        let signature = self.key.sign(&bytes).0.to_vec();
        IssuedAssertion {
            id,
            signed: Arc::new(SignedAssertion { bytes, signature }),
            expires_ms: until_ms,
            is_accepted: false,
            last_used: self.use_count,
        }
    }

    /// The owner accepted a call that carried it: from now on its id is enough.
    pub fn mark_accepted(&mut self, id: AssertionId) {
        self.set_accepted(id, true);
    }

    /// The owner does not know it, or not any more: it is sent again with the next call.
    pub fn mark_unknown(&mut self, id: AssertionId) {
        self.set_accepted(id, false);
    }

    fn set_accepted(&mut self, id: AssertionId, is_accepted: bool) {
        if let Some(issued) = self.issued.values_mut().find(|issued| issued.id == id) {
            issued.is_accepted = is_accepted;
        }
    }

    /// Removes an agent: nothing is signed for it unless it returns.
    #[cfg(test)]
    pub(crate) fn remove_agent(&mut self, agent: &AgentId) {
        self.issued.remove(agent);
    }
}

#[cfg(test)]
mod tests;
