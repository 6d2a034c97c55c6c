//! Whether a message may be lost, and how a line connection is given one.

use bytes::Bytes;
use mgp_transports::lines::LineSink;

/// May a message be dropped when its reader lags behind?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Progress and log records: the newest matter, some may be lost.
    Lossy,
    /// Answers, questions, changes: never dropped silently; the stream breaks instead.
    Reliable,
}

/// Sends a line that may be lost when its reader lags behind, or one that may not.
pub fn pass_line(sink: &LineSink, frame: Bytes, class: Delivery) {
    match class {
        Delivery::Lossy => drop(sink.offer(frame)),
        Delivery::Reliable => send_line(sink, frame),
    }
}

/// Sends a line; a reader so slow that its queue is full is cut off.
pub fn send_line(sink: &LineSink, frame: Bytes) {
    if sink.send(frame).is_err() {
        sink.close();
    }
}
