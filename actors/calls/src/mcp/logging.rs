//! `logging/setLevel`.

use std::time::Duration;

use futures_util::future::join_all;
use mgp_engine::servers::log_levels::LogLevel;
use mgp_protocol::mcp::{self, logging};
use mgp_protocol::refusal::Refusal;

use crate::Context;
use crate::answer::empty_result;
use mgp_callers::request::{Outcome, Request};

/// How long notifying the servers may take; then the agent is answered, so that a hung server delays nobody.
const LEVEL_TIMEOUT: Duration = Duration::from_secs(2);

/// `logging/setLevel`: sets the agent's own level; each server is told the most verbose level that any
/// agent wants of it (MCP-061, MCP-062).
///
/// # Errors
/// A level outside the eight of RFC 5424.
pub async fn set_level(cx: &Context, request: &Request) -> Outcome {
    let wanted: logging::SetLevel<'_> = mcp::parse_params(request.params.as_deref())?;
    let level: LogLevel = wanted.level.parse().map_err(|_| {
        Refusal::BadParams(format!(
            "`level` must be one of debug, info, notice, warning, error, critical, alert, emergency, not {:?}",
            wanted.level
        ))
    })?;
    if let Some(agent) = request.caller.live_connection() {
        agent.set_level(level);
    }
    let (caller, upstreams) = (&request.caller, cx.upstreams(&request.caller));
    let telling = upstreams
        .iter()
        .map(|it| it.sync_level(caller, &cx.directory));
    let _ = tokio::time::timeout(LEVEL_TIMEOUT, join_all(telling)).await;
    Ok(empty_result())
}
