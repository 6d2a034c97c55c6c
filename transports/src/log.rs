//! A server's stderr with the kernel's notes: bounded, numbered, safe to print.

mod drain;
mod sanitize;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

pub(crate) use drain::drain;
pub use sanitize::{is_hidden, sanitize};

/// Lines stored per server: enough for the stack trace of a crash and its context.
pub(crate) const MAX_LINES: usize = 1000;

/// Text stored per server, in bytes: a hundred servers stay within 25 MiB.
pub(crate) const MAX_TEXT: usize = 256 << 10;

/// Longest line, in bytes; the rest is truncated with a note.
pub(crate) const MAX_LINE: usize = 8 << 10;

/// Who wrote a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// The server, on its stderr.
    Server,
    /// The kernel, about the server.
    Kernel,
}

/// One line of a server's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Counts from 1 without gaps; a gap between two lines read means that lines were dropped.
    pub seq: u64,
    /// When the kernel received it, in milliseconds of unix time.
    pub at_ms: u64,
    /// Who wrote it.
    pub author: Author,
    /// Printable text without line ends, at most [`MAX_LINE`] bytes and a note.
    pub text: Arc<str>,
}

/// The log of one server. Clones are the same log; it outlives the server's processes.
///
/// At its bounds the oldest lines are dropped.
#[derive(Clone, Debug)]
pub struct ServerLog(Arc<LogState>);

#[derive(Debug)]
struct LogState {
    lines: Mutex<LogRing>,
    newest: watch::Sender<u64>,
    mask: Option<LineMask>,
}

/// Masks secrets in a line before it is stored.
struct LineMask(Box<dyn Fn(&str) -> String + Send + Sync>);

impl fmt::Debug for LineMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LineMask(…)")
    }
}

#[derive(Debug, Default)]
struct LogRing {
    lines: VecDeque<LogLine>,
    text: usize,
    newest: u64,
}

impl Default for ServerLog {
    fn default() -> Self {
        Self::new()
    }
}

impl ServerLog {
    /// An empty log.
    #[must_use]
    pub fn new() -> Self {
        Self::with_optional_mask(None)
    }

    /// An empty log that applies `mask` to every line before it is stored.
    #[must_use]
    pub fn with_mask(mask: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self::with_optional_mask(Some(LineMask(Box::new(mask))))
    }

    fn with_optional_mask(masking: Option<LineMask>) -> Self {
        Self(Arc::new(LogState {
            lines: Mutex::default(),
            newest: watch::Sender::new(0),
            mask: masking,
        }))
    }

    /// Adds one line of the server's stderr, without its newline.
    pub fn push(&self, line: &[u8]) {
        self.add(Author::Server, line);
    }

    /// Adds a note of the kernel.
    pub fn push_note(&self, text: &str) {
        self.add(Author::Kernel, text.as_bytes());
    }

    /// The newest `count` lines, oldest first.
    #[must_use]
    pub fn tail(&self, count: usize) -> Vec<LogLine> {
        self.with_ring(|ring| {
            let skipped = ring.lines.len().saturating_sub(count);
            ring.lines.iter().skip(skipped).cloned().collect()
        })
    }

    /// The stored lines with a number above `seq`, oldest first.
    #[must_use]
    pub fn lines_after(&self, seq: u64) -> Vec<LogLine> {
        self.with_ring(|ring| {
            let old = ring.lines.partition_point(|line| line.seq <= seq);
            ring.lines.range(old..).cloned().collect()
        })
    }

    /// Follows the log: the value is the newest line's number, 0 when there is none.
    #[must_use]
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.0.newest.subscribe()
    }

    fn add(&self, author: Author, line: &[u8]) {
        let text = match &self.0.mask {
            // Before the truncation: the beginning of a secret would not be found.
            Some(LineMask(mask)) => truncate_line(mask(&String::from_utf8_lossy(line)).as_bytes()),
            None => truncate_line(line),
        };
        self.with_ring(|ring| {
            ring.add(author, text);
            self.0.newest.send_replace(ring.newest);
        });
    }

    fn with_ring<T>(&self, on: impl FnOnce(&mut LogRing) -> T) -> T {
        on(&mut self.0.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl LogRing {
    fn add(&mut self, author: Author, text: String) {
        self.newest += 1;
        self.text += text.len();
        self.lines.push_back(LogLine {
            seq: self.newest,
            at_ms: unix_ms(),
            author,
            text: text.into(),
        });
        while self.lines.len() > MAX_LINES || self.text > MAX_TEXT {
            let Some(oldest) = self.lines.pop_front() else {
                break;
            };
            self.text -= oldest.text.len();
        }
    }
}

/// Truncates twice: before sanitizing to bound the work, after it because sanitizing makes text longer.
fn truncate_line(line: &[u8]) -> String {
    let mut text = sanitize(&line[..line.len().min(MAX_LINE)]);
    let kept = text.floor_char_boundary(MAX_LINE);
    if line.len() > MAX_LINE || text.len() > kept {
        text.truncate(kept);
        text.push_str(" [cut]");
    }
    text
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_masked_before_it_is_stored() {
        let log = ServerLog::with_mask(|line| line.replace("hunter2", "[redacted]"));
        log.push(b"my token is hunter2\xff");
        log.push_note("it said hunter2");
        let kept: Vec<_> = log.tail(9).into_iter().map(|line| line.text).collect();
        let wanted = ["my token is [redacted]\u{fffd}", "it said [redacted]"];
        assert_eq!(kept.iter().map(|text| &**text).collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn the_oldest_lines_are_dropped_when_there_are_too_many() {
        let log = ServerLog::new();
        for n in 1..=MAX_LINES + 5 {
            log.push(n.to_string().as_bytes());
        }
        let all = log.tail(usize::MAX);
        assert_eq!(all.len(), MAX_LINES);
        assert_eq!((all[0].seq, &*all[0].text), (6, "6"));
        assert_eq!(log.tail(2)[1].seq, 1005);
    }

    #[test]
    fn the_oldest_lines_are_dropped_when_there_is_too_much_text() {
        let log = ServerLog::new();
        for _ in 0..100 {
            log.push(&[b'x'; MAX_LINE]);
        }
        assert_eq!(log.tail(usize::MAX).len(), MAX_TEXT / MAX_LINE);
    }

    #[test]
    fn a_long_line_is_truncated_with_a_note() {
        let log = ServerLog::new();
        log.push(&[b'x'; MAX_LINE + 1]);
        log.push(&[0; MAX_LINE]);
        for line in log.tail(2) {
            assert_eq!(line.text.len(), MAX_LINE + " [cut]".len());
            assert!(line.text.ends_with(" [cut]"));
        }
    }

    #[tokio::test]
    async fn a_follower_sees_every_line_once() {
        let log = ServerLog::new();
        let mut follower = log.follow();
        assert_eq!(*follower.borrow_and_update(), 0);
        log.push(b"one");
        log.push_note("two");
        follower.changed().await.unwrap();
        let lines = log.lines_after(0);
        assert_eq!(*follower.borrow_and_update(), lines[1].seq);
        assert_eq!(lines[0].author, Author::Server);
        assert_eq!((lines[1].author, &*lines[1].text), (Author::Kernel, "two"));
        assert!(lines[0].at_ms > 1_600_000_000_000);
        assert_eq!(log.lines_after(2), []);
    }
}
