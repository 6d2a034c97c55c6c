//! One chunk between its server and its reader: the server's own `params`, and the forms that readers
//! understand.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use mgp_json::quote;
use mgp_protocol::jsonrpc;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::stream::{self, Chunk};
use mgp_sync::Charge;

use crate::in_flight_call::InFlightCall;

/// The cost of a chunk beside its text, so that many small ones are counted too.
const CHUNK_OVERHEAD: usize = 256;

/// A chunk as its server sent it.
#[derive(Debug)]
pub struct StreamChunk {
    params: Bytes,
    /// The range of the request id in `params`.
    id: Range<usize>,
    /// The range of the content in `params`.
    content: Option<Range<usize>>,
    is_last: bool,
    /// What its reader gets in place of the content, once it was guarded.
    guarded: Option<GuardedContent>,
    _charges: Charges,
}

/// What the chunk is counted against, until it is dropped.
#[derive(Debug)]
enum Charges {
    /// Its stream and its agent, while it waits.
    Waiting { _own: Charge, _agents: Charge },
    /// Its agent, while it is stored.
    Stored { _agents: Charge },
    /// Those of the chunk as its server sent it.
    Original { _chunk: Arc<StreamChunk> },
}

/// The content of a chunk after its guard.
#[derive(Clone, Debug)]
enum GuardedContent {
    /// This; empty where the server sent none.
    Shown(Box<str>),
    /// The reader does not get the chunk.
    Withheld,
}

impl StreamChunk {
    /// The bytes that a chunk with these params counts for.
    pub(super) fn weight(params: &str) -> u64 {
        (params.len() + CHUNK_OVERHEAD) as u64
    }

    pub(super) fn new(params: &str, chunk: &Chunk<'_>, (own, agents): (Charge, Charge)) -> Self {
        Self {
            params: Bytes::copy_from_slice(params.as_bytes()),
            id: stream::byte_range(params, chunk.request_id),
            content: chunk
                .content
                .map(|content| stream::byte_range(params, content)),
            is_last: chunk.is_done(),
            guarded: None,
            _charges: Charges::Waiting {
                _own: own,
                _agents: agents,
            },
        }
    }

    /// The chunk with what its reader gets of it; `None` withholds it.
    pub(super) fn with_content(self: &Arc<Self>, content: Option<String>) -> Self {
        Self {
            params: self.params.clone(),
            id: self.id.clone(),
            content: self.content.clone(),
            is_last: self.is_last,
            guarded: Some(match content {
                Some(content) => GuardedContent::Shown(content.into()),
                None => GuardedContent::Withheld,
            }),
            _charges: Charges::Original {
                _chunk: self.clone(),
            },
        }
    }

    pub(super) fn is_guarded(&self) -> bool {
        self.guarded.is_some()
    }

    pub(super) fn is_last(&self) -> bool {
        self.is_last
    }

