//! The shared handle of a server, for calls and reports that do not involve its supervisor.

mod instances;
mod readiness;
mod route_candidate;
mod usage;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::policy::risk;
use mgp_engine::policy::trust::TrustLevel;
use mgp_engine::servers::lifecycle::LifecycleState;
use mgp_engine::servers::replica_spec::ReplicaSpec;
use mgp_engine::servers::spec::{MgpConfig, ServerLimits, ServerTransport};
use mgp_engine::servers::supervision::RollStatus;
use mgp_engine::tools::catalog::{OfferCounts, ServerOffer};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::health::Health;
use mgp_protocol::mgp::negotiation::Active;
use mgp_protocol::mgp::servers::{NegotiatedMgp as SpokenMgp, Sandbox, Server};
use mgp_protocol::refusal::Refusal;
use mgp_screening::results::Findings;
use mgp_sync::{FillToken, Slot, Snapshot};
use mgp_transports::log::ServerLog;
use tokio::sync::{Notify, watch};

pub(crate) use self::instances::InstanceOwner;
use self::instances::{InstanceState, InstanceTable};
use super::ServerMsg;
use super::protocol_families::SpokenFamilies;
use super::resource_usage::ResourceSnapshot;
use super::start_progress::StartProgress;
use crate::link::call_slots::CallSlots;
use crate::link::{Link, List};
use mgp_runtime::time::monotonic_now;
use mgp_runtime::{AskError, Mailbox};

/// All servers, by id.
pub type ServerTable = Snapshot<BTreeMap<ServerId, Arc<ServerHandle>>>;

/// A server as seen by everything except its supervisor. Outlives supervisors and connections of the server.
#[derive(Debug)]
pub struct ServerHandle {
    /// The id of the server.
    pub id: ServerId,
    /// Its stderr output and the kernel's notes.
    pub log: ServerLog,
    link: Slot<Link>,
    tenancy: Mutex<Option<FillToken>>,
    /// The connection of a replaced generation that finishes its calls and tasks.
    draining_link: Mutex<Weak<Link>>,
    supervisor: RwLock<Option<Mailbox<ServerMsg>>>,
    status: watch::Sender<Status>,
    /// The result of the last health check on this connection.
    health: Mutex<Option<Health>>,
    /// The server's own names of its last listed tools.
    tools: Mutex<Arc<[Arc<str>]>>,
    /// Its last lists, of any generation under the same configuration.
    last_offer: Mutex<Option<ServerOffer>>,
    /// The calls that wait until it is connected.
    waiting_calls: CallSlots,
    /// Notified when a call begins to wait for it.
    called: Notify,
    /// True once its offer was visible to agents under the current configuration.
    was_connected: AtomicBool,
    /// The last use by a caller, in milliseconds of the kernel's clock.
    last_used_ms: AtomicU64,
    /// True if the current generation was called.
    was_called: AtomicBool,
    /// How long the last start took.
    last_start: Mutex<Option<Duration>>,
    generation_lock: Arc<tokio::sync::Mutex<()>>,
    /// Set for an instance; `None` for the server itself.
    instance: Option<InstanceState>,
    instances: InstanceTable,
    /// The protocol families of its last connection.
    last_families: Mutex<Option<SpokenFamilies>>,
    /// True if, since its last connection, it exited during the probe and was restarted without counting a
    /// failure.
    early_exit_excused: AtomicBool,
    /// True if it declared less trust than its configuration grants.
    trust_lowered: AtomicBool,
    /// The sandbox of its process, since the last start.
    sandbox: Mutex<Option<Sandbox>>,
}

/// What is known of the process of a server on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalProcess {
    /// Its home directory.
    pub home: Option<Arc<str>>,
    /// The operator configured it.
    is_configured: bool,
}

