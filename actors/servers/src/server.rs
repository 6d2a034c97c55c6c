//! Supervises one server: starts it, watches it, restarts it within its limits, stops it whole.
//! Asked by: the operator's requests, the kernel's tree. Tells: the catalog, subscriptions.

mod audit;
mod connector;
mod event;
mod handle;
mod instances;
mod life;
mod lifecycle;
mod link_events;
mod lists;
mod spawner;
mod spoken;
mod starts;

use std::sync::Arc;
use std::time::Duration;

use mgp_engine::servers::lifecycle::{Lifecycle, LifecycleEvent, LifecycleState, TransitionReason};
use mgp_engine::servers::restart::{RestartVerdict, Restarts, ServerExit};
use mgp_engine::servers::spec::{Reach, ServerInstances as Apart, ServerSpec};
use mgp_engine::tools::catalog::ServerOffer;
use mgp_protocol::ids::AgentId;
use mgp_protocol::mgp;
use mgp_protocol::refusal::Refusal;
use mgp_transports::log::ServerLog;
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use self::instances::Instances;
use self::life::Incarnation;
use self::life::shutdown::StopOrder;
use self::lists::Fresh;
use self::lists::missing::Gaps;
use self::spawner::Turn;
use crate::guard::GuardHandle;
use crate::levels;
use crate::link::{Link, List};
use mgp_callers::directory::Directory;
use mgp_policy::permissions::PermissionsHandle;
use mgp_policy::pins::PinsHandle;
use mgp_runtime::event_sink::EventSink;
use mgp_runtime::mailbox::{Alive, Kind, Letter, Mailbox, Reply};
use mgp_runtime::time::moment;
use mgp_store::audit::AuditHandle;

pub use self::connector::Connector;
pub use self::event::{Fetched, ServerEvent};
pub use self::handle::{ServerHandle, ServerTable, Status};
pub use self::spawner::Starts;
pub use self::starts::Start;

/// What a server's supervisor is told and asked.
#[derive(Debug)]
pub enum ServerMsg {
    /// Start, by the kernel at its start or by an operator; an operator's start forgets old restarts.
    Start {
        /// An operator asked.
        by_operator: bool,
    },
    /// Drain and stop. Answered when the server has stopped.
    Stop(TransitionReason, Reply<()>),
    /// The same, with this much time for what is under way.
    StopWithin(TransitionReason, Duration, Reply<()>),
    /// Drain, stop and start again.
    Restart,
    /// Its entry in the configuration changed.
    Reconfigure(Box<ServerSpec>),
    /// An attempt shook hands and has its first lists.
    Connected(u64, Arc<Link>, Box<Fresh>),
    /// Agents see the first lists of an attempt.
    Shown(u64),
    /// An attempt ended.
    Ended(u64, ServerExit, String),
    /// A list changed at the server.
    ListChanged(List),
    /// A list was fetched again.
    Fetched(List, u64, Box<Fresh>),
    /// An attempt waits for the operator, who knows what under these names.
    Waits(u64, Vec<String>),
    /// The operator has said something of tools that changed.
    Pinned,
    /// The connection is of no use any more.
    Broken(u64, String),
    /// Over this connection it said that it went from one state to another.
    Said(u64, mgp::Lifecycle),
    /// The backoff is over.
    TryAgain(u64),
    /// An agent calls that has an instance of its own.
    Instance(AgentId, Reply<Result<Arc<ServerHandle>, Refusal>>),
    /// Time to look which instances have nothing to do.
    LookForIdle,
    /// Tells its address to the actor that must know it: used by tests to break it.
    Panic,
}

/// What is odd about tools, as far as it is told: enough to see what a server gets wrong.
const ODD_MAX: usize = 20;

/// What never changes.
#[derive(Debug, Clone)]
pub struct ServerActor {
    /// The server's public face.
    pub handle: Arc<ServerHandle>,
    /// Who hears what it offers and says.
    pub events: EventSink<ServerEvent>,
    /// Who wants which of its log messages.
    pub directory: Arc<Directory>,
    /// What ends its processes when the kernel dies.
    pub guard: GuardHandle,
    /// How it is connected to.
    pub connector: Arc<Connector>,
    /// What it may do.
    pub permissions: PermissionsHandle,
    /// What its tools were when they were approved.
    pub pins: PinsHandle,
    /// Where its coming and going is written down.
    pub audit: AuditHandle,
}