    /// A copy with another charge, stored for a reader that asks for it again.
    pub(super) fn with_charge(&self, charge: Charge) -> Self {
        Self {
            params: self.params.clone(),
            id: self.id.clone(),
            content: self.content.clone(),
            is_last: self.is_last,
            guarded: self.guarded.clone(),
            _charges: Charges::Stored { _agents: charge },
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.params.len() + CHUNK_OVERHEAD
    }

    /// The bytes that it takes where it is stored.
    pub(super) fn stored_bytes(&self) -> usize {
        let guarded = self.guarded.as_ref().map_or(0, |guarded| match guarded {
            GuardedContent::Shown(content) => content.len(),
            GuardedContent::Withheld => 0,
        });
        self.bytes() + guarded
    }

    /// The content that its reader gets.
    fn shown_content(&self) -> Option<&str> {
        match &self.guarded {
            None => self.content(),
            Some(GuardedContent::Shown(content)) => {
                Some(content).filter(|c| !c.is_empty()).map(AsRef::as_ref)
            }
            Some(GuardedContent::Withheld) => None,
        }
    }

    fn text(&self, part: Range<usize>) -> &str {
        std::str::from_utf8(&self.params[part]).expect("a part of a text between characters")
    }

    /// The content that the server sent.
    pub(super) fn content(&self) -> Option<&str> {
        self.content.clone().map(|content| self.text(content))
    }
}

/// The form in which a reader receives chunks.
#[derive(Clone, Debug)]
pub enum ChunkForm {
    /// As `notifications/mgp.stream.chunk`.
    Chunk,
    /// As `notifications/progress` with a message, under the token of the reader's first request.
    Progress(Box<str>),
}

impl ChunkForm {
    /// Renders the frame for the reader; `None` when the form cannot express the chunk.
    pub(super) fn render(&self, call: &InFlightCall, chunk: &StreamChunk) -> Option<Vec<u8>> {
        if matches!(chunk.guarded, Some(GuardedContent::Withheld)) {
            return None;
        }
        match self {
            Self::Chunk => Some(render_with_id(chunk, call.request_id()?.as_json())),
            Self::Progress(first) => {
                let token = call.progress_token(first.clone())?;
                let text = stream::chunk_text(chunk.shown_content()?)?;
                if text.is_empty() && chunk.is_guarded() {
                    return None;
                }
                let message = quote(&text);
                let progress = call.progress().next_chunk();
                let params = format!(
                    r#"{{"progressToken":{token},"progress":{progress},"message":{message}}}"#
                );
                Some(jsonrpc::notification(
                    "notifications/progress",
                    Some(&params),
                ))
            }
        }
    }
}

/// Renders a chunk under the reader's own request id; all else stays byte-identical.
fn render_with_id(chunk: &StreamChunk, id: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(96 + chunk.params.len() + id.len());
    out.extend_from_slice(br#"{"jsonrpc":"2.0","method":""#);
    out.extend_from_slice(Chunk::METHOD.as_bytes());
    out.extend_from_slice(br#"","params":"#);
    // The id and the content stand in either order.
    let mut parts = vec![(&chunk.id, id)];
    if let (Some(content), Some(GuardedContent::Shown(shown))) = (&chunk.content, &chunk.guarded) {
        parts.push((content, shown));
        parts.sort_by_key(|(range, _)| range.start);
    }
    let mut copied = 0;
    for (range, text) in parts {
        out.extend_from_slice(&chunk.params[copied..range.start]);
        out.extend_from_slice(text.as_bytes());
        copied = range.end;
    }
    out.extend_from_slice(&chunk.params[copied..]);
    out.push(b'}');
    out
}

/// Renders a last chunk of the kernel, with text that was held back.
pub(super) fn render_rest(index: u64, text: &str, id: &str) -> Vec<u8> {
    let text = quote(text);
    let params = format!(
        r#"{{"request_id":{id},"index":{index},"content":{{"type":"text","text":{text}}},"done":true}}"#
    );
    jsonrpc::notification(Chunk::METHOD, Some(&params))
}

/// The partial result of a cancelled call, as JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartialResult(pub Box<str>);

impl PartialResult {
    /// A partial result without any content.
    #[must_use]
    pub fn unknown() -> Self {
        Self(r#"{"content":[]}"#.into())
    }

    /// Joins the contents of these chunks, adjacent texts as one. When the first chunks are no longer
    /// stored, it names the first one that is.
    pub(super) fn from_chunks(chunks: &BTreeMap<u64, &Arc<StreamChunk>>) -> Self {
        let mut contents: Vec<String> = Vec::new();
        let mut text = String::new();
        let flush = |text: &mut String, contents: &mut Vec<String>| {
            if !text.is_empty() {
                let quoted = quote(&std::mem::take(text));
                contents.push(format!(r#"{{"type":"text","text":{quoted}}}"#));
            }
        };
        for content in chunks.values().filter_map(|chunk| chunk.content()) {
            match stream::chunk_text(content) {
                Some(part) => text.push_str(&part),
                None => {
                    flush(&mut text, &mut contents);
                    contents.push(content.to_owned());
                }
            }
        }
        flush(&mut text, &mut contents);
        let from = chunks.keys().next().copied().filter(|first| *first > 0);
        let from = from.map_or_else(String::new, |first| {
            format!(r#","_mgp":{{"from_index":{first}}}"#)
        });
        Self(format!(r#"{{"content":[{}]{from}}}"#, contents.join(",")).into())
    }
}
