//! The public face of one server: what calls and reports read without asking its supervisor.

mod arrival;
mod instances;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::policy::risk;
use mgp_engine::policy::trust::TrustLevel;
use mgp_engine::servers::lifecycle::LifecycleState;
use mgp_engine::servers::spec::{MgpDeclaration, ServerLimits};
use mgp_engine::tools::catalog::{OfferCounts, ServerOffer};
use mgp_protocol::dialect::Era;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::health::Health;
use mgp_protocol::mgp::negotiation::Active;
use mgp_protocol::mgp::servers::{Sandbox, Server, Spoken as SpokenMgp};
use mgp_protocol::refusal::Refusal;
use mgp_sync::slot::{Slot, Tenancy};
use mgp_sync::snapshot::Snapshot;
use mgp_transports::log::ServerLog;
use tokio::sync::watch;

use self::instances::{OfAgent, ShownInstances};
use super::ServerMsg;
use super::spoken::SpokenEras;
use super::starts::Start;
use crate::link::{Link, List};
use mgp_runtime::mailbox::{AskError, Mailbox};
use mgp_runtime::time::moment;

/// All servers, by id.
pub type ServerTable = Snapshot<BTreeMap<ServerId, Arc<ServerHandle>>>;

/// One server, as everyone but its supervisor sees it. Outlives every supervisor and connection of
/// the server.
#[derive(Debug)]
pub struct ServerHandle {
    /// Its id.
    pub id: ServerId,
    /// What it wrote to stderr and what the kernel noticed about it.
    pub log: ServerLog,
    link: Slot<Link>,
    tenancy: Mutex<Option<Tenancy>>,
    supervisor: RwLock<Option<Mailbox<ServerMsg>>>,
    status: watch::Sender<Status>,
    /// How it was found the last time it was asked, since it was connected.
    health: Mutex<Option<Health>>,
    /// Its own names of the tools it last offered.
    tools: Mutex<Arc<[Arc<str>]>>,
    /// All that it last offered, in any of its lives under the same entry.
    last: Mutex<Option<ServerOffer>>,
    /// Calls that wait until it is connected.
    waiters: AtomicUsize,
    life: Arc<tokio::sync::Mutex<()>>,
    /// What makes it an agent's instance; `None` for the server itself.
    own: Option<OfAgent>,
    lives: ShownInstances,
    /// The eras it spoke the last time it was met.
    spoken: Mutex<Option<SpokenEras>>,
    /// It ended at a question about its era and was started again for nothing, since it was met.
    excused: AtomicBool,
    /// It said that it is trusted less than its entry says.
    lowered: AtomicBool,
    /// What holds its process, since its last start.
    sandbox: Mutex<Option<Sandbox>>,
}

/// What a supervisor publishes of its server.
#[derive(Debug, Clone)]
pub struct Status {
    /// MGP state.
    pub state: LifecycleState,
    /// Why.
    pub reason: String,
    /// Since when.
    pub since: MonotonicTime,
    /// When the next try is.
    pub next_try: Option<MonotonicTime>,
    /// Restarts within the window.
    pub restarts: u32,
    /// Process id of the child, 0 while there is none.
    pub pid: Option<Arc<AtomicI32>>,
    /// What was odd about its lists, what was left out first.
    pub rejected: Vec<String>,
    /// What of it agents do not see, with the reason.
    pub left_out: Vec<String>,
    /// Trust given by the operator.
    pub trust: TrustLevel,
    /// Its command line or address.
    pub runs: Arc<[String]>,
    /// What it is configured to speak and to need.
    pub declared: Arc<MgpDeclaration>,
    /// It waits for the operator, and nobody waits for it meanwhile.
    pub waiting: bool,
    /// It is to be started without anybody's doing: for the first time, or again once it has stopped.
    pub due: bool,
    /// How many calls may wait for it.
    pub places: usize,
    /// It is elsewhere, and was not reached or went away.
    pub unreachable: bool,
    /// The life that is under way.
    pub start: Option<Start>,
    /// What the last life wrote that tells most of its end, where nobody asked for that: for the operator
    /// alone.
    pub last_words: Option<Arc<str>>,
}

impl Status {
    /// Process id of its child, while there is one.
    fn process(&self) -> Option<u32> {
        let pid = self.pid.as_ref()?.load(Ordering::Relaxed);
        u32::try_from(pid).ok().filter(|&pid| pid != 0)
    }

