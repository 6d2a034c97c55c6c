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
    _charges: (Option<Charge>, Charge),
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
            _charges: (Some(own), agents),
        }
    }

    /// A copy with another charge, stored for a reader that asks for it again.
    pub(super) fn with_charge(&self, charge: Charge) -> Self {
        Self {
            params: self.params.clone(),
            id: self.id.clone(),
            content: self.content.clone(),
            _charges: (None, charge),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.params.len() + CHUNK_OVERHEAD
    }

    fn text(&self, part: Range<usize>) -> &str {
        std::str::from_utf8(&self.params[part]).expect("a part of a text between characters")
    }

    fn content(&self) -> Option<&str> {
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
        match self {
            Self::Chunk => Some(render_with_id(chunk, call.request_id()?.as_json())),
            Self::Progress(first) => {
                let token = call.progress_token(first.clone())?;
                let text = stream::chunk_text(chunk.content()?)?;
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
    out.extend_from_slice(&chunk.params[..chunk.id.start]);
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(&chunk.params[chunk.id.end..]);
    out.push(b'}');
    out
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
