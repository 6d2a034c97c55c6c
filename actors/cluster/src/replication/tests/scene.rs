//! Test nodes in one process: real journals and access control, and channels in place of links.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mgp_callers::Directory;
use mgp_engine::clock::MonotonicTime;
use mgp_engine::node_key::NodeKey;
use mgp_engine::policy::access::{DefaultPolicies, GrantTable, Principal, SharedTools};
use mgp_engine::policy::grants::MemberRole;
use mgp_engine::replication::lease::DEFAULT_LEASE;
use mgp_engine::replication::remote_rules::LocalServers;
use mgp_policy::{AccessActor, AccessHandle, GrantStore};
use mgp_protocol::federation::control::Control;
use mgp_protocol::federation::hello::{LifeId, NodeName};
use mgp_protocol::ids::{AgentId, NodeId, ServerId};
use mgp_protocol::mgp::access::DefaultPolicy;
use mgp_protocol::mgp::audit::TraceId;
use mgp_runtime::{EventSink, Mailbox, randomness};
use mgp_store::Witnesses;
use mgp_store::audit::AuditHandle;
use mgp_sync::Snapshot;
use ractor::{Actor, ActorCell};

use super::super::{
    ClusterView, LogsError, ReplicationActor, ReplicationEvent, ReplicationHandle,
    ReplicationStart, RequestedBy,
};
use crate::links::MessagePermit;

thread_local! {
    /// All nodes of a test live on its thread. The clock starts late, so that no real clock comes near it.
    static NOW: Cell<Duration> = const { Cell::new(Duration::from_secs(1_000_000)) };
}

fn clock() -> MonotonicTime {
    MonotonicTime::new(NOW.get())
}

pub(super) fn by() -> RequestedBy {
    RequestedBy {
        principal: Principal::Operator("operator".into()),
        trace: TraceId::from_random([7; 16]),
    }
}

pub(super) fn name(n: u8) -> NodeName {
    NodeName::parse(&format!("node-{n}")).unwrap()
}

fn key(n: u8) -> NodeKey {
    NodeKey::new(&[n + 1; 32])
}

/// The running node of each key, and the unreachable ones.
#[derive(Default)]
struct Wires {
    nodes: BTreeMap<NodeId, ReplicationHandle>,
    apart: BTreeSet<NodeId>,
}

type SharedWires = Arc<Mutex<Wires>>;

fn lock(wires: &SharedWires) -> MutexGuard<'_, Wires> {
    wires.lock().unwrap_or_else(PoisonError::into_inner)
}

fn reach(wires: &SharedWires, from: NodeId, to: NodeId) -> Option<ReplicationHandle> {
    let wires = lock(wires);
    let apart = wires.apart.contains(&from) || wires.apart.contains(&to);
    (!apart).then(|| wires.nodes.get(&to).cloned()).flatten()
}

/// Delivers the messages of a node. A node that was set aside sends nothing.
fn sink(wires: &SharedWires, from: NodeId, life: LifeId) -> EventSink<ReplicationEvent> {
    let wires = wires.clone();
    EventSink::new(move |event| match event {
        ReplicationEvent::Send(to, Control::Logs(held)) => {
            assert_eq!(held.life, life);
            if let Some(to) = reach(&wires, from, to) {
                to.receive_heads(from, held, MessagePermit::default());
            }
        }
        ReplicationEvent::Send(_, other) => panic!("{other:?}"),
        ReplicationEvent::Transfer(to, entries, turn) => {
            let to = reach(&wires, from, to);
            tokio::spawn(async move {
                if let Some(to) = to {
                    to.receive_entries(from, entries).await;
                }
                drop(turn);
            });
        }
        ReplicationEvent::Changed(_) => {}
    })
}

struct Machine {
    access: AccessHandle,
    folder: tempfile::TempDir,
    running: Option<ActorCell>,
}

/// A second instance of a node's key that was set aside, and still runs.
pub(super) struct SetAside {
    handle: ReplicationHandle,
    _cell: ActorCell,
}

pub(super) struct Scene {
    wires: SharedWires,
    machines: BTreeMap<u8, Machine>,
}

impl Scene {
    /// Creates nodes that are in no cluster.
    pub(super) async fn new(nodes: u8) -> Self {
        let mut scene = Self {
            wires: SharedWires::default(),
            machines: BTreeMap::new(),
        };
        for n in 0..nodes {
            scene.add(n).await;
        }
        scene
    }