/// What does.
#[derive(Debug)]
pub struct ServerState {
    spec: ServerSpec,
    me: Mailbox<ServerMsg>,
    lifecycle: Lifecycle,
    restarts: Restarts,
    attempts: u64,
    current: Option<Incarnation>,
    offer: ServerOffer,
    fetching: Vec<(List, bool)>,
    fetched: Fetched,
    /// Lists that changed while they were fetched for the first time.
    changed: Vec<List>,
    notes: Vec<String>,
    gaps: Gaps,
    instances: Instances,
    stopping: Vec<Reply<()>>,
    why: Option<TransitionReason>,
    asked_to_stop: bool,
    start_again: bool,
    /// Whether its next start waits for its turn.
    turn: Turn,
    /// The clock of the next try; it ends with the supervisor, and with a try that comes before.
    next_try: Option<AbortOnDropHandle<()>>,
    /// It is elsewhere, and its last life ended because it was not reached or went away.
    unreachable: bool,
    /// Of the last life, where nobody asked for its end.
    last_words: Option<Arc<str>>,
    _alive: Alive,
}

impl Actor for ServerActor {
    type Msg = Letter<ServerMsg>;
    type State = ServerState;
    type Arguments = ServerSpec;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        spec: ServerSpec,
    ) -> Result<ServerState, ActorProcessingErr> {
        let me = Mailbox::new(myself);
        self.handle.filled(me.clone());
        self.parts(&spec);
        let state = ServerState {
            me,
            lifecycle: Lifecycle::new(moment()),
            restarts: Restarts::new(spec.restart),
            attempts: 0,
            current: None,
            offer: ServerOffer::new(self.handle.id.clone()),
            fetching: Vec::new(),
            fetched: [moment(); 4],
            changed: Vec::new(),
            notes: Vec::new(),
            gaps: Gaps::default(),
            instances: Instances::default(),
            stopping: Vec::new(),
            why: None,
            asked_to_stop: false,
            start_again: false,
            turn: Turn::Free,
            next_try: None,
            unreachable: false,
            last_words: None,
            _alive: Alive::new(Kind::Server),
            spec,
        };
        self.publish(&state, None);
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        letter: Self::Msg,
        state: &mut ServerState,
    ) -> Result<(), ActorProcessingErr> {
        match letter.message {
            ServerMsg::Start { by_operator } => self.start(state, by_operator),
            ServerMsg::Stop(why, reply) => self.stop(state, why.into(), Some(reply)),
            ServerMsg::StopWithin(why, time, reply) => {
                let within = Some(time);
                self.stop(state, StopOrder { why, within }, Some(reply));
            }
            ServerMsg::Restart => self.restart(state),
            ServerMsg::Reconfigure(spec) => self.reconfigure(state, *spec),
            ServerMsg::Connected(attempt, link, lists) => {
                self.connected(state, attempt, &link, *lists);
            }
            ServerMsg::Shown(attempt) => self.shown(state, attempt),
            ServerMsg::Ended(attempt, exit, how) => self.ended(state, attempt, &exit, how),
            ServerMsg::ListChanged(list) => self.fetch(state, list),
            ServerMsg::Fetched(list, link, lists) => self.fetched(state, list, link, *lists),
            ServerMsg::Waits(attempt, names) => self.waits(state, attempt, &names),
            ServerMsg::Pinned => self.pinned(state),
            ServerMsg::Broken(link, why) => Self::broken(state, link, why),
            ServerMsg::Said(link, step) => self.said(state, link, &step),
            ServerMsg::TryAgain(attempt) => self.try_again(state, attempt),
            ServerMsg::Instance(agent, reply) => {
                reply.send(self.instance(myself.get_cell(), state, agent).await);
            }
            ServerMsg::LookForIdle => self.look_for_idle(state),
            ServerMsg::Panic => panic!("told to"),
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        _myself: ActorRef<Self::Msg>,
        _state: &mut ServerState,
    ) -> Result<(), ActorProcessingErr> {
        self.handle.gone();
        self.withdraw();
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        state: &mut ServerState,
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorFailed(who, _)
        | SupervisionEvent::ActorTerminated(who, _, _) = event
        {
            self.lost_instance(state, who.get_id());
        }
        Ok(())
    }
}

