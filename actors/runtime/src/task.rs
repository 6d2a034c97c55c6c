//! Tasks beside the actors: each has a name and is counted, ends when its handle is dropped, and reports a
//! panic as an error.

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

/// Numbers of all tasks of one name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// They run now.
    pub running: usize,
    /// They ended in a panic since the start of the kernel.
    pub panicked: usize,
}

/// Bounded by the names in the code.
static COUNTS: Mutex<BTreeMap<&'static str, Count>> = Mutex::new(BTreeMap::new());

/// Why a task gave no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TaskBroken {
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
pub struct SupervisedTask<T>(AbortOnDropHandle<Result<T, TaskBroken>>);

impl<T> SupervisedTask<T> {
    /// Ends it.
    pub fn abort(&self) {
        self.0.abort();
    }

    /// True once it has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// Lets it run on without a handle.
    pub fn detach(self) -> JoinHandle<Result<T, TaskBroken>> {
        self.0.detach()
    }
}

impl<T> Future for SupervisedTask<T> {
    type Output = Result<T, TaskBroken>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = ready!(Pin::new(&mut self.0).poll(cx));
        Poll::Ready(ended.unwrap_or(Err(TaskBroken::Aborted)))
    }
}

/// Starts a task that is aborted when the returned handle is dropped.
pub fn supervised<T: Send + 'static>(
    name: &'static str,
    future: impl Future<Output = T> + Send + 'static,
) -> SupervisedTask<T> {
    let running = RunningTask::begin(name);
    let task = async move {
        let _running = running;
        caught(name, future).await
    };
    SupervisedTask(AbortOnDropHandle::new(tokio::spawn(task)))
}

/// Starts a task without a handle; it must end by itself.
pub fn detached(name: &'static str, future: impl Future<Output = ()> + Send + 'static) {
    drop(supervised(name, future).detach());
}

/// No thread can be started.
#[derive(Debug, thiserror::Error)]
#[error(
    "no thread can be started ({0}): this user, or this service, has as many processes and threads as it may; raise the limit (`ulimit -u`, `TasksMax=` of the service), or end some"
)]
pub struct NoThread(#[from] io::Error);

/// Starts a thread of this name.
///
/// # Errors
/// [`NoThread`].
pub fn thread<T: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinThread<T>, NoThread> {
    let thread = std::thread::Builder::new().name(name.into());
    Ok(thread.spawn(work)?)
}

/// Runs blocking work on a thread for such work.
///
/// # Errors
/// [`TaskBroken`] when it panicked.
pub async fn blocking<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, TaskBroken> {
    let running = RunningTask::begin(name);
    let work = tokio::task::spawn_blocking(move || {
        let _running = running;
        guarded(name, work)
    });
    work.await.unwrap_or(Err(TaskBroken::Aborted))
}

/// Turns a panic of the future into an error.
///
/// # Errors
/// [`TaskBroken::Panicked`].
pub async fn caught<T>(
    name: &'static str,
    future: impl Future<Output = T>,
) -> Result<T, TaskBroken> {
    let caught = AssertUnwindSafe(future).catch_unwind().await;
    caught.map_err(|panic| told(name, &*panic))
}

/// Runs code that does not wait, such as one poll; turns a panic into an error.
///
/// # Errors
/// [`TaskBroken::Panicked`].
pub fn guarded<T>(name: &'static str, work: impl FnOnce() -> T) -> Result<T, TaskBroken> {
    let done = std::panic::catch_unwind(AssertUnwindSafe(work));
    done.map_err(|panic| told(name, &*panic))
}

/// All tasks since the start, by name.
#[must_use]
pub fn counts() -> BTreeMap<&'static str, Count> {
    table().clone()
}

fn told(name: &'static str, panic: &(dyn Any + Send)) -> TaskBroken {
    let words = panic.downcast_ref::<String>().map(String::as_str);
    let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
    let words = words.unwrap_or("without words").to_owned();
    tracing::error!(task = name, panic = words, "a task panicked");
    table().entry(name).or_default().panicked += 1;
    TaskBroken::Panicked { name, words }
}

fn table() -> MutexGuard<'static, BTreeMap<&'static str, Count>> {
    COUNTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A task that is counted as running.
struct RunningTask(&'static str);

impl RunningTask {
    fn begin(name: &'static str) -> Self {
        table().entry(name).or_default().running += 1;
        Self(name)
    }
}

impl Drop for RunningTask {
    fn drop(&mut self) {
        table().entry(self.0).or_default().running -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_answer_and_is_counted() {
        let broken = supervised("breaks", async { panic!("no {}", "way") });
        let words = "no way".to_owned();
        let name = "breaks";
        let answer: Result<(), TaskBroken> = broken.await;
        assert_eq!(answer, Err(TaskBroken::Panicked { name, words }));
        let counted = counts()["breaks"];
        assert_eq!((counted.running, counted.panicked), (0, 1));
        assert_eq!(supervised("works", async { 3 }).await, Ok(3));
        assert!(blocking("breaks", || panic!("no")).await.is_err());
        assert_eq!(counts()["breaks"].panicked, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_ends_with_whoever_holds_it() {
        let held = supervised("held", std::future::pending::<()>());
        let let_go = supervised("let go", std::future::pending::<()>()).detach();
        tokio::task::yield_now().await;
        drop(held);
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        assert_eq!(
            (counts()["held"].running, counts()["let go"].running),
            (0, 1)
        );
        let_go.abort();
    }
}
