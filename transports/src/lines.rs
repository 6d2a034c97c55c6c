//! Newline-delimited frames over any byte stream: stdio of children and our own Unix socket.
//!
//! The hottest code of the product. Outwards, every task that has a frame puts it into a
//! [`LineSink`] without waiting and one [`LineWriter`] writes all that is queued with one system
//! call. Inwards, [`read`] hands out frames that are slices of what was read.

mod read;
mod sink;
mod writer;

pub use read::{LINE, PAUSE, READ_AHEAD, RUNAWAY, ReadEnd, read, read_within};
pub use sink::{LineSink, QueueLimits, SendError};
pub use writer::{LineWriter, WriteEnd};

/// A queue of frames and the writer that empties it.
#[must_use]
pub fn sink(limits: QueueLimits) -> (LineSink, LineWriter) {
    let (sink, outlet) = sink::queue(limits);
    (sink, LineWriter::new(outlet))
}
