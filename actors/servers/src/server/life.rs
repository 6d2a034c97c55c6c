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
mod terms;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use mgp_engine::servers::spec::{Reach, ServerInstances, ServerSpec, UrlProtocol};
use mgp_engine::servers::supervision::StopOrder;
use mgp_engine::tools::catalog::ServerOffer;
use mgp_protocol::mgp::permission::PermissionType;
use mgp_transports::child::{self, ChildSpec, How};
use mgp_transports::lines::{self, QueueLimits, ReadEnd, WriteEnd};
use mgp_transports::log::ServerLog;

use self::confinement::SandboxGrants;
use self::early_exit::EarlyExit;
use self::end::End;
use self::handshake::HandshakeError;
use super::lists::{Fresh, Lists, Watch};
use super::spoken::SpokenEras;
use super::starts::Start;
use super::{Connector, ServerActor, ServerHandle, ServerMsg};
use crate::guard::GuardHandle;
use crate::link::{Link, LinkEvent, Ways, Wire};
use mgp_callers::exchange::Flag;
use mgp_policy::permissions::{GateLease, PermissionsHandle};
use mgp_runtime::event_sink::EventSink;
use mgp_runtime::mailbox::Mailbox;
use mgp_runtime::randomness;
use mgp_runtime::task::{self, SupervisedTask, TaskBroken};

/// A child that reads none of its stdin for this long is ended: its pipe is full. Calls have timed out
/// long before.
const STALL: Duration = Duration::from_secs(300);

/// How long the remaining output of an ended process may take to be read.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Messages that may wait for a child: the calls that two agents may have under way and the cancellation
/// of each, so that one agent that floods leaves room for others.
const QUEUE: QueueLimits = QueueLimits {
    frames: 4 * mgp_callers::agent::MAX_OPEN,
    bytes: 64 << 20,
};

/// The supervisor's handle of one life. Dropping it ends that life.
#[derive(Debug)]
pub(super) struct LifeHandle {
    pub(super) link: Option<Arc<Link>>,
    pub(super) start: Start,
    orders: Arc<Orders>,
    keeper: Arc<OnceLock<GateLease>>,
}

#[derive(Debug, Default)]
struct Orders {
    stop: Flag,
    /// It was replaced: it stays for its tasks, too.
    leaves: Flag,
    how_to_stop: OnceLock<StopOrder>,
    /// Its end may take no longer than any other's.
    hurry: Flag,
    /// How long each step of ending its process may take, if its last calls decided that.
    grace: OnceLock<Duration>,
    failed: Mutex<Option<String>>,
    kill: Flag,
    pid: Arc<AtomicI32>,
}

impl LifeHandle {
    /// Starts a life, beside another one or alone; it reports as [`ServerMsg::Connected`] and
    /// [`ServerMsg::Ended`].
    pub(super) fn begin(
        actor: &ServerActor,
        attempt: u64,
        spec: ServerSpec,
        before: ServerOffer,
        me: Mailbox<ServerMsg>,
        beside: Option<&Self>,
    ) -> Self {
        let orders = Arc::new(Orders::default());
        let watch = actor.watch(&spec);
        let keeper = beside.map_or_else(Arc::default, |other| other.keeper.clone());
        let mark = actor.connector.mark.clone();
        let start = Start::of(&spec, actor.log());
        let life = ServerLife {
            attempt,
            spec,
            before,
            orders: orders.clone(),
            connector: actor.connector.clone(),
            guard: actor.guard.clone(),
            handle: actor.handle.clone(),
            log: actor.log().clone(),
            events: actor.hears_links(me.clone()),
            me,
            permissions: actor.permissions.clone(),
            watch,
            keeper: keeper.clone(),
            beside: beside.is_some(),
            mark: match beside {
                Some(_) => format!("{mark}:{}", u64::from_ne_bytes(randomness::bytes())),
                None => mark,
            },
            grants: Mutex::default(),
            link: Mutex::default(),
        };
        task::detached("server.life", life.live());
        Self {
            link: None,
            start,
            orders,
            keeper,
        }
    }

