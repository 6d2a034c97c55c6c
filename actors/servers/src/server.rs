//! The supervisor of one server: starts, monitors, restarts (within limits) and stops it. It receives the
//! operator's requests and those of the kernel's tree, and reports through `ServerActor::events`.

mod audit;
mod connector;
mod event;
mod generation;
mod handle;
mod instances;
mod link_events;
mod lists;
mod protocol_families;
mod resource_usage;
mod rolling_restart;
mod spawner;
mod start_order;
mod start_progress;
mod supervision;

use std::sync::Arc;
use std::time::Duration;

use mgp_engine::servers::lifecycle::TransitionReason;
use mgp_engine::servers::restart::ServerExit;
use mgp_engine::servers::spec::{ServerInstances as Apart, ServerSpec, StartMode};
use mgp_engine::servers::supervision::{
    StopOrder, Supervision, SupervisionConfig, SupervisionInput, SupervisionStatus,
};
use mgp_engine::tools::catalog::ServerOffer;
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp;
use mgp_protocol::refusal::Refusal;
use mgp_transports::log::ServerLog;
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};

use self::generation::GenerationHandle;
use self::instances::Instances;
use self::lists::missing::MissingLists;
use self::lists::pace::ListPaces;
use self::lists::{FetchedLists, LastOffer};
use self::rolling_restart::RollingRestart;
use self::start_order::StartWait;
use crate::guard::GuardHandle;
use crate::link::{Link, List, Peer};
use mgp_callers::Directory;
use mgp_policy::{PermissionsHandle, PinsHandle};
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::time::monotonic_now;
use mgp_runtime::{ActorCountGuard, CountedKind, EventSink, Mailbox, Queued, Reply};
use mgp_store::audit::AuditHandle;

pub use self::connector::Connector;
pub use self::event::{FetchTimes, ResubscriptionGuard, ServerEvent};
pub(crate) use self::handle::InstanceOwner;
pub(crate) use self::handle::LocalProcess;
pub use self::handle::{ServerHandle, ServerTable, Status};
pub use self::resource_usage::{ResourceMonitor, ResourceSnapshot, RunningGeneration};
pub use self::spawner::ProcessSpawner;
pub use self::start_progress::StartProgress;

/// Messages to the supervisor of a server: imperatives are commands, past tenses are events.
#[derive(Debug)]
pub enum ServerMsg {
    /// Start, at the kernel's start or by the operator, which resets the count of restarts.
    Start {
        /// True if the operator requested it.
        by_operator: bool,
    },
    /// These servers, which start first, are not connected yet.
    DependenciesPending(Vec<ServerId>),
    /// The servers that start first are connected, or the wait is over.
    DependenciesReady,
    /// Drain and stop. Answered when the server has stopped.
    Stop(TransitionReason, Reply<()>),
    /// Drain within this time and stop. Answered when the server has stopped.
    StopWithin(TransitionReason, Duration, Reply<()>),
    /// Drain, stop and start again.
    Restart,
    /// Replace the generation without a gap (rolling restart).
    Roll,
    /// Its configuration changed.
    Reconfigure(Box<ServerSpec>),
    /// The generation with this number is connected and has its first lists.
    Connected(u64, Arc<Link>, Box<FetchedLists>),
    /// The first lists of this generation are visible to agents.
    Published(u64),
    /// This generation exceeds a limit; the reason, as text.
    LimitExceeded(u64, String),
    /// This generation ended.
    Ended(u64, ServerExit, String),
    /// A list changed at the server.
    ListChanged(List),
    /// A list was fetched again.
    Fetched(List, u64, Box<FetchedLists>),
    /// This generation waits for the operator's answer to these requests.
    ApprovalRequested(u64, Vec<String>),
    /// The stored lists of a server that has not been connected yet.
    OfferRestored(Box<ServerOffer>),
    /// The lists of the last run of a server that starts on demand; `None` if there are none.
    LastListsRead(Option<Box<LastOffer>>),
    /// The lists of the last run are visible to agents.
    LastListsPublished,
    /// The use of this generation is measured now.
    UsageCheckDue(u64),
    /// The operator decided about changed tools.
    PinsDecided,
    /// The connection with this number is broken.
    LinkBroke(u64, String),
    /// The server reported a change of its state on this connection.
    LifecycleReported(u64, mgp::Lifecycle),
    /// The restart delay is over.
    RetryDue(u64),
    /// A call waits for the server.
    CallWaiting,
    /// The delay before fetching a list again is over.
    FetchDue(List),
    /// This list has not been delayed for a while.
    ListSettled(List),
    /// Start the instance of an owner, with the extensions of its client, or return the running one.
    OpenInstance(
        InstanceOwner,
        Option<Arc<str>>,
        Reply<Result<Arc<ServerHandle>, Refusal>>,
    ),
    /// End the instances of a removed agent; answered when no further call reaches them.
    EndInstances(AgentId, Reply<()>),
    /// Stop instances that have been idle for a while.
    StopIdle,
}

