//! What the servers of this node offer, as other nodes may be told of it: read whenever something of it changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::cluster::tool_index::{OfferedServer, schemas_of};
use mgp_engine::servers::lifecycle::LifecycleState;
use mgp_engine::servers::replica_mark::ReplicaMark;
use mgp_engine::tools::catalog::CatalogTool;
use mgp_engine::tools::index::Index;
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

/// What an offer was read from, to be held against what there is later.
struct OfferBasis {
    servers: BTreeMap<ServerId, (LifecycleState, Option<ReplicaMark>)>,
    shown: Arc<Shown>,
    index: Arc<Index>,
}

impl OfferBasis {
    fn is(&self, other: &Self) -> bool {
        self.servers == other.servers
            && Arc::ptr_eq(&self.shown, &other.shown)
            && Arc::ptr_eq(&self.index, &other.index)
    }
}

impl OfferSources {
    /// Tells what this node's servers offer, now and whenever that has changed. Ends with its task.
    pub async fn follow(self, offered: EventSink<OwnOffer>) {
        let mut before: Option<OfferBasis> = None;
        loop {
            let basis = self.basis();
            if !before.as_ref().is_some_and(|before| before.is(&basis)) {
                offered.send(self.read(&basis));
            }
            let replaced = basis.shown.replaced.clone();
            before = Some(basis);
            if tokio::time::timeout(LOOK, replaced.cancelled())
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
        self.read(&self.basis())
    }

    fn basis(&self) -> OfferBasis {
        let servers = self.servers.load();
        // Servers of other nodes, and instances for one agent, are nobody's to share.
        let own = servers
            .iter()
            .filter(|(server, _)| ServerId::parse(server.as_str()).is_ok());
        OfferBasis {
            servers: own
                .map(|(server, handle)| (server.clone(), (handle.state(), handle.mark())))
                .collect(),
            shown: self.shown.load(),
            index: self.search.indexed(),
        }
    }

    fn read(&self, basis: &OfferBasis) -> OwnOffer {
        let offers = basis.shown.catalog.offers();
        let tools: BTreeMap<_, _> = offers
            .map(|offer| (offer.server(), offer.tools()))
            .collect();
        let server =
            |(server, (state, mark)): (&ServerId, &(LifecycleState, Option<ReplicaMark>))| {
                let mut vectors = self.search.told_vectors(server);
                let tools = tools.get(server).into_iter().flat_map(|tools| tools.iter());
                let tools = tools.filter_map(|tool| {
                    let record = told(tool, vectors.remove(&tool.own_name))?;
                    Some((Arc::clone(&tool.own_name), record))
                });
                let offered = OfferedServer {
                    record: ServerRecord {
                        state: told_state(*state),
                        specification: mark.map(|mark| mark.specification),
                        replica: mark.is_some(),
                        stateful: mark.is_some_and(|mark| mark.stateful),
                    },
                    tools: tools.collect(),
                };
                (server.clone(), Arc::new(offered))
            };
        basis.servers.iter().map(server).collect()
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