impl LocalProcess {
    /// The process of a server, if it is one.
    pub(crate) fn from_transport(transport: &ServerTransport) -> Option<Self> {
        let ServerTransport::Stdio { env, .. } = transport else {
            return None;
        };
        let configured = env.get("HOME").cloned();
        let is_configured = configured.is_some();
        let home = configured.or_else(|| std::env::var("HOME").ok());
        Some(Self {
            home: home.map(Arc::from),
            is_configured,
        })
    }
}

/// The status that the supervisor publishes.
#[derive(Debug, Clone)]
pub struct Status {
    /// The MGP state.
    pub state: LifecycleState,
    /// The reason for the state.
    pub reason: String,
    /// The start of the state.
    pub since: MonotonicTime,
    /// The time of the next start.
    pub next_start: Option<MonotonicTime>,
    /// The number of restarts within the counted period.
    pub restarts: u32,
    /// The process id of the child; 0 if there is none.
    pub pid: Option<Arc<AtomicI32>>,
    /// Remarks on its lists, with omissions first.
    pub(crate) remarks: Vec<String>,
    /// What agents do not see of it, with reasons.
    pub(crate) omitted: Vec<String>,
    /// Mistakes in its definitions that were repaired.
    pub(crate) repaired: Vec<String>,
    /// The trust level granted by the operator.
    pub(crate) trust: TrustLevel,
    /// Its process, if it is one of this node.
    pub(crate) process: Option<LocalProcess>,
    /// Its command line or URL.
    pub(crate) command_or_url: Arc<[String]>,
    /// The MGP settings of its configuration.
    pub declared: Arc<MgpConfig>,
    /// True if it waits for the operator; calls then do not wait for it.
    pub awaits_operator: bool,
    /// True if it starts without an operator: for the first time, or again after it has stopped.
    pub starts_automatically: bool,
    /// True if it runs on demand.
    pub(crate) starts_by_calls: bool,
    /// True if it does not run, and a call starts it.
    pub starts_on_call: bool,
    /// The number of the last generation that failed; 0 if none has.
    pub(crate) failed_generation: u64,
    /// The longest start.
    pub(crate) start_timeout: Duration,
    /// The maximum of calls that may wait for it.
    pub(crate) waiting_calls_max: usize,
    /// The replica mark set by the operator.
    pub(crate) mark: Option<ReplicaSpec>,
    /// True if it is remote and unreachable.
    pub(crate) unreachable: bool,
    /// The status of its last rolling restart.
    pub roll: RollStatus,
    /// True if two of its generations may run at once.
    pub can_roll: bool,
    /// The start of the current generation.
    pub start: Option<StartProgress>,
    /// The output line that best explains why the previous generation ended, if it ended by itself; only for the
    /// operator.
    pub(crate) last_output: Option<Arc<str>>,
}

impl Status {
    /// True if it waits for a call, and has not failed.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.starts_on_call
            && !self.starts_automatically
            && matches!(
                self.state,
                LifecycleState::Registered | LifecycleState::Disconnected
            )
    }

    /// The process id of its child, if there is one.
    fn process(&self) -> Option<u32> {
        let pid = self.pid.as_ref()?.load(Ordering::Relaxed);
        u32::try_from(pid).ok().filter(|&pid| pid != 0)
    }

    /// The reason for the state, and the output line that explains it.
    fn describe(&self, log: &ServerLog) -> (String, Option<String>) {
        let starts = matches!(
            self.state,
            LifecycleState::Connecting | LifecycleState::Restarting
        ) && !self.awaits_operator;
        match self.start.as_ref().filter(|_| starts) {
            Some(start) => (start.describe(), start.last_line(log)),
            None => (
                self.reason.clone(),
                self.last_output.as_deref().map(Into::into),
            ),
        }
    }
}

impl ServerHandle {
    /// Creates the handle of a server without a supervisor.
    #[must_use]
    pub fn new(id: ServerId, log: ServerLog) -> Arc<Self> {
        Arc::new(Self::build(id, log, None, Arc::default()))
    }

