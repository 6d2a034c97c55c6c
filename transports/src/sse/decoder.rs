//! Splits a byte stream into events, with a limit on the size of each.

use std::mem;

use bytes::{Buf, Bytes, BytesMut};

/// An event that a blank line completed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The event's `id`, for `Last-Event-ID`; empty text resets it.
    pub id: Option<String>,
    /// The name, unless it is the default one.
    pub event: Option<String>,
    /// The payload; empty when the event only changed the id or the retry time.
    pub data: Bytes,
    /// The delay before reconnecting, in milliseconds.
    pub retry: Option<u64>,
}

/// An event over the limit was discarded; later events are unaffected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of more than {limit} bytes")]
pub struct TooLarge {
    /// The limit, in bytes.
    pub(crate) limit: usize,
    /// The id of the event, if it was already read.
    pub id: Option<String>,
}

/// Longest line that is still read in a discarded event: an id fits.
const DISCARDED_LINE_MAX: usize = 1024;

/// Splits pushed bytes into events of at most `max_event` bytes.
///
/// The iterator continues after `None` once more is pushed. Data from one line of one chunk is a slice of that chunk.
/// Events without data are returned, too, when they have an id or a retry time.
#[derive(Debug)]
pub struct Decoder {
    max_event: usize,
    chunk: Bytes,
    line: BytesMut,
    line_lost: bool,
    after_cr: bool,
    started: bool,
    event: EventParts,
    oversized: bool,
}

#[derive(Debug, Default)]
struct EventParts {
    id: Option<String>,
    name: Option<String>,
    data: EventLines,
    retry: Option<u64>,
}

#[derive(Debug, Default)]
enum EventLines {
    #[default]
    None,
    Line(Bytes),
    Lines(BytesMut),
}

impl Decoder {
    /// A decoder that discards events of more than `max_event` bytes of data.
    #[must_use]
    pub fn new(max_event: usize) -> Self {
        Self {
            max_event,
            chunk: Bytes::new(),
            line: BytesMut::new(),
            line_lost: false,
            after_cr: false,
            started: false,
            event: EventParts::default(),
            oversized: false,
        }
    }

    /// Adds the next bytes. Copies what earlier pushes left unread: take all events first.
    pub fn push(&mut self, bytes: Bytes) {
        if self.chunk.is_empty() {
            self.chunk = bytes;
        } else {
            self.chunk = [&self.chunk[..], &bytes[..]].concat().into();
        }
    }

    /// The next bytes of the current line, and whether they end it; `None` when there are no more.
    fn next_part(&mut self) -> Option<(Bytes, bool)> {
        if !self.chunk.is_empty() && mem::take(&mut self.after_cr) && self.chunk[0] == b'\n' {
            self.chunk.advance(1);
        }
        if self.chunk.is_empty() {
            return None;
        }
        let Some(end) = memchr::memchr2(b'\n', b'\r', &self.chunk) else {
            return Some((mem::take(&mut self.chunk), false));
        };
        let part = self.chunk.split_to(end);
        self.after_cr = self.chunk.get_u8() == b'\r';
        Some((part, true))
    }

    /// The maximum length of the line: what the data before it left of the limit.
    fn remaining_limit(&self) -> usize {
        if self.oversized {
            return DISCARDED_LINE_MAX;
        }
        self.max_event.saturating_sub(self.event.data.len())
    }

    /// Discards the line, and reports that once per event.
    fn discard_line(&mut self) -> Option<TooLarge> {
        self.started = true;
        self.line.clear();
        if mem::replace(&mut self.oversized, true) {
            return None;
        }
        self.event.data = EventLines::None;
        Some(TooLarge {
            limit: self.max_event,
            id: self.event.id.clone(),
        })
    }

    /// The whole line that ends with `part`.
    fn end_line(&mut self, part: Bytes) -> Bytes {
        let line = if self.line.is_empty() {
            part
        } else {
            self.line.extend_from_slice(&part);
            self.line.split().freeze()
        };
        let first = !mem::replace(&mut self.started, true);
        if first && line.starts_with(b"\xef\xbb\xbf") {
            return line.slice(3..);
        }
        line
    }

    fn parse_field(&mut self, line: &Bytes) {
        let colon = memchr::memchr(b':', line).unwrap_or(line.len());
        let mut value = line.slice((colon + 1).min(line.len())..);
        if value.first() == Some(&b' ') {
            value.advance(1);
        }
        match &line[..colon] {
            b"data" if !self.oversized => self.event.data.push(value),
            b"id" if !value.contains(&0) => self.event.id = Some(text(&value)),
            b"event" => self.event.name = Some(text(&value)).filter(|name| !name.is_empty()),
            b"retry" if value.iter().all(u8::is_ascii_digit) => {
                self.event.retry = text(&value).parse().ok().or(self.event.retry);
            }
            _ => {}
        }
    }

