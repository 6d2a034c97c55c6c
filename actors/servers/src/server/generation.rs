//! One generation (run) of a server, as one task.

mod confinement;
mod early_exit;
mod end;
mod first_start;
mod gate;
mod handshake;
mod health;
mod interceptor_servers;
mod limits;
mod lite;
mod node;
mod remote;
mod shutdown;
mod tool_requirements;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use mgp_engine::servers::spec::{ServerInstances, ServerSpec, ServerTransport, UrlProtocol};
use mgp_engine::servers::supervision::StopOrder;
use mgp_engine::tools::catalog::ServerOffer;
use mgp_protocol::mgp::permission::PermissionType;
use mgp_transports::child::{self, ChildSpec, ExitCause};
use mgp_transports::lines::{self, QueueLimits, ReadEnd, WriteEnd};
use mgp_transports::log::ServerLog;

use self::confinement::SandboxGrants;
use self::early_exit::EarlyExit;
use self::end::End;
use self::handshake::HandshakeError;
use self::interceptor_servers::TableServers;
use super::lists::{FetchedLists, PinCheck, RawLists};
use super::protocol_families::SpokenFamilies;
use super::start_progress::StartProgress;
use super::{Connector, ServerActor, ServerHandle, ServerMsg, ServerTable};
use crate::guard::GuardHandle;
use crate::link::{Link, LinkEvent, LinkSettings, Wire};
use mgp_callers::Flag;
use mgp_policy::{GateLease, PermissionsHandle};
use mgp_runtime::task::{SupervisedTask, TaskError};
use mgp_runtime::{EventSink, Mailbox, randomness, task};
use mgp_store::audit::AuditHandle;

/// A child that does not read its stdin for this long is ended: its pipe is full. Calls time out long before.
const STDIN_STALL_TIMEOUT: Duration = Duration::from_secs(300);

/// How long reading the remaining output of an ended process may take.
const OUTPUT_DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

/// Limits of the queue to a child's stdin: room for the calls of two agents and their cancellations, so that one
/// flooding agent leaves room for others.
const STDIN_QUEUE_LIMITS: QueueLimits = QueueLimits {
    frames: 4 * mgp_callers::agent::MAX_OPEN,
    bytes: 64 << 20,
};

/// The supervisor's handle of a generation. Dropping it ends the generation.
#[derive(Debug)]
pub(super) struct GenerationHandle {
    pub(super) link: Option<Arc<Link>>,
    pub(super) start: StartProgress,
    orders: Arc<GenerationOrders>,
    gate_lease: Arc<OnceLock<GateLease>>,
}

#[derive(Debug, Default)]
struct GenerationOrders {
    stop: Flag,
    /// True once it was replaced: it then also waits for its tasks.
    is_replaced: Flag,
    stop_order: OnceLock<StopOrder>,
    /// True if it must end as fast as other generations.
    hurry: Flag,
    /// The time for each step of ending its process, if draining decided it.
    grace: OnceLock<Duration>,
    failure: Mutex<Option<String>>,
    kill: Flag,
    pid: Arc<AtomicI32>,
}

impl GenerationHandle {
    /// Starts a generation, alone or beside another; it reports with [`ServerMsg::Connected`] and
    /// [`ServerMsg::Ended`].
    pub(super) fn start(
        actor: &ServerActor,
        attempt: u64,
        spec: ServerSpec,
        before: ServerOffer,
        mailbox: Mailbox<ServerMsg>,
        current: Option<&Self>,
    ) -> Self {
        let orders = Arc::new(GenerationOrders::default());
        let watch = actor.pin_check(&spec);
        let gate_lease = current.map_or_else(Arc::default, |other| other.gate_lease.clone());
        let mark = actor.connector.mark.clone();
        let start = StartProgress::begin(&spec, actor.log());
        let generation = ServerGeneration {
            number: attempt,
            spec,
            previous_offer: before,
            orders: orders.clone(),
            connector: actor.connector.clone(),
            guard: actor.guard.clone(),
            handle: actor.handle.clone(),
            log: actor.log().clone(),
            events: actor.link_event_sink(mailbox.clone()),
            mailbox,
            permissions: actor.permissions.clone(),
            pin_check: watch,
            audit: actor.audit.clone(),
            servers: Arc::downgrade(&actor.servers),
            gate_lease: gate_lease.clone(),
            is_successor: current.is_some(),
            mark: match current {
                Some(_) => format!("{mark}:{}", u64::from_ne_bytes(randomness::random_bytes())),
                None => mark,
            },
            grants: Mutex::default(),
            link: Mutex::default(),
            first_start: Mutex::default(),
        };
        task::spawn_detached("server.life", generation.run());
        Self {
            link: None,
            start,
            orders,
            gate_lease,
        }
    }

