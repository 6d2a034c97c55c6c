//! Tasks besides the actors: each has a name and is counted, ends when its handle is dropped, and reports a panic as an
//! error.

use std::any::Any;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::thread::JoinHandle as JoinThread;

use futures_util::FutureExt;
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;

/// The counts of all tasks of one name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TaskStats {
    /// Running now.
    pub running: usize,
    /// Panicked since the start of the kernel.
    pub panicked: usize,
}

/// Bounded by the names in the code.
static COUNTS: Mutex<BTreeMap<&'static str, TaskStats>> = Mutex::new(BTreeMap::new());

/// Why a task gave no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    /// It panicked, with this message.
    #[error("{name} panicked: {words}")]
    Panicked {
        /// The task.
        name: &'static str,
        /// The message of the panic.
        words: String,
    },
    /// It was aborted.
    #[error("it was ended")]
    Aborted,
}

/// A running task. Dropping this aborts it.
#[derive(Debug)]
#[must_use = "a task that nobody holds is ended at once; `detached` lets it run"]
pub struct SupervisedTask<T>(AbortOnDropHandle<Result<T, TaskError>>);

impl<T> SupervisedTask<T> {
    /// Aborts the task.
    pub fn abort(&self) {
        self.0.abort();
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// Lets the task continue without a handle.
    pub fn detach(self) -> JoinHandle<Result<T, TaskError>> {
        self.0.detach()
    }
}

impl<T> Future for SupervisedTask<T> {
    type Output = Result<T, TaskError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = ready!(Pin::new(&mut self.0).poll(cx));
        Poll::Ready(ended.unwrap_or(Err(TaskError::Aborted)))
    }
}

/// Starts a task that is aborted when the returned handle is dropped.
pub fn spawn_supervised<T: Send + 'static>(
    name: &'static str,
    future: impl Future<Output = T> + Send + 'static,
) -> SupervisedTask<T> {
    let running = RunningTask::begin(name);
    let task = catch_panic(name, future).map(|ended| {
        drop(running);
        ended
    });
    SupervisedTask(AbortOnDropHandle::new(tokio::spawn(task)))
}

/// Starts a task without a handle.
pub fn spawn_detached(name: &'static str, future: impl Future<Output = ()> + Send + 'static) {
    drop(spawn_supervised(name, future).detach());
}

/// No thread can be started.
#[derive(Debug, thiserror::Error)]
#[error(
    "no thread can be started ({0}): this user, or this service, has as many processes and threads as it may; raise the limit (`ulimit -u`, `TasksMax=` of the service), or end some"
)]
pub struct SpawnThreadError(#[from] io::Error);

/// Starts a thread of this name.
///
/// # Errors
/// [`SpawnThreadError`].
pub fn spawn_thread<T: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinThread<T>, SpawnThreadError> {
    let thread = std::thread::Builder::new().name(name.into());
    Ok(thread.spawn(work)?)
}

/// Runs blocking work on a thread of the blocking pool.
///
/// # Errors
/// [`TaskError`] when it panicked.
pub async fn run_blocking<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, TaskError> {
    let running = RunningTask::begin(name);
    let work = tokio::task::spawn_blocking(move || {
        let _running = running;
        catch_panic_sync(name, work)
    });
    work.await.unwrap_or(Err(TaskError::Aborted))
}

/// Turns a panic of the future into an error.
///
/// # Errors
/// [`TaskError::Panicked`].
pub fn catch_panic<T>(
    name: &'static str,
    future: impl Future<Output = T>,
) -> impl Future<Output = Result<T, TaskError>> {
    // An async function would hold the future twice: as its argument, and while it is polled.
    let caught = AssertUnwindSafe(future).catch_unwind();
    caught.map(move |caught| caught.map_err(|panic| panic_error(name, &*panic)))
}

/// Runs code without awaits, such as one poll; turns a panic into an error.
///
/// # Errors
/// [`TaskError::Panicked`].
pub fn catch_panic_sync<T>(name: &'static str, work: impl FnOnce() -> T) -> Result<T, TaskError> {
    let done = std::panic::catch_unwind(AssertUnwindSafe(work));
    done.map_err(|panic| panic_error(name, &*panic))
}

/// All tasks since the start, by name.
#[must_use]
pub fn task_counts() -> BTreeMap<&'static str, TaskStats> {
    lock_counts().clone()
}

fn panic_error(name: &'static str, panic: &(dyn Any + Send)) -> TaskError {
    let words = panic.downcast_ref::<String>().map(String::as_str);
    let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
    let words = words.unwrap_or("without words").to_owned();
    tracing::error!(task = name, panic = words, "a task panicked");
    lock_counts().entry(name).or_default().panicked += 1;
    TaskError::Panicked { name, words }
}

fn lock_counts() -> MutexGuard<'static, BTreeMap<&'static str, TaskStats>> {
    COUNTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a running task.
struct RunningTask(&'static str);

impl RunningTask {
    fn begin(name: &'static str) -> Self {
        lock_counts().entry(name).or_default().running += 1;
        Self(name)
    }
}

impl Drop for RunningTask {
    fn drop(&mut self) {
        lock_counts().entry(self.0).or_default().running -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_error_and_is_counted() {
        let broken = spawn_supervised("breaks", async { panic!("no {}", "way") });
        let words = "no way".to_owned();
        let name = "breaks";
        let answer: Result<(), TaskError> = broken.await;
        assert_eq!(answer, Err(TaskError::Panicked { name, words }));
        let counted = task_counts()["breaks"];
        assert_eq!((counted.running, counted.panicked), (0, 1));
        assert_eq!(spawn_supervised("works", async { 3 }).await, Ok(3));
        assert!(run_blocking("breaks", || panic!("no")).await.is_err());
        assert_eq!(task_counts()["breaks"].panicked, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_ends_with_its_handle() {
        let held = spawn_supervised("held", std::future::pending::<()>());
        let let_go = spawn_supervised("let go", std::future::pending::<()>()).detach();
        tokio::task::yield_now().await;
        drop(held);
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        assert_eq!(
            (
                task_counts()["held"].running,
                task_counts()["let go"].running
            ),
            (0, 1)
        );
        let_go.abort();
    }
}
