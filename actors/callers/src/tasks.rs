//! Tasks the kernel makes of long calls (tasks extension, SEP-2663): the call continues in the background,
//! and its state is kept on disk.
//!
//! Also the ids of all tasks: a client's id is sealed, names the task, and can be opened only for the
//! client it was given to.

mod follow;
mod next_round;
mod record;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mgp_engine::callers::seal::{Purpose, SealKey};
use mgp_engine::callers::tasks::{Maker, NamedTask, Task, TaskRef, TaskStatus, TaskStep};
use mgp_protocol::ids::{AgentId, ServerId};

use crate::directory::Directory;
use crate::exchange::Flag;
use crate::request::Caller;
use crate::request::background_call::BackgroundCall;
use mgp_runtime::task;
use mgp_runtime::task_supervisor::TaskSupervisorHandle;
use mgp_runtime::time::unix_ms;

pub use crate::exchange::rounds::LongCall;
pub use next_round::NextRound;
pub use record::{TaskRecord, load};

/// Tasks kept at once, ended ones included; above that a long call stays a call.
pub const MAX_TASKS: usize = 1000;
/// Tasks kept at once of one client, so that none takes all the room.
pub const MAX_OF_ONE: usize = 100;
/// Bytes of all results together, in memory and on disk; a result that does not fit fails its task.
pub const MAX_BYTES: usize = 64 << 20;
/// The polling interval told to clients, in milliseconds.
const POLL_MS: u64 = 1000;
/// How long a request to cancel waits for the call to end, so that the next poll shows it.
const FAREWELL: Duration = Duration::from_secs(1);

/// The run of the kernel that made a task, and the number of the task in it.
type Number = (u64, u64);

/// The kernel's own tasks, and the ids of all tasks.
#[derive(Debug)]
pub struct Tasks {
    seal: SealKey,
    boot: u64,
    patience: Duration,
    folder: Arc<PathBuf>,
    directory: Arc<Directory>,
    supervisor: TaskSupervisorHandle,
    numbers: AtomicU64,
    table: Mutex<HashMap<Number, Arc<KernelTask>>>,
    bytes: AtomicUsize,
}

/// A task that is kept.
#[derive(Debug)]
struct KernelTask {
    at: Number,
    server: ServerId,
    /// The server's own name of the tool.
    tool: Box<str>,
    principal: String,
    /// The client's id.
    id: String,
    task: Mutex<Task>,
    /// The call while it is under way; `None` for tasks of earlier runs.
    background: Mutex<Option<Arc<BackgroundCall>>>,
    ended: Flag,
    forgotten: Flag,
    bytes: AtomicUsize,
}