    /// Creates admins of one cluster, linked to each other.
    pub(super) async fn with_cluster(nodes: u8) -> Self {
        let mut scene = Self::new(nodes).await;
        scene.handle(0).found_cluster(name(0), by()).await.unwrap();
        for n in 1..nodes {
            scene.admit_node(n, MemberRole::Admin).await;
        }
        scene
    }

    pub(super) async fn admit_node(&mut self, n: u8, role: MemberRole) {
        let founder = self.handle(0);
        let admitted = founder.admit(key(n).public_key(), role, name(n), by());
        admitted.await.unwrap();
        let invitation = self
            .handle(0)
            .create_invitation(key(0).public_key())
            .await
            .unwrap();
        self.handle(n).join(invitation, by()).await.unwrap();
        self.link_all(n);
        let node = self.node(n);
        self.wait_until("it is in", |scene| {
            scene.view(n).members.contains_key(&node)
        })
        .await;
    }

    pub(super) async fn add(&mut self, n: u8) {
        let folder = tempfile::tempdir().unwrap();
        let open = DefaultPolicies {
            kernel: DefaultPolicy::OptOut,
            servers: HashMap::new(),
            group: None,
        };
        let books = GrantStore::open(&folder.path().join("grants"), key(n)).unwrap();
        let table = GrantTable::build(books.grants(), books.authority(), open, 0, 1);
        let table = Arc::new(Snapshot::new(table));
        let actor = AccessActor {
            table: table.clone(),
            directory: Arc::new(Directory::new(table.clone())),
            on_change: EventSink::new(|()| ()),
            audit: AuditHandle::disabled(),
        };
        let (actor, _) = Actor::spawn(None, actor, (books, Vec::new()))
            .await
            .unwrap();
        let machine = Machine {
            access: AccessHandle::new(Mailbox::new(actor), table, false),
            folder,
            running: None,
        };
        self.machines.insert(n, machine);
        self.start(n).await;
    }

    pub(super) async fn try_start(&mut self, n: u8) -> Result<(), LogsError> {
        let node = self.node(n);
        let life = LifeId(randomness::random_bytes());
        let view = ClusterView::standalone(node, DEFAULT_LEASE);
        let machine = self.machines.get_mut(&n).unwrap();
        let start = ReplicationStart {
            key: key(n),
            instance: life,
            folder: machine.folder.path().join("cluster"),
            witness: Witnesses::open(machine.folder.path())
                .unwrap()
                .witnesses
                .witness("cluster/logs/logs"),
            lease: DEFAULT_LEASE,
            clock,
            view: Arc::new(Snapshot::new(view)),
            access: machine.access.clone(),
            events: sink(&self.wires, node, life),
            audit: AuditHandle::disabled(),
        };
        let (handle, cell) = ReplicationActor::start(start).await?;
        machine.running = Some(cell);
        lock(&self.wires).nodes.insert(node, handle);
        Ok(())
    }

    pub(super) async fn start(&mut self, n: u8) {
        self.try_start(n).await.unwrap();
        self.share(n).await;
    }

    /// Stops a node; its links end.
    pub(super) async fn stop(&mut self, n: u8) {
        self.unlink(n);
        let running = self.machines.get_mut(&n).unwrap().running.take();
        running.unwrap().stop_and_wait(None, None).await.unwrap();
    }

    /// Restarts a node, without links.
    pub(super) async fn restart(&mut self, n: u8) {
        self.stop(n).await;
        self.start(n).await;
    }

    /// Shares the server `files` of this node with all.
    pub(super) async fn share(&mut self, n: u8) {
        let files = ServerId::new("files");
        let mut shared = SharedTools::default();
        shared.add(files.clone(), None, "*");
        let names = BTreeSet::from([files]);
        let known = LocalServers { names, shared };
        self.handle(n).set_servers(known).await.unwrap();
    }

    pub(super) fn handle(&self, n: u8) -> ReplicationHandle {
        lock(&self.wires).nodes[&self.node(n)].clone()
    }

    pub(super) fn key(&self, n: u8) -> NodeKey {
        key(n)
    }