impl ServerState {
    /// It is to be started without anybody's doing.
    fn is_due(&self) -> bool {
        let first = self.lifecycle.state() == LifecycleState::Registered && self.spec.autostart;
        self.start_again || first && !self.asked_to_stop
    }
}

impl ServerActor {
    fn start(&self, state: &mut ServerState, by_operator: bool) {
        if by_operator {
            state.restarts.clear();
        }
        match state.lifecycle.state() {
            LifecycleState::Registered | LifecycleState::Disconnected | LifecycleState::Error => {
                self.step(state, LifecycleEvent::Start, None);
            }
            LifecycleState::Draining => {
                state.start_again = true;
                return self.publish(state, None);
            }
            LifecycleState::Restarting if state.current.is_none() => {}
            LifecycleState::Connecting | LifecycleState::Connected | LifecycleState::Restarting => {
                return;
            }
        }
        state.asked_to_stop = false;
        self.attempt(state);
    }

    fn stop(&self, state: &mut ServerState, order: StopOrder, reply: Option<Reply<()>>) {
        state.start_again = false;
        self.end(state, order, reply);
    }

    /// Stops it; whether it is started again is decided before, for calls that wait are told as soon
    /// as it is not.
    fn end(&self, state: &mut ServerState, order: StopOrder, reply: Option<Reply<()>>) {
        let why = order.why;
        state.asked_to_stop = true;
        state.unreachable = false;
        let reply = self.end_instances(state, order, reply);
        state.stopping.extend(reply);
        state.why = Some(why);
        self.handle.vacate();
        let stepped = self.advance(state, LifecycleEvent::StopRequested(why));
        if stepped || self.handle.status().due != state.is_due() {
            self.publish(state, None);
        }
        match &state.current {
            Some(current) => current.stop(order),
            None => self.stopped(state),
        }
    }

    fn restart(&self, state: &mut ServerState) {
        if state.current.is_none() {
            drop(self.end_instances(state, TransitionReason::OperatorRequest.into(), None));
            return self.start(state, true);
        }
        state.start_again = true;
        self.end(state, TransitionReason::OperatorRequest.into(), None);
    }

    fn reconfigure(&self, state: &mut ServerState, spec: ServerSpec) {
        state.restarts = Restarts::new(spec.restart);
        // It may be another server by now.
        self.handle.take_spoken();
        self.handle.unlower();
        self.handle.offered_nothing();
        drop(self.end_instances(state, TransitionReason::ConfigurationChange.into(), None));
        self.parts(&spec);
        let wanted = spec.autostart || state.lifecycle.state() == LifecycleState::Error;
        state.spec = spec;
        if state.current.is_some() {
            state.start_again = true;
            self.end(state, TransitionReason::ConfigurationChange.into(), None);
        } else if wanted {
            self.start(state, true);
        }
    }

    /// Starts one attempt; it reports back as `Connected` and `Ended`.
    fn attempt(&self, state: &mut ServerState) {
        state.attempts += 1;
        state.next_try = None;
        state.changed.clear();
        state.last_words = None;
        let (spec, offer) = (state.spec.clone(), state.offer.clone());
        let life = Incarnation::begin(self, state.attempts, spec, offer, state.me.clone());
        state.current = Some(life);
        self.publish(state, None);
    }

    fn connected(&self, state: &mut ServerState, attempt: u64, link: &Arc<Link>, lists: Fresh) {
        let Some(current) = state.current.as_mut().filter(|c| c.attempt == attempt) else {
            return;
        };
        if state.asked_to_stop {
            return;
        }
        current.link = Some(link.clone());
        state.fetching.clear();
        if self.handle.agent().is_some() {
            return self.shown(state, attempt);
        }
        let (shown, me) = (self.offer(state, lists, link), state.me.clone());
        tokio::spawn(async move {
            let _ = shown.await;
            let _ = me.tell(ServerMsg::Shown(attempt));
        });
    }

