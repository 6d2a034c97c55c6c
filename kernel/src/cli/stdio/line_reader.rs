//! Reads whole lines from a byte stream, as many at a time as are available, unchanged.

use std::io::{self, ErrorKind, Read};
use std::os::unix::net::UnixStream;

use memchr::{memchr_iter, memrchr};

use crate::cli::failure::Failure;

/// Bytes per read: the capacity of a pipe.
const READ_SIZE: usize = 64 << 10;
/// Longest line that is buffered as a whole, in bytes: twice the kernel's default limit. A longer one is passed on in
/// parts.
const LINE_BUFFER_MAX: usize = 16 << 20;
/// Larger buffers are freed after use, in bytes.
const IDLE_BUFFER_MAX: usize = 1 << 20;

/// The available part of a stream.
pub(super) struct LineBatch<'a> {
    pub(super) bytes: &'a [u8],
    /// Whether the first line began in an earlier batch.
    pub(super) continues_line: bool,
    /// Whether the last line ends in a later batch, or never.
    pub(super) has_open_line: bool,
}

impl<'a> LineBatch<'a> {
    /// Its lines, each with its newline.
    pub(super) fn lines(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        split_lines(self.bytes)
    }
}

/// The lines of a text, each with its newline if it has one.
pub(super) fn split_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = memchr_iter(b'\n', bytes).map(|end| end + 1);
    let last = Some(bytes.len()).filter(|_| bytes.last() != Some(&b'\n'));
    let mut begin = 0;
    let ends = ends.chain(last.filter(|end| *end > 0));
    ends.map(move |end| &bytes[std::mem::replace(&mut begin, end)..end])
}

/// Reads one line with its newline, byte by byte, so that no later bytes are consumed. `failed` decides whether to
/// continue after an error; `None` for a line longer than `longest`.
///
/// # Errors
/// [`Failure::ConnectionClosed`] at the end of the stream, and the errors of `failed`.
pub(super) fn read_line(
    mut socket: &UnixStream,
    longest: usize,
    mut failed: impl FnMut(io::Error) -> Result<(), Failure>,
) -> Result<Option<Vec<u8>>, Failure> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < longest {
        match socket.read(&mut byte) {
            Ok(0) => return Err(Failure::ConnectionClosed),
            Ok(_) => line.push(byte[0]),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => failed(e)?,
        }
        if line.ends_with(b"\n") {
            return Ok(Some(line));
        }
    }
    Ok(None)
}

pub(super) struct LineReader<R> {
    source: R,
    buffer: Vec<u8>,
    /// Bytes already returned.
    consumed: usize,
    /// Bytes in the buffer.
    filled: usize,
    /// Whether a part of the current line was returned.
    is_line_split: bool,
}

impl<R: Read> LineReader<R> {
    pub(super) fn new(source: R) -> Self {
        Self {
            source,
            buffer: Vec::new(),
            consumed: 0,
            filled: 0,
            is_line_split: false,
        }
    }

    /// The next lines; `None` at the end.
    pub(super) fn next_batch(&mut self) -> io::Result<Option<LineBatch<'_>>> {
        self.discard_consumed();
        let mut searched = 0;
        loop {
            if let Some(end) = memrchr(b'\n', &self.buffer[searched..self.filled]) {
                return Ok(Some(self.take_batch(searched + end + 1, false)));
            }
            searched = self.filled;
            if self.filled >= LINE_BUFFER_MAX {
                return Ok(Some(self.take_batch(self.filled, true)));
            }
            match (self.fill()?, self.filled) {
                (0, 0) => return Ok(None),
                (0, filled) => return Ok(Some(self.take_batch(filled, true))),
                _ => {}
            }
        }
    }

    fn fill(&mut self) -> io::Result<usize> {
        if self.buffer.len() < self.filled + READ_SIZE {
            self.buffer.resize(self.filled + READ_SIZE, 0);
        }
        loop {
            match self.source.read(&mut self.buffer[self.filled..]) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
                Ok(n) => {
                    self.filled += n;
                    return Ok(n);
                }
            }
        }
    }

    fn take_batch(&mut self, end: usize, open: bool) -> LineBatch<'_> {
        self.consumed = end;
        LineBatch {
            continues_line: std::mem::replace(&mut self.is_line_split, open),
            has_open_line: open,
            bytes: &self.buffer[..end],
        }
    }

    fn discard_consumed(&mut self) {
        self.buffer.copy_within(self.consumed..self.filled, 0);
        self.filled -= std::mem::take(&mut self.consumed);
        if self.filled == 0 && self.buffer.len() > IDLE_BUFFER_MAX {
            self.buffer = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that returns one piece at a time.
    struct Pieces(Vec<Vec<u8>>);

    impl Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            let mut piece = self.0.remove(0);
            let n = piece.len().min(buffer.len());
            buffer[..n].copy_from_slice(&piece[..n]);
            piece.drain(..n);
            if !piece.is_empty() {
                self.0.insert(0, piece);
            }
            Ok(n)
        }
    }

    fn batches(pieces: &[&[u8]]) -> Vec<(Vec<u8>, bool, bool)> {
        let pieces = pieces.iter().map(|piece| piece.to_vec()).collect();
        let mut lines = LineReader::new(Pieces(pieces));
        let mut out = Vec::new();
        while let Some(batch) = lines.next_batch().unwrap() {
            out.push((
                batch.bytes.to_vec(),
                batch.continues_line,
                batch.has_open_line,
            ));
        }
        out
    }

    #[test]
    fn lines_are_read_whole_and_unchanged() {
        let whole = |text: &str| (text.as_bytes().to_vec(), false, false);
        assert_eq!(
            batches(&[b"a\r\nb", b"c", b"\n\n", b"d\n"]),
            [whole("a\r\n"), whole("bc\n\n"), whole("d\n")]
        );
        let last = (b"half".to_vec(), false, true);
        assert_eq!(batches(&[b"a\nhalf"]), [whole("a\n"), last]);
        let split: Vec<_> = split_lines(b"a\n\nb").collect();
        assert_eq!(split, [&b"a\n"[..], b"\n", b"b"]);
        assert_eq!(split_lines(b"").count(), 0);
    }

    /// A line that is too long to be buffered is passed on in parts, and marked.
    #[test]
    fn an_endless_line_is_not_buffered() {
        let long = vec![b'x'; LINE_BUFFER_MAX];
        let got = batches(&[&long, b"yz\nnext\n"]);
        assert_eq!(got[0], (long, false, true));
        assert_eq!(got[1], (b"yz\nnext\n".to_vec(), true, false));
    }
}
