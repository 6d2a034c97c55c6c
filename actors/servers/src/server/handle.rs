//! What calls and reports use of one server, without asking its supervisor.

mod instances;
mod readiness;
mod route_candidate;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::policy::risk;
use mgp_engine::policy::trust::TrustLevel;
use mgp_engine::servers::lifecycle::LifecycleState;
use mgp_engine::servers::replica_spec::ReplicaSpec;
use mgp_engine::servers::spec::{MgpConfig, ServerLimits};
use mgp_engine::servers::supervision::RollStatus;
use mgp_engine::tools::catalog::{OfferCounts, ServerOffer};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::health::Health;
use mgp_protocol::mgp::negotiation::Active;
use mgp_protocol::mgp::servers::{NegotiatedMgp as SpokenMgp, Sandbox, Server};
use mgp_protocol::refusal::Refusal;
use mgp_sync::{FillToken, Slot, Snapshot};
use mgp_transports::log::ServerLog;
use tokio::sync::watch;

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

/// One server, as all but its supervisor see it. Outlives every supervisor and connection of the server.
#[derive(Debug)]
pub struct ServerHandle {
    /// Its id.
    pub id: ServerId,
    /// What it wrote to stderr, and what the kernel noticed.
    pub log: ServerLog,
    link: Slot<Link>,
    tenancy: Mutex<Option<FillToken>>,
    /// The connection of a life that was replaced and finishes its calls and tasks.
    draining_link: Mutex<Weak<Link>>,
    supervisor: RwLock<Option<Mailbox<ServerMsg>>>,
    status: watch::Sender<Status>,
    /// The result of the last health check of this connection.
    health: Mutex<Option<Health>>,
    /// Its own names of the tools it offered last.
    tools: Mutex<Arc<[Arc<str>]>>,
    /// All it offered last, in any life under the same configuration.
    last_offer: Mutex<Option<ServerOffer>>,
    /// Calls that wait until it is connected.
    waiting_calls: CallSlots,
    /// Agents could see what it offers, under the present configuration.
    was_connected: AtomicBool,
    generation_lock: Arc<tokio::sync::Mutex<()>>,
    /// Set for an agent's instance; `None` for the server itself.
    instance: Option<InstanceState>,
    instances: InstanceTable,
    /// The eras it spoke when it was last connected.
    last_families: Mutex<Option<SpokenFamilies>>,
    /// Since its last connection it exited at the question about its era and was restarted, uncounted.
    early_exit_excused: AtomicBool,
    /// It declared less trust than its configuration gives.
    trust_lowered: AtomicBool,
    /// The sandbox of its process, since its last start.
    sandbox: Mutex<Option<Sandbox>>,
}

/// What the supervisor publishes.
#[derive(Debug, Clone)]
pub struct Status {
    /// The MGP state.
    pub state: LifecycleState,
    /// The reason for the state.
    pub reason: String,
    /// Since when it holds.
    pub since: MonotonicTime,
    /// When it is started next.
    pub next_start: Option<MonotonicTime>,
    /// Restarts within the time that is counted.
    pub restarts: u32,
    /// Process id of the child; 0 while there is none.
    pub pid: Option<Arc<AtomicI32>>,
    /// What was odd about its lists; what was left out comes first.
    pub(crate) remarks: Vec<String>,
    /// What agents do not see of it, with the reasons.
    pub(crate) omitted: Vec<String>,
    /// What of it had slips that were mended.
    pub(crate) repaired: Vec<String>,
    /// The trust that the operator gave it.
    pub(crate) trust: TrustLevel,
    /// Its command line or URL.
    pub(crate) command_or_url: Arc<[String]>,
    /// The MGP settings of its configuration.
    pub declared: Arc<MgpConfig>,
    /// It waits for the operator; calls do not wait for it.
    pub awaits_operator: bool,
    /// It is started without an operator: for the first time, or again after it has stopped.
    pub starts_automatically: bool,
    /// How many calls may wait for it.
    pub(crate) waiting_calls_max: usize,
    /// The operator marked it as one of several that are alike.
    pub(crate) mark: Option<ReplicaSpec>,
    /// It is remote, and could not be reached or went away.
    pub(crate) unreachable: bool,
    /// Its last rolling restart.
    pub roll: RollStatus,
    /// Two lives of it may run at once.
    pub can_roll: bool,
    /// The current life.
    pub start: Option<StartProgress>,
    /// The line of the last life's output that best explains its end, if it ended by itself: only for the
    /// operator.
    pub(crate) last_output: Option<Arc<str>>,
}