    fn build(
        id: ServerId,
        log: ServerLog,
        instance: Option<InstanceState>,
        generation_lock: Arc<tokio::sync::Mutex<()>>,
    ) -> Self {
        let status = Status {
            state: LifecycleState::Registered,
            reason: String::new(),
            since: monotonic_now(),
            next_start: None,
            restarts: 0,
            pid: None,
            remarks: Vec::new(),
            omitted: Vec::new(),
            repaired: Vec::new(),
            trust: TrustLevel::default(),
            process: None,
            command_or_url: Arc::default(),
            declared: Arc::default(),
            awaits_operator: false,
            starts_automatically: false,
            starts_by_calls: false,
            starts_on_call: false,
            failed_generation: 0,
            start_timeout: ServerLimits::default().start_timeout,
            waiting_calls_max: ServerLimits::default().max_in_flight,
            mark: None,
            unreachable: false,
            roll: RollStatus::None,
            can_roll: false,
            start: None,
            last_output: None,
        };
        Self {
            id,
            log,
            link: Slot::new(),
            tenancy: Mutex::new(None),
            draining_link: Mutex::default(),
            supervisor: RwLock::new(None),
            status: watch::Sender::new(status),
            health: Mutex::new(None),
            tools: Mutex::new(Arc::new([])),
            last_offer: Mutex::new(None),
            waiting_calls: CallSlots::default(),
            called: Notify::new(),
            was_connected: AtomicBool::new(false),
            last_used_ms: AtomicU64::new(0),
            was_called: AtomicBool::new(false),
            last_start: Mutex::default(),
            generation_lock,
            instance,
            instances: InstanceTable::new(),
            last_families: Mutex::new(None),
            early_exit_excused: AtomicBool::new(false),
            trust_lowered: AtomicBool::new(false),
            sandbox: Mutex::new(None),
        }
    }

    /// Creates the handle of a server that is started as soon as its id is free.
    #[must_use]
    pub fn new_due(id: ServerId, log: ServerLog) -> Arc<Self> {
        let handle = Self::new(id, log);
        handle.mark_due();
        handle
    }

    fn mark_due(&self) {
        self.publish(Status {
            starts_automatically: true,
            ..self.status()
        });
    }

    /// Creates the handle of a server that cannot run as configured.
    #[must_use]
    pub fn new_misconfigured(id: ServerId, log: ServerLog, why: &str) -> Arc<Self> {
        let handle = Self::new(id, log);
        handle.publish(Status {
            state: LifecycleState::Error,
            reason: why.to_owned(),
            ..handle.status()
        });
        handle
    }

    /// Creates the handle of a server that a person must approve first.
    #[must_use]
    pub fn new_unapproved(
        id: ServerId,
        log: ServerLog,
        declared: MgpConfig,
        why: &str,
    ) -> Arc<Self> {
        let handle = Self::new(id, log);
        handle.publish(Status {
            reason: why.to_owned(),
            awaits_operator: true,
            trust: declared.trust_level,
            declared: Arc::new(declared),
            ..handle.status()
        });
        handle
    }

    /// The current connection, if there is one.
    #[must_use]
    pub fn link(&self) -> Option<Arc<Link>> {
        self.link.get()
    }

    /// The connection of a replaced generation that finishes its calls and tasks.
    #[must_use]
    pub(crate) fn draining_link(&self) -> Option<Arc<Link>> {
        let leaving = self
            .draining_link
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        leaving.upgrade()
    }

    pub(super) fn set_draining_link(&self, link: &Arc<Link>) {
        let mut leaving = self
            .draining_link
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *leaving = Arc::downgrade(link);
    }

    /// The MGP lifecycle state.
    #[must_use]
    pub fn state(&self) -> LifecycleState {
        self.status.borrow().state
    }

    /// Its replica mark; for a server on another node, the owner's.
    #[must_use]
    pub fn mark(&self) -> Option<ReplicaSpec> {
        self.status.borrow().mark
    }

