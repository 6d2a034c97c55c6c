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
use mgp_engine::callers::tasks::{Maker, Task, TaskHandle, TaskRef, TaskStatus, TaskStep};
use mgp_protocol::ids::{AgentId, ServerId};

use crate::directory::Directory;
use crate::in_flight_call::Flag;
use crate::request::Caller;
use crate::request::background_call::BackgroundCall;
use mgp_runtime::time::unix_ms;
use mgp_runtime::{TaskSupervisorHandle, task};

pub use crate::in_flight_call::rounds::LongCall;
pub use next_round::NextRound;
pub use record::{TaskRecord, load};

/// Tasks kept at once, ended ones included; above that a long call stays a call.
pub(crate) const MAX_TASKS: usize = 1000;
/// Tasks kept at once of one client, so that none takes all the room.
pub(crate) const MAX_PER_CLIENT: usize = 100;
/// Bytes of all results together, in memory and on disk; a result that does not fit fails its task.
pub(crate) const MAX_BYTES: usize = 64 << 20;
/// The polling interval told to clients, in milliseconds.
const POLL_MS: u64 = 1000;
/// How long a request to cancel waits for the call to end, so that the next poll shows it.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);

/// The run of the kernel that made a task, and the number of the task in it.
type TaskNumber = (u64, u64);

/// The kernel's own tasks, and the ids of all tasks.
#[derive(Debug)]
pub struct Tasks {
    seal: SealKey,
    boot: u64,
    input_timeout: Duration,
    folder: Arc<PathBuf>,
    directory: Arc<Directory>,
    supervisor: TaskSupervisorHandle,
    numbers: AtomicU64,
    table: Mutex<HashMap<TaskNumber, Arc<KernelTask>>>,
    bytes: AtomicUsize,
}

