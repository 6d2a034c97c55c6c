//! The open callbacks of a server.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mgp_protocol::jsonrpc::RequestId;
use tokio::sync::Notify;

use mgp_callers::Flag;

/// The maximum of open callbacks of one server; a person answers one at a time.
pub(in crate::link) const MAX_CALLBACKS: usize = 64;

/// The open callbacks of a server.
#[derive(Debug, Default)]
pub(in crate::link) struct OpenCallbacks {
    open: Mutex<HashMap<RequestId, Arc<Flag>>>,
    count: AtomicUsize,
    /// How many of them were sent to a client.
    placed: AtomicUsize,
    changed: Notify,
}

impl OpenCallbacks {
    pub(in crate::link) fn has_open(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// True while the call of some callback is unknown.
    pub(in crate::link) fn has_unplaced(&self) -> bool {
        self.count.load(Ordering::Relaxed) > self.placed.load(Ordering::Relaxed)
    }

    /// Counts a callback as sent, until the returned value is dropped.
    pub(in crate::link) fn mark_placed(&self) -> PlacedCallback<'_> {
        self.placed.fetch_add(1, Ordering::Relaxed);
        PlacedCallback(self)
    }

    /// Signals that a call ended, which may make the call of a waiting callback certain.
    pub(in crate::link) fn notify_call_ended(&self) {
        if self.has_open() {
            self.changed.notify_waiters();
        }
    }

    pub(in crate::link) fn change_notified(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// Registers a callback; `None` if there are too many or the id is in use.
    pub(in crate::link) fn register(&self, id: &RequestId) -> Option<Arc<Flag>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= MAX_CALLBACKS || open.contains_key(id) {
            return None;
        }
        let withdrawn = Arc::new(Flag::default());
        open.insert(id.clone(), withdrawn.clone());
        self.count.store(open.len(), Ordering::Relaxed);
        Some(withdrawn)
    }

    /// Removes a callback; true if it was open.
    pub(in crate::link) fn remove(&self, id: &RequestId) -> bool {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let was_open = open.remove(id).is_some();
        self.count.store(open.len(), Ordering::Relaxed);
        was_open
    }

    pub(in crate::link) fn withdraw(&self, id: &RequestId) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(withdrawn) = open.get(id) {
            withdrawn.raise();
        }
    }

    pub(in crate::link) fn clear(&self) {
        let open = {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            self.count.store(0, Ordering::Relaxed);
            std::mem::take(&mut *open)
        };
        open.into_values().for_each(|withdrawn| withdrawn.raise());
        self.changed.notify_waiters();
    }
}

/// A callback that was sent to a client.
pub(in crate::link) struct PlacedCallback<'a>(&'a OpenCallbacks);

impl Drop for PlacedCallback<'_> {
    fn drop(&mut self) {
        self.0.placed.fetch_sub(1, Ordering::Relaxed);
    }
}
