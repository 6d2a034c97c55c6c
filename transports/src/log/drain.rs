//! Reads a child's stderr into its log, as fast as it arrives (MCP-071).

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::coop::consume_budget;

use super::{MAX_LINE, ServerLog};

/// The size of one read, in bytes.
const READ: usize = 8 << 10;

/// Reads `stderr` to its end. Waits only for the child, so the child never waits; yields to other tasks after a hundred
/// lines.
pub(crate) async fn drain<R: AsyncRead + Unpin>(mut stderr: R, log: ServerLog) {
    let mut buffer = vec![0; READ];
    let mut line = LineBuffer::default();
    while let Ok(count) = stderr.read(&mut buffer).await {
        if count == 0 {
            break;
        }
        for piece in buffer[..count].split_inclusive(|byte| *byte == b'\n') {
            line.push_piece(piece, &log);
            consume_budget().await;
        }
    }
    line.finish(&log);
}

/// The incomplete line; one byte over the limit is stored to show that it was truncated.
#[derive(Debug, Default)]
struct LineBuffer(Vec<u8>);

impl LineBuffer {
    /// Appends a part of a line, or its end.
    fn push_piece(&mut self, piece: &[u8], log: &ServerLog) {
        let ended = piece.strip_suffix(b"\n");
        let text = ended.unwrap_or(piece);
        let buffer = MAX_LINE + 1 - self.0.len();
        self.0.extend_from_slice(&text[..text.len().min(buffer)]);
        if ended.is_some() {
            log.push(&self.0);
            self.0.clear();
        }
    }

    fn finish(self, log: &ServerLog) {
        if !self.0.is_empty() {
            log.push(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};
    use std::task::Poll;

    use super::*;

    fn texts(log: &ServerLog) -> Vec<String> {
        let lines = log.tail(usize::MAX);
        lines.iter().map(|line| line.text.to_string()).collect()
    }

    #[tokio::test]
    async fn lines_arrive_however_they_are_split() {
        let log = ServerLog::new();
        let input = tokio::io::join(&b"one\ntw"[..], tokio::io::sink());
        let input = input.chain(&b"o\r\n\nlast"[..]);
        drain(input, log.clone()).await;
        assert_eq!(texts(&log), ["one", "two", "", "last"]);
    }

    /// Other tasks run on the same thread, however fast a server writes.
    #[tokio::test]
    async fn a_server_that_never_pauses_lets_other_tasks_run() {
        let log = ServerLog::new();
        let draining = drain(tokio::io::repeat(b'\n'), log.clone());
        tokio::pin!(draining);
        for poll in 1..=10 {
            let polled = poll_fn(|cx| Poll::Ready(draining.as_mut().poll(cx))).await;
            assert!(polled.is_pending());
            let newest = log.tail(1)[0].seq;
            assert!(newest <= 200 * poll, "{newest} lines in {poll} turns");
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn an_endless_line_takes_no_more_memory_than_a_line() {
        let log = ServerLog::new();
        drain(tokio::io::repeat(b'x').take(1 << 20), log.clone()).await;
        assert_eq!(texts(&log), ["x".repeat(MAX_LINE) + " [cut]"]);
    }
}