    /// Only now is it connected: who is told so finds its tools.
    fn shown(&self, state: &mut ServerState, attempt: u64) {
        let current = state.current.as_ref().filter(|c| c.attempt == attempt);
        let Some(link) = current.and_then(|c| c.link.clone()) else {
            return;
        };
        if state.asked_to_stop {
            return;
        }
        self.handle.fill(link.clone());
        state.unreachable = false;
        self.step(state, LifecycleEvent::HandshakeDone, None);
        if self.handle.agent().is_none() && self.handle.may_audit() {
            crate::forwarding::forward(&self.audit, &link);
        }
        self.tell_connected(&link);
        self.events
            .send(ServerEvent::Connected(self.handle.key().clone()));
        for list in std::mem::take(&mut state.changed) {
            self.fetch(state, list);
        }
        let directory = self.directory.clone();
        tokio::spawn(async move { levels::tell(&directory, &link).await });
    }

    fn offer(
        &self,
        state: &mut ServerState,
        mut lists: Fresh,
        link: &Link,
    ) -> oneshot::Receiver<()> {
        let mut notes = std::mem::take(&mut lists.notes);
        state.learn_gaps(std::mem::take(&mut lists.asked));
        let offer = lists.over(state.offer.clone());
        state.offer = offer.making_tasks(link.bridges_tasks());
        self.handle.offers(&state.offer);
        for kind in lists.kinds() {
            state.fetched[*kind as usize] = moment();
        }
        notes.extend(state.left_out());
        notes.extend(state.offer.odd().take(ODD_MAX));
        let new = notes.iter().filter(|note| !state.notes.contains(note));
        new.for_each(|note| self.log().note(note));
        state.notes = notes;
        self.permissions
            .tools_need(&self.handle.id, &state.offer.permissions());
        self.show(state, link)
    }

    /// What agents may see of it: not the tools that changed and wait for the operator.
    fn show(&self, state: &ServerState, link: &Link) -> oneshot::Receiver<()> {
        let blocked = self.pins.blocked(&self.handle.id);
        let shown = state.offer.clone().without(&blocked);
        let (reply, seen) = Reply::new();
        if let Some(peer) = link.peer() {
            self.events.send(ServerEvent::Offered {
                offer: Box::new(shown),
                peer: Box::new(peer.clone()),
                fetched: state.fetched,
                seen: reply,
            });
        }
        seen
    }

    fn pinned(&self, state: &mut ServerState) {
        let current = state.current.as_ref();
        if let Some(link) = current.and_then(|current| current.link.clone()) {
            drop(self.show(state, &link));
        }
    }

    fn waits(&self, state: &ServerState, attempt: u64, names: &[String]) {
        let current = state.current.as_ref();
        if current.is_none_or(|current| current.attempt != attempt) || state.asked_to_stop {
            return;
        }
        let mut status = self.status(state, Some(starts::waiting(names)));
        status.waiting = true;
        self.handle.publish(status);
    }

    fn broken(state: &mut ServerState, link: u64, why: String) {
        if let Some(current) = &state.current
            && current.link.as_ref().is_some_and(|l| l.number == link)
        {
            current.fail(why);
        }
    }

