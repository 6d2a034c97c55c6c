//! Starts the actors of the cluster. [`events`] connects their events; [`members`], [`imports`] and [`exports`]
//! follow what they publish.

mod addresses;
mod admission;
mod events;
mod exports;
mod forgotten_nodes;
mod imports;
mod members;
mod reachability;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use mgp_calls::name_sources::{self, NodeNaming};
use mgp_cluster::links::{InboundNodeCall, LinkTimeouts, LinksActor, LinksHandle, LinksStart};
use mgp_cluster::pairing::{PairingActor, PairingHandle, PairingStart};
use mgp_cluster::replication::{
    ClusterView, ReplicationActor, ReplicationHandle, ReplicationStart, RequestedBy,
};
use mgp_cluster::{
    LanHandle, LanStart, PeerTools, PublishedNames, SharesHandle, SharesStart, ToolIndexHandle,
    ToolIndexStart,
};
use mgp_engine::doors::name_resolver::UnavailableNode;
use mgp_engine::node_key::{NodeKey, PublicKey};
use mgp_engine::node_names::NodeNames;
use mgp_engine::policy::access::Principal;
use mgp_policy::AccessHandle;
use mgp_protocol::federation::close_codes::LinkClose;
use mgp_protocol::federation::hello::{LifeId, NodeName, ReportedRole, WireFeatures};
use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::audit::TraceId;
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::time::{boottime_now, unix_ms};
use mgp_runtime::{EventSink, randomness, task};
use mgp_servers::{Connector, ServerTable};
use mgp_store::Witnesses;
use mgp_store::audit::AuditHandle;
use mgp_sync::{Credit, Snapshot};
use mgp_tools::OfferSources;
use mgp_tools::search::RemoteTools;
use ractor::SpawnErr;
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;

use self::addresses::LastAddresses;
use self::forgotten_nodes::ForgottenNodes;
use self::reachability::ReachReports;
use crate::config::ClusterConfig;
use crate::supervision_tree::{RootActor, TreeHandle};

/// Bytes for the messages of all links together: sixteen of the longest, so that a few large answers do not block each
/// other, and many of them do not exhaust the kernel.
const LINKS_MEMORY: u64 = 256 << 20;
/// This node's shares, in the data folder.
pub(crate) const SHARES_FILE: &str = "shares.json";
/// Whether the node is visible on the local network.
pub(crate) const LAN_FILE: &str = "lan";
/// The logs, and the name of their witness.
pub(crate) const LOG_PREFIX: &str = "cluster/logs/logs";
/// The folder of the logs, the index and the names, in the data folder.
const FOLDER: &str = "cluster";

#[derive(Debug)]
/// The cluster as this node sees it: its actors, and what they publish.
pub struct Cluster {
    /// This node.
    pub local_node: NodeId,
    /// Its public key.
    pub key: PublicKey,
    /// `[cluster]`.
    pub(crate) config: ClusterConfig,
    /// Links to other nodes.
    pub links: LinksHandle,
    /// The logs.
    pub replication: ReplicationHandle,
    /// The tools that peers share.
    pub tool_index: ToolIndexHandle,
    /// This node's shares.
    pub shares: SharesHandle,
    /// Admission of nodes.
    pub pairing: PairingHandle,
    /// Discovery on the local network.
    pub lan: LanHandle,
    /// The names of other nodes.
    pub(crate) names: Arc<Snapshot<PublishedNames>>,
    /// The tools that other nodes share.
    pub(crate) imported_tools: Arc<Snapshot<PeerTools>>,
    /// This node's servers.
    servers: Arc<ServerTable>,
    /// Receives calls of other nodes' agents, once set.
    inbound_calls: OnceLock<EventSink<InboundNodeCall>>,
    /// The last addresses of members.
    addresses: LastAddresses,
    /// The last reports of linked nodes.
    reports: ReachReports,
    /// Former members that are no longer listed.
    forgotten: ForgottenNodes,
    /// Whether new calls of other nodes' agents are rejected.
    draining: AtomicBool,
    /// Whether peers are told that nothing is shared.
    exports_withdrawn: AtomicBool,
    /// Serializes opening and closing of the socket.
    socket_lock: Mutex<()>,
    /// Notified when this node's exports change.
    export_wakeup: Notify,
    started_at: Instant,
    access: AccessHandle,
}

