//! Tasks the kernel makes of calls that take long (tasks extension, SEP-2663): such a call goes on by
//! itself, and how it stands lasts on disk.
//!
//! Here too are the names of all tasks: what a client holds is sealed, says whose task it is, and opens
//! only for the client it was given to.

mod call_retry;
mod follow;
mod given;
mod record;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mgp_engine::callers::seal::{Purpose, SealKey};
use mgp_engine::callers::tasks::{Maker, NamedTask, Task, TaskRef, TaskStep};
use mgp_protocol::ids::{AgentId, ServerId};

use crate::directory::Directory;
use crate::exchange::Flag;
use crate::request::Caller;
use crate::request::background_call::BackgroundCall;
use mgp_runtime::time::unix_ms;

pub use call_retry::CallRetry;
pub use given::IssuedTasks;
pub use record::{TaskRecord, load};

/// Tasks kept at once, the ended ones too; one more is not made, and its call goes on as a call.
pub const MAX_TASKS: usize = 1000;
/// Tasks kept at once of one client, so that none takes all places.
pub const MAX_OF_ONE: usize = 100;
/// Bytes of all results together, in memory as on disk; a result that does not fit fails its task.
pub const MAX_BYTES: usize = 64 << 20;
/// How often clients are told to ask, in milliseconds.
const POLL_MS: u64 = 1000;
/// How long a request to cancel waits for the call to end, so that who asks next sees it.
const FAREWELL: Duration = Duration::from_secs(1);

/// The life of the kernel that made a task, and which task of that life.
type Number = (u64, u64);

/// The kernel's own tasks, and the names of all.
#[derive(Debug)]
pub struct Tasks {
    seal: SealKey,
    boot: u64,
    patience: Duration,
    folder: Arc<PathBuf>,
    directory: Arc<Directory>,
    numbers: AtomicU64,
    table: Mutex<HashMap<Number, Arc<KernelTask>>>,
    bytes: AtomicUsize,
}

/// A task that is kept.
#[derive(Debug)]
struct KernelTask {
    at: Number,
    server: ServerId,
    /// The server's own name of the tool that was called.
    tool: Box<str>,
    principal: String,
    /// What its client calls it.
    id: String,
    task: Mutex<Task>,
    /// The call while it is under way; of an earlier life there is none.
    background: Mutex<Option<Arc<BackgroundCall>>>,
    ended: Flag,
    forgotten: Flag,
    bytes: AtomicUsize,
}

/// A call that becomes a task when it takes long.
#[derive(Debug, Clone)]
pub struct LongCall {
    /// Whose tool it is.
    pub server: ServerId,
    /// The server's own name of the tool.
    pub tool: Box<str>,
    /// How long it may take as a call.
    pub after: Duration,
    /// How long its task is kept.
    pub ttl: Duration,
}

impl Tasks {
    /// The tasks of earlier lives, and room for those of this one. `folder` is where `records` came
    /// from; `boot` tells this life from the earlier ones; `patience` is how long a client may leave a
    /// question open.
    #[must_use]
    pub fn new(
        seal: SealKey,
        boot: u64,
        patience: Duration,
        folder: PathBuf,
        records: Vec<TaskRecord>,
        directory: Arc<Directory>,
    ) -> Arc<Self> {
        let tasks = Arc::new(Self {
            seal,
            boot,
            patience,
            folder: Arc::new(folder),
            directory,
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
            tokio::spawn(follow::keep(tasks.clone(), kept, None));
        }
        tasks
    }

    /// Tells this life of the kernel from earlier ones.
    #[must_use]
    pub fn boot(&self) -> u64 {
        self.boot
    }

    /// What a client calls a task: the same each time.
    #[must_use]
    pub fn name(&self, caller: &Caller, task: &NamedTask) -> String {
        self.seal.seal(Purpose::Task, &caller.principal(), task)
    }

    /// Which task a client means; `None` when it was given no such name.
    #[must_use]
    pub fn find(&self, caller: &Caller, id: &str) -> Option<NamedTask> {
        let principal = caller.principal();
        self.seal.open(Purpose::Task, &principal, id).ok()
    }

    /// Lets a call go on as a task, made once more where it needs more; answers what its client is told. It is on disk by then.
    ///
    /// `None` when there is no room or the disk does not take it: then the call goes on as a call.
    pub async fn make(
        self: &Arc<Self>,
        again: CallRetry,
        call: &LongCall,
        background: Arc<BackgroundCall>,
    ) -> Option<Bytes> {
        let kept = Arc::new(self.begin(&again.caller, call, background));
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
        tokio::spawn(follow::keep(self.clone(), kept, Some(again)));
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

    /// Takes answers to what is asked; false when the task is forgotten.
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

    /// Takes the call back, unless it has ended; false when the task is forgotten.
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

    /// Takes back every call of an agent that may not go on, and forgets what has ended.
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

    /// The end of a task is on disk before anybody sees it.
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

    /// Makes room for what a task ends with.
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
        let _ = tokio::task::spawn_blocking(move || record.remove(&folder)).await;
    }

    async fn write(&self, record: TaskRecord) -> std::io::Result<()> {
        let folder = self.folder.clone();
        let writing = tokio::task::spawn_blocking(move || record.write(&folder));
        writing.await.map_err(std::io::Error::other)?
    }

    /// Tells whoever listens how a task stands now.
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
    /// A task of an earlier life: as it ended, or failed because the kernel did.
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

    /// Looks whether the server asks something; true when that is news.
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

    /// The call is over: what it held is not needed while its result is kept.
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

/// A place in the table; given back when the task is not made after all.
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
            tokio::task::spawn_blocking(move || record.remove(&folder));
        }
    }
}