    fn ended(&self, state: &mut ServerState, attempt: u64, exit: &ServerExit, how: String) {
        if state.current.as_ref().is_none_or(|c| c.attempt != attempt) {
            return;
        }
        let life = state.current.take();
        state.last_words = life.and_then(|life| life.start.last_words(self.log()));
        state.gaps.clear();
        self.handle.vacate();
        self.events
            .send(ServerEvent::Disconnected(self.handle.key().clone()));
        let remote = matches!(state.spec.reach, Reach::Http { .. });
        state.unreachable = remote && matches!(exit, ServerExit::Failed(_)) && !state.asked_to_stop;
        let verdict = state.restarts.exited(exit, state.asked_to_stop, moment());
        let was_there = matches!(
            state.lifecycle.state(),
            LifecycleState::Connected | LifecycleState::Draining
        );
        state.turn = Turn::after(&verdict);
        if state.asked_to_stop {
            if was_there {
                let why = state.why.map_or("stopped", TransitionReason::as_str);
                self.tell_disconnected(&ServerExit::Clean, why, None);
            }
            let why = state.why.unwrap_or(TransitionReason::OperatorRequest);
            if state.start_again {
                // Published with the attempt that follows at once.
                self.advance(state, LifecycleEvent::RestartRequested(why));
            } else {
                self.step(
                    state,
                    LifecycleEvent::Drained,
                    Some(format!("stopped ({why})")),
                );
            }
            return self.stopped(state);
        }
        if was_there || matches!(verdict, RestartVerdict::Park { .. }) {
            self.tell_disconnected(exit, &how, Some(&verdict));
        }
        match exit {
            ServerExit::Clean => {
                self.advance(
                    state,
                    LifecycleEvent::StopRequested(TransitionReason::ServerRequest),
                );
                self.advance(state, LifecycleEvent::Drained);
            }
            ServerExit::Failed(_) | ServerExit::Rejected(_) => {
                self.advance(state, LifecycleEvent::Failed(how.clone()));
            }
        }
        match verdict {
            RestartVerdict::Restart { after, .. } => {
                self.advance(state, LifecycleEvent::TryAgain);
                self.publish(state, Some(how));
                self.try_later(state, moment() + after);
            }
            RestartVerdict::Stay => {
                self.publish(state, Some(how));
                self.withdraw();
            }
            RestartVerdict::Park { reason, next_try } => {
                self.publish(state, Some(reason));
                self.withdraw();
                if let Some(at) = next_try {
                    self.try_later(state, at);
                }
            }
        }
    }

    /// The server has stopped because somebody asked.
    fn stopped(&self, state: &mut ServerState) {
        for reply in state.stopping.drain(..) {
            reply.send(());
        }
        if state.start_again {
            state.start_again = false;
            self.start(state, true);
        } else {
            self.withdraw();
        }
    }

    /// One step of the state machine, published. An event that has no meaning in this state changes
    /// nothing: it crossed another one on its way.
    fn step(&self, state: &mut ServerState, event: LifecycleEvent, reason: Option<String>) {
        if self.advance(state, event) {
            self.publish(state, reason);
        }
    }

    /// One step on the way to another: who waits for the server does not see it. True when it was
    /// made.
    fn advance(&self, state: &mut ServerState, event: LifecycleEvent) -> bool {
        match state.lifecycle.apply(event, moment()) {
            Ok(step) => {
                tracing::info!(server = %self.handle.id, from = %step.from, to = %step.to,
                    reason = %step.reason, "lifecycle");
                self.tell_agents(&step);
                true
            }
            Err(illegal) => {
                tracing::debug!(server = %self.handle.id, %illegal, "lifecycle");
                false
            }
        }
    }

    fn publish(&self, state: &ServerState, reason: Option<String>) {
        self.handle.publish(self.status(state, reason));
    }

    fn status(&self, state: &ServerState, reason: Option<String>) -> Status {
        Status {
            state: state.lifecycle.state(),
            reason: reason.unwrap_or_else(|| state.lifecycle.reason().to_owned()),
            since: state.lifecycle.since(),
            next_try: None,
            restarts: state.restarts.within_window(moment()),
            pid: state.current.as_ref().map(Incarnation::process),
            rejected: state.notes.clone(),
            left_out: state.left_out(),
            trust: state.spec.mgp.trust_level,
            runs: state.spec.reach.words().into(),
            declared: Arc::new(state.spec.mgp.clone()),
            waiting: false,
            due: state.is_due(),
            places: state.spec.limits.max_in_flight,
            unreachable: state.unreachable,
            start: state.current.as_ref().map(|life| life.start.clone()),
            last_words: state.last_words.clone().filter(|_| !state.asked_to_stop),
        }
    }

    /// Nobody is shown anything of it any more; of an instance nobody ever was.
    fn withdraw(&self) {
        if self.handle.agent().is_none() {
            self.events
                .send(ServerEvent::Withdrawn(self.handle.id.clone()));
        }
    }

    /// Whether agents have instances of their own from now on.
    fn parts(&self, spec: &ServerSpec) {
        let apart = matches!(spec.instances, Apart::PerAgent(_));
        self.handle
            .set_apart(apart && self.handle.agent().is_none());
    }

    pub(crate) fn log(&self) -> &ServerLog {
        &self.handle.log
    }
}