    pub(super) fn node(&self, n: u8) -> NodeId {
        key(n).node_id()
    }

    pub(super) fn view(&self, n: u8) -> Arc<ClusterView> {
        self.handle(n).view()
    }

    pub(super) fn folder(&self, n: u8) -> PathBuf {
        self.machines[&n].folder.path().join("cluster")
    }

    /// True if agent `a` of another node may use the server of this one.
    pub(super) fn is_granted(&self, n: u8, node: u8) -> bool {
        let caller = self.node(node).agent(AgentId::new("agent.a"));
        self.is_granted_to(n, AgentId::from_node_agent(&caller))
    }

    pub(super) fn is_granted_locally(&self, n: u8) -> bool {
        self.is_granted_to(n, AgentId::new("agent.a"))
    }

    fn is_granted_to(&self, n: u8, agent: AgentId) -> bool {
        let table = self.machines[&n].access.table();
        table.is_server_open(&Principal::Agent(agent), &ServerId::new("files"), 0)
    }

    fn others(&self, n: u8) -> Vec<NodeId> {
        let all = self.machines.keys().filter(|other| **other != n);
        all.map(|other| self.node(*other)).collect()
    }

    /// Removes all links of a node.
    pub(super) fn unlink(&mut self, n: u8) {
        let node = self.node(n);
        for other in self.others(n) {
            lock(&self.wires).nodes[&other].link_down(node);
            self.handle(n).link_down(other);
        }
        lock(&self.wires).apart.insert(node);
    }

    /// Links a node with all others.
    pub(super) fn link_all(&mut self, n: u8) {
        let node = self.node(n);
        lock(&self.wires).apart.remove(&node);
        for other in self.others(n) {
            lock(&self.wires).nodes[&other].link_up(node);
            self.handle(n).link_up(other);
        }
    }

    /// Advances all clocks of leases, one step at a time.
    pub(super) async fn advance(&mut self, seconds: u64) {
        for _ in 0..seconds {
            NOW.set(NOW.get() + Duration::from_secs(1));
            for handle in lock(&self.wires).nodes.values() {
                handle.tick();
            }
            self.settle().await;
        }
    }

    /// Waits until every node has handled its pending messages.
    pub(super) async fn settle(&self) {
        for n in self.machines.keys() {
            self.handle(*n).read_logs(|_| ()).await.unwrap();
            self.machines[n].access.flush().await.unwrap();
        }
    }

    pub(super) async fn confirmed(&self, n: u8) {
        self.wait_until("its log is confirmed", |scene| scene.view(n).is_confirmed)
            .await;
    }

    pub(super) async fn wait_until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..2000 {
            if holds(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let views: Vec<_> = self.machines.keys().map(|n| self.view(*n)).collect();
        panic!("not in time: {what}: {views:#?}");
    }

    /// Copies the files of a node.
    pub(super) fn copy(&self, n: u8) -> BTreeMap<PathBuf, Vec<u8>> {
        let files = fs::read_dir(self.folder(n)).unwrap();
        let files = files.map(|file| file.unwrap().path());
        files
            .map(|path| (path.clone(), fs::read(&path).unwrap()))
            .collect()
    }

    pub(super) fn restore(&self, n: u8, copy: &BTreeMap<PathBuf, Vec<u8>>) {
        let at: &Path = &self.folder(n);
        fs::create_dir_all(at).unwrap();
        for (path, bytes) in copy {
            fs::write(at.join(path.file_name().unwrap()), bytes).unwrap();
        }
    }

    /// Sets the machine aside without links, and starts another one with its key and an empty disk.
    pub(super) fn set_aside(&mut self, n: u8) -> SetAside {
        self.unlink(n);
        let handle = self.handle(n);
        let machine = self.machines.get_mut(&n).unwrap();
        // Its files stay open.
        machine.folder = tempfile::tempdir().unwrap();
        SetAside {
            handle,
            _cell: machine.running.take().unwrap(),
        }
    }

    /// Links the other instance with this key in its place.
    pub(super) fn swap(&mut self, n: u8, aside: &SetAside) {
        let node = self.node(n);
        self.unlink(n);
        let other = lock(&self.wires).nodes.insert(node, aside.handle.clone());
        self.link_all(n);
        // The next swap restores the first one, which continued as well.
        drop(other);
    }
}