    /// Why a server is where it is, and which of its own words belong to that.
    fn told(&self, log: &ServerLog) -> (String, Option<String>) {
        let starts = matches!(
            self.state,
            LifecycleState::Connecting | LifecycleState::Restarting
        ) && !self.waiting;
        match self.start.as_ref().filter(|_| starts) {
            Some(start) => (start.told(), start.newest(log)),
            None => (
                self.reason.clone(),
                self.last_words.as_deref().map(Into::into),
            ),
        }
    }
}

impl ServerHandle {
    /// The face of a server that has no supervisor yet.
    #[must_use]
    pub fn new(id: ServerId, log: ServerLog) -> Arc<Self> {
        Arc::new(Self::made(id, log, None, Arc::default()))
    }

    fn made(
        id: ServerId,
        log: ServerLog,
        own: Option<OfAgent>,
        life: Arc<tokio::sync::Mutex<()>>,
    ) -> Self {
        let status = Status {
            state: LifecycleState::Registered,
            reason: String::new(),
            since: moment(),
            next_try: None,
            restarts: 0,
            pid: None,
            rejected: Vec::new(),
            left_out: Vec::new(),
            trust: TrustLevel::default(),
            runs: Arc::default(),
            declared: Arc::default(),
            waiting: false,
            due: false,
            places: ServerLimits::default().max_in_flight,
            unreachable: false,
            start: None,
            last_words: None,
        };
        Self {
            id,
            log,
            link: Slot::new(),
            tenancy: Mutex::new(None),
            supervisor: RwLock::new(None),
            status: watch::Sender::new(status),
            health: Mutex::new(None),
            tools: Mutex::new(Arc::new([])),
            last: Mutex::new(None),
            waiters: AtomicUsize::new(0),
            life,
            own,
            lives: ShownInstances::none(),
            spoken: Mutex::new(None),
            excused: AtomicBool::new(false),
            lowered: AtomicBool::new(false),
            sandbox: Mutex::new(None),
        }
    }

    /// The face of a server that is started as soon as its name is free.
    #[must_use]
    pub fn due(id: ServerId, log: ServerLog) -> Arc<Self> {
        let handle = Self::new(id, log);
        handle.make_due();
        handle
    }

    fn make_due(&self) {
        self.publish(Status {
            due: true,
            ..self.status()
        });
    }

    /// The face of a server that cannot be run as it is configured.
    #[must_use]
    pub fn broken(id: ServerId, log: ServerLog, why: &str) -> Arc<Self> {
        let handle = Self::new(id, log);
        handle.publish(Status {
            state: LifecycleState::Error,
            reason: why.to_owned(),
            ..handle.status()
        });
        handle
    }

    /// The face of a server that nothing runs of before a person has said yes.
    #[must_use]
    pub fn held(id: ServerId, log: ServerLog, declared: MgpDeclaration, why: &str) -> Arc<Self> {
        let handle = Self::new(id, log);
        handle.publish(Status {
            reason: why.to_owned(),
            waiting: true,
            trust: declared.trust_level,
            declared: Arc::new(declared),
            ..handle.status()
        });
        handle
    }

    /// The connection, when there is one right now.
    #[must_use]
    pub fn link(&self) -> Option<Arc<Link>> {
        self.link.get()
    }

    /// MGP state.
    #[must_use]
    pub fn state(&self) -> LifecycleState {
        self.status.borrow().state
    }

    /// What the supervisor published last.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// How far it is trusted: the operator's word, or less where it says less of itself.
    #[must_use]
    pub fn trust(&self) -> TrustLevel {
        let link = self.link.get();
        let said = link.as_deref().and_then(|link| link.mgp().active());
        let claimed = said.and_then(|active| active.peer.trust_level.as_deref());
        risk::trust(self.status.borrow().trust, claimed)
    }

    /// Whether it may read what everybody else does: the audit log tells it of all servers.
    #[must_use]
    pub fn may_audit(&self) -> bool {
        self.trust() != TrustLevel::Sandboxed
    }

