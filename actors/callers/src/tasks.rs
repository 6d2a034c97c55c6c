//! Tasks that the kernel creates for long calls (tasks extension, SEP-2663): the call continues in the
//! background, and its state is stored on disk.
//!
//! Also seals the ids of all tasks: a client's id identifies the task, and can be opened only for the
//! client that received it.

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

/// The most stored tasks, ended ones included; above it a long call does not become a task.
pub(crate) const MAX_TASKS: usize = 1000;
/// The most stored tasks of one client, so that none takes all the capacity.
pub(crate) const MAX_PER_CLIENT: usize = 100;
/// The most bytes of all results together, in memory and on disk; a result that does not fit fails its
/// task.
pub(crate) const MAX_BYTES: usize = 64 << 20;
/// The polling interval sent to clients, in milliseconds.
const POLL_MS: u64 = 1000;
/// How long a request to cancel waits for the call to end, so that the next poll shows it.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);

/// The run of the kernel that created a task, and the number of the task in it.
type TaskNumber = (u64, u64);

/// The kernel's own tasks, and the sealed ids of all tasks.
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

/// A stored task.
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
    /// The in-flight call; `None` for tasks of earlier runs.
    background: Mutex<Option<Arc<BackgroundCall>>>,
    ended: Flag,
    forgotten: Flag,
    bytes: AtomicUsize,
}