/// Dependencies of the cluster's actors.
#[derive(Debug)]
pub struct ClusterDeps<'a> {
    /// The node's key.
    pub key: NodeKey,
    /// `[cluster]`.
    pub config: &'a ClusterConfig,
    /// The kernel's data folder.
    pub data_dir: PathBuf,
    /// The witnesses of its files.
    pub witnesses: Witnesses,
    /// Connects to servers of other nodes.
    pub connector: &'a Connector,
    /// The names of other nodes.
    pub names: Arc<Snapshot<PublishedNames>>,
    /// This node's servers.
    pub servers: Arc<ServerTable>,
    /// The grants.
    pub access: AccessHandle,
    /// The audit log.
    pub audit: AuditHandle,
    /// Notified when pending entries change.
    pub pending_changed: EventSink<()>,
}

pub(crate) fn logs_folder(data_dir: &Path) -> PathBuf {
    data_dir.join(FOLDER).join("logs")
}

/// The state of accepted calls from other nodes at the shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingCallsAtShutdown {
    /// All callers have their answers.
    AllAnswered,
    /// Some calls have no answer.
    SomeUnanswered,
}

/// Tasks that run as long as the kernel.
pub(crate) type FollowerTasks = Vec<SupervisedTask<()>>;

fn failed_start(error: impl std::error::Error + Send + Sync + 'static) -> SpawnErr {
    SpawnErr::StartupFailed(Box::new(error))
}

impl Cluster {
    /// Starts all actors. No socket is open before this node has invited or joined.
    ///
    /// # Errors
    /// An actor that cannot be started; a description of files that cannot be read.
    pub async fn start(
        deps: ClusterDeps<'_>,
        root: &mut Vec<RootActor>,
    ) -> Result<Arc<Self>, SpawnErr> {
        let (here, key) = (deps.key.node_id(), deps.key.public_key());
        let late: Arc<OnceLock<Weak<Self>>> = Arc::default();
        let life = LifeId(randomness::random_bytes());
        let (folder, name) = (deps.data_dir.join(FOLDER), deps.config.node_name());
        let (links, links_cell) = LinksActor::start(LinksStart {
            key: deps.key.clone(),
            name: name.clone(),
            role: ReportedRole::Member,
            instance: life,
            table: deps.connector.links.clone(),
            events: weak_sink(&late, Self::on_links_event),
            memory: Credit::new(LINKS_MEMORY),
            times: LinkTimeouts::default(),
            relay: deps.config.relay,
        })
        .await?;
        let standalone = ClusterView::standalone(here, deps.config.lease);
        let replication = ReplicationStart {
            key: deps.key.clone(),
            instance: life,
            folder: logs_folder(&deps.data_dir),
            witness: deps.witnesses.witness(LOG_PREFIX),
            lease: deps.config.lease,
            clock: boottime_now,
            view: Arc::new(Snapshot::new(standalone)),
            access: deps.access.clone(),
            events: weak_sink(&late, Self::on_replication_event),
            audit: deps.audit.clone(),
        };
        let started = ReplicationActor::start(replication).await;
        let (replication, replication_cell) = started.map_err(failed_start)?;
        let (tool_index, index_cell) = ToolIndexHandle::start(ToolIndexStart {
            node: here,
            folder: folder.join("index"),
            published: deps.connector.peer_tools.clone(),
            names: deps.names.clone(),
            events: weak_sink(&late, Self::on_tool_index_event),
            control: weak_sink(&late, Self::send_control),
            audit: deps.audit.clone(),
        })
        .await?;
        let (shares, shares_cell) = SharesHandle::start(SharesStart {
            file: deps.data_dir.join(SHARES_FILE),
            witness: deps.witnesses.witness(SHARES_FILE),
            changed: weak_sink(&late, Self::on_shares_changed),
            audit: deps.audit.clone(),
        })
        .await?;
        tool_index.set_shares(shares.current());
        let pairing = PairingStart {
            key: deps.key.clone(),
            links: links.clone(),
            events: weak_sink(&late, Self::on_pairing_event),
            pending_changed: deps.pending_changed,
            audit: deps.audit.clone(),
        };
        let (pairing, pairing_cell) = PairingActor::start(pairing).await?;
        let lan = LanStart {
            node: here,
            folder: deps.data_dir.clone(),
            witness: deps.witnesses.witness(LAN_FILE),
            addresses: weak_sink(&late, Self::on_node_discovered),
        };
        let (lan, lan_cell) = lan.start().await?;
        root.extend([
            links_root_actor(&links, links_cell),
            RootActor::permanent("replication", replication_cell),
            RootActor::permanent("tool_index", index_cell),
            RootActor::permanent("shares", shares_cell),
            RootActor::permanent("pairing", pairing_cell),
            RootActor::permanent("lan", lan_cell),
        ]);
        let cluster = Arc::new(Self {
            local_node: here,
            key,
            config: deps.config.clone(),
            links,
            replication,
            tool_index,
            shares,
            pairing,
            lan,
            names: deps.names,
            imported_tools: deps.connector.peer_tools.clone(),
            servers: deps.servers,
            inbound_calls: OnceLock::new(),
            addresses: LastAddresses::load(folder.join("addresses.json")),
            reports: ReachReports::default(),
            forgotten: ForgottenNodes::load(folder.join("forgotten.json")),
            draining: AtomicBool::default(),
            exports_withdrawn: AtomicBool::default(),
            socket_lock: Mutex::default(),
            export_wakeup: Notify::new(),
            started_at: Instant::now(),
            access: deps.access,
        });
        let _ = late.set(Arc::downgrade(&cluster));
        Ok(cluster)
    }

