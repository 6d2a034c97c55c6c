//! Splits a byte stream into newline-delimited frames, with a size limit (MCP stdio transport; CMCP-015).

mod line;

use bytes::{Buf, Bytes, BytesMut};

pub use line::{to_one_line, to_one_line_bytes};

/// The next item of the stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    /// One line, without its newline.
    Line(Bytes),
    /// A line has exceeded the limit and is being discarded: reported at once, because it may never end.
    /// [`Frame::Oversized`] follows at its end. Its head and tail are kept for finding its id.
    LimitExceeded {
        /// The first [`EDGE_LEN`] bytes.
        head: Bytes,
    },
    /// The end of a discarded line.
    Oversized {
        /// The last [`EDGE_LEN`] bytes.
        tail: Bytes,
        /// The length of the whole line, in bytes.
        len: u64,
    },
}

/// The length of the head and tail of an oversized line: an id is near one of them.
pub const EDGE_LEN: usize = 256;

/// Splits a byte stream into lines of at most `limit` bytes. Blank lines are ignored.
#[derive(Debug)]
pub struct Framer {
    limit: usize,
    scanned: usize,
    discard_current: bool,
    discarded: Option<DiscardedLine>,
}

#[derive(Debug, Default)]
struct DiscardedLine {
    tail: Vec<u8>,
    len: u64,
}

impl Framer {
    /// A framer that discards lines of more than `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            scanned: 0,
            discard_current: false,
            discarded: None,
        }
    }

    /// The bytes of the oversized line that is being discarded, 0 when there is none.
    #[must_use]
    pub fn discarded_bytes(&self) -> u64 {
        self.discarded.as_ref().map_or(0, |d| d.len)
    }

    /// Discards the current line like an oversized one, because there is no capacity for it.
    pub fn discard_line(&mut self) {
        self.discard_current = true;
    }

    /// Returns the next frame in `buffer`; `None` when more bytes are needed.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Option<Frame> {
        loop {
            let newline =
                memchr::memchr(b'\n', &buffer[self.scanned..]).map(|at| at + self.scanned);
            let too_long = newline.unwrap_or(buffer.len()) > self.limit;
            if self.discarded.is_some() || self.discard_current || too_long {
                self.scanned = 0;
                return self.discard(buffer, newline);
            }
            let Some(end) = newline else {
                self.scanned = buffer.len();
                return None;
            };
            self.scanned = 0;
            let line = buffer.split_to(end).freeze();
            buffer.advance(1);
            let line = match line.last() {
                Some(b'\r') => line.slice(..line.len() - 1),
                _ => line,
            };
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Some(Frame::Line(line));
            }
        }
    }

    fn discard(&mut self, buffer: &mut BytesMut, newline: Option<usize>) -> Option<Frame> {
        let Some(mut drop) = self.discarded.take() else {
            self.discarded = Some(DiscardedLine::default());
            self.discard_current = false;
            let head = Bytes::copy_from_slice(&buffer[..buffer.len().min(EDGE_LEN)]);
            return Some(Frame::LimitExceeded { head });
        };
        let part = buffer.split_to(newline.unwrap_or(buffer.len()));
        drop.len += part.len() as u64;
        drop.tail
            .extend_from_slice(&part[part.len().saturating_sub(EDGE_LEN)..]);
        drop.tail.drain(..drop.tail.len().saturating_sub(EDGE_LEN));
        if newline.is_none() {
            self.discarded = Some(drop);
            return None;
        }
        buffer.advance(1);
        Some(Frame::Oversized {
            tail: drop.tail.into(),
            len: drop.len,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(limit: usize, pieces: &[&[u8]]) -> Vec<Frame> {
        let (mut framer, mut buffer, mut out) = (Framer::new(limit), BytesMut::new(), Vec::new());
        for piece in pieces {
            buffer.extend_from_slice(piece);
            while let Some(frame) = framer.next(&mut buffer) {
                out.push(frame);
            }
        }
        out
    }

    /// MCP-068, CMCP-015: frames are lines, in any fragmentation; blank lines are ignored.
    #[test]
    fn lines_are_reassembled_from_any_fragmentation() {
        let line = |s: &'static str| Frame::Line(Bytes::from_static(s.as_bytes()));
        let want = vec![line("{\"a\":1}"), line("{}")];
        assert_eq!(cut(99, &[b"{\"a\":1}\n\n \r\n{}\r\n"]), want);
        let bytes: Vec<&[u8]> = b"{\"a\":1}\n\n{}\n".chunks(1).collect();
        assert_eq!(cut(99, &bytes), want);
    }

    #[test]
    fn oversized_line_is_dropped_and_the_next_one_is_read() {
        let long = vec![b'x'; 5000];
        let frames = cut(64, &[b"head", &long, &long, b"tail\n{}\n"]);
        let [
            Frame::LimitExceeded { head },
            Frame::Oversized { tail, len },
            Frame::Line(line),
        ] = &frames[..]
        else {
            panic!("{frames:?}");
        };
        assert_eq!(*len, 10_008);
        assert!(head.starts_with(b"headx"));
        assert!(tail.ends_with(b"xtail"));
        assert_eq!((head.len(), tail.len()), (EDGE_LEN, EDGE_LEN));
        assert_eq!(line.as_ref(), b"{}");
    }

    #[test]
    fn oversized_line_is_reported_before_its_end() {
        assert_eq!(cut(64, &[&[b'x'; 64]]), []);
        let frames = cut(64, &[&[b'x'; 65], &[b'x'; 9999]]);
        let head = Bytes::from_static(&[b'x'; 65]);
        assert_eq!(frames, [Frame::LimitExceeded { head }]);
    }

    #[test]
    fn discarded_line_is_dropped_and_the_next_one_is_read() {
        let (mut framer, mut buffer) = (Framer::new(64), BytesMut::from("ha"));
        assert_eq!(framer.next(&mut buffer), None);
        framer.discard_line();
        let overrun = framer.next(&mut buffer);
        assert!(matches!(overrun, Some(Frame::LimitExceeded { head }) if head == "ha"));
        assert_eq!(framer.next(&mut buffer), None);
        buffer.extend_from_slice(b"lf\n{}\n");
        let ended = framer.next(&mut buffer);
        assert!(matches!(ended, Some(Frame::Oversized { tail, len: 4 }) if tail == "half"));
        assert_eq!(framer.next(&mut buffer), Some(Frame::Line("{}".into())));
    }

    #[test]
    fn line_of_exactly_the_limit_is_accepted() {
        assert_eq!(
            cut(4, &[b"abcd\n"]),
            vec![Frame::Line(Bytes::from_static(b"abcd"))]
        );
        assert!(matches!(
            cut(4, &[b"abcde\n"])[0],
            Frame::LimitExceeded { .. }
        ));
    }
}
