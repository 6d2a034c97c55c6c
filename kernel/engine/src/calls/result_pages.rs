//! Results longer than the limit of the operator (decision 53): they are truncated, and the rest is stored for a
//! while for the caller to page through.

use std::collections::VecDeque;
use std::time::Duration;

use mgp_json::{Splice, elements, member, members, quote, render_object, unique_member, unquote};
use mgp_protocol::ids::{ConnectionId, ServerId};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::clock::MonotonicTime;

/// Most bytes of text stored of one result; the rest is discarded, and the reader gets a note.
pub(crate) const TEXT_MAX: usize = 8 << 20;
/// Most results stored for one connection, and their bytes in all: an agent pages through its latest results. The
/// oldest of the same connection is discarded first.
const PER_CONNECTION_MAX: usize = 16;
const BYTES_PER_CONNECTION_MAX: usize = 16 << 20;
/// Bytes stored for all connections together; at this bound the oldest of all is discarded.
const BYTES_TOTAL_MAX: usize = 64 << 20;
/// How long a text is stored after its last read.
const RETENTION: Duration = Duration::from_secs(600);

/// A truncated result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TruncatedResult {
    /// The result for the agent, up to the hint of [`TruncatedResult::render_with_hint`].
    prefix: String,
    visible_text: String,
    suffix: String,
    /// The whole text, as far as it is stored.
    pub text: String,
    /// Bytes of it that are still in the result.
    pub visible_bytes: usize,
    /// Bytes of the original text.
    pub total_bytes: usize,
}

impl TruncatedResult {
    /// The result, with a line at the end of its text that explains how to get the next page.
    #[must_use]
    pub fn render_with_hint(&self, how: &str) -> String {
        let text = quote(&format!("{}\n{how}", self.visible_text));
        format!("{}{text}{}", self.prefix, self.suffix)
    }
}

/// Truncates a result owner text has more than `most` bytes, at a character boundary. Only text is truncated: images,
/// resources and structured content stay. `None` for a result that fits, which is passed on unchanged, and for one
/// that is no plain tool result.
#[must_use]
pub fn truncate(result: &str, most: usize) -> Option<TruncatedResult> {
    // The text is never longer than its encoding.
    if result.len() <= most {
        return None;
    }
    let all = members(result)?;
    let content = unique_member(&all, "content")?;
    let items = elements(content)?;
    let texts: Vec<Option<String>> = items.iter().map(|item| content_text(item)).collect();
    let total_bytes: usize = texts.iter().flatten().map(String::len).sum();
    if total_bytes <= most {
        return None;
    }
    let (mut remaining, mut cut) = (most, None);
    for (index, text) in texts.iter().enumerate() {
        let Some(text) = text else { continue };
        if text.len() > remaining {
            cut = Some((index, text.floor_char_boundary(remaining)));
            break;
        }
        remaining -= text.len();
    }
    let (cut_index, cut_offset) = cut?;
    let mut text = String::new();
    texts[..cut_index]
        .iter()
        .flatten()
        .for_each(|part| text.push_str(part));
    let visible_bytes = text.len() + cut_offset;
    texts[cut_index..]
        .iter()
        .flatten()
        .for_each(|part| text.push_str(part));
    text.truncate(text.floor_char_boundary(TEXT_MAX));
    // Non-text content after the truncated text stays.
    let mut remaining_items = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        match &texts[index] {
            Some(_) if index > cut_index => {}
            Some(_) if index == cut_index => {
                remaining_items.push(replace_text_with_marker(item.get()));
            }
            Some(_) | None => remaining_items.push(item.get().to_owned()),
        }
    }
    let mut splice = Splice::new(result);
    splice.replace(content, format!("[{}]", remaining_items.join(",")));
    let with_marker = splice.finish().into_owned();
    let (before, after) = with_marker.split_once(MARKER)?;
    Some(TruncatedResult {
        prefix: before.to_owned(),
        visible_text: texts[cut_index].as_deref().unwrap_or_default()[..cut_offset].to_owned(),
        suffix: after.to_owned(),
        text,
        visible_bytes,
        total_bytes,
    })
}