    /// Ends it; calls under way may finish first.
    pub(super) fn stop(&self, order: StopOrder) {
        // When a second order comes, the first is being carried out already.
        let _ = self.orders.how_to_stop.set(order);
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
    pub(super) fn process(&self) -> Arc<AtomicI32> {
        self.orders.pid.clone()
    }
}

impl Orders {
    fn fail(&self, why: String) {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        self.kill.raise();
    }
}

impl Drop for LifeHandle {
    fn drop(&mut self) {
        self.orders.kill.raise();
    }
}

/// What one life needs.
pub(super) struct ServerLife {
    attempt: u64,
    pub(super) spec: ServerSpec,
    /// The offer of the server's last life.
    before: ServerOffer,
    orders: Arc<Orders>,
    pub(super) connector: Arc<Connector>,
    guard: GuardHandle,
    pub(super) handle: Arc<ServerHandle>,
    log: ServerLog,
    events: EventSink<LinkEvent>,
    me: Mailbox<ServerMsg>,
    permissions: PermissionsHandle,
    watch: Watch,
    /// The lease of the permission gate, which ends with the last life that has it.
    keeper: Arc<OnceLock<GateLease>>,
    /// It is started beside another life, and does not wait for its end.
    beside: bool,
    /// Marks its processes: those of another life are not reached by its end.
    mark: String,
    /// The permissions its sandbox was made with.
    grants: Mutex<SandboxGrants>,
    /// Its connection.
    link: Mutex<Weak<Link>>,
}

impl ServerLife {
    async fn live(self) {
        let end = match task::caught("server.life", self.alone()).await {
            Ok(end) => end,
            Err(broken) => self.broken(&broken),
        };
        let (exit, how) = end.exit();
        self.log.note(&format!("ended: {how}"));
        let _ = self.me.tell(ServerMsg::Ended(self.attempt, exit, how));
    }

    /// The supervising task panicked: pending calls are settled, and the process, which was killed with the
    /// task, is no longer watched.
    fn broken(&self, broken: &TaskBroken) -> End {
        let end = End::Failed(broken.to_string());
        let link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(link) = link.upgrade() {
            self.lose(&link, &end);
        }
        let pid = self.orders.pid.load(Ordering::Relaxed);
        if pid != 0 {
            self.guard.unwatch(pid);
        }
        end
    }

    /// Starts when the last life has ended; a supervisor that was restarted has not waited for that.
    async fn alone(&self) -> End {
        if self.beside {
            // The next life waits for the end of this one, too.
            let turn = async {
                let _alone = self.handle.alone().await;
                std::future::pending().await
            };
            return tokio::select! {
                end = self.whole() => end,
                end = turn => end,
            };
        }
        let _alone = tokio::select! {
            alone = self.handle.alone() => alone,
            end = self.ordered() => return end,
        };
        self.whole().await
    }

    async fn whole(&self) -> End {
        if let Err(why) = self.gated().await {
            return End::Failed(why);
        }
        match &self.spec.reach {
            Reach::Stdio { .. } => self.child().await,
            Reach::Http {
                url,
                headers,
                speaks,
            } => match speaks {
                UrlProtocol::Mcp => self.remote(url, headers).await,
                UrlProtocol::Lite | UrlProtocol::Grpc => self.lite(url, headers, *speaks).await,
            },
            Reach::Node(server) => self.of_node(server).await,
        }
    }

    /// Opens the server's permission gate. An instance uses that gate, as it runs only while the server does.
    async fn gated(&self) -> Result<(), String> {
        if self.handle.agent().is_none() && self.keeper.get().is_none() {
            let (id, rules) = (&self.spec.id, &self.spec.permissions);
            let keeper = self.permissions.open(id, rules).await?;
            let _ = self.keeper.set(keeper);
        }
        Ok(())
    }