impl Status {
    /// Process id of its child, if there is one.
    fn process(&self) -> Option<u32> {
        let pid = self.pid.as_ref()?.load(Ordering::Relaxed);
        u32::try_from(pid).ok().filter(|&pid| pid != 0)
    }

    /// Why the server is in its state, and the part of its output that explains it.
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
    /// The handle of a server that has no supervisor yet.
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
            command_or_url: Arc::default(),
            declared: Arc::default(),
            awaits_operator: false,
            starts_automatically: false,
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
            was_connected: AtomicBool::new(false),
            generation_lock,
            instance,
            instances: InstanceTable::new(),
            last_families: Mutex::new(None),
            early_exit_excused: AtomicBool::new(false),
            trust_lowered: AtomicBool::new(false),
            sandbox: Mutex::new(None),
        }
    }

    /// The handle of a server that is started as soon as its id is free.
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

    /// The handle of a server that cannot be run as configured.
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

    /// The handle of a server that may run only after a person has approved it.
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

    /// The connection, if there is one now.
    #[must_use]
    pub fn link(&self) -> Option<Arc<Link>> {
        self.link.get()
    }

    /// The connection of a life that was replaced, while it finishes its calls and tasks.
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

    /// The MGP state.
    #[must_use]
    pub fn state(&self) -> LifecycleState {
        self.status.borrow().state
    }

    /// Its mark as one of several that are alike; of a server of another node its owner tells.
    #[must_use]
    pub fn mark(&self) -> Option<ReplicaSpec> {
        self.status.borrow().mark
    }

    /// The last published status.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Its trust: what the operator gave, or less if the server itself declares less.
    #[must_use]
    pub fn trust(&self) -> TrustLevel {
        let link = self.link.get();
        let said = link.as_deref().and_then(|link| link.mgp().as_active());
        let claimed = said.and_then(|active| active.peer.trust_level.as_deref());
        risk::effective_trust(self.status.borrow().trust, claimed)
    }

    /// Whether it may receive events about all servers from the audit log.
    #[must_use]
    pub(crate) fn can_audit(&self) -> bool {
        self.trust() != TrustLevel::Sandboxed
    }

    /// Follows the published status.
    #[must_use]
    pub fn watch_status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Sends to the supervisor.
    ///
    /// # Errors
    /// [`AskError`] when it is gone or overloaded.
    pub fn send(&self, message: ServerMsg) -> Result<(), AskError> {
        self.supervisor()?.send(message)
    }

    /// Has a list fetched again that is no longer fresh. While a fetch is running, any number of requests
    /// causes one more at most.
    pub fn refetch_list(&self, list: List) {
        let _ = self.send(ServerMsg::ListChanged(list));
    }

    /// The supervisor's mailbox.
    ///
    /// # Errors
    /// [`AskError::Stopped`] when there is none.
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

    /// Its own names of the tools it offered last, connected or not.
    #[must_use]
    pub fn tools(&self) -> Arc<[Arc<str>]> {
        let tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        tools.clone()
    }

    /// What it offers, and what agents are shown of that.
    pub(super) fn set_offer(&self, offer: &ServerOffer, shown: ServerOffer) {
        let tools = offer.tools().iter();
        let tools = tools.map(|tool| tool.own_name.clone()).collect();
        *self.tools.lock().unwrap_or_else(PoisonError::into_inner) = tools;
        self.set_last(Some(shown));
    }

    /// The configuration names another server now: earlier offers do not count.
    pub(super) fn clear_offer(&self) {
        self.set_last(None);
        self.was_connected.store(false, Ordering::Relaxed);
    }

    /// Agents can see what it offers.
    pub(super) fn set_connected(&self) {
        self.was_connected.store(true, Ordering::Relaxed);
    }

    fn set_last(&self, offer: Option<ServerOffer>) {
        *self
            .last_offer
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = offer;
    }

    /// What it offered last, connected or not; `None` before its first offer.
    #[must_use]
    pub fn last_offer(&self) -> Option<ServerOffer> {
        let last = self
            .last_offer
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        last.clone()
    }

    /// Whether it has listed what it offers since the kernel started.
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

    /// Why it takes no calls now.
    pub fn not_ready_refusal(&self) -> Refusal {
        let status = self.status.borrow();
        Refusal::NotReady {
            server: self.id.clone(),
            state: status.state.as_str(),
            // Only the operator may read the ids of questions.
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

    /// The server as the operator sees it, with what the look says that it uses.
    #[must_use]
    pub fn report(&self, counts: OfferCounts, look: &ResourceSnapshot) -> Server {
        let status = self.status();
        let (reason, said) = status.describe(&self.log);
        let link = self.link();
        let peer = link.as_ref().and_then(|l| l.peer());
        let waiting_turn = link.as_ref().map_or(0, |l| l.queued_calls() as u64);
        let (noise_lines, oversized, dropped_notifications) =
            link.as_ref().map_or((0, 0, 0), |l| l.odd_message_counts());
        Server {
            id: self.id.to_string(),
            state: status.state.to_string(),
            reason: Some(match waiting_turn {
                0 => reason,
                calls => describe_waiting(calls),
            }),
            said,
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
            uses: look.server(&self.id),
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
            instances: self.instance_reports(look),
            replicas: Vec::new(),
            login: None,
            permissions: Vec::new(),
            unpinned: false,
        }
    }

    /// A supervisor was started; the connection of an earlier one is not given out any more.
    pub(super) fn set_supervisor(&self, supervisor: Mailbox<ServerMsg>) {
        self.clear_link();
        let mut place = self
            .supervisor
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *place = Some(supervisor);
    }

    pub(super) fn clear_supervisor(&self) {
        self.clear_link();
        let mut place = self
            .supervisor
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *place = None;
    }

    pub(super) fn set_link(&self, link: Arc<Link>) {
        self.set_health(None);
        let mut place = self.tenancy.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(self.link.fill(link));
    }

    /// Gives out this connection no more; a newer one stays.
    pub(crate) fn retire(&self, number: u64) {
        let mut place = self.tenancy.lock().unwrap_or_else(PoisonError::into_inner);
        if self.link.get().is_some_and(|link| link.number == number)
            && let Some(tenancy) = place.take()
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

    /// Held by each life, because the end of a life kills every process with the server's mark and must not
    /// reach the next one.
    pub(super) async fn lock_generation(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.generation_lock.lock().await
    }

    /// The eras it spoke last. Taking them forgets them, so that after a failed start the server is asked
    /// again.
    pub(super) fn take_families(&self) -> Option<SpokenFamilies> {
        let mut spoken = self
            .last_families
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        spoken.take()
    }

    /// It is connected and speaks these eras.
    pub(super) fn record_families(&self, eras: SpokenFamilies) {
        self.early_exit_excused.store(false, Ordering::Relaxed);
        self.set_families(eras);
    }

    /// It exited when asked about its era; next time these eras are assumed. True when it is to be
    /// restarted at once, which is done only once.
    pub(super) fn record_probe_exit(&self, eras: SpokenFamilies) -> bool {
        self.set_families(eras);
        !self.early_exit_excused.swap(true, Ordering::Relaxed)
    }

    fn set_families(&self, eras: SpokenFamilies) {
        let mut spoken = self
            .last_families
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *spoken = Some(eras);
    }

    /// It declared the lowest trust: that holds for all its processes until its configuration changes.
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

    /// The sandbox of its process; `None` where there is none.
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
        "{calls} {wait}: it asks without saying in which call; see `questions` in docs/upstreams.md"
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
    let said = &active.peer;
    SpokenMgp {
        version: active.version.to_string(),
        extensions: active
            .extension_names()
            .iter()
            .map(ToString::to_string)
            .collect(),
        server_id: said.server_id.clone(),
        permissions_required: said.permissions_required.clone(),
        trust_level: said.trust_level.clone(),
    }
}
