//! The links there are, as calls read them.

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

/// The links of this node, one for each peer that is linked now.
#[derive(Debug, Default)]
pub struct LinkTable {
    /// By peer.
    pub links: BTreeMap<NodeId, Arc<PeerLink>>,
    /// Peers without a link that were shut down gracefully, and when. Bounded by the members.
    pub shut_down: BTreeMap<NodeId, Instant>,
    /// Who signs grants by the logs as this node has them, itself included.
    pub admins: BTreeSet<NodeId>,
    /// What this node is called, as it says on its links.
    pub local_name: Option<NodeName>,
    /// Cancelled when a newer table is published.
    pub replaced: CancellationToken,
}

/// One link, with what is remembered as long as it lasts.
#[derive(Debug)]
pub struct PeerLink {
    /// The link.
    pub link: NodeLink,
    /// The turns of this node's agents at the peer.
    pub outgoing: Arc<AgentLimits>,
    /// And of the peer's agents here.
    pub incoming: Arc<AgentLimits>,
    local_assertions: Mutex<AssertionIssuer>,
    accepted_assertions: Mutex<AssertionVerifier>,
    clock: Mutex<ClockOffsetEstimator>,
}

/// A call from another node. Who calls has not been judged.
#[derive(Debug)]
pub struct InboundNodeCall {
    /// The link that it came by.
    pub peer: Arc<PeerLink>,
    /// The call.
    pub call: InboundCall,
}

impl PeerLink {
    /// A new link of the node with this key.
    #[must_use]
    pub fn new(link: NodeLink, key: &NodeKey) -> Arc<Self> {
        let home = PublicKey(link.peer_key());
        let ends = LinkEnds {
            home,
            owner: key.node_id(),
            binding: link.binding(),
        };
        let own = AssertionIssuer::new(key.clone(), link.peer(), link.binding());
        Arc::new(Self {
            link,
            outgoing: Arc::default(),
            incoming: Arc::default(),
            local_assertions: Mutex::new(own),
            accepted_assertions: Mutex::new(AssertionVerifier::new(ends)),
            clock: Mutex::default(),
        })
    }

    /// Whether the peer may be asked to pass packets on.
    pub(super) fn can_relay(&self) -> bool {
        let features = self.link.negotiated().features;
        self.link.relay().is_none() && features.contains(WireFeatures::RELAY)
    }

    /// What a call of one of this node's agents says of it.
    pub fn assertion_for(&self, agent: &AgentId) -> CallAssertion {
        let mut own = self
            .local_assertions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        own.assertion_for(agent, unix_ms(), randomness::random_bytes())
    }

    /// The peer has taken it.
    pub fn confirm_assertion(&self, id: AssertionId) {
        let mut own = self
            .local_assertions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        own.mark_accepted(id);
    }

    /// The peer does not know it, or no longer.
    pub fn forget_assertion(&self, id: AssertionId) {
        let mut own = self
            .local_assertions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        own.mark_unknown(id);
    }

    /// Who makes a call of the peer, by the peer's clock.
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

    /// The peer's clock was measured (see [`ClockOffsetEstimator::measured`]).
    pub(crate) fn record_clock(&self, asked_ms: u64, way_ms: u64, theirs_ms: u64) {
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        clock.add_sample(asked_ms, way_ms, theirs_ms);
    }

    /// What is known of the peer's clock.
    #[must_use]
    pub(crate) fn clock(&self) -> Option<PeerClock> {
        let clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        clock.estimate()
    }

    /// The peer's wall clock, in milliseconds since 1970; ours until it was measured.
    #[must_use]
    pub(crate) fn peer_clock_ms(&self) -> u64 {
        match self.clock() {
            Some(known) => known.to_peer_ms(unix_ms()),
            None => unix_ms(),
        }
    }
}
