//! Starts processes on separate threads, so that no thread with calls waits for fork and exec. It also spaces
//! restarts if many servers keep failing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};

use mgp_engine::clock::MonotonicTime;
use mgp_engine::servers::restart::RestartLimiter;
use mgp_transports::child::{self, Child, ChildSpec};
use mgp_transports::log::ServerLog;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

/// The maximum of processes started at the same time; a program on an unresponsive disk blocks one thread.
const THREADS_MAX: usize = 4;

/// First starts of servers on demand at once: `npx` and `uvx` take a processor and 100 MiB each, for seconds.
const FIRST_STARTS_MAX: usize = 4;

/// The spawner threads, started at first use, and the restart schedule.
#[derive(Debug)]
pub struct ProcessSpawner {
    /// The jobs of the threads; at most one start per server is queued. The threads end when this is dropped.
    jobs: OnceLock<mpsc::Sender<SpawnJob>>,
    restart_schedule: Mutex<RestartLimiter>,
    first_starts: Arc<Semaphore>,
}

impl Default for ProcessSpawner {
    fn default() -> Self {
        Self {
            jobs: OnceLock::new(),
            restart_schedule: Mutex::default(),
            first_starts: Arc::new(Semaphore::new(FIRST_STARTS_MAX)),
        }
    }
}

struct SpawnJob {
    spec: ChildSpec,
    log: ServerLog,
    runtime: Handle,
    done: oneshot::Sender<Result<Child, String>>,
}

impl ProcessSpawner {
    /// Starts a process.
    ///
    /// # Errors
    /// The reason why it cannot be started, as text.
    pub(super) async fn spawn(&self, spec: ChildSpec, log: &ServerLog) -> Result<Child, String> {
        let (done, child) = oneshot::channel();
        let start = SpawnJob {
            spec,
            log: log.clone(),
            runtime: Handle::current(),
            done,
        };
        let lost = || "no thread is available to start it".to_owned();
        let desk = self.jobs.get_or_init(start_threads);
        desk.send(start).map_err(|_| lost())?;
        child.await.unwrap_or_else(|_| Err(lost()))
    }

    /// The permits of servers on demand that start for the first time.
    pub(super) fn first_starts(&self) -> &Arc<Semaphore> {
        &self.first_starts
    }

    /// The earliest restart time of a failing server.
    pub(super) fn next_restart_time(&self, now: MonotonicTime) -> MonotonicTime {
        let mut turns = self
            .restart_schedule
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        turns.reserve(now)
    }
}

/// Starts the threads. If none can be started, each job is refused.
fn start_threads() -> mpsc::Sender<SpawnJob> {
    let (desk, waiting) = mpsc::channel();
    let waiting = Arc::new(Mutex::new(waiting));
    for _ in 0..THREADS_MAX {
        let waiting = waiting.clone();
        let thread = std::thread::Builder::new().name("starts".into());
        if let Err(error) = thread.spawn(move || run_jobs(&waiting)) {
            tracing::error!(%error, "a thread that starts processes");
        }
    }
    desk
}

fn run_jobs(waiting: &Mutex<mpsc::Receiver<SpawnJob>>) {
    loop {
        let next = waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        let Ok(SpawnJob {
            spec,
            log,
            runtime,
            done,
        }) = next
        else {
            return;
        };
        let _runtime = runtime.enter();
        let started = catch_unwind(AssertUnwindSafe(|| child::spawn(&spec, &log)));
        if let Ok(started) = started {
            // The receiver is gone: the process is killed when dropped.
            drop(done.send(started.map_err(|error| error.to_string())));
        }
    }
}
