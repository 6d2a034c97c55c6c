//! Parses a lite call, and selects the parts for the server.

use mgp_json::{Splice, can_contain_string, member};
use mgp_protocol::mcp::{self, tools};
use mgp_protocol::mgp::stream;
use mgp_protocol::refusal::Refusal;
use serde_json::value::RawValue;

/// Members of `params` of other protocols: a task of 2025-11-25 and a retry of 2026-07-28. A lite caller
/// has promises and continuations instead.
const FOREIGN_PARAMS: [&str; 3] = ["task", "inputResponses", "requestState"];
/// Members of `_meta` that are not for the server. Progress has no reader here.
const LITE_META: [&str; 3] = ["continuation", "elicitation", "progressToken"];

/// The parsed members of a call.
#[derive(Debug)]
pub(super) struct LiteRequest {
    /// The tool.
    pub(super) name: String,
    /// Its arguments, an object as JSON text.
    pub(super) arguments: String,
    /// `_meta.continuation`.
    pub(super) continuation: Option<String>,
    /// `_meta.elicitation`: an explicit answer.
    pub(super) elicitation: Option<String>,
    /// The params without the members that are not for the server.
    pub(super) params: String,
}

impl LiteRequest {
    pub(super) fn parse(params: &str, streams: bool) -> Result<Self, Refusal> {
        let call: tools::Call<'_> = mcp::parse_params(Some(params))?;
        let name = serde_json::from_str(call.name.get())
            .map_err(|_| Refusal::BadParams("`name` must be a string".into()))?;
        let meta = call.meta.map(RawValue::get).filter(|meta| *meta != "null");
        if meta.is_some_and(|meta| !meta.starts_with('{')) {
            return Err(Refusal::BadParams("`_meta` must be an object".into()));
        }
        let has_member = |name: &str| {
            let meta = meta.filter(|meta| can_contain_string(meta.as_bytes(), name))?;
            member(meta, name)
        };
        let continuation = has_member("continuation")
            .map(serde_json::from_str)
            .transpose();
        let continuation = continuation
            .map_err(|_| Refusal::BadParams("`continuation` in `_meta` must be a string".into()))?;
        Ok(Self {
            name,
            arguments: call.arguments.map_or("{}", RawValue::get).to_owned(),
            continuation,
            elicitation: has_member("elicitation").map(str::to_owned),
            params: server_params(params, &call, meta, streams),
        })
    }
}

/// Renders the params for the server.
fn server_params(
    params: &str,
    call: &tools::Call<'_>,
    meta: Option<&str>,
    streams: bool,
) -> String {
    let mut splice = Splice::new(params);
    let others = call.task.is_some() || call.input_responses.is_some();
    if others || call.request_state.is_some() {
        splice.remove_members(params, &FOREIGN_PARAMS);
    }
    if let Some(meta) = meta {
        splice.remove_members(meta, &LITE_META);
    }
    let plain = splice.finish();
    let mut splice = Splice::new(&plain);
    if streams {
        if let Some((name, json)) = stream::add_stream_request(&plain, &mut splice) {
            splice.insert_member(&plain, name, json);
        }
    } else {
        stream::remove_stream_request(&plain, &mut splice)
    }
    splice.finish().into_owned()
}
