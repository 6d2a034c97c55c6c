//! Newline-delimited frames over any byte stream: stdio of children and our own Unix socket.
//!
//! The hottest code of the product. Every task with an outgoing frame puts it into a [`LineSink`] without waiting, and
//! one [`LineWriter`] writes all queued frames with one system call. [`reader`] returns incoming frames as slices of
//! the read buffer.

mod reader;
mod sink;
mod writer;

pub use reader::{ReadEnd, read_lines, read_lines_with_budget};
pub use sink::{LineSink, QueueLimits, SendError};
pub(crate) use writer::LineWriter;
pub use writer::WriteEnd;

/// A queue of frames and the writer that empties it.
#[must_use]
pub fn line_channel(limits: QueueLimits) -> (LineSink, LineWriter) {
    let (sink, receiver) = sink::queue(limits);
    (sink, LineWriter::new(receiver))
}
