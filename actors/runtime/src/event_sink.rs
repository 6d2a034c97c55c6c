//! Sends events to crates above: the sink is passed in at construction, so that none of them is imported.

use std::fmt;
use std::sync::Arc;

/// Receives events. Sending never blocks.
pub struct EventSink<E>(Arc<dyn Fn(E) + Send + Sync>);

impl<E> EventSink<E> {
    /// Calls this function with each event; it must not block.
    pub fn new(take: impl Fn(E) + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    /// Sends an event.
    pub fn send(&self, event: E) {
        (self.0)(event);
    }
}

impl<E> Clone for EventSink<E> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<E> fmt::Debug for EventSink<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventSink")
    }
}