    /// Ends it; in-flight calls may finish first.
    pub(super) fn stop(&self, order: StopOrder) {
        // A second order is ignored: the first is already being executed.
        let _ = self.orders.stop_order.set(order);
        self.orders.stop.raise();
    }

    /// Limits draining to the time of any server that ends.
    pub(super) fn hurry(&self) {
        self.orders.hurry.raise();
    }

    /// Ends it as failed.
    pub(super) fn fail(&self, why: String) {
        self.orders.fail(why);
    }

    /// The process id of its child; 0 if there is none.
    pub(super) fn process_id(&self) -> Arc<AtomicI32> {
        self.orders.pid.clone()
    }
}

impl GenerationOrders {
    fn fail(&self, why: String) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        self.kill.raise();
    }
}

impl Drop for GenerationHandle {
    fn drop(&mut self) {
        self.orders.kill.raise();
    }
}

/// The state of one generation.
pub(super) struct ServerGeneration {
    number: u64,
    pub(super) spec: ServerSpec,
    /// The lists of the server's previous generation.
    previous_offer: ServerOffer,
    orders: Arc<GenerationOrders>,
    pub(super) connector: Arc<Connector>,
    guard: GuardHandle,
    pub(super) handle: Arc<ServerHandle>,
    log: ServerLog,
    events: EventSink<LinkEvent>,
    mailbox: Mailbox<ServerMsg>,
    permissions: PermissionsHandle,
    audit: AuditHandle,
    servers: Weak<ServerTable>,
    pin_check: PinCheck,
    /// The lease of the permission gate; ends with the last generation that has it.
    gate_lease: Arc<OnceLock<GateLease>>,
    /// True if it starts beside another generation, without waiting for its end.
    is_successor: bool,
    /// Marks its processes, to tell them apart from those of other generations.
    mark: String,
    /// The permissions of its sandbox.
    grants: Mutex<SandboxGrants>,
    /// Its connection.
    link: Mutex<Weak<Link>>,
    /// Held by a first start until it has its lists.
    first_start: Mutex<Option<tokio::sync::OwnedSemaphorePermit>>,
}

impl ServerGeneration {
    async fn run(self) {
        let end = match task::catch_panic("server.life", self.run_exclusive()).await {
            Ok(end) => end,
            Err(broken) => self.handle_panic(&broken),
        };
        let (exit, how) = end.into_exit();
        self.log.push_note(&format!("ended: {how}"));
        let _ = self.mailbox.send(ServerMsg::Ended(self.number, exit, how));
    }

    /// Cleans up after a panic of the supervising task: settles the pending calls, and stops watching the
    /// process, which was killed with the task.
    fn handle_panic(&self, broken: &TaskError) -> End {
        let end = End::Failed(broken.to_string());
        let link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(link) = link.upgrade() {
            self.close_link(&link, &end);
        }
        let pid = self.orders.pid.load(Ordering::Relaxed);
        if pid != 0 {
            self.guard.unwatch(pid);
        }
        end
    }

    /// Runs after the previous generation has ended; a restarted supervisor has not waited for it.
    async fn run_exclusive(&self) -> End {
        if self.is_successor {
            // The next generation also waits for the end of this one.
            let exclusive_run = async {
                let _alone = self.handle.lock_generation().await;
                std::future::pending().await
            };
            return tokio::select! {
                end = self.run_once() => end,
                end = exclusive_run => end,
            };
        }
        let _alone = tokio::select! {
            alone = self.handle.lock_generation() => alone,
            end = self.wait_for_stop() => return end,
        };
        self.run_once().await
    }

    async fn run_once(&self) -> End {
        if let Err(why) = self.open_gate().await {
            return End::Failed(why);
        }
        match &self.spec.transport {
            ServerTransport::Stdio { .. } => match self.wait_for_first_start().await {
                Ok(()) => self.run_child().await,
                Err(end) => end,
            },
            ServerTransport::Http {
                url,
                headers,
                protocol: speaks,
            } => match speaks {
                UrlProtocol::Mcp => self.run_remote(url, headers).await,
                UrlProtocol::Lite | UrlProtocol::Grpc => self.run_lite(url, headers, *speaks).await,
            },
            ServerTransport::Node(server) => self.run_on_node(server).await,
        }
    }

