//! What the servers of this node offer, as other nodes may be told of it: read whenever something of it changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::cluster::tool_index::{OfferedServer, schemas_of};
use mgp_engine::servers::lifecycle::LifecycleState;
use mgp_engine::servers::replica_mark::ReplicaMark;
use mgp_engine::tools::catalog::{CatalogTool, ServerOffer};
use mgp_engine::tools::index::ServerIndex;
use mgp_protocol::federation::tool_index::{ServerRecord, ToolRecord, ToolVector};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::discovery::Status;
use mgp_runtime::event_sink::EventSink;
use mgp_servers::server::ServerTable;
use mgp_sync::Snapshot;

use crate::search::SearchHandle;
use crate::shown::Shown;

/// How often states and vectors are looked at, which nobody tells of. What has not changed is not read again.
const LOOK: Duration = Duration::from_secs(1);
/// Changes of the catalog are read together when they come this close.
const COALESCE: Duration = Duration::from_millis(50);

/// All servers of this node, with what each offers.
pub type OwnOffer = BTreeMap<ServerId, Arc<OfferedServer>>;

/// What an offer is read from.
#[derive(Clone, Debug)]
pub struct OfferSources {
    /// The servers and their states.
    pub servers: Arc<ServerTable>,
    /// What they offer.
    pub shown: Arc<Snapshot<Shown>>,
    /// The vectors of their tools.
    pub search: SearchHandle,
}

/// What the offer of one server was read from, to be held against what there is later. What is not of this
/// node is no part of it.
struct ServerBasis {
    state: LifecycleState,
    /// It lists nothing yet, and will.
    starting: bool,
    mark: Option<ReplicaMark>,
    tools: Option<Arc<ServerOffer>>,
    indexed: Option<Arc<ServerIndex>>,
}

impl ServerBasis {
    fn is(&self, other: &Self) -> bool {
        self.state == other.state
            && self.starting == other.starting
            && self.mark == other.mark
            && is_same(self.tools.as_ref(), other.tools.as_ref())
            && is_same(self.indexed.as_ref(), other.indexed.as_ref())
    }
}

fn is_same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// All servers, each with what its offer was read from.
type OfferBasis = BTreeMap<ServerId, ServerBasis>;

impl OfferSources {
    /// Tells what this node's servers offer, now and whenever that has changed. Ends with its task.
    pub async fn follow(self, offered: EventSink<OwnOffer>) {
        let mut before: Option<(OfferBasis, OwnOffer)> = None;
        loop {
            let shown = self.shown.load();
            let basis = self.basis(&shown);
            let offer = self.read(&basis, before.as_ref());
            let is_told = |(_, told): &(OfferBasis, OwnOffer)| {
                let mut pairs = told.values().zip(offer.values());
                told.keys().eq(offer.keys()) && pairs.all(|(one, other)| Arc::ptr_eq(one, other))
            };
            if !before.as_ref().is_some_and(is_told) {
                offered.send(offer.clone());
            }
            before = Some((basis, offer));
            if tokio::time::timeout(LOOK, shown.replaced.cancelled())
                .await
                .is_ok()
            {
                tokio::time::sleep(COALESCE).await;
            }
        }
    }

    /// What this node's servers offer now.
    #[must_use]
    pub fn now(&self) -> OwnOffer {
        self.read(&self.basis(&self.shown.load()), None)
    }

    fn basis(&self, shown: &Shown) -> OfferBasis {
        let (servers, index) = (self.servers.load(), self.search.indexed());
        // Servers of other nodes, and instances for one agent, are nobody's to share.
        let own = servers
            .iter()
            .filter(|(server, _)| ServerId::parse(server.as_str()).is_ok());
        let basis = own.map(|(server, handle)| {
            let tools = shown.catalog.offer(server).cloned();
            let tools = tools.filter(|_| shown.is_current(server));
            let state = handle.state();
            // A server that has just connected has no lists yet: they are being read.
            let comes = state == LifecycleState::Connected || handle.is_starting();
            let basis = ServerBasis {
                state,
                starting: tools.is_none() && comes,
                mark: handle.mark(),
                tools,
                indexed: index.server(server).cloned(),
            };
            (server.clone(), basis)
        });
        basis.collect()
    }

    /// What has not changed since `before` is not read again.
    fn read(&self, basis: &OfferBasis, before: Option<&(OfferBasis, OwnOffer)>) -> OwnOffer {
        let known = |server: &ServerId, basis: &ServerBasis| {
            let (before, offer) = before?;
            let same = before.get(server)?.is(basis);
            offer.get(server).filter(|_| same).cloned()
        };
        let offers = basis.iter().map(|(server, basis)| {
            let offered = known(server, basis);
            let offered = offered.unwrap_or_else(|| Arc::new(self.read_server(basis)));
            (server.clone(), offered)
        });
        offers.collect()
    }

    fn read_server(&self, basis: &ServerBasis) -> OfferedServer {
        let indexed = basis.indexed.as_deref();
        let vectors = indexed.map(|indexed| self.search.told_vectors(indexed));
        let mut vectors = vectors.unwrap_or_default();
        let tools = basis.tools.iter().flat_map(|offer| offer.tools());
        let tools = tools.filter_map(|tool| {
            let record = told(tool, vectors.remove(&tool.own_name))?;
            Some((Arc::clone(&tool.own_name), record))
        });
        OfferedServer {
            record: ServerRecord {
                state: told_state(basis.state),
                specification: basis.mark.map(|mark| mark.specification),
                replica: basis.mark.is_some(),
                stateful: basis.mark.is_some_and(|mark| mark.stateful),
                starting: basis.starting,
            },
            tools: tools.collect(),
        }
    }
}

/// A tool as it is told; `None` for a definition that two readers read differently.
fn told(tool: &CatalogTool, vector: Option<ToolVector>) -> Option<ToolRecord> {
    Some(ToolRecord {
        definition: tool.raw.to_string(),
        schemas: schemas_of(&tool.raw)?,
        idempotent: tool.requirements.idempotent,
        vector,
    })
}

fn told_state(state: LifecycleState) -> Status {
    match state {
        LifecycleState::Registered => Status::Registered,
        LifecycleState::Connecting => Status::Connecting,
        LifecycleState::Connected => Status::Connected,
        LifecycleState::Draining => Status::Draining,
        LifecycleState::Disconnected => Status::Disconnected,
        LifecycleState::Error => Status::Error,
        LifecycleState::Restarting => Status::Restarting,
    }
}
