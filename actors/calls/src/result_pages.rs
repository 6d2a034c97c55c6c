//! Results that are cut, and how their callers read on: the hands of [`mgp_engine::calls::result_pages`].

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use mgp_engine::calls::result_pages::{StoredTexts, inline_structured_content, truncate};
use mgp_engine::tools::catalog::CatalogTool;
use mgp_json::quote;
use mgp_protocol::ids::ConnectionId;
use mgp_protocol::mcp;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::calls::Read;
use mgp_protocol::mgp::matches_method;
use mgp_protocol::refusal::Refusal;

use crate::Context;
use crate::answer::complete_result;
use crate::checks::access;
use mgp_callers::request::{Caller, Outcome, Request};
use mgp_runtime::ids::new_session_id;
use mgp_runtime::time::monotonic_now;

/// The name of the tool in letters that every model API takes.
const TOOL_NAME: &str = "mgp_calls_read";

/// Stored remainders of truncated results. One lock for all: it is held while a text is copied, and only long results
/// come here.
#[derive(Debug, Default)]
pub struct TruncatedResults(Mutex<StoredTexts>);

impl TruncatedResults {
    fn lock_stored_texts(&self) -> MutexGuard<'_, StoredTexts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection has ended, and the remainders stored for it are dropped.
    pub fn remove_connection(&self, whose: ConnectionId) {
        self.lock_stored_texts().remove_connection(whose);
    }
}

/// The result as its caller reads it: as it came, where it is no longer than the operator wants. Results for other
/// nodes are whole: who reads there can read on there alone.
pub(crate) fn first_page(
    cx: &Context,
    caller: &Caller,
    tool: &CatalogTool,
    result: Bytes,
) -> Bytes {
    let most = tool.requirements.rules().result_max;
    if most == 0 || result.len() <= most || caller.agent.is_remote() {
        return result;
    }
    let text = std::str::from_utf8(&result).ok();
    // A schema may ask for all of a structure; without one it is what the text is.
    let folded = text.filter(|_| tool.output.is_none());
    let as_text = folded.and_then(|text| inline_structured_content(text, most));
    let Some(cut) = as_text
        .as_deref()
        .or(text)
        .and_then(|text| truncate(text, most))
    else {
        return as_text.map_or(result, Bytes::from);
    };
    let id = new_session_id().to_string();
    let (kept, whole) = (cut.text.len(), cut.total_bytes);
    let gone = if kept < whole {
        format!(" (the first {kept} are kept)")
    } else {
        String::new()
    };
    let how = format!(
        "[Cut here: {} of {whole} bytes. Read on with the tool {TOOL_NAME}: {{\"result_id\":\"{id}\",\"from\":{}}}{gone}]",
        cut.visible_bytes, cut.visible_bytes
    );
    let told = cut.render_with_hint(&how);
    let place = (&tool.server, &*tool.own_name);
    let mut all = cx.truncated_results.lock_stored_texts();
    all.store(&id, caller.connection, place, cut.text, monotonic_now());
    told.into()
}

/// True when this tool is `mgp.calls.read`, for who may have something to read on in.
pub(crate) fn is_tool(cx: &Context, caller: &Caller, name: &str) -> bool {
    matches_method(Read::METHOD, name) && is_truncation_enabled(cx, caller)
}

/// It is listed where results of a server that the caller sees are cut.
pub(crate) fn tool_definition(cx: &Context, caller: &Caller) -> Option<&'static str> {
    is_truncation_enabled(cx, caller).then_some(Read::METHOD)
}

fn is_truncation_enabled(cx: &Context, caller: &Caller) -> bool {
    let shown = cx.catalog.load();
    shown.catalog.offers().any(|offer| {
        let rules = offer.tools().first().map(|tool| tool.requirements.rules());
        rules.is_some_and(|rules| rules.result_max > 0)
            && caller.view.includes(offer.server())
            && access::can_see_server(cx, caller, offer.server())
    })
}

/// The next part of a result, followed by a line on how to read on if there is more.
pub(crate) fn next_page(cx: &Context, request: &Request, params: Option<&str>) -> Outcome {
    let asked: Read = mcp::parse_params(params)?;
    let caller = &request.caller;
    let gone = || {
        Refusal::UnknownId(
            "there is no such result any more: it is kept for ten minutes, for the connection that made the call"
                .into(),
        )
    };
    let origin = cx
        .truncated_results
        .lock_stored_texts()
        .origin(&asked.result_id, caller.connection);
    let (server, tool) = origin.ok_or_else(gone)?;
    access::admit(cx, caller, &server, Some(&tool), gone())?;
    let most = page_size(cx, &server, &tool);
    let place = (asked.from, most);
    let part = cx.truncated_results.lock_stored_texts().read_page(
        &asked.result_id,
        caller.connection,
        place,
        monotonic_now(),
    );
    let part = part.ok_or_else(gone)?;
    let text = match part.next_offset {
        Some(next) => format!(
            "{}\n[Bytes {} to {next} of {}. Read on with the tool {TOOL_NAME}: {{\"result_id\":{},\"from\":{next}}}]",
            part.text,
            part.offset,
            part.total_bytes,
            quote(&asked.result_id)
        ),
        None => part.text,
    };
    let result = format!(
        r#"{{"content":[{{"type":"text","text":{}}}]}}"#,
        quote(&text)
    );
    Ok(complete_result(caller, result.into(), String::new))
}

/// How much is read at once: as much as of a result.
fn page_size(cx: &Context, server: &mgp_protocol::ids::ServerId, tool: &str) -> usize {
    let shown = cx.catalog.load();
    let offer = shown.catalog.offer(server);
    let mut tools = offer.into_iter().flat_map(|offer| offer.tools());
    let tool = tools.find(|known| *known.own_name == *tool);
    let most = tool.map_or(0, |tool| tool.requirements.rules().result_max);
    if most == 0 { PAGE_BYTES_DEFAULT } else { most }
}

/// How much is read at once where results are not cut any more, in bytes.
const PAGE_BYTES_DEFAULT: usize = 32 << 10;