    /// Opens the server's permission gate. An instance uses the gate of its server, and runs only while that
    /// runs.
    async fn open_gate(&self) -> Result<(), String> {
        if self.handle.agent().is_none() && self.gate_lease.get().is_none() {
            let (id, rules) = (&self.spec.id, &self.spec.permissions);
            let keeper = self.permissions.open(id, rules).await?;
            let _ = self.gate_lease.set(keeper);
        }
        Ok(())
    }

    /// Runs one process, or a second one if the first showed that it needs another protocol family; that does
    /// not count as a failure.
    async fn run_child(&self) -> End {
        loop {
            match self.run_process(self.handle.take_families()).await {
                End::Retry => {}
                end @ (End::Stopped
                | End::ByItself
                | End::Exited(_)
                | End::Failed(_)
                | End::SessionEnded(_)
                | End::Rejected(_)) => {
                    return end;
                }
            }
        }
    }

    async fn run_process(&self, known: Option<SpokenFamilies>) -> End {
        let (spec, egress) = match self.confined_spec().await {
            Ok(confined) => confined,
            Err(end) => return end,
        };
        let egress = egress.map(|socket| self.egress_proxy(socket).run());
        let _egress = egress.map(|proxy| task::spawn_supervised("server.egress", proxy));
        let marked = spec.id.clone();
        let mut child = match self.connector.spawner.spawn(spec, &self.log).await {
            Ok(child) => child,
            Err(error) => return End::Failed(error),
        };
        let pid = child.pid();
        self.orders.pid.store(pid, Ordering::Relaxed);
        self.guard.watch(pid);
        let _limited = self.track_usage(pid, &marked);
        let (sink, writer) = lines::line_channel(STDIN_QUEUE_LIMITS);
        let (stdin, stdout) = child
            .take_stdin()
            .zip(child.take_stdout())
            .expect("both are piped");
        let early_exit = EarlyExit::new(&sink, &stdin);
        let link = self.build_link(Wire::Child(sink));
        let mut writing =
            task::spawn_supervised("server.stdin", writer.run(stdin, STDIN_STALL_TIMEOUT));
        let reader = link.clone();
        let max_frame = self.spec.limits.max_frame;
        let reading = lines::read_lines(stdout, max_frame, move |frame| {
            reader.receive_frame(frame);
        });
        let mut reading = task::spawn_supervised("server.stdout", reading);
        let version = &self.connector.version;
        let handshake_future = Box::pin(handshake::handshake_child(
            &link,
            version,
            known,
            &early_exit,
        ));
        let why = tokio::select! {
            why = self.serve(&link, handshake_future) => why,
            why = self.wait_for_exit(&mut child, &mut reading, &mut writing) => why,
        };
        let ended_at_question = early_exit.take_assumed();
        self.close_link(&link, &why);
        let exit = child.stop(self.stop_grace()).await;
        self.guard.unwatch(pid);
        if exit.has_leftovers {
            self.log.push_note(&exit.to_string());
            tracing::warn!(server = %self.spec.id, %exit, "some of its processes have not ended");
        }
        writing.abort();
        reading.abort();
        match (why, ended_at_question) {
            (End::ByItself | End::Failed(_), Some(spoken))
                if exit.cause == ExitCause::ByItself && self.handle.record_probe_exit(spoken) =>
            {
                self.log.push_note(&format!(
                    "{exit} during protocol detection; it is started again with the other protocol version"
                ));
                End::Retry
            }
            (End::ByItself, _) => End::Exited(exit),
            (End::Failed(why), _) if exit.cause == ExitCause::ByItself => {
                End::Failed(format!("{why}; {exit}"))
            }
            (
                end @ (End::Failed(_)
                | End::SessionEnded(_)
                | End::Rejected(_)
                | End::Stopped
                | End::Exited(_)
                | End::Retry),
                _,
            ) => end,
        }
    }

