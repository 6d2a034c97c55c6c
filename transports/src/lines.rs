//! Newline-delimited frames over any byte stream: stdio of children and our own Unix socket.
//!
//! The hottest code of the product. Outwards, every task that has a frame puts it into a
//! [`LineSink`] without waiting and one [`LineWriter`] writes all that is queued with one system
//! call. Inwards, [`reader`] hands out frames that are slices of what was read.

mod reader;
mod sink;
mod writer;

pub use reader::{
    LINE_TIMEOUT, OVERRUN_FACTOR_MAX, PAUSE_TIMEOUT, READ_AHEAD, ReadEnd, read_lines,
    read_lines_with_budget,
};
pub use sink::{LineSink, QueueLimits, SendError};
pub use writer::{LineWriter, WriteEnd};

/// A queue of frames and the writer that empties it.
#[must_use]
pub fn line_channel(limits: QueueLimits) -> (LineSink, LineWriter) {
    let (sink, outlet) = sink::queue(limits);
    (sink, LineWriter::new(outlet))
}
