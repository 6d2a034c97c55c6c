//! The supervisor of one server: starts it, watches it, restarts it within limits, stops it completely.
//! The operator's requests and the kernel's tree send to it; it reports through `ServerActor::events`.

mod audit;
mod connector;
mod event;
mod handle;
mod instances;
mod life;
mod link_events;
mod lists;
mod resources;
mod rolling;
mod spawner;
mod spoken;
mod start_order;
mod starts;
mod supervision;

use std::sync::Arc;
use std::time::Duration;

use mgp_engine::servers::lifecycle::TransitionReason;
use mgp_engine::servers::restart::ServerExit;
use mgp_engine::servers::spec::{ServerInstances as Apart, ServerSpec};
use mgp_engine::servers::supervision::{
    StopOrder, Supervision, SupervisionInput, SupervisionRules, SupervisionStatus,
};
use mgp_engine::tools::catalog::ServerOffer;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp;
use mgp_protocol::refusal::Refusal;
use mgp_transports::log::ServerLog;
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};

use self::instances::Instances;
use self::life::LifeHandle;
use self::lists::Fresh;
use self::lists::missing::MissingLists;
use self::lists::pace::ListPaces;
use self::rolling::Rolling;
use self::start_order::StartWait;
use crate::guard::GuardHandle;
use crate::link::{Link, List};
use mgp_callers::directory::Directory;
use mgp_policy::permissions::PermissionsHandle;
use mgp_policy::pins::PinsHandle;
use mgp_runtime::event_sink::EventSink;
use mgp_runtime::mailbox::{Alive, Kind, Mailbox, Queued, Reply};
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::time::moment;
use mgp_store::audit::AuditHandle;

pub use self::connector::Connector;
pub use self::event::{Fetched, RenewalHold, ServerEvent};
pub use self::handle::{InstanceOwner, ServerHandle, ServerTable, Status};
pub use self::resources::{ResourceFigures, ResourceLook, RunningLife};
pub use self::spawner::Starts;
pub use self::starts::Start;

/// Messages to the supervisor of a server: imperatives ask, past tenses tell what happened.
#[derive(Debug)]
pub enum ServerMsg {
    /// Start, at the kernel's start or for the operator, whose start resets the count of restarts.
    Start {
        /// It is the operator's.
        by_operator: bool,
    },
    /// Of those that are to be connected before it, these are not yet.
    WaitsFor(Vec<ServerId>),
    /// Its wait for others is over.
    InTurn,
    /// Drain and stop. Answered when the server has stopped.
    Stop(TransitionReason, Reply<()>),
    /// The same, with this much time for calls under way.
    StopWithin(TransitionReason, Duration, Reply<()>),
    /// Drain, stop and start again.
    Restart,
    /// Replace its life without a gap.
    Roll,
    /// Its configuration changed.
    Reconfigure(Box<ServerSpec>),
    /// The life of this number is connected and has its first lists.
    Connected(u64, Arc<Link>, Box<Fresh>),
    /// Agents can see the first lists of this life.
    Shown(u64),
    /// This life uses more than it may; why, in words.
    OverLimit(u64, String),
    /// This life ended.
    Ended(u64, ServerExit, String),
    /// A list changed at the server.
    ListChanged(List),
    /// A list was fetched again.
    Fetched(List, u64, Box<Fresh>),
    /// This life waits for the operator's answer to these questions.
    ApprovalRequested(u64, Vec<String>),
    /// What its tools were the last time, for a server that has not been connected yet.
    OfferRestored(Box<ServerOffer>),
    /// The operator decided about changed tools.
    PinsDecided,
    /// The connection of this number is broken.
    LinkBroke(u64, String),
    /// The server reported a change of its state on this connection.
    LifecycleReported(u64, mgp::Lifecycle),
    /// The wait before a restart is over.
    RetryDue(u64),
    /// A call waits for it.
    Called,
    /// A list is fetched again, which had to wait.
    FetchDue(List),
    /// This list has not had to wait for a while.
    ListCalm(List),
    /// Start the instance that somebody has for itself, or hand out the running one.
    OpenInstance(InstanceOwner, Reply<Result<Arc<ServerHandle>, Refusal>>),
    /// Stop the instances that nobody has used for a while.
    StopIdle,
}

