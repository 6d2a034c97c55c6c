//! What a room tells the rooms above it: handed in at construction, so that it names none of them.

use std::fmt;
use std::sync::Arc;

/// Takes events. Whoever holds it never waits.
pub struct EventSink<E>(Arc<dyn Fn(E) + Send + Sync>);

impl<E> EventSink<E> {
    /// Hands each event to this function, which must not block.
    pub fn new(take: impl Fn(E) + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    /// Says that something happened.
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
