//! What the servers of this node offer to other nodes. Read again whenever it changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::cluster::tool_index::{OfferedServer, hash_schemas};
use mgp_engine::servers::lifecycle::LifecycleState;
use mgp_engine::servers::replica_spec::ReplicaSpec;
use mgp_engine::tools::catalog::{CatalogTool, ServerOffer};
use mgp_engine::tools::index::ServerIndex;
use mgp_protocol::federation::tool_index::{ServerRecord, ToolRecord, ToolVector};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::discovery::Status;
use mgp_runtime::EventSink;
use mgp_servers::ServerTable;
use mgp_sync::Snapshot;

use crate::published_catalog::PublishedCatalog;
use crate::search::SearchHandle;

/// The poll interval of states and vectors, which have no change notification. Unchanged ones are not read again.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Changes of the catalog within this time are read together.
const COALESCE: Duration = Duration::from_millis(50);

/// All servers of this node with their offers.
pub type LocalOffer = BTreeMap<ServerId, Arc<OfferedServer>>;

/// The sources of an offer.
#[derive(Clone, Debug)]
pub struct OfferSources {
    /// The servers and their states.
    pub servers: Arc<ServerTable>,
    /// The published offers.
    pub published: Arc<Snapshot<PublishedCatalog>>,
    /// The vectors of their tools.
    pub search: SearchHandle,
}

/// The inputs of one server's offer, for comparison with later ones. Servers of other nodes have none.
struct ServerBasis {
    state: LifecycleState,
    /// It has no lists yet, but will.
    is_starting: bool,
    replica_mark: Option<ReplicaSpec>,
    tools: Option<Arc<ServerOffer>>,
    indexed: Option<Arc<ServerIndex>>,
}

impl ServerBasis {
    fn is_same_as(&self, other: &Self) -> bool {
        self.state == other.state
            && self.is_starting == other.is_starting
            && self.replica_mark == other.replica_mark
            && is_same(self.tools.as_ref(), other.tools.as_ref())
            && is_same(self.indexed.as_ref(), other.indexed.as_ref())
    }
}

fn is_same<T>(a: Option<&Arc<T>>, b: Option<&Arc<T>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// The inputs of all servers' offers.
type OfferBasis = BTreeMap<ServerId, ServerBasis>;

impl OfferSources {
    /// Sends this node's offer now and after each change. Ends with its task.
    pub async fn run(self, on_offer: EventSink<LocalOffer>) {
        let mut before: Option<(OfferBasis, LocalOffer)> = None;
        loop {
            let published = self.published.load();
            let basis = self.read_basis(&published);
            let offer = self.read_offer(&basis, before.as_ref());
            let is_unchanged = |(_, sent): &(OfferBasis, LocalOffer)| {
                let mut pairs = sent.values().zip(offer.values());
                sent.keys().eq(offer.keys()) && pairs.all(|(a, b)| Arc::ptr_eq(a, b))
            };
            if !before.as_ref().is_some_and(is_unchanged) {
                on_offer.send(offer.clone());
            }
            before = Some((basis, offer));
            if tokio::time::timeout(POLL_INTERVAL, published.replaced.cancelled())
                .await
                .is_ok()
            {
                tokio::time::sleep(COALESCE).await;
            }
        }
    }

    fn read_basis(&self, published: &PublishedCatalog) -> OfferBasis {
        let (servers, index) = (self.servers.load(), self.search.index());
        // Servers of other nodes, and instances for one agent, are not shared.
        let shareable = servers
            .iter()
            .filter(|(server, _)| ServerId::parse(server.as_str()).is_ok());
        let basis = shareable.map(|(server, handle)| {
            let tools = published.catalog.offer(server).cloned();
            let tools = tools.filter(|_| published.is_current(server));
            // A server that a call starts takes calls, as other nodes see it.
            let state = if tools.is_some() && handle.starts_for_calls() {
                LifecycleState::Connected
            } else {
                handle.state()
            };
            // A server that has just connected has no lists yet: they are being fetched.
            let will_list = state == LifecycleState::Connected || handle.is_starting();
            let basis = ServerBasis {
                state,
                is_starting: tools.is_none() && will_list,
                replica_mark: handle.mark(),
                tools,
                indexed: index.server(server).cloned(),
            };
            (server.clone(), basis)
        });
        basis.collect()
    }

    /// Reuses the entries of `before` that have not changed.
    fn read_offer(
        &self,
        basis: &OfferBasis,
        before: Option<&(OfferBasis, LocalOffer)>,
    ) -> LocalOffer {
        let unchanged = |server: &ServerId, basis: &ServerBasis| {
            let (before, offer) = before?;
            let is_same = before.get(server)?.is_same_as(basis);
            offer.get(server).filter(|_| is_same).cloned()
        };
        let offers = basis.iter().map(|(server, basis)| {
            let offered = unchanged(server, basis);
            let offered = offered.unwrap_or_else(|| Arc::new(self.read_server(basis)));
            (server.clone(), offered)
        });
        offers.collect()
    }

    fn read_server(&self, basis: &ServerBasis) -> OfferedServer {
        let indexed = basis.indexed.as_deref();
        let vectors = indexed.map(|indexed| self.search.vectors_for_nodes(indexed));
        let mut vectors = vectors.unwrap_or_default();
        let tools = basis.tools.iter().flat_map(|offer| offer.tools());
        let tools = tools.filter_map(|tool| {
            let record = to_tool_record(tool, vectors.remove(&tool.own_name))?;
            Some((Arc::clone(&tool.own_name), record))
        });
        OfferedServer {
            record: ServerRecord {
                state: to_status(basis.state),
                specification: basis.replica_mark.map(|mark| mark.spec_hash),
                replica: basis.replica_mark.is_some(),
                stateful: basis.replica_mark.is_some_and(|mark| mark.stateful),
                starting: basis.is_starting,
            },
            tools: tools.collect(),
        }
    }
}

/// A tool as it is shared; `None` for a definition that two parsers read differently.
fn to_tool_record(tool: &CatalogTool, vector: Option<ToolVector>) -> Option<ToolRecord> {
    Some(ToolRecord {
        definition: tool.raw.to_string(),
        schemas: hash_schemas(&tool.raw)?,
        idempotent: tool.requirements.idempotent,
        vector,
    })
}

fn to_status(state: LifecycleState) -> Status {
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
