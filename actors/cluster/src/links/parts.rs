//! The state that outlives the links actor, and the state that its handles read.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use mgp_engine::node_key::NodeKey;
use mgp_protocol::federation::hello::{
    Hello, LifeId, NodeName, ReportedRole, WIRE_VERSIONS, WireFeatures,
};
use mgp_protocol::ids::NodeId;
use mgp_runtime::EventSink;
use mgp_runtime::time::unix_ms;
use mgp_sync::{Credit, Snapshot};
use mgp_transports::quic::{
    HelloProvider, IdentityError, LinkConfig, LinkEndpoint, NodeIdentity, NodeSigner,
};

use super::{LinkPins, LinkTable, LinkTimeouts, LinksEvent, LinksStart};

/// The state that a restarted actor restores.
#[derive(Clone, Debug, Default)]
pub(super) struct SavedLinks {
    pub(super) listen: Option<SocketAddr>,
    pub(super) pins: LinkPins,
    pub(super) pairing: bool,
}

/// The state shared by the actor and its handles.
#[derive(Debug)]
pub(super) struct LinksShared {
    pub(super) key: NodeKey,
    pub(super) node: NodeId,
    pub(super) identity: NodeIdentity,
    pub(super) instance: LifeId,
    pub(super) hello: Arc<Snapshot<(NodeName, ReportedRole)>>,
    pub(super) table: Arc<Snapshot<LinkTable>>,
    pub(super) endpoint: Snapshot<Option<LinkEndpoint>>,
    pub(super) events: EventSink<LinksEvent>,
    pub(super) memory: Arc<Credit>,
    pub(super) times: LinkTimeouts,
    pub(super) relay: bool,
    saved: Mutex<SavedLinks>,
}

/// Signs handshakes with the node's key.
struct HandshakeKey(NodeKey);

impl fmt::Debug for HandshakeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl NodeSigner for HandshakeKey {
    fn public_key(&self) -> [u8; 32] {
        self.0.public_key().0
    }

    fn sign(&self, bytes: &[u8]) -> [u8; 64] {
        self.0.sign(bytes).0
    }
}

impl LinksShared {
    pub(super) fn new(start: LinksStart) -> Result<Self, IdentityError> {
        let signer = Arc::new(HandshakeKey(start.key.clone()));
        Ok(Self {
            node: start.key.node_id(),
            identity: NodeIdentity::new(signer)?,
            key: start.key,
            instance: start.instance,
            hello: Arc::new(Snapshot::new((start.name, start.role))),
            table: start.table,
            endpoint: Snapshot::new(None),
            events: start.events,
            memory: start.memory,
            times: start.times,
            relay: start.relay,
            saved: Mutex::default(),
        })
    }

    /// The configuration of the socket.
    pub(super) fn config(&self) -> LinkConfig {
        LinkConfig {
            identity: self.identity.clone(),
            hello: self.hello_provider(),
            memory: Arc::clone(&self.memory),
            relay: self.relay,
        }
    }

    fn hello_provider(&self) -> HelloProvider {
        let (hello, life) = (Arc::clone(&self.hello), self.instance);
        Arc::new(move || {
            let (name, role) = (*hello.load()).clone();
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
                    | WireFeatures::PATTERNS
                    | WireFeatures::CONDITIONS
                    | WireFeatures::GROUPS,
                life,
                name,
                role,
                wall_ms: unix_ms(),
            }
        })
    }

    pub(super) fn saved(&self) -> SavedLinks {
        let saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        saved.clone()
    }

    pub(super) fn save(&self, change: impl FnOnce(&mut SavedLinks)) {
        change(&mut self.saved.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
