//! What outlives the actor, and what its handles read.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use mgp_engine::node_key::NodeKey;
use mgp_protocol::federation::hello::{
    Hello, LifeId, NodeName, ToldRole, WIRE_VERSIONS, WireFeatures,
};
use mgp_protocol::ids::NodeId;
use mgp_runtime::event_sink::EventSink;
use mgp_runtime::time::unix_ms;
use mgp_sync::{Credit, Snapshot};
use mgp_transports::quic::{
    Greeting, IdentityError, LinkConfig, LinkEndpoint, NodeIdentity, NodeSigner,
};

use super::{LinkPins, LinkTable, LinkTimes, LinksEvent, LinksStart};

/// What a restarted actor goes on with.
#[derive(Clone, Debug, Default)]
pub(super) struct KeptLinks {
    pub(super) listen: Option<SocketAddr>,
    pub(super) pins: LinkPins,
    pub(super) pairing: bool,
}

/// What the actor and its handles share.
#[derive(Debug)]
pub(super) struct LinksParts {
    pub(super) key: NodeKey,
    pub(super) own: NodeId,
    pub(super) identity: NodeIdentity,
    pub(super) life: LifeId,
    pub(super) said: Arc<Snapshot<(NodeName, ToldRole)>>,
    pub(super) table: Arc<Snapshot<LinkTable>>,
    pub(super) endpoint: Snapshot<Option<LinkEndpoint>>,
    pub(super) events: EventSink<LinksEvent>,
    pub(super) memory: Arc<Credit>,
    pub(super) times: LinkTimes,
    pub(super) relay: bool,
    kept: Mutex<KeptLinks>,
}

/// Signs handshakes.
struct HandshakeKey(NodeKey);

impl fmt::Debug for HandshakeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl NodeSigner for HandshakeKey {
    fn public_key(&self) -> [u8; 32] {
        self.0.public().0
    }

    fn sign(&self, bytes: &[u8]) -> [u8; 64] {
        self.0.sign(bytes).0
    }
}

impl LinksParts {
    pub(super) fn new(start: LinksStart) -> Result<Self, IdentityError> {
        let signer = Arc::new(HandshakeKey(start.key.clone()));
        Ok(Self {
            own: start.key.node(),
            identity: NodeIdentity::new(signer)?,
            key: start.key,
            life: start.life,
            said: Arc::new(Snapshot::new((start.name, start.role))),
            table: start.table,
            endpoint: Snapshot::new(None),
            events: start.events,
            memory: start.memory,
            times: start.times,
            relay: start.relay,
            kept: Mutex::default(),
        })
    }

    /// What a socket is opened with.
    pub(super) fn config(&self) -> LinkConfig {
        LinkConfig {
            identity: self.identity.clone(),
            greeting: self.greeting(),
            memory: Arc::clone(&self.memory),
            relay: self.relay,
        }
    }

    fn greeting(&self) -> Greeting {
        let (said, life) = (Arc::clone(&self.said), self.life);
        Arc::new(move || {
            let (name, role) = (*said.load()).clone();
            Hello {
                versions: WIRE_VERSIONS,
                features: WireFeatures::CALLS
                    | WireFeatures::MEMBERSHIP
                    | WireFeatures::GRANTS
                    | WireFeatures::INDEX
                    | WireFeatures::REFUSALS
                    | WireFeatures::SHUTDOWN
                    | WireFeatures::RELAY
                    | WireFeatures::DEMOTION
                    | WireFeatures::PATTERNS,
                life,
                name,
                role,
                wall_ms: unix_ms(),
            }
        })
    }

    pub(super) fn kept(&self) -> KeptLinks {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clone()
    }

    pub(super) fn keep(&self, change: impl FnOnce(&mut KeptLinks)) {
        change(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
