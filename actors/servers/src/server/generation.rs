//! One life of a server, from start to end, as one task.

mod confinement;
mod early_exit;
mod end;
mod gate;
mod handshake;
mod health;
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
use super::lists::{FetchedLists, PinCheck, RawLists};
use super::protocol_families::SpokenFamilies;
use super::start_progress::StartProgress;
use super::{Connector, ServerActor, ServerHandle, ServerMsg};
use crate::guard::GuardHandle;
use crate::link::{Link, LinkEvent, LinkSettings, Wire};
use mgp_callers::Flag;
use mgp_policy::{GateLease, PermissionsHandle};
use mgp_runtime::task::{SupervisedTask, TaskError};
use mgp_runtime::{EventSink, Mailbox, randomness, task};

/// A child that reads none of its stdin for this long is ended: its pipe is full. Calls have timed out
/// long before.
const STDIN_STALL_TIMEOUT: Duration = Duration::from_secs(300);

/// How long the remaining output of an ended process may take to be read.
const OUTPUT_DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

/// Messages that may wait for a child: the calls that two agents may have under way and the cancellation
/// of each, so that one agent that floods leaves room for others.
const STDIN_QUEUE_LIMITS: QueueLimits = QueueLimits {
    frames: 4 * mgp_callers::agent::MAX_OPEN,
    bytes: 64 << 20,
};

/// The supervisor's handle of one life. Dropping it ends that life.
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
    /// It was replaced: it stays for its tasks, too.
    is_replaced: Flag,
    stop_order: OnceLock<StopOrder>,
    /// Its end may take no longer than any other's.
    hurry: Flag,
    /// How long each step of ending its process may take, if its last calls decided that.
    grace: OnceLock<Duration>,
    failure: Mutex<Option<String>>,
    kill: Flag,
    pid: Arc<AtomicI32>,
}

impl GenerationHandle {
    /// Starts a life, beside another one or alone; it reports as [`ServerMsg::Connected`] and
    /// [`ServerMsg::Ended`].
    pub(super) fn start(
        actor: &ServerActor,
        attempt: u64,
        spec: ServerSpec,
        before: ServerOffer,
        me: Mailbox<ServerMsg>,
        beside: Option<&Self>,
    ) -> Self {
        let orders = Arc::new(GenerationOrders::default());
        let watch = actor.pin_check(&spec);
        let gate_lease = beside.map_or_else(Arc::default, |other| other.gate_lease.clone());
        let mark = actor.connector.mark.clone();
        let start = StartProgress::begin(&spec, actor.log());
        let life = ServerGeneration {
            number: attempt,
            spec,
            previous_offer: before,
            orders: orders.clone(),
            connector: actor.connector.clone(),
            guard: actor.guard.clone(),
            handle: actor.handle.clone(),
            log: actor.log().clone(),
            events: actor.link_event_sink(me.clone()),
            mailbox: me,
            permissions: actor.permissions.clone(),
            pin_check: watch,
            gate_lease: gate_lease.clone(),
            is_successor: beside.is_some(),
            mark: match beside {
                Some(_) => format!("{mark}:{}", u64::from_ne_bytes(randomness::random_bytes())),
                None => mark,
            },
            grants: Mutex::default(),
            link: Mutex::default(),
        };
        task::spawn_detached("server.life", life.run());
        Self {
            link: None,
            start,
            orders,
            gate_lease,
        }
    }

    /// Ends it; calls under way may finish first.
    pub(super) fn stop(&self, order: StopOrder) {
        // When a second order comes, the first is being carried out already.
        let _ = self.orders.stop_order.set(order);
        self.orders.stop.raise();
    }

    /// Its last calls get no more time than those of any server that ends.
    pub(super) fn hurry(&self) {
        self.orders.hurry.raise();
    }

    /// Ends it as failed.
    pub(super) fn fail(&self, why: String) {
        self.orders.fail(why);
    }

