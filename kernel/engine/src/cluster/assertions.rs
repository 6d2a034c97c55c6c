//! Which agent of the peer calls over a link: what the peer signed, and what of it is believed.
//!
//! One signature for each agent and link, none for a call. The node that owns a server believes an assertion
//! only if the peer itself signed it for this link. It keeps a bounded number of them; one that had to
//! make room is shown again with the next call, so there is no state in which an agent cannot call.

use std::collections::HashMap;
use std::sync::Arc;

use mgp_protocol::federation::assertion::{Assertion, AssertionId, LinkBinding, SignedAssertion};
use mgp_protocol::federation::node_agent::BadNodeAgent;
use mgp_protocol::ids::{AgentId, NodeAgent, NodeId};

use crate::node_key::{NodeKey, PublicKey, Signature};

/// Longest an assertion holds. What ends an agent at home ends its calls there at once; this is how long
/// the other node may go on taking its name.
pub const LONGEST_MS: u64 = 15 * 60 * 1000;

/// How long ours hold: shorter, so that a clock that is a little off does not make them too long.
const OURS_MS: u64 = 10 * 60 * 1000;

/// One of ours is signed anew when less than this is left of it, so that no call meets its end on the way.
const RENEWED_MS: u64 = 60 * 1000;

/// Agents remembered for a link, on either side: one machine seldom has a hundred. The next one takes the
/// place of one that expired, or of the one that called longest ago.
pub const MOST: usize = 256;

/// Longest signed bytes looked at; the longest that are valid have 400.
const LONGEST_BYTES: usize = 1024;

/// The two ends of a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkEnds {
    /// Whose agents call: the node that signs.
    pub home: PublicKey,
    /// Whose servers they call: the node that believes.
    pub owner: NodeId,
    /// What only the two know.
    pub binding: LinkBinding,
}

/// Why an assertion is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotBelieved {
    /// It cannot be read.
    #[error("it cannot be read")]
    Unreadable,
    /// It is signed for another link, by or for another node.
    #[error("it was signed for another link")]
    OtherLink,
    /// The peer's key did not sign it.
    #[error("it was not signed by the node that shows it")]
    Forged,
    /// It is over.
    #[error("it expired")]
    Expired,
    /// It would hold longer than any may.
    #[error("it would hold longer than {} minutes", LONGEST_MS / 60_000)]
    TooLong,
    /// Its id is that of another one on this link.
    #[error("its id is used by another one")]
    Reused,
    /// The call names one id and shows another.
    #[error("it is not the one the call names")]
    OtherId,
    /// It is for nobody who could be an agent.
    #[error("it names no agent: {0}")]
    Agent(#[from] BadNodeAgent),
    /// It is not known, or no longer: it has to be shown.
    #[error("it is not known here")]
    Unknown,
}

#[derive(Debug)]
struct Believed {
    signed: SignedAssertion,
    agent: NodeAgent,
    until_ms: u64,
    used: u64,
}

/// What the peer of one link showed. Ends with the link.
#[derive(Debug)]
pub struct Assertions {
    ends: LinkEnds,
    believed: HashMap<AssertionId, Believed>,
    uses: u64,
}

impl Assertions {
    /// Nothing was shown yet.
    #[must_use]
    pub fn new(ends: LinkEnds) -> Self {
        Self {
            ends,
            believed: HashMap::new(),
            uses: 0,
        }
    }

    /// Who makes a call that names this assertion, and shows it if it has not before. The moment is that
    /// of the peer's wall clock, as it was measured.
    ///
    /// # Errors
    /// [`NotBelieved`]; after `Unknown` the call may come again with the assertion.
    pub fn caller(
        &mut self,
        id: AssertionId,
        shown: Option<&SignedAssertion>,
        now_ms: u64,
    ) -> Result<NodeAgent, NotBelieved> {
        self.uses += 1;
        if let Some(known) = self.believed.get_mut(&id) {
            if shown.is_some_and(|shown| *shown != known.signed) {
                return Err(NotBelieved::Reused);
            }
            if known.until_ms <= now_ms {
                return Err(NotBelieved::Expired);
            }
            known.used = self.uses;
            return Ok(known.agent.clone());
        }
        let shown = shown.ok_or(NotBelieved::Unknown)?;
        let (agent, until_ms) = self.judge(id, shown, now_ms)?;
        if self.believed.len() >= MOST {
            self.make_room(now_ms);
        }
        let believed = Believed {
            signed: shown.clone(),
            agent: agent.clone(),
            until_ms,
            used: self.uses,
        };
        self.believed.insert(id, believed);
        Ok(agent)
    }