    /// The last published status.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Its process, if it is one of this node. In a sandbox its home directory is its own, unless it is configured.
    #[must_use]
    pub fn local_process(&self) -> Option<LocalProcess> {
        let process = self.status.borrow().process.clone()?;
        let is_known = process.is_configured || self.sandbox().is_none();
        Some(LocalProcess {
            home: process.home.filter(|_| is_known),
            ..process
        })
    }

    /// Its trust level: the operator's, or less if the server declares less.
    #[must_use]
    pub fn trust(&self) -> TrustLevel {
        let link = self.link.get();
        let active = link.as_deref().and_then(|link| link.mgp().as_active());
        let claimed = active.and_then(|active| active.peer.trust_level.as_deref());
        risk::effective_trust(self.status.borrow().trust, claimed)
    }

    /// True if it may receive audit events about all servers.
    #[must_use]
    pub(crate) fn can_audit(&self) -> bool {
        !self.trust().is_sandboxed()
    }

    /// A watch on the published status.
    #[must_use]
    pub fn watch_status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Sends a message to the supervisor.
    ///
    /// # Errors
    /// [`AskError`] if the supervisor is gone or overloaded.
    pub fn send(&self, message: ServerMsg) -> Result<(), AskError> {
        self.supervisor()?.send(message)
    }

    /// Requests that a stale list is fetched again. During a fetch, any number of requests causes at most one
    /// more.
    pub fn refetch_list(&self, list: List) {
        let _ = self.send(ServerMsg::ListChanged(list));
    }

    /// The supervisor's mailbox.
    ///
    /// # Errors
    /// [`AskError::Stopped`] if there is none.
    pub fn supervisor(&self) -> Result<Mailbox<ServerMsg>, AskError> {
        let supervisor = self
            .supervisor
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        supervisor.clone().ok_or(AskError::Stopped)
    }