    /// Process id of its child; 0 while there is none.
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

/// What one life needs.
pub(super) struct ServerGeneration {
    number: u64,
    pub(super) spec: ServerSpec,
    /// The offer of the server's last life.
    previous_offer: ServerOffer,
    orders: Arc<GenerationOrders>,
    pub(super) connector: Arc<Connector>,
    guard: GuardHandle,
    pub(super) handle: Arc<ServerHandle>,
    log: ServerLog,
    events: EventSink<LinkEvent>,
    mailbox: Mailbox<ServerMsg>,
    permissions: PermissionsHandle,
    pin_check: PinCheck,
    /// The lease of the permission gate, which ends with the last life that has it.
    gate_lease: Arc<OnceLock<GateLease>>,
    /// It is started beside another life, and does not wait for its end.
    is_successor: bool,
    /// Marks its processes: those of another life are not reached by its end.
    mark: String,
    /// The permissions its sandbox was made with.
    grants: Mutex<SandboxGrants>,
    /// Its connection.
    link: Mutex<Weak<Link>>,
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

    /// The supervising task panicked: pending calls are settled, and the process, which was killed with the
    /// task, is no longer watched.
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

    /// Starts when the last life has ended; a supervisor that was restarted has not waited for that.
    async fn run_exclusive(&self) -> End {
        if self.is_successor {
            // The next life waits for the end of this one, too.
            let turn = async {
                let _alone = self.handle.lock_generation().await;
                std::future::pending().await
            };
            return tokio::select! {
                end = self.run_once() => end,
                end = turn => end,
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
            ServerTransport::Stdio { .. } => self.run_child().await,
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

    /// Opens the server's permission gate. An instance uses that gate, as it runs only while the server does.
    async fn open_gate(&self) -> Result<(), String> {
        if self.handle.agent().is_none() && self.gate_lease.get().is_none() {
            let (id, rules) = (&self.spec.id, &self.spec.permissions);
            let keeper = self.permissions.open(id, rules).await?;
            let _ = self.gate_lease.set(keeper);
        }
        Ok(())
    }

    /// Runs one process, or a second one where the first showed that it must be spoken to in another era:
    /// that does not count as a failure.
    async fn run_child(&self) -> End {
        loop {
            match self.run_process(self.handle.take_families()).await {
                End::Again => {}
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
        let spec = match self.confined_spec().await {
            Ok(spec) => spec,
            Err(end) => return end,
        };
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
        let shake = Box::pin(handshake::handshake_child(
            &link,
            version,
            known,
            &early_exit,
        ));
        let why = tokio::select! {
            why = self.serve(&link, shake) => why,
            why = self.wait_for_exit(&mut child, &mut reading, &mut writing) => why,
        };
        let ended_at_question = early_exit.take_assumed();
        self.close_link(&link, &why);
        let exit = child.stop(self.stop_grace()).await;
        self.guard.unwatch(pid);
        if exit.has_leftovers {
            self.log.push_note(&exit.to_string());
            tracing::warn!(server = %self.spec.id, %exit, "not all of it has ended");
        }
        writing.abort();
        reading.abort();
        match (why, ended_at_question) {
            (End::ByItself | End::Failed(_), Some(spoken))
                if exit.cause == ExitCause::ByItself && self.handle.record_probe_exit(spoken) =>
            {
                self.log.push_note(&format!(
                    "{exit} when it was asked what it speaks; it is started again and asked otherwise"
                ));
                End::Again
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
                | End::Again),
                _,
            ) => end,
        }
    }

    /// Resolves when the process has ended or closed a pipe; then it gets a moment to exit and say why. Its
    /// remaining output is read, but not for as long as other processes keep its stdout open.
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
                Some(Ok(ReadEnd::Runaway)) => "it wrote without end and without a newline".into(),
                Some(Err(broken)) => broken.to_string(),
                Some(Ok(_)) => "it closed its stdout".into(),
                None => "it does not read its stdin".into(),
            }),
        }
    }

    /// The connection is over: it is given out no more, and its pending calls are settled.
    pub(super) fn close_link(&self, link: &Link, end: &End) {
        self.handle.retire(link.number);
        link.fail_pending_calls(&end.describe());
    }

    pub(super) fn log(&self) -> &ServerLog {
        &self.log
    }