    /// Resolves when the process has ended or closed a pipe; it then gets a moment to exit with a reason. Its
    /// remaining output is read for a limited time, because other processes may keep its stdout open.
    async fn wait_for_exit(
        &self,
        child: &mut child::Child,
        reading: &mut SupervisedTask<ReadEnd>,
        writing: &mut SupervisedTask<WriteEnd>,
    ) -> End {
        let grace = self.spec.limits.stop_grace;
        let read = tokio::select! {
            read = &mut *reading => Some(read),
            _ = writing => tokio::time::timeout(grace, reading).await.ok(),
            () = child.wait() => {
                let _ = tokio::time::timeout(OUTPUT_DRAIN_TIMEOUT, reading).await;
                return End::ByItself;
            }
        };
        match tokio::time::timeout(grace, child.wait()).await {
            Ok(()) => End::ByItself,
            Err(_) => End::Failed(match read {
                Some(Ok(ReadEnd::Runaway)) => "it wrote too much output without a newline".into(),
                Some(Err(broken)) => broken.to_string(),
                Some(Ok(_)) => "it closed its stdout".into(),
                None => "it does not read its stdin".into(),
            }),
        }
    }

    /// Closes the connection for new calls, and settles the pending ones.
    pub(super) fn close_link(&self, link: &Link, end: &End) {
        self.handle.retire(link.number);
        link.fail_pending_calls(&end.describe());
    }

    pub(super) fn log(&self) -> &ServerLog {
        &self.log
    }

    /// The permissions of this list that are granted.
    pub(super) fn filter_granted(&self, permissions: &[String]) -> BTreeSet<PermissionType> {
        match self.gate_lease.get() {
            Some(keeper) => keeper.granted_among(permissions),
            None => self.permissions.granted_among(&self.spec.id, permissions),
        }
    }

    pub(super) fn set_sandbox_grants(&self, grants: SandboxGrants) {
        *self.grants.lock().unwrap_or_else(PoisonError::into_inner) = grants;
    }

    pub(super) fn last_sandbox_grants(&self) -> SandboxGrants {
        let grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        grants.clone()
    }

    pub(super) fn child_spec(&self) -> ChildSpec {
        let ServerTransport::Stdio {
            command,
            args,
            env,
            inherit_env,
            cwd,
        } = &self.spec.transport
        else {
            unreachable!("only stdio servers have a child");
        };
        ChildSpec {
            id: self.handle.key().clone(),
            command: command.clone(),
            args: args.clone(),
            env: env.clone(),
            inherit_env: inherit_env.clone(),
            cwd: Some(cwd.clone().unwrap_or_else(|| self.connector.folder.clone())),
            kernel_mark: self.mark.clone(),
            launcher: None,
        }
    }

    pub(super) fn build_link(&self, wire: Wire) -> Arc<Link> {
        let link = Link::new(
            self.spec.id.clone(),
            self.spec.limits.clone(),
            wire,
            self.log.clone(),
            self.events.clone(),
            &self.connector.version,
            self.link_settings(),
        );
        let mut known = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Arc::downgrade(&link);
        link
    }

    /// The settings of its connection. An instance for one agent is told the extensions of that agent's client.
    pub(super) fn link_settings(&self) -> LinkSettings {
        let of_client = self.handle.client_extensions();
        LinkSettings {
            offer_mgp: self.should_offer_mgp(),
            offer_mcpl: self.should_offer_mcpl(),
            attribution: self.spec.callback_attribution,
            client_extensions: of_client.unwrap_or_else(|| self.spec.client_extensions.clone()),
            audit: self.audit.clone(),
            interceptors: Some(Arc::new(TableServers(self.servers.clone()))),
        }
    }

    /// True unless the server's configuration says `mgp = false`.
    pub(super) fn should_offer_mgp(&self) -> bool {
        !self.spec.mgp.is_disabled
    }

    /// True unless the server's configuration says `mcpl = false`. A server with an instance for each agent
    /// would have several hosts, and gets no MCPL.
    pub(super) fn should_offer_mcpl(&self) -> bool {
        self.spec.mcpl && matches!(self.spec.instances, ServerInstances::Shared)
    }