/// A task that is kept.
#[derive(Debug)]
struct KernelTask {
    number: TaskNumber,
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
            input_timeout: patience,
            folder: Arc::new(folder),
            directory,
            supervisor,
            numbers: AtomicU64::new(1),
            table: Mutex::default(),
            bytes: AtomicUsize::new(0),
        });
        for record in records {
            let kept = Arc::new(KernelTask::from_record(&tasks, record));
            tasks
                .bytes
                .fetch_add(kept.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
            tasks.lock_table().insert(kept.number, kept.clone());
            follow::spawn_follower(&tasks, kept, None);
        }
        tasks
    }

    /// How many tasks of the kernel's own are kept, those that have ended among them.
    #[must_use]
    pub fn stored_count(&self) -> usize {
        self.lock_table().len()
    }

    /// Distinguishes this run of the kernel from earlier ones.
    #[must_use]
    pub fn boot(&self) -> u64 {
        self.boot
    }

    /// The client's id of a task: always the same.
    #[must_use]
    pub fn name(&self, caller: &Caller, task: &TaskHandle) -> String {
        self.seal.seal(Purpose::Task, &caller.principal(), task)
    }

    /// The task with this id; `None` when the client was not given it.
    #[must_use]
    pub fn find(&self, caller: &Caller, id: &str) -> Option<TaskHandle> {
        self.find_for(&caller.principal(), id)
    }

    /// The task with this id that was given to another client.
    #[must_use]
    pub fn find_for(&self, principal: &str, id: &str) -> Option<TaskHandle> {
        self.seal.open(Purpose::Task, principal, id).ok()
    }

    /// How a task stands; `None` when it is forgotten.
    #[must_use]
    pub fn status(&self, at: (u64, u64)) -> Option<TaskStatus> {
        Some(self.find_stored(at)?.lock_task().status())
    }

    /// Turns a call into a task, on disk before this returns; `round` repeats the call when it needs input.
    ///
    /// `None` when there is no room or the disk fails: then it stays a call.
    pub async fn create(
        self: &Arc<Self>,
        round: NextRound,
        call: &LongCall,
        background: Arc<BackgroundCall>,
    ) -> Option<Bytes> {
        let kept = Arc::new(self.build_task(&round.caller, call, background));
        let place = TaskSlot::take(self, &kept)?;
        let record = kept.to_record(&kept.lock_task());
        if let Err(error) = self.write(record).await {
            tracing::warn!(server = %kept.server, %error, "a long call stays a call: its task could not be written");
            return None;
        }
        place.commit();
        if let Some(background) = kept.background() {
            background.call.disable_timeout();
        }
        let announcement = kept.lock_task().render_create_result(&kept.id);
        follow::spawn_follower(self, kept, Some(round));
        Some(announcement.into())
    }

    fn build_task(
        &self,
        caller: &Caller,
        call: &LongCall,
        background: Arc<BackgroundCall>,
    ) -> KernelTask {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let at = (self.boot, number);
        let ttl = u64::try_from(call.ttl.as_millis()).unwrap_or(u64::MAX);
        KernelTask {
            number: at,
            id: self.name(caller, &to_named_task(&call.server, &call.tool, at)),
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
    pub async fn wait_until_settled(&self, at: (u64, u64)) {
        let Some(kept) = self.find_stored(at) else {
            return;
        };
        if kept.lock_task().status().is_final() {
            return;
        }
        let background = kept.background();
        let asks = async {
            match background.as_ref().and_then(|call| call.call.rounds()) {
                Some(rounds) => rounds.wait_for_callbacks().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = kept.ended.wait_until_raised() => {}
            () = kept.forgotten.wait_until_raised() => {}
            () = asks => {}
        }
    }

    /// The result of `tasks/get`; `None` when the task is forgotten.
    #[must_use]
    pub fn get(&self, at: (u64, u64)) -> Option<Bytes> {
        let kept = self.find_stored(at)?;
        if kept.update_input_requests() {
            self.notify_followers(&kept);
        }
        let shown = kept.lock_task().render_get_result(&kept.id);
        Some(shown.into())
    }

    /// Takes answers to open questions; false when the task is forgotten.
    #[must_use]
    pub fn update(&self, at: (u64, u64), input_responses: &str) -> bool {
        let Some(kept) = self.find_stored(at) else {
            return false;
        };
        let background = kept.background();
        let rounds = background.as_ref().and_then(|e| e.call.rounds());
        if let Some(rounds) = rounds {
            rounds.answer(input_responses);
        }
        if kept.update_input_requests() {
            self.notify_followers(&kept);
        }
        true
    }

    /// Cancels the call, unless it has ended; false when the task is forgotten.
    pub async fn cancel(&self, at: (u64, u64)) -> bool {
        let Some(kept) = self.find_stored(at) else {
            return false;
        };
        if let Some(background) = kept.background() {
            background.call.cancel();
            let _ = tokio::time::timeout(CANCEL_TIMEOUT, kept.ended.wait_until_raised()).await;
        }
        true
    }

    /// Cancels every call of an agent whose credential was revoked, and forgets its ended tasks.
    pub async fn cancel_for_agent(&self, agent: &AgentId) {
        let own = format!("{agent}@");
        let kept: Vec<_> = {
            let table = self.lock_table();
            let own = table
                .values()
                .filter(|kept| kept.principal.starts_with(&own));
            own.cloned().collect()
        };
        for kept in kept {
            match kept.background() {
                Some(background) if !kept.ended.is_raised() => background.call.cancel(),
                Some(_) | None => self.forget(&kept).await,
            }
        }
    }

    /// Ends a task; written to disk before anybody can see it.
    async fn finish(&self, kept: &KernelTask, step: TaskStep) {
        let (bytes, step) = self.reserve_result(step);
        kept.bytes.store(bytes, Ordering::Relaxed);
        let mut ended = kept.lock_task().clone();
        if ended.apply(unix_ms(), step).is_err() {
            return;
        }
        if let Err(error) = self.write(kept.to_record(&ended)).await {
            tracing::warn!(server = %kept.server, %error, "the end of a task is not on disk");
        }
        *kept.lock_task() = ended;
        kept.ended.raise();
        self.notify_followers(kept);
    }

    /// Reserves room for a task's result.
    fn reserve_result(&self, step: TaskStep) -> (usize, TaskStep) {
        let bytes = match &step {
            TaskStep::Complete(json) | TaskStep::Fail(json) => json.len(),
            TaskStep::Resume | TaskStep::RequireInput(_) | TaskStep::Cancel => 0,
        };
        let room = self
            .bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                let taken = taken + bytes;
                (taken <= MAX_BYTES).then_some(taken)
            });
        match room {
            Ok(_) => (bytes, step),
            Err(_) => (0, follow::too_large_step(bytes)),
        }
    }

    async fn forget(&self, kept: &KernelTask) {
        self.lock_table().remove(&kept.number);
        kept.forgotten.raise();
        let bytes = kept.bytes.swap(0, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        let (folder, record) = (self.folder.clone(), kept.to_record(&kept.lock_task()));
        let _ = task::run_blocking("tasks.record", move || record.remove(&folder)).await;
    }

    async fn write(&self, record: TaskRecord) -> std::io::Result<()> {
        let folder = self.folder.clone();
        let writing = task::run_blocking("tasks.record", move || record.write(&folder));
        writing.await.map_err(std::io::Error::other)?
    }

    /// Sends the task's new state to those who listen for it.
    fn notify_followers(&self, kept: &KernelTask) {
        let params = kept.lock_task().render_notification(&kept.id);
        self.directory
            .notify_task_changed(&to_task_ref(&kept.server, kept.number), &params, None);
    }

    fn find_stored(&self, at: TaskNumber) -> Option<Arc<KernelTask>> {
        self.lock_table().get(&at).cloned()
    }

    fn lock_table(&self) -> MutexGuard<'_, HashMap<TaskNumber, Arc<KernelTask>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KernelTask {
    /// A task of an earlier run: as it ended, or failed because the kernel stopped.
    fn from_record(tasks: &Tasks, record: TaskRecord) -> Self {
        let number = (record.boot, record.number);
        let task = to_named_task(&record.server, &record.tool, number);
        let id = tasks.seal.seal(Purpose::Task, &record.principal, &task);
        let text = |json: &Option<Box<serde_json::value::RawValue>>| {
            json.as_ref().map_or(0, |json| json.get().len())
        };
        let bytes = text(&record.result) + text(&record.error);
        Self {
            number,
            id,
            task: Mutex::new(record.to_task()),
            server: record.server,
            tool: record.tool,
            principal: record.principal,
            background: Mutex::new(None),
            ended: Flag::default(),
            forgotten: Flag::default(),
            bytes: AtomicUsize::new(bytes),
        }
    }

    fn to_record(&self, task: &Task) -> TaskRecord {
        TaskRecord::new(
            self.number,
            (&self.server, &self.tool),
            &self.principal,
            task,
        )
    }

    /// Checks whether the server asks something; true when the state changed.
    fn update_input_requests(&self) -> bool {
        let background = self.background();
        let rounds = background.as_ref().and_then(|e| e.call.rounds());
        let Some(rounds) = rounds else {
            return false;
        };
        let mut task = self.lock_task();
        let before = task.clone();
        let step = if rounds.has_open_callbacks() {
            TaskStep::RequireInput(rounds.input_requests())
        } else {
            TaskStep::Resume
        };
        task.apply(unix_ms(), step).is_ok() && *task != before
    }

    fn background(&self) -> Option<Arc<BackgroundCall>> {
        let background = self
            .background
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        background.clone()
    }

    /// The call is over: frees what only the running call needed.
    fn release_call(&self) {
        let mut background = self
            .background
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *background = None;
    }

    fn expires_ms(&self) -> u64 {
        self.lock_task().expires_ms()
    }

    fn lock_task(&self) -> MutexGuard<'_, Task> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn to_named_task(server: &ServerId, tool: &str, at: TaskNumber) -> TaskHandle {
    TaskHandle {
        task: to_task_ref(server, at),
        tool: tool.into(),
    }
}

fn to_task_ref(server: &ServerId, (boot, number): TaskNumber) -> TaskRef {
    TaskRef {
        server: server.clone(),
        maker: Maker::Kernel { boot, number },
    }
}

/// A place in the table; freed when the task is not made after all.
struct TaskSlot<'a> {
    tasks: &'a Tasks,
    number: TaskNumber,
    is_kept: bool,
}

impl<'a> TaskSlot<'a> {
    fn take(tasks: &'a Tasks, kept: &Arc<KernelTask>) -> Option<Self> {
        let mut table = tasks.lock_table();
        let own = table.values().filter(|k| k.principal == kept.principal);
        if table.len() >= MAX_TASKS || own.count() >= MAX_PER_CLIENT {
            tracing::debug!(server = %kept.server, "a long call stays a call: there are tasks enough");
            return None;
        }
        table.insert(kept.number, kept.clone());
        Some(Self {
            tasks,
            number: kept.number,
            is_kept: false,
        })
    }

    fn commit(mut self) {
        self.is_kept = true;
    }
}

impl Drop for TaskSlot<'_> {
    fn drop(&mut self) {
        if !self.is_kept
            && let Some(kept) = self.tasks.lock_table().remove(&self.number)
        {
            let (folder, record) = (self.tasks.folder.clone(), kept.to_record(&kept.lock_task()));
            task::spawn_detached("tasks.record", async move {
                let _ = task::run_blocking("tasks.record", move || record.remove(&folder)).await;
            });
        }
    }
}