impl Tasks {
    /// The tasks of earlier runs, from `records` read in `folder`. `boot` distinguishes this run from
    /// earlier ones; `patience` is how long a client may leave a question open. Each task is followed below
    /// `supervisor`.
    #[must_use]
    pub fn new(
        seal: SealKey,
        boot: u64,
        patience: Duration,
        folder: PathBuf,
        records: Vec<TaskRecord>,
        directory: Arc<Directory>,
        supervisor: TaskSupervisorHandle,
    ) -> Arc<Self> {
        let tasks = Arc::new(Self {
            seal,
            boot,
            patience,
            folder: Arc::new(folder),
            directory,
            supervisor,
            numbers: AtomicU64::new(1),
            table: Mutex::default(),
            bytes: AtomicUsize::new(0),
        });
        for record in records {
            let kept = Arc::new(KernelTask::of_before(&tasks, record));
            tasks
                .bytes
                .fetch_add(kept.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
            tasks.table().insert(kept.at, kept.clone());
            follow::start(&tasks, kept, None);
        }
        tasks
    }

    /// How many tasks of the kernel's own are kept, those that have ended among them.
    #[must_use]
    pub fn held(&self) -> usize {
        self.table().len()
    }

    /// Distinguishes this run of the kernel from earlier ones.
    #[must_use]
    pub fn boot(&self) -> u64 {
        self.boot
    }

    /// The client's id of a task: always the same.
    #[must_use]
    pub fn name(&self, caller: &Caller, task: &NamedTask) -> String {
        self.seal.seal(Purpose::Task, &caller.principal(), task)
    }

    /// The task with this id; `None` when the client was not given it.
    #[must_use]
    pub fn find(&self, caller: &Caller, id: &str) -> Option<NamedTask> {
        self.find_of(&caller.principal(), id)
    }

    /// The task with this id that was given to another client.
    #[must_use]
    pub fn find_of(&self, principal: &str, id: &str) -> Option<NamedTask> {
        self.seal.open(Purpose::Task, principal, id).ok()
    }

    /// How a task stands; `None` when it is forgotten.
    #[must_use]
    pub fn status(&self, at: (u64, u64)) -> Option<TaskStatus> {
        Some(self.kept(at)?.task().status())
    }

    /// Turns a call into a task, on disk before this returns; `round` repeats the call when it needs input.
    ///
    /// `None` when there is no room or the disk fails: then it stays a call.
    pub async fn make(
        self: &Arc<Self>,
        round: NextRound,
        call: &LongCall,
        background: Arc<BackgroundCall>,
    ) -> Option<Bytes> {
        let kept = Arc::new(self.begin(&round.caller, call, background));
        let place = TaskSlot::take(self, &kept)?;
        let record = kept.record(&kept.task());
        if let Err(error) = self.write(record).await {
            tracing::warn!(server = %kept.server, %error, "a long call stays a call: its task could not be written");
            return None;
        }
        place.keep();
        if let Some(background) = kept.background() {
            background.exchange.take_time();
        }
        let announcement = kept.task().render_created(&kept.id);
        follow::start(self, kept, Some(round));
        Some(announcement.into())
    }

    fn begin(
        &self,
        caller: &Caller,
        call: &LongCall,
        background: Arc<BackgroundCall>,
    ) -> KernelTask {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let at = (self.boot, number);
        let ttl = u64::try_from(call.ttl.as_millis()).unwrap_or(u64::MAX);
        KernelTask {
            at,
            id: self.name(caller, &named(&call.server, &call.tool, at)),
            server: call.server.clone(),
            tool: call.tool.clone(),
            principal: caller.principal(),
            task: Mutex::new(Task::new(unix_ms(), ttl, POLL_MS)),
            background: Mutex::new(Some(background)),
            ended: Flag::default(),
            forgotten: Flag::default(),
            bytes: AtomicUsize::new(0),
        }
    }

    /// Resolves when the task has ended, asks something or is forgotten; at once for one that is not the kernel's.
    pub async fn settled(&self, at: (u64, u64)) {
        let Some(kept) = self.kept(at) else {
            return;
        };
        if kept.task().status().is_final() {
            return;
        }
        let background = kept.background();
        let asks = async {
            match background.as_ref().and_then(|call| call.exchange.rounds()) {
                Some(rounds) => rounds.asked().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = kept.ended.raised() => {}
            () = kept.forgotten.raised() => {}
            () = asks => {}
        }
    }

    /// The result of `tasks/get`; `None` when the task is forgotten.
    #[must_use]
    pub fn get(&self, at: (u64, u64)) -> Option<Bytes> {
        let kept = self.kept(at)?;
        if kept.look() {
            self.tell(&kept);
        }
        let shown = kept.task().render_got(&kept.id);
        Some(shown.into())
    }

    /// Takes answers to open questions; false when the task is forgotten.
    #[must_use]
    pub fn update(&self, at: (u64, u64), input_responses: &str) -> bool {
        let Some(kept) = self.kept(at) else {
            return false;
        };
        let background = kept.background();
        let rounds = background.as_ref().and_then(|e| e.exchange.rounds());
        if let Some(rounds) = rounds {
            rounds.answer(input_responses);
        }
        if kept.look() {
            self.tell(&kept);
        }
        true
    }

    /// Cancels the call, unless it has ended; false when the task is forgotten.
    pub async fn cancel(&self, at: (u64, u64)) -> bool {
        let Some(kept) = self.kept(at) else {
            return false;
        };
        if let Some(background) = kept.background() {
            background.exchange.cancel();
            let _ = tokio::time::timeout(FAREWELL, kept.ended.raised()).await;
        }
        true
    }

    /// Cancels every call of an agent whose credential was revoked, and forgets its ended tasks.
    pub async fn end_of(&self, agent: &AgentId) {
        let own = format!("{agent}@");
        let kept: Vec<_> = {
            let table = self.table();
            let own = table
                .values()
                .filter(|kept| kept.principal.starts_with(&own));
            own.cloned().collect()
        };
        for kept in kept {
            match kept.background() {
                Some(background) if !kept.ended.is_raised() => background.exchange.cancel(),
                Some(_) | None => self.forget(&kept).await,
            }
        }
    }

    /// Ends a task; written to disk before anybody can see it.
    async fn end(&self, kept: &KernelTask, step: TaskStep) {
        let (bytes, step) = self.fit(step);
        kept.bytes.store(bytes, Ordering::Relaxed);
        let mut ended = kept.task().clone();
        if ended.step(unix_ms(), step).is_err() {
            return;
        }
        if let Err(error) = self.write(kept.record(&ended)).await {
            tracing::warn!(server = %kept.server, %error, "the end of a task is not on disk");
        }
        *kept.task() = ended;
        kept.ended.raise();
        self.tell(kept);
    }

    /// Reserves room for a task's result.
    fn fit(&self, step: TaskStep) -> (usize, TaskStep) {
        let bytes = match &step {
            TaskStep::Complete(json) | TaskStep::Fail(json) => json.len(),
            TaskStep::GoOn | TaskStep::Ask(_) | TaskStep::Cancel => 0,
        };
        let room = self
            .bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                let taken = taken + bytes;
                (taken <= MAX_BYTES).then_some(taken)
            });
        match room {
            Ok(_) => (bytes, step),
            Err(_) => (0, follow::too_large(bytes)),
        }
    }

