//! The published table of links, as read by calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use mgp_engine::cluster::assertions::{
    AssertionError, AssertionIssuer, AssertionVerifier, CallAssertion, LinkEnds,
};
use mgp_engine::cluster::clock_offset::{ClockOffsetEstimator, PeerClock};
use mgp_engine::node_key::{NodeKey, PublicKey};
use mgp_protocol::federation::assertion::{AssertionId, SignedAssertion};
use mgp_protocol::federation::hello::{NodeName, WireFeatures};
use mgp_protocol::ids::{AgentId, NodeAgent, NodeId};
use mgp_runtime::randomness;
use mgp_runtime::time::unix_ms;
use mgp_transports::quic::{InboundCall, NodeLink};
use tokio_util::sync::CancellationToken;

use crate::agent_limits::AgentLimits;

/// The links of this node, one for each linked peer.
#[derive(Debug, Default)]
pub struct LinkTable {
    /// By peer.
    pub links: BTreeMap<NodeId, Arc<PeerLink>>,
    /// Peers without a link that were shut down gracefully, and when. Bounded by the members.
    pub shut_down: BTreeMap<NodeId, Instant>,
    /// The nodes that may sign grants according to the local logs, this node included.
    pub admins: BTreeSet<NodeId>,
    /// The name that this node reports on its links.
    pub local_name: Option<NodeName>,
    /// Cancelled when a newer table is published.
    pub replaced: CancellationToken,
}

/// One link, with the state that lives as long as the link.
#[derive(Debug)]
pub struct PeerLink {
    /// The link.
    pub link: NodeLink,
    /// The limits of this node's agents at the peer.
    pub outgoing: Arc<AgentLimits>,
    /// The limits of the peer's agents here.
    pub incoming: Arc<AgentLimits>,
    local_assertions: Mutex<AssertionIssuer>,
    accepted_assertions: Mutex<AssertionVerifier>,
    clock: Mutex<ClockOffsetEstimator>,
}

/// A call from another node. The caller is not authorized yet.
#[derive(Debug)]
pub struct InboundNodeCall {
    /// The link it arrived on.
    pub peer: Arc<PeerLink>,
    /// The call.
    pub call: InboundCall,
}

impl PeerLink {
    /// Creates the state of a new link of the node with this key.
    #[must_use]
    pub fn new(link: NodeLink, key: &NodeKey) -> Arc<Self> {
        let peer_key = PublicKey(link.peer_key());
        let ends = LinkEnds {
            home: peer_key,
            owner: key.node_id(),
            binding: link.binding(),
        };
        let issuer = AssertionIssuer::new(key.clone(), link.peer(), link.binding());
        Arc::new(Self {
            link,
            outgoing: Arc::default(),
            incoming: Arc::default(),
            local_assertions: Mutex::new(issuer),
            accepted_assertions: Mutex::new(AssertionVerifier::new(ends)),
            clock: Mutex::default(),
        })
    }

    /// True if the peer may relay packets.
    pub(super) fn can_relay(&self) -> bool {
        let features = self.link.negotiated().features;
        self.link.relay().is_none() && features.contains(WireFeatures::RELAY)
    }

    /// The assertion about the calling agent that a call of this node carries.
    pub fn assertion_for(&self, agent: &AgentId) -> CallAssertion {
        let mut issuer = self
            .local_assertions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        issuer.assertion_for(agent, unix_ms(), randomness::random_bytes())
    }

    /// Confirms that the peer has accepted the assertion.
    pub fn confirm_assertion(&self, id: AssertionId) {
        let mut issuer = self
            .local_assertions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        issuer.mark_accepted(id);
    }

    /// Forgets an assertion that the peer does not know, or no longer knows.
    pub fn forget_assertion(&self, id: AssertionId) {
        let mut issuer = self
            .local_assertions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        issuer.mark_unknown(id);
    }

    /// Resolves the caller of a peer's call, by the peer's clock.
    ///
    /// # Errors
    /// [`AssertionError`].
    pub fn resolve_caller(
        &self,
        id: AssertionId,
        shown: Option<&SignedAssertion>,
    ) -> Result<NodeAgent, AssertionError> {
        let now_ms = self.peer_clock_ms();
        let mut believed = self
            .accepted_assertions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        believed.authenticate(id, shown, now_ms)
    }

    /// Records a measurement of the peer's clock (see [`ClockOffsetEstimator::measured`]).
    pub(crate) fn record_clock(&self, asked_ms: u64, way_ms: u64, theirs_ms: u64) {
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        clock.add_sample(asked_ms, way_ms, theirs_ms);
    }

    /// The measured state of the peer's clock.
    #[must_use]
    pub(crate) fn clock(&self) -> Option<PeerClock> {
        let clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        clock.estimate()
    }

    /// The peer's wall clock, in milliseconds since 1970; the local clock until it was measured.
    #[must_use]
    pub(crate) fn peer_clock_ms(&self) -> u64 {
        match self.clock() {
            Some(clock) => clock.to_peer_ms(unix_ms()),
            None => unix_ms(),
        }
    }
}