    /// Accepts calls of other nodes' agents, and follows all published state.
    pub(crate) fn spawn_followers(
        self: &Arc<Self>,
        calls: EventSink<InboundNodeCall>,
        tree: &TreeHandle,
        offer: OfferSources,
    ) -> FollowerTasks {
        let _ = self.inbound_calls.set(calls);
        let (members, imported) = (self.clone(), self.clone());
        let (exported, offered, tree) = (self.clone(), self.clone(), tree.clone());
        let offers = EventSink::new(move |offer| offered.set_offer(offer));
        vec![
            task::spawn_supervised(
                "cluster.members",
                async move { members.follow_members().await },
            ),
            task::spawn_supervised("cluster.imported", async move {
                imported.follow_imports(&tree).await
            }),
            task::spawn_supervised("cluster.reach", self.clone().report_reachability()),
            task::spawn_supervised("cluster.exported", async move {
                exported.follow_exports().await
            }),
            task::spawn_supervised("cluster.offered", offer.run(offers)),
        ]
    }

    /// This node's name: as the cluster knows it, else as configured.
    #[must_use]
    pub fn name(&self) -> NodeName {
        let view = self.replication.view();
        let mut known_names = members::all_node_names(&view);
        let own = known_names.remove(&self.local_node);
        own.unwrap_or_else(|| self.config.node_name())
    }

    /// The names of nodes, for the resolution of typed names.
    pub(crate) fn node_naming(self: &Arc<Self>) -> NodeNaming {
        let cluster = self.clone();
        NodeNaming::new(move || {
            let others = cluster.names.load().names.clone();
            let is_in = cluster.replication.view().cluster.is_some();
            name_sources::ClusterNames {
                unavailable: cluster.unreachable_nodes(&others),
                local_name: is_in.then(|| cluster.name()),
                without_patterns: cluster.links.linked_nodes_without(WireFeatures::PATTERNS),
                without_conditions: cluster.links.linked_nodes_without(WireFeatures::CONDITIONS),
                without_groups: cluster.links.linked_nodes_without(WireFeatures::GROUPS),
                others,
            }
        })
    }