    /// The signature is looked at last: whatever can be refused without it is.
    fn judge(
        &self,
        id: AssertionId,
        shown: &SignedAssertion,
        now_ms: u64,
    ) -> Result<(NodeAgent, u64), NotBelieved> {
        let LinkEnds {
            home,
            owner,
            binding,
        } = &self.ends;
        if shown.bytes.len() > LONGEST_BYTES {
            return Err(NotBelieved::Unreadable);
        }
        let read = Assertion::read(&shown.bytes).map_err(|_| NotBelieved::Unreadable)?;
        if read.id != id {
            return Err(NotBelieved::OtherId);
        }
        if (read.home, read.owner, read.binding) != (home.node(), *owner, *binding) {
            return Err(NotBelieved::OtherLink);
        }
        if read.until_ms <= now_ms {
            return Err(NotBelieved::Expired);
        }
        if read.until_ms - now_ms > LONGEST_MS {
            return Err(NotBelieved::TooLong);
        }
        let agent = NodeAgent::told(read.home, &read.agent)?;
        let signature = <[u8; 64]>::try_from(shown.signature.as_slice());
        let signature = signature.map_err(|_| NotBelieved::Forged)?;
        match home.signed(&shown.bytes, &Signature(signature)) {
            true => Ok((agent, read.until_ms)),
            false => Err(NotBelieved::Forged),
        }
    }

    fn make_room(&mut self, now_ms: u64) {
        self.believed.retain(|_, known| known.until_ms > now_ms);
        if self.believed.len() >= MOST {
            let oldest = self.believed.iter().min_by_key(|(_, known)| known.used);
            if let Some(id) = oldest.map(|(id, _)| *id) {
                self.believed.remove(&id);
            }
        }
    }

    /// How many are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.believed.len()
    }

    /// True when none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.believed.is_empty()
    }
}

/// What a call says of its agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallAssertion {
    /// The id to name.
    pub id: AssertionId,
    /// The assertion to show, as long as the owner has not shown that it has it.
    pub signed: Option<Arc<SignedAssertion>>,
}

#[derive(Debug)]
struct Made {
    id: AssertionId,
    signed: Arc<SignedAssertion>,
    until_ms: u64,
    taken: bool,
    used: u64,
}

/// What this node signed for its agents on one link. Ends with the link.
#[derive(Debug)]
pub struct OwnAssertions {
    key: NodeKey,
    owner: NodeId,
    binding: LinkBinding,
    made: HashMap<AgentId, Made>,
    uses: u64,
}

impl OwnAssertions {
    /// Nothing was signed yet.
    #[must_use]
    pub fn new(key: NodeKey, owner: NodeId, binding: LinkBinding) -> Self {
        Self {
            key,
            owner,
            binding,
            made: HashMap::new(),
            uses: 0,
        }
    }

    /// For a call of an agent. `now_ms` is this node's wall clock, `random` 16 bytes of good randomness.
    pub fn of(&mut self, agent: &AgentId, now_ms: u64, random: [u8; 16]) -> CallAssertion {
        self.uses += 1;
        let uses = self.uses;
        let lasts = |made: &Made| {
            let left = made.until_ms.saturating_sub(now_ms);
            // A clock that was put back would make one of ours hold too long.
            (RENEWED_MS..=OURS_MS).contains(&left)
        };
        if let Some(made) = self.made.get_mut(agent).filter(|made| lasts(made)) {
            made.used = uses;
            return CallAssertion {
                id: made.id,
                signed: (!made.taken).then(|| Arc::clone(&made.signed)),
            };
        }
        if self.made.len() >= MOST && !self.made.contains_key(agent) {
            let oldest = self.made.iter().min_by_key(|(_, made)| made.used);
            if let Some(agent) = oldest.map(|(agent, _)| agent.clone()) {
                self.made.remove(&agent);
            }
        }
        let made = self.sign(agent, now_ms.saturating_add(OURS_MS), random);
        let (id, signed) = (made.id, Some(Arc::clone(&made.signed)));
        self.made.insert(agent.clone(), made);
        CallAssertion { id, signed }
    }

    fn sign(&self, agent: &AgentId, until_ms: u64, random: [u8; 16]) -> Made {
        let id = AssertionId(random);
        let assertion = Assertion {
            id,
            agent: agent.as_str().to_owned(),
            home: self.key.public().node(),
            owner: self.owner,
            binding: self.binding,
            until_ms,
        };
        let bytes = assertion.to_sign();
        let signature = self.key.sign(&bytes).0.to_vec();
        Made {
            id,
            signed: Arc::new(SignedAssertion { bytes, signature }),
            until_ms,
            taken: false,
            used: self.uses,
        }
    }

    /// The owner took a call that showed it: from here on its id is enough.
    pub fn taken(&mut self, id: AssertionId) {
        self.mark(id, true);
    }

    /// The owner does not know it, or no longer: it is shown with the next call.
    pub fn forgotten(&mut self, id: AssertionId) {
        self.mark(id, false);
    }

    fn mark(&mut self, id: AssertionId, taken: bool) {
        if let Some(made) = self.made.values_mut().find(|made| made.id == id) {
            made.taken = taken;
        }
    }

    /// The agent is gone: nothing is signed for it any more, unless it comes again.
    pub fn ended(&mut self, agent: &AgentId) {
        self.made.remove(agent);
    }
}

#[cfg(test)]
mod tests;