/// Fixed at construction.
#[derive(Debug, Clone)]
pub struct ServerActor {
    /// What calls and reports use.
    pub handle: Arc<ServerHandle>,
    /// Receives the events of the server.
    pub events: EventSink<ServerEvent>,
    /// The connected agents, for its log messages and news.
    pub directory: Arc<Directory>,
    /// All servers: some are started after others.
    pub servers: Arc<ServerTable>,
    /// Ends its processes when the kernel dies.
    pub guard: GuardHandle,
    /// Connects to it.
    pub connector: Arc<Connector>,
    /// The permissions of servers.
    pub permissions: PermissionsHandle,
    /// Its tools as they were when approved.
    pub pins: PinsHandle,
    /// The audit log.
    pub audit: AuditHandle,
}

/// The state of the actor.
#[derive(Debug)]
pub struct ServerState {
    spec: ServerSpec,
    me: Mailbox<ServerMsg>,
    supervision: Supervision,
    life: Option<LifeHandle>,
    offer: ServerOffer,
    fetching: Vec<(List, bool)>,
    fetched: Fetched,
    /// Lists that changed during their first fetch.
    changed: Vec<List>,
    paces: ListPaces,
    notes: Vec<String>,
    missing: MissingLists,
    instances: Instances,
    wait: StartWait,
    rolling: Rolling,
    stopping: Vec<Reply<()>>,
    /// The timer of the next start; dropped with the supervisor and by an earlier start.
    next_try: Option<SupervisedTask<()>>,
    /// The last output of the last life, if that ended by itself.
    last_words: Option<Arc<str>>,
    _alive: Alive,
}