    /// Completes the event at a blank line.
    fn complete(&mut self) -> Option<SseEvent> {
        self.oversized = false;
        let EventParts {
            id,
            name,
            data,
            retry,
        } = mem::take(&mut self.event);
        let data = match data {
            EventLines::None if id.is_none() && retry.is_none() => return None,
            // Without data there is no event to have a name.
            EventLines::None => {
                return Some(SseEvent {
                    id,
                    retry,
                    ..SseEvent::default()
                });
            }
            EventLines::Line(line) => line,
            EventLines::Lines(lines) => lines.freeze(),
        };
        Some(SseEvent {
            id,
            event: name,
            data,
            retry,
        })
    }
}

impl Iterator for Decoder {
    type Item = Result<SseEvent, TooLarge>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some((part, ended)) = self.next_part() {
            let lost = self.line_lost || self.line.len() + part.len() > self.remaining_limit();
            self.line_lost = lost && !ended;
            if lost {
                if let Some(error) = self.discard_line() {
                    return Some(Err(error));
                }
            } else if !ended {
                self.line.extend_from_slice(&part);
            } else {
                let line = self.end_line(part);
                if !line.is_empty() {
                    self.parse_field(&line);
                } else if let Some(event) = self.complete() {
                    return Some(Ok(event));
                }
            }
        }
        None
    }
}

impl EventLines {
    fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Line(line) => line.len(),
            Self::Lines(lines) => lines.len(),
        }
    }

    fn push(&mut self, line: Bytes) {
        *self = match mem::take(self) {
            Self::None => Self::Line(line),
            Self::Line(first) => Self::Lines(join(BytesMut::from(first), &line)),
            Self::Lines(lines) => Self::Lines(join(lines, &line)),
        }
    }
}