    /// Completes the handshake, fetches the first lists, and runs until told to end.
    pub(super) async fn serve(
        &self,
        link: &Arc<Link>,
        handshake_future: impl Future<Output = Result<SpokenFamilies, HandshakeError>>,
    ) -> End {
        let start_timeout = self.spec.limits.start_timeout;
        let start = async {
            let outcome = tokio::time::timeout(start_timeout, async {
                let spoken = handshake_future.await?;
                self.handle.record_families(spoken);
                // Before the lists are fetched, so that no change is missed.
                link.start_listening();
                link.wait_until_listening().await;
                Ok::<SpokenFamilies, HandshakeError>(spoken)
            });
            let spoken = outcome
                .await
                .map_err(|_| HandshakeError::Failed(self.startup_timeout_message()))??;
            // Waiting for a person does not count as start time.
            self.wait_for_permissions(link)
                .await
                .map_err(HandshakeError::Rejected)?;
            if self.has_outgrown_sandbox(link) {
                return Err(HandshakeError::Retry(spoken));
            }
            let before = self
                .previous_offer
                .clone()
                .with_requirements(Arc::new(self.requirement_terms(link)));
            let before = before.with_replica_spec(self.replica_mark(link));
            if self.handle.agent().is_some() {
                return Ok(FetchedLists::unchanged(before));
            }
            let lists = tokio::time::timeout(
                start_timeout,
                RawLists::fetch(link, before, &self.pin_check),
            );
            let lists = lists
                .await
                .unwrap_or_else(|_| Err(self.startup_timeout_message()));
            lists.map_err(HandshakeError::Failed)
        };
        let lists = tokio::select! {
            lists = start => lists,
            end = self.wait_for_stop() => return end,
        };
        self.finish_first_start();
        match lists {
            Err(HandshakeError::Failed(why)) => return End::Failed(why),
            Err(HandshakeError::Rejected(why)) => return End::Rejected(why),
            Err(HandshakeError::Retry(spoken)) => {
                self.handle.record_families(spoken);
                return End::Retry;
            }
            Ok(lists) => {
                let connected = ServerMsg::Connected(self.number, link.clone(), Box::new(lists));
                if self.mailbox.send(connected).is_err() {
                    return End::Failed("its supervisor is gone".into());
                }
            }
        }
        let end = tokio::select! {
            end = self.wait_for_stop() => end,
            end = self.monitor_health(link) => end,
        };
        if let (End::Stopped, Some(order)) = (&end, self.orders.stop_order.get()) {
            tokio::select! {
                drained = self.shut_down(link, *order) => {
                    let grace = order.step_timeout(self.spec.limits.stop_grace, drained);
                    let _ = self.orders.grace.set(grace);
                }
                () = self.wait_until_hurried() => {}
                () = self.orders.kill.wait_until_raised() => return End::Failed(self.failure_message()),
            }
        }
        end
    }

    /// Resolves when all permissions of the declaration and the configuration are decided (MGP-277).
    async fn wait_for_permissions(&self, link: &Arc<Link>) -> Result<(), String> {
        let Some(keeper) = self.gate_lease.get() else {
            return Ok(());
        };
        keeper.attach_server(gate::LinkGateListener::for_link(link));
        keeper.require(&self.declared_permissions(link));
        let waits = |names: &[String]| {
            let waits = ServerMsg::ApprovalRequested(self.number, names.to_vec());
            let _ = self.mailbox.send(waits);
        };
        let settled = keeper.wait_until_settled(waits).await;
        settled.map_err(|rejected| rejected.to_string())
    }

    /// The permissions named by the configuration and the declaration.
    fn declared_permissions(&self, link: &Link) -> Vec<String> {
        let declared = link.mgp().as_active();
        let declared = declared.map_or(&[][..], |active| &active.peer.permissions_required);
        let all = self.spec.mgp.permissions_required.iter().chain(declared);
        let all: std::collections::BTreeSet<&String> = all.collect();
        all.into_iter().cloned().collect()
    }

    /// The time for each step of ending the process.
    fn stop_grace(&self) -> Duration {
        let configured = self.spec.limits.stop_grace;
        let decided = self.orders.grace.get().copied();
        // A server stopped during its start has not set it yet.
        let early = || self.orders.stop_order.get();
        let early = || early().map(|order| order.step_timeout(configured, false));
        decided.or_else(early).unwrap_or(configured)
    }

    /// Resolves when draining is limited to the time of any server that ends.
    async fn wait_until_hurried(&self) {
        self.orders.hurry.wait_until_raised().await;
        tokio::time::sleep(self.connector.drain_timeout()).await;
    }

    /// Resolves when this generation is to end.
    pub(super) async fn wait_for_stop(&self) -> End {
        tokio::select! {
            () = self.orders.kill.wait_until_raised() => End::Failed(self.failure_message()),
            () = self.orders.stop.wait_until_raised() => End::Stopped,
        }
    }

    fn failure_message(&self) -> String {
        let failed = self
            .orders
            .failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        failed
            .clone()
            .unwrap_or_else(|| "its supervisor is gone".into())
    }

    pub(super) fn startup_timeout_message(&self) -> String {
        format!(
            "it was not ready within {} s (start_timeout_secs)",
            self.spec.limits.start_timeout.as_secs()
        )
    }
}