    /// The result of the last health check; `None` before the first.
    #[must_use]
    pub fn health(&self) -> Option<Health> {
        *self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server's own names of its last listed tools, connected or not.
    #[must_use]
    pub fn tools(&self) -> Arc<[Arc<str>]> {
        let tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        tools.clone()
    }

    /// Sets the fetched lists, and the part that agents see.
    pub(super) fn set_offer(&self, offer: &ServerOffer, visible: ServerOffer) {
        let tools = offer.tools().iter();
        let tools = tools.map(|tool| tool.own_name.clone()).collect();
        *self.tools.lock().unwrap_or_else(PoisonError::into_inner) = tools;
        self.set_last(Some(visible));
    }

    /// Clears the lists after the configuration changed to another server.
    pub(super) fn clear_offer(&self) {
        self.set_last(None);
        self.was_connected.store(false, Ordering::Relaxed);
    }

    /// Records that the server's offer is visible to agents.
    pub(super) fn set_connected(&self) {
        self.was_connected.store(true, Ordering::Relaxed);
    }

    fn set_last(&self, offer: Option<ServerOffer>) {
        *self
            .last_offer
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = offer;
    }

    /// Its last lists, connected or not; `None` before the first.
    #[must_use]
    pub fn last_offer(&self) -> Option<ServerOffer> {
        let last = self
            .last_offer
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        last.clone()
    }

    /// True if it has listed its offer since the kernel started.
    pub(super) fn has_offered(&self) -> bool {
        let last = self
            .last_offer
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        last.is_some()
    }

    pub(super) fn set_healthy(&self, health: Health) {
        self.set_health(Some(health));
    }

    fn set_health(&self, health: Option<Health>) {
        *self.health.lock().unwrap_or_else(PoisonError::into_inner) = health;
    }

    /// The refusal with the reason why it takes no calls now.
    pub fn not_ready_refusal(&self) -> Refusal {
        let status = self.status.borrow();
        Refusal::NotReady {
            server: self.id.clone(),
            state: status.state.as_str(),
            // Only the operator may read the ids of pending entries.
            reason: Some(if status.awaits_operator {
                "it waits for the operator's approval".into()
            } else {
                status.reason.clone()
            }),
            retry_after_ms: status
                .next_start
                .map(|at| ms(at.duration_since(monotonic_now()))),
            unreachable: status.unreachable,
        }
    }

    /// The report for the operator, with the resource usage of a snapshot.
    #[must_use]
    pub fn report(&self, counts: OfferCounts, snapshot: &ResourceSnapshot) -> Server {
        let status = self.status();
        let (reason, output) = status.describe(&self.log);
        let link = self.link();
        let peer = link.as_ref().and_then(|l| l.peer());
        let waiting_turn = link.as_ref().map_or(0, |l| l.queued_calls() as u64);
        let (noise_lines, oversized, dropped_notifications) =
            link.as_ref().map_or((0, 0, 0), |l| l.odd_message_counts());
        Server {
            id: self.id.to_string(),
            state: status.state.to_string(),
            sleeping: status.is_asleep(),
            start_ms: self.last_start().map(ms),
            reason: Some(match waiting_turn {
                0 => reason,
                calls => describe_waiting(calls),
            }),
            said: output,
            health: link
                .as_ref()
                .and(self.health())
                .map(|h| h.as_str().to_owned()),
            since_ms: ms(monotonic_now().duration_since(status.since)),
            next_try_ms: status
                .next_start
                .map(|at| ms(at.duration_since(monotonic_now()))),
            restarts: status.restarts,
            rolling: status.roll.render(),
            registered_by: None,
            runs: status.command_or_url.to_vec(),
            transport: link.as_ref().map_or("", |l| l.transport()).to_owned(),
            pid: status.process(),
            uses: snapshot.server(&self.id),
            protocol_version: link.as_deref().and_then(Link::render_versions),
            server_info: peer
                .and_then(|p| p.info.as_deref())
                .map(render_name_version),
            tools: counts.tools as u64,
            resources: (counts.resources + counts.templates) as u64,
            prompts: counts.prompts as u64,
            in_flight: self.in_flight(),
            waiting_turn,
            noise_lines,
            oversized,
            dropped_notifications,
            rejected: status.remarks,
            left_out: status.omitted,
            repaired: status.repaired,
            trust_level: self.trust().as_str().to_owned(),
            mgp: link
                .as_deref()
                .and_then(|l| l.mgp().as_active())
                .map(to_spoken_mgp),
            sandbox: self.sandbox(),
            instances: self.instance_reports(snapshot),
            replicas: Vec::new(),
            login: None,
            permissions: Vec::new(),
            unpinned: false,
            results: self.describe_guard(),
        }
    }

    /// How its results are guarded, and what was found since it was connected; `None` if they are not.
    #[must_use]
    pub fn describe_guard(&self) -> Option<String> {
        self.link()?.describe_guard()
    }

    /// What was found in its results since it was connected; `None` if they are not guarded.
    #[must_use]
    pub fn guard_findings(&self) -> Option<Findings> {
        self.link()?.guard_findings()
    }

    /// Sets the supervisor; the connection of an earlier one is not used any more.
    pub(super) fn set_supervisor(&self, supervisor: Mailbox<ServerMsg>) {
        self.clear_link();
        let mut mailbox = self
            .supervisor
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *mailbox = Some(supervisor);
    }

    pub(super) fn clear_supervisor(&self) {
        self.clear_link();
        let mut mailbox = self
            .supervisor
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *mailbox = None;
    }

    pub(super) fn set_link(&self, link: Arc<Link>) {
        self.set_health(None);
        let mut tenancy = self.tenancy.lock().unwrap_or_else(PoisonError::into_inner);
        *tenancy = Some(self.link.fill(link));
    }

    /// Stops using this connection; a newer one stays.
    pub(crate) fn retire(&self, number: u64) {
        let mut tenancy = self.tenancy.lock().unwrap_or_else(PoisonError::into_inner);
        if self.link.get().is_some_and(|link| link.number == number)
            && let Some(tenancy) = tenancy.take()
        {
            self.link.vacate(tenancy);
        }
    }

    pub(super) fn clear_link(&self) {
        let tenancy = self
            .tenancy
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(tenancy) = tenancy {
            self.link.vacate(tenancy);
        }
    }

    /// Locked by each generation, because the end of a generation kills all processes with the server's mark and
    /// must not affect the next one.
    pub(super) async fn lock_generation(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.generation_lock.lock().await
    }

    /// Takes the protocol families of the last connection. They are removed, so that after a failed start the
    /// server is probed again.
    pub(super) fn take_families(&self) -> Option<SpokenFamilies> {
        let mut spoken = self
            .last_families
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        spoken.take()
    }

    /// Records a connection with these families.
    pub(super) fn record_families(&self, families: SpokenFamilies) {
        self.early_exit_excused.store(false, Ordering::Relaxed);
        self.set_families(families);
    }

    /// Records that the server exited during the probe; the next start assumes these families. True if it is to
    /// be restarted at once, which happens only once.
    pub(super) fn record_probe_exit(&self, families: SpokenFamilies) -> bool {
        self.set_families(families);
        !self.early_exit_excused.swap(true, Ordering::Relaxed)
    }

    fn set_families(&self, families: SpokenFamilies) {
        let mut spoken = self
            .last_families
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *spoken = Some(families);
    }

    /// Lowers the trust to what the server declared, for all its processes until its configuration changes.
    pub(super) fn lower_trust(&self) {
        self.trust_lowered.store(true, Ordering::Relaxed);
    }

    pub(super) fn restore_trust(&self) {
        self.trust_lowered.store(false, Ordering::Relaxed);
    }

    pub(super) fn is_trust_lowered(&self) -> bool {
        self.trust_lowered.load(Ordering::Relaxed)
    }

    pub(super) fn set_sandbox(&self, sandbox: Option<Sandbox>) {
        *self.sandbox.lock().unwrap_or_else(PoisonError::into_inner) = sandbox;
    }

    /// Reports a destination that its sandbox refused.
    pub(super) fn add_refused_destination(&self, destination: String) {
        let mut sandbox = self.sandbox.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sandbox) = sandbox.as_mut() {
            sandbox.refused.push(destination);
        }
    }