    /// Runs one process, or a second one where the first showed that it must be spoken to in another era:
    /// that does not count as a failure.
    async fn child(&self) -> End {
        loop {
            match self.process(self.handle.take_spoken()).await {
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

    async fn process(&self, known: Option<SpokenEras>) -> End {
        let spec = match self.confined().await {
            Ok(spec) => spec,
            Err(end) => return end,
        };
        let marked = spec.id.clone();
        let mut child = match self.connector.starts.spawn(spec, &self.log).await {
            Ok(child) => child,
            Err(error) => return End::Failed(error),
        };
        let pid = child.pid();
        self.orders.pid.store(pid, Ordering::Relaxed);
        self.guard.watch(pid);
        let _limited = self.limited(pid, &marked);
        let (sink, writer) = lines::sink(QUEUE);
        let (stdin, stdout) = child
            .take_stdin()
            .zip(child.take_stdout())
            .expect("both are piped");
        let early_exit = EarlyExit::behind(&sink, &stdin);
        let link = self.link(Wire::Child(sink));
        let mut writing = task::supervised("server.stdin", writer.run(stdin, STALL));
        let reader = link.clone();
        let max_frame = self.spec.limits.max_frame;
        let reading = lines::read(stdout, max_frame, move |frame| {
            reader.receive_frame(frame);
        });
        let mut reading = task::supervised("server.stdout", reading);
        let version = &self.connector.version;
        let shake = Box::pin(handshake::with_child(&link, version, known, &early_exit));
        let why = tokio::select! {
            why = self.serve(&link, shake) => why,
            why = self.fallen(&mut child, &mut reading, &mut writing) => why,
        };
        let ended_at_question = early_exit.ended();
        self.lose(&link, &why);
        let exit = child.stop(self.grace()).await;
        self.guard.unwatch(pid);
        if exit.left {
            self.log.note(&exit.to_string());
            tracing::warn!(server = %self.spec.id, %exit, "not all of it has ended");
        }
        writing.abort();
        reading.abort();
        match (why, ended_at_question) {
            (End::ByItself | End::Failed(_), Some(spoken))
                if exit.how == How::ByItself && self.handle.ended_at_question(spoken) =>
            {
                self.log.note(&format!(
                    "{exit} when it was asked what it speaks; it is started again and asked otherwise"
                ));
                End::Again
            }
            (End::ByItself, _) => End::Exited(exit),
            (End::Failed(why), _) if exit.how == How::ByItself => {
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
    async fn fallen(
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
                let _ = tokio::time::timeout(LAST_WORDS, reading).await;
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
    pub(super) fn lose(&self, link: &Link, end: &End) {
        self.handle.retire(link.number);
        link.lose(&end.words());
    }

    pub(super) fn log(&self) -> &ServerLog {
        &self.log
    }

    /// Which of these permissions it has.
    pub(super) fn has(&self, words: &[String]) -> BTreeSet<PermissionType> {
        match self.keeper.get() {
            Some(keeper) => keeper.has(words),
            None => self.permissions.has(&self.spec.id, words),
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
        let Reach::Stdio {
            command,
            args,
            env,
            inherit_env,
            cwd,
        } = &self.spec.reach
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

    pub(super) fn link(&self, wire: Wire) -> Arc<Link> {
        let link = Link::new(
            self.spec.id.clone(),
            self.spec.limits.clone(),
            wire,
            self.log.clone(),
            self.events.clone(),
            &self.connector.version,
            Ways {
                offers_mgp: self.offers_mgp(),
                offers_mcpl: self.offers_mcpl(),
                asking: self.spec.asking,
            },
        );
        let mut known = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Arc::downgrade(&link);
        link
    }

    /// MGP is offered unless the server's configuration says `mgp = false`.
    pub(super) fn offers_mgp(&self) -> bool {
        !self.spec.mgp.suppressed
    }

    /// MCPL is offered unless the server's configuration says `mcpl = false`. One with an instance for each agent
    /// would have as many hosts.
    pub(super) fn offers_mcpl(&self) -> bool {
        self.spec.mcpl && matches!(self.spec.instances, ServerInstances::Shared)
    }

    /// Handshake, first lists, then until told to end.
    pub(super) async fn serve(
        &self,
        link: &Arc<Link>,
        shake: impl Future<Output = Result<SpokenEras, HandshakeError>>,
    ) -> End {
        let patience = self.spec.limits.start_timeout;
        let start = async {
            let met = tokio::time::timeout(patience, async {
                let spoken = shake.await?;
                self.handle.met(spoken);
                // Before the lists are fetched, so that no change is missed.
                link.listen();
                link.listens().await;
                Ok::<SpokenEras, HandshakeError>(spoken)
            });
            let spoken = met
                .await
                .map_err(|_| HandshakeError::Failed(self.too_slow()))??;
            // Waiting for a person does not count as the server's start time.
            self.permitted(link)
                .await
                .map_err(HandshakeError::Rejected)?;
            if self.outgrown(link) {
                return Err(HandshakeError::Again(spoken));
            }
            let before = self.before.clone().under(Arc::new(self.terms(link)));
            let before = before.marked(self.mark(link));
            if self.handle.agent().is_some() {
                return Ok(Fresh::none(before));
            }
            let lists = tokio::time::timeout(patience, Lists::fetch(link, before, &self.watch));
            let lists = lists.await.unwrap_or_else(|_| Err(self.too_slow()));
            lists.map_err(HandshakeError::Failed)
        };
        let lists = tokio::select! {
            lists = start => lists,
            end = self.ordered() => return end,
        };
        match lists {
            Err(HandshakeError::Failed(why)) => return End::Failed(why),
            Err(HandshakeError::Rejected(why)) => return End::Rejected(why),
            Err(HandshakeError::Again(spoken)) => {
                self.handle.met(spoken);
                return End::Again;
            }
            Ok(lists) => {
                let connected = ServerMsg::Connected(self.attempt, link.clone(), Box::new(lists));
                if self.me.tell(connected).is_err() {
                    return End::Failed("its supervisor is gone".into());
                }
            }
        }
        let end = tokio::select! {
            end = self.ordered() => end,
            end = self.tended(link) => end,
        };
        if let (End::Stopped, Some(order)) = (&end, self.orders.how_to_stop.get()) {
            tokio::select! {
                drained = self.shut_down(link, *order) => {
                    let grace = order.grace(self.spec.limits.stop_grace, drained);
                    let _ = self.orders.grace.set(grace);
                }
                () = self.hurried() => {}
                () = self.orders.kill.raised() => return End::Failed(self.failure()),
            }
        }
        end
    }

    /// Resolves when all permissions it declares or its configuration names are decided
    /// (MGP-277).
    async fn permitted(&self, link: &Arc<Link>) -> Result<(), String> {
        let Some(keeper) = self.keeper.get() else {
            return Ok(());
        };
        keeper.meets(gate::LinkGateListener::over(link));
        keeper.needs(&self.declared(link));
        let waits = |names: &[String]| {
            let waits = ServerMsg::ApprovalRequested(self.attempt, names.to_vec());
            let _ = self.me.tell(waits);
        };
        let settled = keeper.settled(waits).await;
        settled.map_err(|rejected| rejected.to_string())
    }

    /// The permissions that its configuration and its own declaration name.
    fn declared(&self, link: &Link) -> Vec<String> {
        let said = link.mgp().active();
        let said = said.map_or(&[][..], |active| &active.peer.permissions_required);
        let all = self.spec.mgp.permissions_required.iter().chain(said);
        let all: std::collections::BTreeSet<&String> = all.collect();
        all.into_iter().cloned().collect()
    }

    /// How long each step of ending its process may take.
    fn grace(&self) -> Duration {
        let configured = self.spec.limits.stop_grace;
        let decided = self.orders.grace.get().copied();
        // A server that is stopped while it starts has no answer to that yet.
        let early = || self.orders.how_to_stop.get();
        let early = || early().map(|order| order.grace(configured, false));
        decided.or_else(early).unwrap_or(configured)
    }

    /// Resolves when its last calls have had the time of any server that ends.
    async fn hurried(&self) {
        self.orders.hurry.raised().await;
        tokio::time::sleep(self.connector.drain()).await;
    }

    /// Resolves when this life is to end.
    pub(super) async fn ordered(&self) -> End {
        tokio::select! {
            () = self.orders.kill.raised() => End::Failed(self.failure()),
            () = self.orders.stop.raised() => End::Stopped,
        }
    }

    fn failure(&self) -> String {
        let failed = self
            .orders
            .failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        failed
            .clone()
            .unwrap_or_else(|| "its supervisor is gone".into())
    }

    pub(super) fn too_slow(&self) -> String {
        format!(
            "it was not ready within {} s (start_timeout_secs)",
            self.spec.limits.start_timeout.as_secs()
        )
    }
}
