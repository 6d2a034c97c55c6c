//! The locks and atomics of std, or those of loom under `--cfg mgp_loom`.
//!
//! `Arc` and `Waker` are std's in both: no core orders memory by a reference count, and loom's
//! `Arc` cannot be the receiver of a method.

#[cfg(mgp_loom)]
use loom::sync as primitives;
#[cfg(not(mgp_loom))]
use std::sync as primitives;
use std::sync::PoisonError;

pub(crate) use primitives::atomic::{AtomicU64, AtomicUsize, Ordering};
use primitives::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// A mutex without poisoning.
///
/// Poison warns of state left half changed. Here whatever may panic (a caller's closure, a `clone`)
/// comes before the first change of its critical section and a `drop` after the last, so the state
/// is consistent and one broken caller must not take the kernel down.
pub(crate) struct Mutex<T>(primitives::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(primitives::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A read-write lock without poisoning, as [`Mutex`].
pub(crate) struct RwLock<T>(primitives::RwLock<T>);

impl<T> RwLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(primitives::RwLock::new(value))
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Helpers of the loom tests.
#[cfg(all(test, mgp_loom))]
pub(crate) mod model {
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake, Waker};

    struct Bell(loom::sync::Notify);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.notify();
        }
    }

    /// Polls until ready; a lost wakeup is a deadlock, which loom reports.
    pub(crate) fn block_on<R>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<R>) -> R {
        let bell = Arc::new(Bell(loom::sync::Notify::new()));
        let waker = Waker::from(Arc::clone(&bell));
        let mut cx = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(result) = poll(&mut cx) {
                return result;
            }
            bell.0.wait();
        }
    }

    /// Explores interleavings with at most `preemptions` involuntary switches, where all of them would take minutes.
    pub(crate) fn bounded(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(model);
    }
}

/// Helpers of the ordinary tests.
#[cfg(all(test, not(mgp_loom)))]
pub(crate) mod bell {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    /// A waker that counts its wakeups.
    #[derive(Default)]
    pub(crate) struct Bell(AtomicUsize);

    impl Bell {
        pub(crate) fn rung(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }

        pub(crate) fn waker(self: &Arc<Self>) -> Waker {
            Waker::from(Arc::clone(self))
        }
    }

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}