fn join(mut lines: BytesMut, line: &[u8]) -> BytesMut {
    lines.extend_from_slice(b"\n");
    lines.extend_from_slice(line);
    lines
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(max_event: usize, chunks: &[&[u8]]) -> Vec<Result<SseEvent, TooLarge>> {
        let mut decoder = Decoder::new(max_event);
        let mut out = Vec::new();
        for chunk in chunks {
            decoder.push(Bytes::copy_from_slice(chunk));
            out.extend(decoder.by_ref());
        }
        out
    }

    fn events(stream: &str) -> Vec<SseEvent> {
        let events = decode(1024, &[stream.as_bytes()]);
        events.into_iter().map(Result::unwrap).collect()
    }

    fn data(stream: &str) -> Vec<String> {
        events(stream).into_iter().map(|e| text(&e.data)).collect()
    }

    /// The examples of the WHATWG specification.
    #[test]
    fn the_examples_of_the_standard_are_decoded() {
        assert_eq!(data("data: YHOO\ndata: +2\ndata: 10\n\n"), ["YHOO\n+2\n10"]);
        assert_eq!(data("data\n\ndata\ndata\n\ndata:"), ["", "\n"]);
        assert_eq!(data("data:test\n\ndata: test\n\n"), ["test", "test"]);
        let four = events(": c\n\ndata: first\nid: 1\n\ndata:second\nid\n\ndata:  third\n\n");
        let ids: Vec<_> = four.iter().map(|e| e.id.as_deref()).collect();
        assert_eq!(ids, [Some("1"), Some(""), None]);
        assert_eq!(four[2].data, " third");
    }

    #[test]
    fn every_line_end_and_a_byte_order_mark_are_accepted() {
        let stream = "\u{feff}data: a\r\rdata: b\r\ndata: b\r\n\r\ndata: c\n\ndata: d\r\n\n";
        assert_eq!(data(stream), ["a", "b\nb", "c", "d"]);
        assert_eq!(data("data: a\n\n\u{feff}data: b\n\n"), ["a"]);
    }

    /// CMCP-036: a heartbeat that only has an id moves the resume position.
    #[test]
    fn an_id_without_data_is_an_event() {
        let only_id = SseEvent {
            id: Some("9".into()),
            ..SseEvent::default()
        };
        assert_eq!(events(": beat\nid: 9\n\n"), [only_id]);
        assert!(events("id: a\0b\n\nevent: x\n\nretry: soon\n\n").is_empty());
        assert_eq!(events("retry: 20\n\n")[0].retry, Some(20));
    }

    #[test]
    fn a_single_line_of_data_is_not_copied() {
        let chunk = Bytes::from_static(b"event: message\nid: 1\ndata: {\"a\":1}\n\n");
        let mut decoder = Decoder::new(1024);
        decoder.push(chunk.clone());
        let event = decoder.next().unwrap().unwrap();
        assert_eq!(event.data, chunk.slice(27..34));
        assert_eq!(event.data.as_ptr(), chunk[27..].as_ptr());
    }

    #[test]
    fn an_oversized_event_is_discarded_and_the_next_one_is_decoded() {
        let stream = b"id: 4\ndata: 0123456789\nid: 5\n\ndata: ok\n\n";
        let too_large = TooLarge {
            limit: 12,
            id: Some("4".into()),
        };
        let moved = SseEvent {
            id: Some("5".into()),
            ..SseEvent::default()
        };
        let next = SseEvent {
            data: "ok".into(),
            ..SseEvent::default()
        };
        assert_eq!(decode(12, &[stream]), [Err(too_large), Ok(moved), Ok(next)]);
        let many = "data: 12\n".repeat(9) + "\n";
        assert!(decode(12, &[many.as_bytes()])[0].is_err(), "lines add up");
    }

    #[test]
    fn an_endless_line_takes_no_memory() {
        let mut decoder = Decoder::new(64);
        let mut errors = 0;
        for _ in 0..1000 {
            decoder.push(Bytes::from_static(&[b'x'; 4096]));
            errors += decoder.by_ref().filter(Result::is_err).count();
        }
        assert_eq!(errors, 1);
        assert!(decoder.line.capacity() < 4096);
    }

    fn noise() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop::sample::select(vec![
            "data: {}",
            "data",
            "data:",
            "id: 7",
            "id: \0",
            "event: endpoint",
            "retry: 5",
            ": c",
            "\n",
            "\r",
            "\r\n",
            "\n\n",
            "\u{feff}",
            "x",
            "data: 01234567890123456789",
        ]);
        let said = prop::collection::vec(piece, 0..40).prop_map(|all| all.concat().into_bytes());
        prop_oneof![said, prop::collection::vec(any::<u8>(), 0..200)]
    }

    /// The rules of the standard, without chunks, copies and limits.
    fn reference(stream: &[u8]) -> Vec<SseEvent> {
        let stream = stream.strip_prefix(b"\xef\xbb\xbf").unwrap_or(stream);
        let latin: String = stream.iter().map(|b| char::from(*b)).collect();
        let latin = latin.replace("\r\n", "\n").replace('\r', "\n");
        let bytes = |text: &str| text.chars().map(|c| c as u8).collect::<Vec<_>>();
        let Some((whole, _)) = latin.rsplit_once('\n') else {
            return Vec::new();
        };
        let (mut out, mut event, mut lines) = (Vec::new(), SseEvent::default(), Vec::new());
        for line in whole.split('\n') {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match name {
                "" if line.is_empty() => {
                    event.data = bytes(&lines.join("\n")).into();
                    let mut event = mem::take(&mut event);
                    if mem::take(&mut lines).is_empty() {
                        event.event = None;
                        out.extend((event != SseEvent::default()).then_some(event));
                    } else {
                        out.push(event);
                    }
                }
                "data" => lines.push(value.to_owned()),
                "id" if !value.contains('\0') => event.id = Some(text(&bytes(value))),
                "event" => event.event = Some(text(&bytes(value))).filter(|e| !e.is_empty()),
                "retry" => event.retry = value.parse().ok().or(event.retry),
                _ => {}
            }
        }
        out
    }

    proptest! {
        #[test]
        fn events_are_those_of_the_reference(stream in noise()) {
            let all: Vec<_> = decode(1 << 20, &[&stream]).into_iter().map(Result::unwrap).collect();
            prop_assert_eq!(all, reference(&stream));
        }

        /// CMCP-032: no bytes make the decoder panic, and chunking does not matter.
        #[test]
        fn any_chunking_gives_the_same_events(
            stream in noise(),
            cuts in prop::collection::vec(0usize..200, 0..12),
        ) {
            let whole = decode(24, &[&stream]);
            let mut cuts: Vec<_> = cuts.into_iter().map(|at| at.min(stream.len())).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let chunks: Vec<_> = cuts.windows(2).map(|cut| &stream[cut[0]..cut[1]]).collect();
            prop_assert_eq!(&decode(24, &chunks), &whole);
            let bytes: Vec<_> = stream.chunks(1).collect();
            prop_assert_eq!(&decode(24, &bytes), &whole);
        }
    }
}