    /// The nodes without a link, with their last known shares.
    fn unreachable_nodes(&self, names: &NodeNames) -> BTreeMap<NodeId, UnavailableNode> {
        let (linked, peer_tools) = (self.links.linked_nodes(), self.imported_tools.load());
        let away = names.iter().map(|(_, node)| node);
        let away = away.filter(|node| !linked.contains(node));
        let known = away.map(|node| {
            let hidden = peer_tools.hidden.get(&node);
            let servers = peer_tools
                .servers
                .keys()
                .filter(|server| server.node == node);
            let servers = servers.map(|server| &server.server);
            let before = hidden.into_iter().flat_map(|hidden| hidden.servers.keys());
            let known = UnavailableNode {
                heard_ms_ago: hidden.map(|hidden| unix_ms().saturating_sub(hidden.heard_ms)),
                servers: servers.chain(before).cloned().collect(),
            };
            (node, known)
        });
        known.collect()
    }

    /// The tools that other nodes share, for the search.
    pub(crate) fn remote_tools(&self) -> RemoteTools {
        RemoteTools {
            tools: self.imported_tools.clone(),
            names: self.names.clone(),
        }
    }

    /// The name of another node, or a prefix of its id while it has none.
    #[must_use]
    pub(crate) fn node_label(&self, node: NodeId) -> String {
        if node == self.local_node {
            return self.name().to_string();
        }
        self.names.load().names.render(node)
    }

    /// The last address at which a link proved the node's identity.
    #[must_use]
    pub(crate) fn last_address(&self, node: NodeId) -> Option<SocketAddr> {
        self.addresses.get(node)
    }

    /// Removes these nodes from lists, also after a restart.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) async fn forget_nodes(&self, nodes: BTreeSet<NodeId>) -> std::io::Result<()> {
        let view = self.replication.view();
        let is_known = |node| view.members.contains_key(&node);
        self.forgotten.add(nodes, is_known).await
    }

    /// Whether a former node is no longer listed.
    pub(crate) fn is_forgotten(&self, node: NodeId) -> bool {
        self.forgotten.contains(node)
    }

    /// Whether new calls of other nodes' agents are rejected.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Calls of other nodes' agents in flight here.
    pub(crate) fn in_flight_calls(&self) -> u64 {
        let links = self.links.linked_nodes().into_iter();
        let links = links.filter_map(|node| self.links.link(node));
        links.map(|link| link.incoming.in_flight()).sum()
    }

    /// Before a graceful shutdown: tells peers that they need not wait for this node.
    pub(crate) async fn announce_shutdown(&self) {
        if self.replication.view().cluster.is_some() {
            self.replication.retire(kernel_principal()).await;
        }
    }

    /// Ends all links. If each accepted call was answered, callers learn that they may repeat calls without an answer.
    pub(crate) async fn shutdown(&self, calls: PendingCallsAtShutdown) {
        let why = match calls {
            PendingCallsAtShutdown::AllAnswered => LinkClose::Shutdown,
            PendingCallsAtShutdown::SomeUnanswered => LinkClose::Done,
        };
        let _ = self.links.close(why).await;
    }
}

/// The author of the kernel's own decisions.
fn kernel_principal() -> RequestedBy {
    RequestedBy {
        principal: Principal::Operator("kernel".into()),
        trace: TraceId::from_random(randomness::random_bytes()),
    }
}

/// Sends events to the cluster once it exists. Weak, so that its actors do not keep it alive.
fn weak_sink<E: 'static>(
    late: &Arc<OnceLock<Weak<Cluster>>>,
    take: fn(&Arc<Cluster>, E),
) -> EventSink<E> {
    let late = late.clone();
    EventSink::new(move |event| {
        if let Some(cluster) = late.get().and_then(Weak::upgrade) {
            take(&cluster, event);
        }
    })
}

fn links_root_actor(links: &LinksHandle, cell: ractor::ActorCell) -> RootActor {
    let links = links.clone();
    let restart = move || {
        let links = links.clone();
        async move { links.start().await }
    };
    RootActor::restartable("links", cell, restart)
}