    /// Which of these permissions it has.
    pub(super) fn filter_granted(&self, words: &[String]) -> BTreeSet<PermissionType> {
        match self.gate_lease.get() {
            Some(keeper) => keeper.granted_among(words),
            None => self.permissions.granted_among(&self.spec.id, words),
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
            LinkSettings {
                offer_mgp: self.should_offer_mgp(),
                offer_mcpl: self.should_offer_mcpl(),
                attribution: self.spec.callback_attribution,
            },
        );
        let mut known = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Arc::downgrade(&link);
        link
    }

    /// MGP is offered unless the server's configuration says `mgp = false`.
    pub(super) fn should_offer_mgp(&self) -> bool {
        !self.spec.mgp.is_disabled
    }

    /// MCPL is offered unless the server's configuration says `mcpl = false`. One with an instance for each agent
    /// would have as many hosts.
    pub(super) fn should_offer_mcpl(&self) -> bool {
        self.spec.mcpl && matches!(self.spec.instances, ServerInstances::Shared)
    }

    /// Handshake, first lists, then until told to end.
    pub(super) async fn serve(
        &self,
        link: &Arc<Link>,
        shake: impl Future<Output = Result<SpokenFamilies, HandshakeError>>,
    ) -> End {
        let patience = self.spec.limits.start_timeout;
        let start = async {
            let met = tokio::time::timeout(patience, async {
                let spoken = shake.await?;
                self.handle.record_families(spoken);
                // Before the lists are fetched, so that no change is missed.
                link.start_listening();
                link.wait_until_listening().await;
                Ok::<SpokenFamilies, HandshakeError>(spoken)
            });
            let spoken = met
                .await
                .map_err(|_| HandshakeError::Failed(self.startup_timeout_message()))??;
            // Waiting for a person does not count as the server's start time.
            self.wait_for_permissions(link)
                .await
                .map_err(HandshakeError::Rejected)?;
            if self.has_outgrown_sandbox(link) {
                return Err(HandshakeError::Again(spoken));
            }
            let before = self
                .previous_offer
                .clone()
                .with_requirements(Arc::new(self.requirement_terms(link)));
            let before = before.with_replica_spec(self.replica_mark(link));
            if self.handle.agent().is_some() {
                return Ok(FetchedLists::unchanged(before));
            }
            let lists =
                tokio::time::timeout(patience, RawLists::fetch(link, before, &self.pin_check));
            let lists = lists
                .await
                .unwrap_or_else(|_| Err(self.startup_timeout_message()));
            lists.map_err(HandshakeError::Failed)
        };
        let lists = tokio::select! {
            lists = start => lists,
            end = self.wait_for_stop() => return end,
        };
        match lists {
            Err(HandshakeError::Failed(why)) => return End::Failed(why),
            Err(HandshakeError::Rejected(why)) => return End::Rejected(why),
            Err(HandshakeError::Again(spoken)) => {
                self.handle.record_families(spoken);
                return End::Again;
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

    /// Resolves when all permissions it declares or its configuration names are decided
    /// (MGP-277).
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

    /// The permissions that its configuration and its own declaration name.
    fn declared_permissions(&self, link: &Link) -> Vec<String> {
        let said = link.mgp().as_active();
        let said = said.map_or(&[][..], |active| &active.peer.permissions_required);
        let all = self.spec.mgp.permissions_required.iter().chain(said);
        let all: std::collections::BTreeSet<&String> = all.collect();
        all.into_iter().cloned().collect()
    }

    /// How long each step of ending its process may take.
    fn stop_grace(&self) -> Duration {
        let configured = self.spec.limits.stop_grace;
        let decided = self.orders.grace.get().copied();
        // A server that is stopped while it starts has no answer to that yet.
        let early = || self.orders.stop_order.get();
        let early = || early().map(|order| order.step_timeout(configured, false));
        decided.or_else(early).unwrap_or(configured)
    }

    /// Resolves when its last calls have had the time of any server that ends.
    async fn wait_until_hurried(&self) {
        self.orders.hurry.wait_until_raised().await;
        tokio::time::sleep(self.connector.drain_timeout()).await;
    }

    /// Resolves when this life is to end.
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