impl Tasks {
    /// Restores the tasks of earlier runs from `records`, which were read in `folder`. `boot` distinguishes
    /// this run from earlier ones; `patience` is how long a client may leave a callback open. Each task is
    /// followed below `supervisor`.
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
            let stored = Arc::new(KernelTask::from_record(&tasks, record));
            tasks
                .bytes
                .fetch_add(stored.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
            tasks.lock_table().insert(stored.number, stored.clone());
            follow::spawn_follower(&tasks, stored, None);
        }
        tasks
    }

    /// The number of stored tasks, ended ones included.
    #[must_use]
    pub fn stored_count(&self) -> usize {
        self.lock_table().len()
    }

    /// Distinguishes this run of the kernel from earlier ones.
    #[must_use]
    pub fn boot(&self) -> u64 {
        self.boot
    }

    /// Seals the client's id of a task: always the same text.
    #[must_use]
    pub fn name(&self, caller: &Caller, task: &TaskHandle) -> String {
        self.seal.seal(Purpose::Task, &caller.principal(), task)
    }

    /// Finds the task with this id; `None` when the client did not receive it.
    #[must_use]
    pub fn find(&self, caller: &Caller, id: &str) -> Option<TaskHandle> {
        self.find_for(&caller.principal(), id)
    }

    /// Finds the task with this id that another client received.
    #[must_use]
    pub fn find_for(&self, principal: &str, id: &str) -> Option<TaskHandle> {
        self.seal.open(Purpose::Task, principal, id).ok()
    }

    /// The status of a task; `None` when it is no longer stored.
    #[must_use]
    pub fn status(&self, at: (u64, u64)) -> Option<TaskStatus> {
        Some(self.find_stored(at)?.lock_task().status())
    }

    /// Turns a call into a task, stored on disk before this returns; `round` repeats the call when it needs
    /// input.
    ///
    /// `None` when there is no capacity or the disk fails: then the call continues as a plain call.
    pub async fn create(
        self: &Arc<Self>,
        round: NextRound,
        call: &LongCall,
        background: Arc<BackgroundCall>,
    ) -> Option<Bytes> {
        let stored = Arc::new(self.build_task(&round.caller, call, background));
        let slot = TaskSlot::take(self, &stored)?;
        let record = stored.to_record(&stored.lock_task());
        if let Err(error) = self.write(record).await {
            tracing::warn!(server = %stored.server, %error, "a long call did not become a task: the task could not be stored");
            return None;
        }
        slot.commit();
        if let Some(background) = stored.background() {
            background.call.disable_timeout();
        }
        let announcement = stored.lock_task().render_create_result(&stored.id);
        follow::spawn_follower(self, stored, Some(round));
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

    /// Resolves when the task has ended, needs input or was removed; at once for one that is not the
    /// kernel's.
    pub async fn wait_until_settled(&self, at: (u64, u64)) {
        let Some(stored) = self.find_stored(at) else {
            return;
        };
        if stored.lock_task().status().is_final() {
            return;
        }
        let background = stored.background();
        let asks = async {
            match background.as_ref().and_then(|call| call.call.rounds()) {
                Some(rounds) => rounds.wait_for_callbacks().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stored.ended.wait_until_raised() => {}
            () = stored.forgotten.wait_until_raised() => {}
            () = asks => {}
        }
    }

    /// The result of `tasks/get`; `None` when the task is no longer stored.
    #[must_use]
    pub fn get(&self, at: (u64, u64)) -> Option<Bytes> {
        let stored = self.find_stored(at)?;
        if stored.update_input_requests() {
            self.notify_followers(&stored);
        }
        let result = stored.lock_task().render_get_result(&stored.id);
        Some(result.into())
    }

    /// Handles answers to open callbacks; false when the task is no longer stored.
    #[must_use]
    pub fn update(&self, at: (u64, u64), input_responses: &str) -> bool {
        let Some(stored) = self.find_stored(at) else {
            return false;
        };
        let background = stored.background();
        let rounds = background.as_ref().and_then(|e| e.call.rounds());
        if let Some(rounds) = rounds {
            rounds.answer(input_responses);
        }
        if stored.update_input_requests() {
            self.notify_followers(&stored);
        }
        true
    }

    /// Cancels the call, unless it has ended; false when the task is no longer stored.
    pub async fn cancel(&self, at: (u64, u64)) -> bool {
        let Some(stored) = self.find_stored(at) else {
            return false;
        };
        if let Some(background) = stored.background() {
            background.call.cancel();
            let _ = tokio::time::timeout(CANCEL_TIMEOUT, stored.ended.wait_until_raised()).await;
        }
        true
    }

    /// Cancels every call of an agent whose credential was revoked, and removes its ended tasks.
    pub async fn cancel_for_agent(&self, agent: &AgentId) {
        let own = format!("{agent}@");
        let stored: Vec<_> = {
            let table = self.lock_table();
            let own = table
                .values()
                .filter(|stored| stored.principal.starts_with(&own));
            own.cloned().collect()
        };
        for stored in stored {
            match stored.background() {
                Some(background) if !stored.ended.is_raised() => background.call.cancel(),
                Some(_) | None => self.forget(&stored).await,
            }
        }
    }

    /// Ends a task; stored on disk before anybody can see it.
    async fn finish(&self, stored: &KernelTask, step: TaskStep) {
        let (bytes, step) = self.reserve_result(step);
        stored.bytes.store(bytes, Ordering::Relaxed);
        let mut ended = stored.lock_task().clone();
        if ended.apply(unix_ms(), step).is_err() {
            return;
        }
        if let Err(error) = self.write(stored.to_record(&ended)).await {
            tracing::warn!(server = %stored.server, %error, "the end of a task is not on disk");
        }
        *stored.lock_task() = ended;
        stored.ended.raise();
        self.notify_followers(stored);
    }

    /// Reserves memory for a task's result.
    fn reserve_result(&self, step: TaskStep) -> (usize, TaskStep) {
        let bytes = match &step {
            TaskStep::Complete(json) | TaskStep::Fail(json) => json.len(),
            TaskStep::Resume | TaskStep::RequireInput(_) | TaskStep::Cancel => 0,
        };
        let reserved = self
            .bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                let used = used + bytes;
                (used <= MAX_BYTES).then_some(used)
            });
        match reserved {
            Ok(_) => (bytes, step),
            Err(_) => (0, follow::too_large_step(bytes)),
        }
    }

    async fn forget(&self, stored: &KernelTask) {
        self.lock_table().remove(&stored.number);
        stored.forgotten.raise();
        let bytes = stored.bytes.swap(0, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        let (folder, record) = (self.folder.clone(), stored.to_record(&stored.lock_task()));
        let _ = task::run_blocking("tasks.record", move || record.remove(&folder)).await;
    }

    async fn write(&self, record: TaskRecord) -> std::io::Result<()> {
        let folder = self.folder.clone();
        let writing = task::run_blocking("tasks.record", move || record.write(&folder));
        writing.await.map_err(std::io::Error::other)?
    }

    /// Sends the task's new state to its listeners.
    fn notify_followers(&self, stored: &KernelTask) {
        let params = stored.lock_task().render_notification(&stored.id);
        self.directory.notify_task_changed(
            &to_task_ref(&stored.server, stored.number),
            &params,
            None,
        );
    }

    fn find_stored(&self, at: TaskNumber) -> Option<Arc<KernelTask>> {
        self.lock_table().get(&at).cloned()
    }

    fn lock_table(&self) -> MutexGuard<'_, HashMap<TaskNumber, Arc<KernelTask>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KernelTask {
    /// Restores a task of an earlier run: as it ended, or failed because the kernel stopped.
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

    /// Updates the open callbacks of the server; true when the state changed.
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

    /// Frees the resources that only the running call needed.
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

/// A reserved entry of the table; freed when the task is not created after all.
struct TaskSlot<'a> {
    tasks: &'a Tasks,
    number: TaskNumber,
    is_kept: bool,
}

impl<'a> TaskSlot<'a> {
    fn take(tasks: &'a Tasks, stored: &Arc<KernelTask>) -> Option<Self> {
        let mut table = tasks.lock_table();
        let own = table.values().filter(|k| k.principal == stored.principal);
        if table.len() >= MAX_TASKS || own.count() >= MAX_PER_CLIENT {
            tracing::debug!(server = %stored.server, "a long call did not become a task: the limit of tasks is reached");
            return None;
        }
        table.insert(stored.number, stored.clone());
        Some(Self {
            tasks,
            number: stored.number,
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
            && let Some(stored) = self.tasks.lock_table().remove(&self.number)
        {
            let (folder, record) = (
                self.tasks.folder.clone(),
                stored.to_record(&stored.lock_task()),
            );
            task::spawn_detached("tasks.record", async move {
                let _ = task::run_blocking("tasks.record", move || record.remove(&folder)).await;
            });
        }
    }
}