/// Replaces structured content with text when it makes a result longer than `most`; it is added in full unless a text
/// already repeats it. `None` where there is no such content, and where it is short enough. Only for a tool without
/// an `outputSchema`, owner callers rely on no structure.
#[must_use]
pub fn inline_structured_content(result: &str, most: usize) -> Option<String> {
    const STRUCTURE: &str = "structuredContent";
    if result.len() <= most {
        return None;
    }
    let all = members(result)?;
    let structure = unique_member(&all, STRUCTURE)?;
    let content = unique_member(&all, "content")?;
    let items = elements(content)?;
    let texts: Vec<String> = items.iter().filter_map(|item| content_text(item)).collect();
    let text_bytes: usize = texts.iter().map(String::len).sum();
    if structure.len() + text_bytes <= most {
        return None;
    }
    let value: Value = serde_json::from_str(structure).ok()?;
    let repeats = |text: &String| serde_json::from_str::<Value>(text).is_ok_and(|v| v == value);
    let mut items: Vec<String> = items.iter().map(|item| item.get().to_owned()).collect();
    if !texts.iter().any(repeats) {
        items.push(format!(r#"{{"type":"text","text":{}}}"#, quote(structure)));
    }
    let items = format!("[{}]", items.join(","));
    let members = all.iter().filter(|(name, _)| name != STRUCTURE);
    Some(render_object(members.map(|(name, value)| {
        let is_content = name == "content";
        (name, if is_content { &items } else { value.get() })
    })))
}

/// Stands for the truncated text. It cannot occur in JSON, where this character is always escaped.
const MARKER: &str = "\u{1}";

fn replace_text_with_marker(item: &str) -> String {
    let mut splice = Splice::new(item);
    splice.replace(member(item, "text").unwrap_or_default(), MARKER);
    splice.finish().into_owned()
}

/// The text of a content item; `None` with several `text` members, of which parsers would choose different ones.
fn content_text(item: &RawValue) -> Option<String> {
    let all = members(item.get())?;
    let string = |wanted| unique_member(&all, wanted).and_then(unquote);
    string("type").filter(|kind| kind == "text")?;
    string("text").map(Into::into)
}

/// A text that can be paged through.
#[derive(Debug)]
struct StoredText {
    id: Box<str>,
    owner: ConnectionId,
    server: ServerId,
    tool: Box<str>,
    text: Box<str>,
    last_read: MonotonicTime,
}

/// The stored texts, oldest first.
#[derive(Debug, Default)]
pub struct StoredTexts {
    entries: VecDeque<StoredText>,
}

/// A page of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextPage {
    /// The text of the page.
    pub text: String,
    /// Its offset in bytes.
    pub offset: usize,
    /// The offset of the next page; `None` at the end.
    pub next_offset: Option<usize>,
    /// Bytes of the whole text.
    pub total_bytes: usize,
}

impl StoredTexts {
    /// Stores a text for the connection of the caller.
    pub fn store(
        &mut self,
        id: &str,
        owner: ConnectionId,
        (server, tool): (&ServerId, &str),
        text: String,
        now: MonotonicTime,
    ) {
        self.evict_expired(now);
        self.entries.push_back(StoredText {
            id: id.into(),
            owner,
            server: server.clone(),
            tool: tool.into(),
            text: text.into(),
            last_read: now,
        });
        while self.count_where(|text| text.owner == owner) > PER_CONNECTION_MAX
            || self.bytes_where(|text| text.owner == owner) > BYTES_PER_CONNECTION_MAX
        {
            let Some(oldest) = self.entries.iter().position(|text| text.owner == owner) else {
                break;
            };
            self.entries.remove(oldest);
        }
        while self.bytes_where(|_| true) > BYTES_TOTAL_MAX {
            self.entries.pop_front();
        }
    }

    /// The server and tool a text is from; `None` for an unknown text and for one of another caller.
    #[must_use]
    pub fn origin(&self, id: &str, owner: ConnectionId) -> Option<(ServerId, String)> {
        let stored = self.find(id, owner)?;
        Some((stored.server.clone(), stored.tool.to_string()))
    }

    /// A page of at most `most` bytes, on character boundaries; an offset within a character is moved to its start.
    pub fn read_page(
        &mut self,
        id: &str,
        owner: ConnectionId,
        (offset, most): (usize, usize),
        now: MonotonicTime,
    ) -> Option<TextPage> {
        self.evict_expired(now);
        let matches = |stored: &&mut StoredText| *stored.id == *id && stored.owner == owner;
        let stored = self.entries.iter_mut().find(matches)?;
        stored.last_read = now;
        let offset = stored.text.floor_char_boundary(offset);
        // A character has at most four bytes, so each page advances.
        let end = stored
            .text
            .floor_char_boundary(offset.saturating_add(most.max(4)));
        Some(TextPage {
            text: stored.text[offset..end].to_owned(),
            offset,
            next_offset: (end < stored.text.len()).then_some(end),
            total_bytes: stored.text.len(),
        })
    }

    /// Removes the texts of a closed connection.
    pub fn remove_connection(&mut self, owner: ConnectionId) {
        self.entries.retain(|text| text.owner != owner);
    }

    fn find(&self, id: &str, owner: ConnectionId) -> Option<&StoredText> {
        let mut all = self.entries.iter();
        all.find(|text| *text.id == *id && text.owner == owner)
    }

    fn evict_expired(&mut self, now: MonotonicTime) {
        self.entries
            .retain(|text| now.duration_since(text.last_read) < RETENTION);
    }

    fn count_where(&self, matches: impl Fn(&StoredText) -> bool) -> usize {
        self.entries.iter().filter(|text| matches(text)).count()
    }

    fn bytes_where(&self, matches: impl Fn(&StoredText) -> bool) -> usize {
        let all = self.entries.iter().filter(|text| matches(text));
        all.map(|text| text.text.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const NOW: MonotonicTime = MonotonicTime::START;
    const ME: ConnectionId = ConnectionId(1);

    fn text(text: &str) -> Value {
        json!({"type": "text", "text": text})
    }

    /// Decision 53: structured content is paged like text, and not repeated.
    #[test]
    fn long_structured_content_becomes_text() {
        let rows: Vec<u32> = (0..200).collect();
        let structure = json!({"rows": rows, "long": "x".repeat(500)});
        let alone =
            json!({"content": [text("a few")], "structuredContent": structure, "isError": false})
                .to_string();
        let folded = inline_structured_content(&alone, 100).unwrap();
        let read: Value = serde_json::from_str(&folded).unwrap();
        assert_eq!(read["structuredContent"], Value::Null);
        assert_eq!(
            (&read["isError"], &read["content"][0]),
            (&json!(false), &text("a few"))
        );
        let as_text: Value =
            serde_json::from_str(read["content"][1]["text"].as_str().unwrap()).unwrap();
        assert_eq!(as_text, structure);
        assert!(truncate(&folded, 100).is_some());
        let twice =
            json!({"content": [text(&structure.to_string())], "structuredContent": structure})
                .to_string();
        let folded: Value =
            serde_json::from_str(&inline_structured_content(&twice, 100).unwrap()).unwrap();
        assert_eq!(folded["content"].as_array().unwrap().len(), 1);
        for stays in [
            json!({"content": [text(&"x".repeat(500))]}).to_string(),
            json!({"structuredContent": structure}).to_string(),
            format!(r#"{{"content":[],"structuredContent":{structure},"structuredContent":1}}"#),
        ] {
            assert_eq!(inline_structured_content(&stays, 100), None, "{stays}");
        }
        assert_eq!(inline_structured_content(&alone, alone.len()), None);
    }

    fn keep(
        kept: &mut StoredTexts,
        id: &str,
        owner: ConnectionId,
        text: String,
        now: MonotonicTime,
    ) {
        kept.store(id, owner, (&ServerId::new("it"), "t"), text, now);
    }

    /// Decision 53: what fits is not touched, and of what does not only text is cut.
    #[test]
    fn only_text_is_cut_and_only_where_it_is_too_long() {
        let long = "x".repeat(100);
        let picture = json!({"type": "image", "data": "AAAA", "mimeType": "image/png"});
        let result = json!({"content": [text("ab"), text(&long), picture, text("end")],
            "structuredContent": {"all": long}, "isError": true, "_meta": {"k": 1}});
        let whole = result.to_string();
        assert_eq!(truncate(&whole, whole.len()), None);
        assert_eq!(
            truncate(&whole, 105),
            None,
            "105 bytes of text are all there are"
        );
        let one = truncate(&whole, 12).unwrap();
        assert_eq!((one.visible_bytes, one.total_bytes), (12, 105));
        assert_eq!(one.text, format!("ab{long}end"));
        let told: Value = serde_json::from_str(&one.render_with_hint("more")).unwrap();
        let shown = format!("{}\nmore", "x".repeat(10));
        assert_eq!(told["content"], json!([text("ab"), text(&shown), picture]));
        for kept in ["structuredContent", "isError", "_meta"] {
            assert_eq!(told[kept], result[kept]);
        }
        for none in [
            "{}",
            "[]",
            r#"{"content":{}}"#,
            r#"{"content":[],"content":[]}"#,
        ] {
            assert_eq!(truncate(none, 0), None, "{none}");
        }
    }

    /// Decision 53: a text is for the connection that called, for a time, and within bounds.
    #[test]
    fn what_was_cut_off_is_its_callers_and_does_not_stay() {
        let mut kept = StoredTexts::default();
        keep(&mut kept, "a", ME, "0123456789".into(), NOW);
        let page = kept.read_page("a", ME, (2, 4), NOW).unwrap();
        assert_eq!(
            (&*page.text, page.offset, page.next_offset, page.total_bytes),
            ("2345", 2, Some(6), 10)
        );
        assert_eq!(
            kept.read_page("a", ME, (6, 4), NOW).unwrap().next_offset,
            None
        );
        assert_eq!(kept.read_page("a", ME, (99, 4), NOW).unwrap().text, "");
        assert_eq!(kept.read_page("a", ConnectionId(2), (0, 4), NOW), None);
        assert_eq!(kept.origin("a", ConnectionId(2)), None);
        assert_eq!(kept.read_page("a", ME, (0, 4), NOW + RETENTION), None);
        for n in 0..=PER_CONNECTION_MAX {
            keep(&mut kept, &n.to_string(), ME, "x".into(), NOW);
        }
        assert_eq!(
            kept.read_page("0", ME, (0, 1), NOW),
            None,
            "the oldest of its own goes"
        );
        assert!(kept.read_page("1", ME, (0, 1), NOW).is_some());
        kept.remove_connection(ME);
        assert_eq!(kept.read_page("1", ME, (0, 1), NOW), None);
        for n in 0..20 {
            keep(
                &mut kept,
                &n.to_string(),
                ConnectionId(n),
                "x".repeat(TEXT_MAX),
                NOW,
            );
        }
        assert!(kept.bytes_where(|_| true) <= BYTES_TOTAL_MAX);
    }

    proptest! {
        /// Decision 53: page by page one reads exactly what the server said.
        #[test]
        fn the_pages_are_the_whole_text(
            parts in prop::collection::vec("\\PC{0,40}", 1..5),
            most in 0_usize..60,
            page in 0_usize..20,
        ) {
            let content: Vec<Value> = parts.iter().map(|part| text(part)).collect();
            let result = json!({ "content": content }).to_string();
            let whole = parts.concat();
            match truncate(&result, most) {
                None => prop_assert!(whole.len() <= most),
                Some(one) => {
                    prop_assert!(whole.len() > most && one.visible_bytes <= most);
                    let told: Value = serde_json::from_str(&one.render_with_hint("")).unwrap();
                    let shown = told["content"].as_array().unwrap().iter();
                    let shown: String = shown.map(|item| item["text"].as_str().unwrap()).collect();
                    prop_assert_eq!(shown.strip_suffix('\n').unwrap(), &whole[..one.visible_bytes]);
                    let (mut kept, mut read, mut next) = (StoredTexts::default(), String::new(), Some(one.visible_bytes));
                    keep(&mut kept, "a", ME, one.text.clone(), NOW);
                    while let Some(from) = next {
                        let part = kept.read_page("a", ME, (from, page), NOW).unwrap();
                        read.push_str(&part.text);
                        next = part.next_offset;
                    }
                    prop_assert_eq!(&whole[one.visible_bytes..], &read);
                }
            }
        }
    }
}