/// The fixed settings of the actor.
#[derive(Debug, Clone)]
pub struct ServerActor {
    /// The handle for calls and reports.
    pub handle: Arc<ServerHandle>,
    /// Receives the events of the server.
    pub events: EventSink<ServerEvent>,
    /// The connected agents, for log messages and notifications.
    pub directory: Arc<Directory>,
    /// All servers, for the start order.
    pub servers: Arc<ServerTable>,
    /// Ends the server's processes if the kernel dies.
    pub guard: GuardHandle,
    /// Connects to the server.
    pub connector: Arc<Connector>,
    /// The permissions of servers.
    pub permissions: PermissionsHandle,
    /// The pinned tool definitions.
    pub pins: PinsHandle,
    /// The audit log.
    pub audit: AuditHandle,
}

/// The state of the actor.
#[derive(Debug)]
pub struct ServerState {
    spec: ServerSpec,
    mailbox: Mailbox<ServerMsg>,
    supervision: Supervision,
    generation: Option<GenerationHandle>,
    offer: ServerOffer,
    fetching: Vec<(List, bool)>,
    fetched: FetchTimes,
    /// Lists that changed during their first fetch.
    changed: Vec<List>,
    paces: ListPaces,
    remarks: Vec<String>,
    missing: MissingLists,
    instances: Instances,
    start_wait: StartWait,
    rolling_restart: RollingRestart,
    stopping: Vec<Reply<()>>,
    /// The timer of the next start; dropped with the supervisor, or by an earlier start.
    retry_timer: Option<SupervisedTask<()>>,
    /// The timer of the next usage check; dropped with the supervisor, or by a later one.
    usage_timer: Option<SupervisedTask<()>>,
    /// What the server declared in its last run; only for a server that starts on demand.
    last_peer: Option<Box<Peer>>,
    /// The last write of its lists; the next one follows it.
    list_writing: Option<SupervisedTask<()>>,
    /// The last output of the previous generation, if it ended by itself.
    last_output: Option<Arc<str>>,
    _alive: ActorCountGuard,
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
        self.handle.set_supervisor(me.clone());
        self.configure_instances(&spec);
        let state = ServerState {
            mailbox: me,
            supervision: Supervision::new(self.supervision_config(&spec), monotonic_now()),
            generation: None,
            offer: ServerOffer::new(self.handle.id.clone()),
            fetching: Vec::new(),
            fetched: [monotonic_now(); 4],
            changed: Vec::new(),
            paces: ListPaces::default(),
            remarks: Vec::new(),
            missing: MissingLists::default(),
            instances: Instances::default(),
            start_wait: StartWait::default(),
            rolling_restart: RollingRestart::default(),
            stopping: Vec::new(),
            retry_timer: None,
            usage_timer: None,
            last_peer: None,
            list_writing: None,
            last_output: None,
            _alive: ActorCountGuard::new(CountedKind::Server),
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
        match queued.into_message() {
            ServerMsg::Start { by_operator: false } => self.start_with_kernel(state),
            ServerMsg::Start { by_operator: true } => self.start(state),
            ServerMsg::DependenciesPending(others) => self.set_pending_dependencies(state, others),
            ServerMsg::DependenciesReady => self.finish_start_wait(state),
            ServerMsg::Stop(why, reply) => self.stop(state, why.into(), reply),
            ServerMsg::StopWithin(why, time, reply) => {
                let within = Some(time);
                self.stop(
                    state,
                    StopOrder {
                        reason: why,
                        drain_timeout: within,
                    },
                    reply,
                );
            }
            ServerMsg::Roll => self.roll(state),
            ServerMsg::Restart => self.restart(state),
            ServerMsg::Reconfigure(spec) => self.reconfigure(state, *spec),
            ServerMsg::Connected(attempt, link, lists) => {
                self.handle_connected(state, attempt, &link, *lists);
            }
            ServerMsg::Published(generation) => {
                self.apply_input(state, SupervisionInput::Connected(generation))
            }
            ServerMsg::LimitExceeded(generation, why) => {
                self.apply_input(state, SupervisionInput::LimitExceeded(generation, why))
            }
            ServerMsg::Ended(generation, exit, how) => {
                self.apply_input(state, SupervisionInput::Ended(generation, exit, how))
            }
            ServerMsg::ListChanged(list) => self.fetch_list(state, list),
            ServerMsg::Fetched(list, link, lists) => self.handle_fetched(state, list, link, *lists),
            ServerMsg::ApprovalRequested(attempt, names) => {
                self.await_approval(state, attempt, &names)
            }
            ServerMsg::OfferRestored(offer) => self.publish_restored(offer),
            ServerMsg::LastListsRead(last) => self.publish_last_lists(state, last),
            ServerMsg::LastListsPublished => self.handle_last_lists_published(state),
            ServerMsg::UsageCheckDue(generation) => {
                let mut usage = self.handle.measure_usage();
                usage.is_in_use |= !state.fetching.is_empty();
                self.apply_input(state, SupervisionInput::UsageMeasured(generation, usage))
            }
            ServerMsg::PinsDecided => self.handle_pins_decided(state),
            ServerMsg::LinkBroke(link, why) => Self::handle_broken_link(state, link, why),
            ServerMsg::LifecycleReported(link, step) => self.handle_lifecycle(state, link, step),
            ServerMsg::RetryDue(generation) => {
                self.apply_input(state, SupervisionInput::RetryDue(generation))
            }
            ServerMsg::CallWaiting => self.apply_input(state, SupervisionInput::CallWaiting),
            ServerMsg::FetchDue(list) => self.handle_fetch_due(state, list),
            ServerMsg::ListSettled(list) => self.handle_list_settled(state, list),
            ServerMsg::OpenInstance(owner, extensions, reply) => {
                let parent = myself.get_cell();
                let opened = self.open_instance(parent, state, owner, extensions).await;
                reply.send(opened);
            }
            ServerMsg::EndInstances(agent, reply) => {
                self.end_instances_of(state, &agent);
                reply.send(());
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
        self.handle.clear_supervisor();
        self.withdraw();
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        state: &mut ServerState,
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorFailed(actor, _)
        | SupervisionEvent::ActorTerminated(actor, _, _) = event
        {
            self.remove_lost_instance(state, actor.get_id());
        }
        Ok(())
    }
}

impl ServerState {
    /// The connection of the current generation.
    fn link(&self) -> Option<Arc<Link>> {
        self.generation
            .as_ref()
            .and_then(|generation| generation.link.clone())
    }
}

impl ServerActor {
    fn stop(&self, state: &mut ServerState, order: StopOrder, reply: Reply<()>) {
        state.stopping.push(reply);
        self.apply_order(state, SupervisionInput::Stop(order));
    }

    /// Applies a command; it takes precedence over what the server waits for.
    fn apply_order(&self, state: &mut ServerState, order: SupervisionInput) {
        state.start_wait = StartWait::default();
        self.apply_input(state, order);
    }

    fn reconfigure(&self, state: &mut ServerState, spec: ServerSpec) {
        state.rolling_restart.clear_failed();
        if spec.differs_only_in_start(&state.spec) {
            return self.change_start(state, spec);
        }
        if Self::can_roll_to(state, &spec) {
            self.roll_to(state, spec)
        } else {
            self.replace(state, spec)
        }
    }

    /// Replaces the server; the generation under the previous entry ends first.
    fn replace(&self, state: &mut ServerState, spec: ServerSpec) {
        let rules = SupervisionConfig {
            rolling: false,
            ..self.supervision_config(&spec)
        };
        // It may be another server now.
        self.handle.take_families();
        self.handle.restore_trust();
        self.withdraw_restored();
        self.handle.clear_offer();
        state.last_peer = None;
        self.configure_instances(&spec);
        state.spec = spec;
        self.apply_order(state, SupervisionInput::Reconfigured(rules));
    }

    /// Changes when the server starts and stops, which needs no restart.
    fn change_start(&self, state: &mut ServerState, spec: ServerSpec) {
        let was_on_demand = state.spec.start.is_on_demand();
        let start = (spec.start != state.spec.start).then_some(spec.start);
        state.spec = spec;
        if let Some(start) = start {
            if start.is_on_demand() && !was_on_demand {
                self.save_last_lists(state);
            }
            self.apply_input(state, SupervisionInput::StartModeChanged(start));
        }
        if state.start_wait.is_waiting() {
            self.start_in_order(state);
        }
    }

    /// When it runs. An instance runs from its start on: its server's supervisor starts and stops it.
    fn supervision_config(&self, spec: &ServerSpec) -> SupervisionConfig {
        let config = SupervisionConfig::from(spec);
        match self.handle.agent() {
            Some(_) => SupervisionConfig {
                start: StartMode::Kernel,
                ..config
            },
            None => config,
        }
    }

    fn handle_lifecycle(&self, state: &mut ServerState, link: u64, step: mgp::Lifecycle) {
        if state.link().is_some_and(|l| l.number == link) {
            let reported = SupervisionInput::Reported {
                from: step.previous_state,
                to: step.new_state,
                reason: step.reason,
            };
            self.apply_input(state, reported);
        }
    }

    fn await_approval(&self, state: &ServerState, generation: u64, names: &[String]) {
        if state.supervision.is_current_generation(generation) {
            let reason = Some(start_progress::describe_waiting(names));
            let status = state.supervision.status(reason, monotonic_now());
            let mut status = self.status(state, status);
            status.awaits_operator = true;
            self.handle.publish(status);
            self.withdraw_restored();
        }
    }

    fn handle_broken_link(state: &mut ServerState, link: u64, why: String) {
        if let Some(current) = &state.generation
            && current.link.as_ref().is_some_and(|l| l.number == link)
        {
            current.fail(why);
        }
    }

    fn publish(&self, state: &ServerState) {
        let status = state
            .supervision
            .status(state.start_wait.describe(), monotonic_now());
        self.handle.publish(self.status(state, status));
    }

    fn status(&self, state: &ServerState, status: SupervisionStatus) -> Status {
        Status {
            state: status.state,
            reason: status.reason,
            since: status.since,
            next_start: None,
            restarts: status.restarts,
            pid: state.generation.as_ref().map(GenerationHandle::process_id),
            remarks: state.remarks.clone(),
            omitted: state.describe_omissions(),
            repaired: state.offer.repairs().cloned().collect(),
            trust: state.spec.mgp.trust_level,
            process: LocalProcess::from_transport(&state.spec.transport),
            command_or_url: state.spec.transport.render_command().into(),
            declared: Arc::new(state.spec.mgp.clone()),
            awaits_operator: false,
            starts_automatically: status.will_start,
            starts_by_calls: state.spec.start.is_on_demand() && self.handle.agent().is_none(),
            starts_on_call: status.starts_on_call,
            failed_generation: status.failed_generation,
            start_timeout: state.spec.limits.start_timeout,
            roll: status.roll,
            can_roll: state.spec.rolling,
            waiting_calls_max: state.spec.limits.max_in_flight,
            mark: state.spec.replica_spec(),
            unreachable: status.is_unreachable,
            start: state
                .generation
                .as_ref()
                .map(|generation| generation.start.clone()),
            last_output: state.last_output.clone().filter(|_| !status.stop_requested),
        }
    }

    /// Withdraws the offer from agents. Offers of instances are never visible, so this does nothing for them.
    fn withdraw(&self) {
        if self.handle.agent().is_none() {
            self.events
                .send(ServerEvent::Withdrawn(self.handle.id.clone()));
        }
    }

    /// Sets whether agents have instances of their own.
    fn configure_instances(&self, spec: &ServerSpec) {
        self.directory.forwarded_names.add(&spec.pass_headers);
        let bounds = match spec.instances {
            Apart::PerAgent(bounds) if self.handle.agent().is_none() => Some(bounds),
            Apart::PerAgent(_) | Apart::Shared => None,
        };
        let by_folder = bounds.is_some_and(|bounds| bounds.by_folder);
        self.handle.configure_instances(bounds.is_some(), by_folder);
    }

    pub(crate) fn log(&self) -> &ServerLog {
        &self.handle.log
    }
}