    /// Follows what the supervisor publishes.
    #[must_use]
    pub fn follow(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Tells the supervisor.
    ///
    /// # Errors
    /// [`AskError`] when it is gone or overloaded.
    pub fn tell(&self, message: ServerMsg) -> Result<(), AskError> {
        self.supervisor()?.tell(message)
    }

    /// Has a list fetched again: it was good for a time only, and that is over. Asking again while it
    /// is being fetched is one more fetch at most.
    pub fn refresh(&self, list: List) {
        let _ = self.tell(ServerMsg::ListChanged(list));
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

    /// How it was found the last time it was asked; `None` while it has not been asked.
    #[must_use]
    pub fn health(&self) -> Option<Health> {
        *self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its own names of the tools it last offered, whether it is connected or not.
    #[must_use]
    pub fn tools(&self) -> Arc<[Arc<str>]> {
        let tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        tools.clone()
    }

    pub(super) fn offers(&self, offer: &ServerOffer) {
        let tools = offer.tools().iter();
        let tools = tools.map(|tool| tool.own_name.clone()).collect();
        *self.tools.lock().unwrap_or_else(PoisonError::into_inner) = tools;
        self.set_last(Some(offer.clone()));
    }

    /// It is another server from now on: what it offered before says nothing of it.
    pub(super) fn offered_nothing(&self) {
        self.set_last(None);
    }

    fn set_last(&self, offer: Option<ServerOffer>) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = offer;
    }

    /// What it last offered, whether it is connected or not; `None` while it has offered nothing yet.
    #[must_use]
    pub fn last(&self) -> Option<ServerOffer> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.clone()
    }

    fn has_offered(&self) -> bool {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some()
    }

    pub(super) fn is_well(&self, health: Health) {
        self.set_health(Some(health));
    }

    fn set_health(&self, health: Option<Health>) {
        *self.health.lock().unwrap_or_else(PoisonError::into_inner) = health;
    }

    /// Why it takes no calls now.
    pub fn not_ready(&self) -> Refusal {
        let status = self.status.borrow();
        Refusal::NotReady {
            server: self.id.clone(),
            state: status.state.as_str(),
            // The names of questions are the operator's.
            reason: Some(match status.waiting {
                true => "it waits for the operator's approval".into(),
                false => status.reason.clone(),
            }),
            retry_after_ms: status.next_try.map(|at| ms(at.since(moment()))),
            unreachable: status.unreachable,
        }
    }

    /// The server as shown to the operator.
    #[must_use]
    pub fn report(&self, counts: OfferCounts) -> Server {
        let status = self.status();
        let (reason, said) = status.told(&self.log);
        let link = self.link();
        let peer = link.as_ref().and_then(|l| l.peer());
        let waiting_turn = link.as_ref().map_or(0, |l| l.waiting() as u64);
        let (noise_lines, oversized, dropped_notifications) =
            link.as_ref().map_or((0, 0, 0), |l| l.oddities());
        Server {
            id: self.id.to_string(),
            state: status.state.to_string(),
            reason: Some(match waiting_turn {
                0 => reason,
                calls => waiting_words(calls),
            }),
            said,
            health: link
                .as_ref()
                .and(self.health())
                .map(|h| h.as_str().to_owned()),
            since_ms: ms(moment().since(status.since)),
            next_try_ms: status.next_try.map(|at| ms(at.since(moment()))),
            restarts: status.restarts,
            registered_by: None,
            runs: status.runs.to_vec(),
            transport: link.as_ref().map_or("", |l| l.transport()).to_owned(),
            pid: status.process(),
            protocol_version: link.as_deref().and_then(spoken),
            server_info: peer.and_then(|p| p.info.as_deref()).map(name_version),
            tools: counts.tools as u64,
            resources: (counts.resources + counts.templates) as u64,
            prompts: counts.prompts as u64,
            in_flight: self.in_flight(),
            waiting_turn,
            noise_lines,
            oversized,
            dropped_notifications,
            rejected: status.rejected,
            left_out: status.left_out,
            trust_level: self.trust().as_str().to_owned(),
            mgp: link
                .as_deref()
                .and_then(|l| l.mgp().active())
                .map(spoken_mgp),
            sandbox: self.sandbox(),
            instances: self.instances(),
        }
    }

    /// A new supervisor; what an earlier one may have left behind is not handed out any more.
    pub(super) fn filled(&self, supervisor: Mailbox<ServerMsg>) {
        self.vacate();
        let mut place = self
            .supervisor
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *place = Some(supervisor);
    }

    pub(super) fn gone(&self) {
        self.vacate();
        let mut place = self
            .supervisor
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *place = None;
    }

    pub(super) fn fill(&self, link: Arc<Link>) {
        self.set_health(None);
        let mut place = self.tenancy.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(self.link.fill(link));
    }

    /// Hands the connection with this number to nobody any more; a newer one stays.
    pub(crate) fn retire(&self, number: u64) {
        let mut place = self.tenancy.lock().unwrap_or_else(PoisonError::into_inner);
        if self.link.get().is_some_and(|link| link.number == number)
            && let Some(tenancy) = place.take()
        {
            self.link.vacate(tenancy);
        }
    }

    pub(super) fn vacate(&self) {
        let tenancy = self
            .tenancy
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(tenancy) = tenancy {
            self.link.vacate(tenancy);
        }
    }

    /// Held by each life of the server, so that the end of one, which sweeps up all that carries the
    /// server's mark, never reaches into the next.
    pub(super) async fn alone(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.life.lock().await
    }

    /// What it spoke the last time. A start that fails leaves it forgotten, so that the next one asks
    /// anew.
    pub(super) fn take_spoken(&self) -> Option<SpokenEras> {
        let mut spoken = self.spoken.lock().unwrap_or_else(PoisonError::into_inner);
        spoken.take()
    }

    /// It was met, and speaks this.
    pub(super) fn met(&self, eras: SpokenEras) {
        self.excused.store(false, Ordering::Relaxed);
        self.speaks(eras);
    }

    /// It ended at a question about its era, and is to be spoken to like this the next time. True
    /// when that is at once; a server that ends at whatever it is asked has no more of it.
    pub(super) fn ended_at_question(&self, eras: SpokenEras) -> bool {
        self.speaks(eras);
        !self.excused.swap(true, Ordering::Relaxed)
    }

    fn speaks(&self, eras: SpokenEras) {
        let mut spoken = self.spoken.lock().unwrap_or_else(PoisonError::into_inner);
        *spoken = Some(eras);
    }

    /// It says of itself that it is trusted least: so is every process of its, until its entry changes.
    pub(super) fn lower(&self) {
        self.lowered.store(true, Ordering::Relaxed);
    }

    pub(super) fn unlower(&self) {
        self.lowered.store(false, Ordering::Relaxed);
    }

    pub(super) fn is_lowered(&self) -> bool {
        self.lowered.load(Ordering::Relaxed)
    }

    pub(super) fn set_sandbox(&self, sandbox: Option<Sandbox>) {
        *self.sandbox.lock().unwrap_or_else(PoisonError::into_inner) = sandbox;
    }

    /// What holds its process; `None` where nothing does.
    #[must_use]
    pub fn sandbox(&self) -> Option<Sandbox> {
        let sandbox = self.sandbox.lock().unwrap_or_else(PoisonError::into_inner);
        sandbox.clone()
    }

    pub(super) fn publish(&self, status: Status) {
        self.status.send_replace(status);
    }
}

fn waiting_words(calls: u64) -> String {
    let (calls, wait) = match calls {
        1 => ("1 call".to_owned(), "waits for its turn"),
        calls => (format!("{calls} calls"), "wait for their turn"),
    };
    format!(
        "{calls} {wait}: it asks without saying in which call; see `questions` in docs/servers.md"
    )
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The versions a server is spoken to in, the newer era first.
fn spoken(link: &Link) -> Option<String> {
    let peers = [Era::Modern, Era::Legacy].map(|era| link.peer_in(era));
    let versions: Vec<_> = peers
        .into_iter()
        .flatten()
        .map(|p| p.version.as_str())
        .collect();
    (!versions.is_empty()).then(|| versions.join(", "))
}

fn name_version(info: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(info).unwrap_or_default();
    let text = |key: &str| value.get(key).and_then(|v| v.as_str()).unwrap_or("");
    format!("{} {}", text("name"), text("version"))
        .trim()
        .to_owned()
}

fn spoken_mgp(active: &Active) -> SpokenMgp {
    let said = &active.peer;
    SpokenMgp {
        version: active.version.to_string(),
        extensions: active.words().iter().map(ToString::to_string).collect(),
        server_id: said.server_id.clone(),
        permissions_required: said.permissions_required.clone(),
        trust_level: said.trust_level.clone(),
    }
}