impl Actor for ServerActor {
    type Msg = Queued<ServerMsg>;
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
            supervision: Supervision::new(SupervisionRules::from(&spec), moment()),
            life: None,
            offer: ServerOffer::new(self.handle.id.clone()),
            fetching: Vec::new(),
            fetched: [moment(); 4],
            changed: Vec::new(),
            paces: ListPaces::default(),
            notes: Vec::new(),
            missing: MissingLists::default(),
            instances: Instances::default(),
            wait: StartWait::default(),
            rolling: Rolling::default(),
            stopping: Vec::new(),
            next_try: None,
            last_words: None,
            _alive: Alive::new(Kind::Server),
            spec,
        };
        self.publish(&state);
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        queued: Self::Msg,
        state: &mut ServerState,
    ) -> Result<(), ActorProcessingErr> {
        match queued.open() {
            ServerMsg::Start { by_operator: false } => self.start_in_order(state),
            ServerMsg::Start { by_operator: true } => self.start(state),
            ServerMsg::WaitsFor(others) => self.waits_for(state, others),
            ServerMsg::InTurn => self.in_turn(state),
            ServerMsg::Stop(why, reply) => self.stop(state, why.into(), reply),
            ServerMsg::StopWithin(why, time, reply) => {
                let within = Some(time);
                self.stop(state, StopOrder { why, within }, reply);
            }
            ServerMsg::Roll => self.roll(state),
            ServerMsg::Restart => self.restart(state),
            ServerMsg::Reconfigure(spec) => self.reconfigure(state, *spec),
            ServerMsg::Connected(attempt, link, lists) => {
                self.connected(state, attempt, &link, *lists);
            }
            ServerMsg::Shown(life) => self.decide(state, SupervisionInput::Connected(life)),
            ServerMsg::OverLimit(life, why) => {
                self.decide(state, SupervisionInput::OverLimit(life, why))
            }
            ServerMsg::Ended(life, exit, how) => {
                self.decide(state, SupervisionInput::Ended(life, exit, how))
            }
            ServerMsg::ListChanged(list) => self.fetch(state, list),
            ServerMsg::Fetched(list, link, lists) => self.fetched(state, list, link, *lists),
            ServerMsg::ApprovalRequested(attempt, names) => self.waits(state, attempt, &names),
            ServerMsg::OfferRestored(offer) => self.list_restored(offer),
            ServerMsg::PinsDecided => self.pinned(state),
            ServerMsg::LinkBroke(link, why) => Self::broken(state, link, why),
            ServerMsg::LifecycleReported(link, step) => self.said(state, link, step),
            ServerMsg::RetryDue(life) => self.decide(state, SupervisionInput::RetryDue(life)),
            ServerMsg::Called => self.decide(state, SupervisionInput::Called),
            ServerMsg::FetchDue(list) => self.fetch_due(state, list),
            ServerMsg::ListCalm(list) => self.list_calm(state, list),
            ServerMsg::OpenInstance(owner, reply) => {
                reply.send(self.instance(myself.get_cell(), state, owner).await);
            }
            ServerMsg::StopIdle => self.stop_idle(state),
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
    /// The connection of the current life.
    fn link(&self) -> Option<Arc<Link>> {
        self.life.as_ref().and_then(|life| life.link.clone())
    }
}

impl ServerActor {
    fn stop(&self, state: &mut ServerState, order: StopOrder, reply: Reply<()>) {
        state.stopping.push(reply);
        self.order(state, SupervisionInput::Stop(order));
    }

    /// What somebody orders counts more than what the server waits for.
    fn order(&self, state: &mut ServerState, order: SupervisionInput) {
        state.wait = StartWait::default();
        self.decide(state, order);
    }

    fn reconfigure(&self, state: &mut ServerState, spec: ServerSpec) {
        state.rolling.forget_refused();
        if spec.differs_in_order_only(&state.spec) {
            return self.reorder(state, spec);
        }
        match Self::rolls(state, &spec) {
            true => self.roll_to(state, spec),
            false => self.replace(state, spec),
        }
    }

    /// The life under the entry before ends first.
    fn replace(&self, state: &mut ServerState, spec: ServerSpec) {
        let rules = SupervisionRules {
            rolling: false,
            ..SupervisionRules::from(&spec)
        };
        // It may be another server now.
        self.handle.take_spoken();
        self.handle.unlower();
        self.withdraw_restored();
        self.handle.offered_nothing();
        self.parts(&spec);
        state.spec = spec;
        self.order(state, SupervisionInput::Reconfigured(rules));
    }

    /// After whom it is started says nothing to a server that runs.
    fn reorder(&self, state: &mut ServerState, spec: ServerSpec) {
        state.spec = spec;
        if state.wait.is_on() {
            self.start_in_order(state);
        }
    }

    fn said(&self, state: &mut ServerState, link: u64, step: mgp::Lifecycle) {
        if state.link().is_some_and(|l| l.number == link) {
            let reported = SupervisionInput::Reported {
                from: step.previous_state,
                to: step.new_state,
                reason: step.reason,
            };
            self.decide(state, reported);
        }
    }

    fn waits(&self, state: &ServerState, life: u64, names: &[String]) {
        if state.supervision.counts(life) {
            let reason = Some(starts::waiting(names));
            let standing = state.supervision.status(reason, moment());
            let mut status = Self::status(state, standing);
            status.waiting = true;
            self.handle.publish(status);
            self.withdraw_restored();
        }
    }

    fn broken(state: &mut ServerState, link: u64, why: String) {
        if let Some(current) = &state.life
            && current.link.as_ref().is_some_and(|l| l.number == link)
        {
            current.fail(why);
        }
    }

    fn publish(&self, state: &ServerState) {
        let standing = state.supervision.status(state.wait.words(), moment());
        self.handle.publish(Self::status(state, standing));
    }

    fn status(state: &ServerState, standing: SupervisionStatus) -> Status {
        Status {
            state: standing.state,
            reason: standing.reason,
            since: standing.since,
            next_try: None,
            restarts: standing.restarts,
            pid: state.life.as_ref().map(LifeHandle::process),
            rejected: state.notes.clone(),
            left_out: state.left_out(),
            repaired: state.offer.repaired().cloned().collect(),
            trust: state.spec.mgp.trust_level,
            runs: state.spec.reach.words().into(),
            declared: Arc::new(state.spec.mgp.clone()),
            waiting: false,
            due: standing.due,
            roll: standing.roll,
            rolls: state.spec.rolling,
            places: state.spec.limits.max_in_flight,
            mark: state.spec.mark(),
            unreachable: standing.unreachable,
            start: state.life.as_ref().map(|life| life.start.clone()),
            last_words: state.last_words.clone().filter(|_| !standing.asked_to_stop),
        }
    }

    /// Withdraws its offer from agents. What an instance offers is never shown, so there it does nothing.
    fn withdraw(&self) {
        if self.handle.agent().is_none() {
            self.events
                .send(ServerEvent::Withdrawn(self.handle.id.clone()));
        }
    }

    /// Sets whether agents have instances of their own.
    fn parts(&self, spec: &ServerSpec) {
        self.directory.forwarded.add(&spec.pass_headers);
        let bounds = match spec.instances {
            Apart::PerAgent(bounds) if self.handle.agent().is_none() => Some(bounds),
            Apart::PerAgent(_) | Apart::Shared => None,
        };
        let by_folder = bounds.is_some_and(|bounds| bounds.by_folder);
        self.handle.set_apart(bounds.is_some(), by_folder);
    }

    pub(crate) fn log(&self) -> &ServerLog {
        &self.handle.log
    }
}
