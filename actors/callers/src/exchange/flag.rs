//! A flag that goes up once and can be waited for.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// A flag that goes up once and can be waited for.
#[derive(Debug, Default)]
pub struct Flag {
    up: AtomicBool,
    changed: Notify,
}

impl Flag {
    /// Puts the flag up.
    pub fn raise(&self) {
        if !self.up.swap(true, Ordering::AcqRel) {
            self.changed.notify_waiters();
        }
    }

    /// True once it is up.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    /// Resolves when it is up.
    pub async fn raised(&self) {
        while !self.is_raised() {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if self.is_raised() {
                return;
            }
            changed.await;
        }
    }
}