    /// The sandbox of its process; `None` without one.
    #[must_use]
    pub fn sandbox(&self) -> Option<Sandbox> {
        let sandbox = self.sandbox.lock().unwrap_or_else(PoisonError::into_inner);
        sandbox.clone()
    }

    pub(super) fn publish(&self, status: Status) {
        self.status.send_replace(status);
    }
}

fn describe_waiting(calls: u64) -> String {
    let (calls, wait) = match calls {
        1 => ("1 call".to_owned(), "waits for its turn"),
        calls => (format!("{calls} calls"), "wait for their turn"),
    };
    format!(
        "{calls} {wait}: its callbacks do not name their call; see `questions` in docs/upstreams.md"
    )
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn render_name_version(info: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(info).unwrap_or_default();
    let text = |key: &str| value.get(key).and_then(|v| v.as_str()).unwrap_or("");
    format!("{} {}", text("name"), text("version"))
        .trim()
        .to_owned()
}

fn to_spoken_mgp(active: &Active) -> SpokenMgp {
    let peer = &active.peer;
    SpokenMgp {
        version: active.version.to_string(),
        extensions: active
            .extension_names()
            .iter()
            .map(ToString::to_string)
            .collect(),
        server_id: peer.server_id.clone(),
        permissions_required: peer.permissions_required.clone(),
        trust_level: peer.trust_level.clone(),
    }
}
