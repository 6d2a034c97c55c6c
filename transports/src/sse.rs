//! Server-sent events, encoded and decoded.
//!
//! Pure: no IO and no clock. Follows the WHATWG event stream.

mod decoder;

use std::fmt::Write as _;

use bytes::Bytes;
use mgp_protocol::framing::to_one_line_bytes;

pub(crate) use decoder::TooLarge;
pub use decoder::{Decoder, SseEvent};

/// The id of an event as its sender counts.
#[derive(Clone, Copy, Debug)]
pub enum EventId<'a> {
    /// A counter.
    Number(u64),
    /// Any text; line ends and NUL are not allowed in an id and are removed.
    Text(&'a str),
}

impl From<u64> for EventId<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl<'a> From<&'a str> for EventId<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

/// An event of the default name, `message`: a JSON text, always on one line. Readers that split at more line ends than
/// the standard's would read two.
#[must_use]
pub fn render_event(id: Option<EventId<'_>>, json: &[u8]) -> Bytes {
    write(None, id, &to_one_line_bytes(json))
}

/// An event of another name, such as `endpoint`. Line ends in the name are removed.
#[must_use]
pub fn render_named_event(name: &str, id: Option<EventId<'_>>, data: &[u8]) -> Bytes {
    write(Some(name), id, data)
}

/// A comment: keeps a connection alive, and no reader reports it.
#[must_use]
pub fn render_comment(text: &str) -> Bytes {
    let mut out = Vec::with_capacity(text.len() + 8);
    write_lines(&mut out, b": ", text.as_bytes());
    out.push(b'\n');
    out.into()
}

/// Sets the reader's delay before it reconnects, in milliseconds.
#[must_use]
pub fn render_retry(milliseconds: u64) -> Bytes {
    format!("retry: {milliseconds}\n\n").into()
}

fn write(name: Option<&str>, id: Option<EventId<'_>>, data: &[u8]) -> Bytes {
    let head = 48 + name.map_or(0, str::len);
    let mut out = String::with_capacity(head);
    if let Some(name) = name {
        push_field(&mut out, "event: ", name);
    }
    match id {
        Some(EventId::Number(number)) => writeln!(out, "id: {number}").expect("a String takes all"),
        Some(EventId::Text(text)) => push_field(&mut out, "id: ", text),
        None => {}
    }
    let mut out = out.into_bytes();
    out.reserve(data.len() + 16);
    write_lines(&mut out, b"data: ", data);
    out.push(b'\n');
    out.into()
}

fn write_lines(out: &mut Vec<u8>, field: &[u8], text: &[u8]) {
    for line in lines(text) {
        out.extend_from_slice(field);
        out.extend_from_slice(line);
        out.push(b'\n');
    }
}

fn push_field(out: &mut String, name: &str, value: &str) {
    out.push_str(name);
    out.extend(value.chars().filter(|c| !matches!(c, '\r' | '\n' | '\0')));
    out.push('\n');
}

/// The lines of a payload, at least one.
fn lines(mut data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut done = false;
    std::iter::from_fn(move || {
        if done {
            return None;
        }
        let Some(end) = memchr::memchr2(b'\n', b'\r', data) else {
            done = true;
            return Some(data);
        };
        let line = &data[..end];
        let both = data[end..].starts_with(b"\r\n");
        data = &data[end + 1 + usize::from(both)..];
        Some(line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: Bytes) -> Vec<SseEvent> {
        let mut decoder = Decoder::new(1 << 20);
        decoder.push(bytes);
        decoder.map(Result::unwrap).collect()
    }

    #[test]
    fn one_line_of_data_is_one_line_on_the_wire() {
        let out = render_event(Some(7.into()), br#"{"a":1}"#);
        assert_eq!(out, "id: 7\ndata: {\"a\":1}\n\n");
        assert_eq!(render_event(None, b""), "data: \n\n");
    }

    #[test]
    fn line_ends_in_the_payload_split_it() {
        for (data, wire, back) in [
            ("a\nb", "data: a\ndata: b\n\n", "a\nb"),
            ("a\r\nb", "data: a\ndata: b\n\n", "a\nb"),
            (
                "a\r\rb\n",
                "data: a\ndata: \ndata: b\ndata: \n\n",
                "a\n\nb\n",
            ),
        ] {
            let out = render_named_event("endpoint", None, data.as_bytes());
            assert_eq!(out, format!("event: endpoint\n{wire}"));
            assert_eq!(read(out)[0].data, back);
        }
    }

    /// CR ends a line of a stream, and for some readers so does U+2028.
    #[test]
    fn a_message_is_one_line_whatever_it_holds() {
        let out = render_event(None, "{\r\n\"a\":\"\u{2028}\"}".as_bytes());
        assert_eq!(out, "data: {  \"a\":\"\\u2028\"}\n\n");
    }

    #[test]
    fn a_hostile_id_or_name_makes_no_second_field() {
        let out = render_named_event("end\npoint", Some("1\r\ndata: x\0".into()), b"/messages");
        assert_eq!(out, "event: endpoint\nid: 1data: x\ndata: /messages\n\n");
        let event = read(out).pop().unwrap();
        assert_eq!(event.event.as_deref(), Some("endpoint"));
        assert_eq!(event.id.as_deref(), Some("1data: x"));
    }

    #[test]
    fn comments_are_no_events_and_retry_is_one_without_data() {
        assert_eq!(render_comment("keep-alive"), ": keep-alive\n\n");
        assert_eq!(render_comment("a\ndata: b"), ": a\n: data: b\n\n");
        assert!(read(render_comment("a\ndata: b\r\rdata: c")).is_empty());
        assert_eq!(read(render_retry(1500))[0].retry, Some(1500));
    }
}
