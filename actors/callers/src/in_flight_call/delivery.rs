//! Delivery classes of messages, and sending over line connections.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use mgp_transports::lines::{LineSink, SendError};

/// Whether a message may be dropped when its reader lags behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Progress and log records: older ones may be dropped for newer ones.
    Lossy,
    /// Answers, callbacks, changes: never dropped silently; the connection is closed instead.
    Reliable,
}

/// Sends a line with this delivery class.
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

/// Runs a callback once its frame was sent to the reader, or is lost. It does not run before
/// [`Receipt::arm`]: a frame that was not accepted was not sent.
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

    /// Marks the frame as accepted for delivery.
    pub(crate) fn arm(&self) {
        self.0.change(|parts| parts.armed = true);
    }

    /// Marks the frame as sent.
    pub(crate) fn mark_sent(&self) {
        self.0.change(|parts| parts.is_sent = true);
    }

    /// Wraps the frame as bytes that report when they are dropped.
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

/// A frame that reports when it is dropped.
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

    /// A receipt runs once, and only for an accepted frame.
    #[test]
    fn receipt_of_an_accepted_frame_runs_once() {
        let runs = Arc::new(AtomicUsize::new(0));
        let receipt = || {
            let runs = runs.clone();
            Receipt::new(move || {
                runs.fetch_add(1, Ordering::Relaxed);
            })
        };
        let counted = || runs.swap(0, Ordering::Relaxed);
        let refused = receipt();
        drop(refused.attach(vec![1]));
        drop(refused);
        assert_eq!(counted(), 0);
        let accepted = receipt();
        let frame = accepted.attach(vec![1]);
        accepted.arm();
        assert_eq!(counted(), 0);
        drop(frame);
        drop(accepted);
        assert_eq!(counted(), 1);
        let quick = receipt();
        drop(quick.attach(vec![1]));
        quick.arm();
        assert_eq!(counted(), 1);
    }
}
