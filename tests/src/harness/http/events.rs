//! Server-sent events, read raw.

use bytes::{Buf, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;

/// One event as it came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    /// The `id` field, when there was one.
    pub id: Option<String>,
    /// The `event` field, when there was one.
    pub event: Option<String>,
    /// The `data` lines, joined by newlines.
    pub data: String,
    /// The `retry` field, in milliseconds, when there was one.
    pub retry: Option<u64>,
    /// True when it was nothing but comments: a sign of life.
    pub comment: bool,
}

/// The events of one response body.
#[derive(Debug)]
pub struct Events {
    body: Incoming,
    buffer: BytesMut,
}

impl Events {
    pub(super) fn new(body: Incoming) -> Self {
        Self {
            body,
            buffer: BytesMut::new(),
        }
    }

    /// The next event, comments included; `None` when the stream has ended or broke.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = take_event(&mut self.buffer) {
                return Some(event);
            }
            let frame = self.body.frame().await?.ok()?;
            if let Ok(part) = frame.into_data() {
                self.buffer.extend_from_slice(&part);
            }
        }
    }
}

fn take_event(buffer: &mut BytesMut) -> Option<Event> {
    let (end, gap) = blank_line(buffer)?;
    let block = buffer.split_to(end);
    buffer.advance(gap);
    Some(read_event(&String::from_utf8_lossy(&block)))
}

/// Where the first blank line begins, and the length of the line ends around it.
fn blank_line(buffer: &[u8]) -> Option<(usize, usize)> {
    let find = |gap: &[u8]| buffer.windows(gap.len()).position(|w| w == gap);
    let (lf, crlf) = (find(b"\n\n"), find(b"\r\n\r\n"));
    match (lf, crlf) {
        (Some(lf), Some(crlf)) if crlf < lf => Some((crlf, 4)),
        (None, Some(crlf)) => Some((crlf, 4)),
        (Some(lf), Some(_) | None) => Some((lf, 2)),
        (None, None) => None,
    }
}

fn read_event(block: &str) -> Event {
    let mut event = Event::default();
    let mut data = Vec::new();
    for line in block.lines().filter(|line| !line.is_empty()) {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => event.id = Some(value.to_owned()),
            "event" => event.event = Some(value.to_owned()),
            "retry" => event.retry = value.parse().ok(),
            "data" => data.push(value),
            _ => {}
        }
    }
    event.comment = block.lines().all(|line| line.starts_with(':'));
    event.data = data.join("\n");
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_out_whole_with_either_line_end() {
        let text =
            "id: 1\ndata: {\"a\":\ndata: 1}\n\n: ping\n\nevent: x\r\nretry: 5\r\ndata\r\n\r\nid";
        let mut buffer = BytesMut::from(text);
        let events: Vec<Event> = std::iter::from_fn(|| take_event(&mut buffer)).collect();
        assert_eq!(events[0].id.as_deref(), Some("1"));
        assert_eq!(events[0].data, "{\"a\":\n1}");
        assert!(events[1].comment && !events[0].comment);
        assert_eq!((events[2].retry, events[2].data.as_str()), (Some(5), ""));
        assert_eq!((events.len(), &buffer[..]), (3, &b"id"[..]));
    }
}
