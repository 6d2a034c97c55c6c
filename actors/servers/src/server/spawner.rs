//! Where processes are started: on threads of their own, so that no thread that carries calls waits for the
//! system to make one; and when, where many keep failing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};

use mgp_engine::clock::MonotonicTime;
use mgp_engine::servers::restart::RestartTurns;
use mgp_transports::child::{self, Child, ChildSpec};
use mgp_transports::log::ServerLog;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Processes that are being made at once; a program on a disk that does not answer holds up one of them.
const THREADS: usize = 4;

/// The threads, from the first start on, and whose turn it is.
#[derive(Debug, Default)]
pub struct Starts {
    /// One start for each server waits at most. The threads end with it.
    desk: OnceLock<mpsc::Sender<SpawnJob>>,
    turns: Mutex<RestartTurns>,
}

struct SpawnJob {
    spec: ChildSpec,
    log: ServerLog,
    runtime: Handle,
    done: oneshot::Sender<Result<Child, String>>,
}

impl Starts {
    /// Starts a process.
    ///
    /// # Errors
    /// In words, why that cannot be.
    pub(super) async fn spawn(&self, spec: ChildSpec, log: &ServerLog) -> Result<Child, String> {
        let (done, child) = oneshot::channel();
        let start = SpawnJob {
            spec,
            log: log.clone(),
            runtime: Handle::current(),
            done,
        };
        let lost = || "no thread of the kernel starts it".to_owned();
        let desk = self.desk.get_or_init(open);
        desk.send(start).map_err(|_| lost())?;
        child.await.unwrap_or_else(|_| Err(lost()))
    }

    /// When a server that keeps failing may be started again.
    pub(super) fn turn(&self, now: MonotonicTime) -> MonotonicTime {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.take(now)
    }
}

/// Without a single thread each start is refused.
fn open() -> mpsc::Sender<SpawnJob> {
    let (desk, waiting) = mpsc::channel();
    let waiting = Arc::new(Mutex::new(waiting));
    for _ in 0..THREADS {
        let waiting = waiting.clone();
        let thread = std::thread::Builder::new().name("starts".into());
        if let Err(error) = thread.spawn(move || work(&waiting)) {
            tracing::error!(%error, "a thread that starts processes");
        }
    }
    desk
}

fn work(waiting: &Mutex<mpsc::Receiver<SpawnJob>>) {
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
            // Nobody waits any more: it ends as it is dropped.
            drop(done.send(started.map_err(|error| error.to_string())));
        }
    }
}