    async fn forget(&self, kept: &KernelTask) {
        self.table().remove(&kept.at);
        kept.forgotten.raise();
        let bytes = kept.bytes.swap(0, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        let (folder, record) = (self.folder.clone(), kept.record(&kept.task()));
        let _ = task::blocking("tasks.record", move || record.remove(&folder)).await;
    }

    async fn write(&self, record: TaskRecord) -> std::io::Result<()> {
        let folder = self.folder.clone();
        let writing = task::blocking("tasks.record", move || record.write(&folder));
        writing.await.map_err(std::io::Error::other)?
    }

    /// Sends the task's new state to those who listen for it.
    fn tell(&self, kept: &KernelTask) {
        let params = kept.task().render(&kept.id);
        self.directory
            .task_changed(&reference(&kept.server, kept.at), &params, None);
    }

    fn kept(&self, at: Number) -> Option<Arc<KernelTask>> {
        self.table().get(&at).cloned()
    }

    fn table(&self) -> MutexGuard<'_, HashMap<Number, Arc<KernelTask>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KernelTask {
    /// A task of an earlier run: as it ended, or failed because the kernel stopped.
    fn of_before(tasks: &Tasks, record: TaskRecord) -> Self {
        let at = (record.boot, record.number);
        let task = named(&record.server, &record.tool, at);
        let id = tasks.seal.seal(Purpose::Task, &record.principal, &task);
        let text = |json: &Option<Box<serde_json::value::RawValue>>| {
            json.as_ref().map_or(0, |json| json.get().len())
        };
        let bytes = text(&record.result) + text(&record.error);
        Self {
            at,
            id,
            task: Mutex::new(record.task()),
            server: record.server,
            tool: record.tool,
            principal: record.principal,
            background: Mutex::new(None),
            ended: Flag::default(),
            forgotten: Flag::default(),
            bytes: AtomicUsize::new(bytes),
        }
    }

    fn record(&self, task: &Task) -> TaskRecord {
        TaskRecord::of(self.at, (&self.server, &self.tool), &self.principal, task)
    }

    /// Checks whether the server asks something; true when the state changed.
    fn look(&self) -> bool {
        let background = self.background();
        let rounds = background.as_ref().and_then(|e| e.exchange.rounds());
        let Some(rounds) = rounds else {
            return false;
        };
        let mut task = self.task();
        let before = task.clone();
        let step = match rounds.is_asking() {
            true => TaskStep::Ask(rounds.input_requests()),
            false => TaskStep::GoOn,
        };
        task.step(unix_ms(), step).is_ok() && *task != before
    }

    fn background(&self) -> Option<Arc<BackgroundCall>> {
        let background = self
            .background
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        background.clone()
    }

    /// The call is over: frees what only the running call needed.
    fn let_go(&self) {
        let mut background = self
            .background
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *background = None;
    }

    fn expires_ms(&self) -> u64 {
        self.task().expires_ms()
    }

    fn task(&self) -> MutexGuard<'_, Task> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn named(server: &ServerId, tool: &str, at: Number) -> NamedTask {
    NamedTask {
        task: reference(server, at),
        tool: tool.into(),
    }
}

fn reference(server: &ServerId, (boot, number): Number) -> TaskRef {
    TaskRef {
        server: server.clone(),
        maker: Maker::Kernel { boot, number },
    }
}

/// A place in the table; freed when the task is not made after all.
struct TaskSlot<'a> {
    tasks: &'a Tasks,
    at: Number,
    kept: bool,
}

impl<'a> TaskSlot<'a> {
    fn take(tasks: &'a Tasks, kept: &Arc<KernelTask>) -> Option<Self> {
        let mut table = tasks.table();
        let own = table.values().filter(|k| k.principal == kept.principal);
        if table.len() >= MAX_TASKS || own.count() >= MAX_OF_ONE {
            tracing::debug!(server = %kept.server, "a long call stays a call: there are tasks enough");
            return None;
        }
        table.insert(kept.at, kept.clone());
        Some(Self {
            tasks,
            at: kept.at,
            kept: false,
        })
    }

    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for TaskSlot<'_> {
    fn drop(&mut self) {
        if !self.kept
            && let Some(kept) = self.tasks.table().remove(&self.at)
        {
            let (folder, record) = (self.tasks.folder.clone(), kept.record(&kept.task()));
            task::detached("tasks.record", async move {
                let _ = task::blocking("tasks.record", move || record.remove(&folder)).await;
            });
        }
    }
}
