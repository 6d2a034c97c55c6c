//! Delivery classes of messages, and sending over line connections.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use mgp_transports::lines::{LineSink, SendError};

/// May a message be dropped when its reader lags behind?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Progress and log records: the newest matter, older ones may be lost.
    Lossy,
    /// Answers, callbacks, changes: never dropped silently; the stream breaks instead.
    Reliable,
}

/// Sends a line that may be lost when its reader lags behind, or one that may not.
pub(crate) fn send_line_as(sink: &LineSink, frame: Bytes, class: Delivery) {
    match class {
        Delivery::Lossy => drop(sink.send_low_priority(frame)),
        Delivery::Reliable => send_line(sink, frame),
    }
}

/// Sends a line that can wait; false when the queue is full.
pub(crate) fn try_send_line(sink: &LineSink, frame: Bytes) -> bool {
    sink.send_low_priority(frame) != Err(SendError::Full)
}

/// Sends a line; a reader whose queue is full is disconnected.
pub fn send_line(sink: &LineSink, frame: Bytes) {
    if sink.send(frame).is_err() {
        sink.close();
    }
}

type OnSent = Box<dyn FnOnce() + Send>;

/// Tells once that its frame has left for its reader, or never will. Nothing is told before
/// [`Receipt::arm`]: a frame that was not taken is none that left.
#[derive(Clone)]
pub(crate) struct Receipt(Arc<ReceiptState>);

struct ReceiptState(Mutex<ReceiptParts>);

struct ReceiptParts {
    on_sent: Option<OnSent>,
    armed: bool,
    is_sent: bool,
}

impl Receipt {
    pub(crate) fn new(then: impl FnOnce() + Send + 'static) -> Self {
        Self(Arc::new(ReceiptState(Mutex::new(ReceiptParts {
            on_sent: Some(Box::new(then)),
            armed: false,
            is_sent: false,
        }))))
    }

    /// The frame was taken and is on its way.
    pub(crate) fn arm(&self) {
        self.0.change(|parts| parts.armed = true);
    }

    /// The frame has left.
    pub(crate) fn mark_sent(&self) {
        self.0.change(|parts| parts.is_sent = true);
    }

    /// The frame as bytes whose end tells.
    pub(crate) fn attach(&self, frame: Vec<u8>) -> Bytes {
        let receipt = self.clone();
        Bytes::from_owner(TrackedFrame { frame, receipt })
    }
}

impl ReceiptState {
    fn change(&self, change: impl FnOnce(&mut ReceiptParts)) {
        let then = {
            let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            change(&mut parts);
            let due = parts.armed && parts.is_sent;
            parts.on_sent.take_if(|_| due)
        };
        if let Some(then) = then {
            then();
        }
    }
}

impl Drop for ReceiptState {
    fn drop(&mut self) {
        self.change(|parts| parts.is_sent = true);
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receipt")
    }
}

/// A frame that tells when it is let go.
struct TrackedFrame {
    frame: Vec<u8>,
    receipt: Receipt,
}

impl AsRef<[u8]> for TrackedFrame {
    fn as_ref(&self) -> &[u8] {
        &self.frame
    }
}

impl Drop for TrackedFrame {
    fn drop(&mut self) {
        self.receipt.mark_sent();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A frame tells once, and only when it was taken.
    #[test]
    fn a_frame_that_was_taken_tells_once_that_it_left() {
        let told = Arc::new(AtomicUsize::new(0));
        let receipt = || {
            let told = told.clone();
            Receipt::new(move || {
                told.fetch_add(1, Ordering::Relaxed);
            })
        };
        let counted = || told.swap(0, Ordering::Relaxed);
        let refused = receipt();
        drop(refused.attach(vec![1]));
        drop(refused);
        assert_eq!(counted(), 0);
        let taken = receipt();
        let frame = taken.attach(vec![1]);
        taken.arm();
        assert_eq!(counted(), 0);
        drop(frame);
        drop(taken);
        assert_eq!(counted(), 1);
        let quick = receipt();
        drop(quick.attach(vec![1]));
        quick.arm();
        assert_eq!(counted(), 1);
    }
}
