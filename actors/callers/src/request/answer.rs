//! Renders the response frame of a request.

use bytes::Bytes;
use mgp_protocol::dialect::Dialect;
use mgp_protocol::jsonrpc;
use mgp_protocol::refusal::Rendered;

use super::Outcome;

/// Answers up to this size are copied into one buffer; larger ones are written in parts.
const COPY_BYTES_MAX: usize = 16 << 10;

/// Renders the response to the request `id`: one part, or three parts of which the middle one is the
/// server's own bytes.
#[must_use]
pub fn render_answer_parts(id: &str, outcome: &Outcome, dialect: impl Into<Dialect>) -> [Bytes; 3] {
    let whole = |frame: Vec<u8>| [frame.into(), Bytes::new(), Bytes::new()];
    match outcome {
        Ok(result) if result.len() <= COPY_BYTES_MAX => {
            let mut out = Vec::with_capacity(40 + id.len() + result.len());
            out.extend_from_slice(PREFIX);
            out.extend_from_slice(id.as_bytes());
            out.extend_from_slice(RESULT);
            out.extend_from_slice(result);
            out.push(b'}');
            whole(out)
        }
        Ok(result) => {
            let head = [PREFIX, id.as_bytes(), RESULT].concat();
            [head.into(), result.clone(), Bytes::from_static(b"}")]
        }
        Err(refusal) => whole(match refusal.render_for_dialect(dialect.into()) {
            Rendered::Error(error) => jsonrpc::error(id, &error),
            Rendered::Result(result) => jsonrpc::result(id, &result),
        }),
    }
}

const PREFIX: &[u8] = br#"{"jsonrpc":"2.0","id":"#;
const RESULT: &[u8] = br#","result":"#;

/// Renders the response as one frame.
#[must_use]
pub fn render_answer(id: &str, outcome: &Outcome, dialect: impl Into<Dialect>) -> Bytes {
    let [head, middle, tail] = render_answer_parts(id, outcome, dialect);
    if middle.is_empty() {
        return head;
    }
    [head, middle, tail].concat().into()
}
