//! MCP Apps in results (SEP-1865).

use bytes::Bytes;
use mgp_engine::tools::apps;
use mgp_protocol::ids::ServerId;

use mgp_callers::request::Caller;

/// A result with the `ui://` URIs of its server as visible to the caller.
pub(crate) fn visible_app_uris(caller: &Caller, server: &ServerId, result: Bytes) -> Bytes {
    let is_merged = caller.view.is_merged();
    let wrapped = is_merged.then(|| apps::wrap_in_result(&result, server));
    wrapped.flatten().map_or(result, Into::into)
}
