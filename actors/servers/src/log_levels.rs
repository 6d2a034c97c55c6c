//! Log levels: a legacy server is told the most verbose level any agent wants of it (MCP-062);
//! a modern server gets the level with each request.

use std::sync::Arc;

use mgp_engine::servers::log_levels::LogLevel;
use mgp_protocol::dialect::ProtocolFamily;

use crate::link::Link;
use mgp_callers::Directory;

/// Tells one server; nothing when no agent set a level or the server does not support levels.
pub(crate) async fn sync_level(directory: &Directory, link: &Arc<Link>) {
    if let Some(floor) = directory.most_verbose_level(&link.server) {
        send_level(link, floor).await;
    }
}

/// For a request with a level of its own: makes the server at least that verbose before the call. It is
/// not made quieter afterwards; that is left to the next change of a session's level. If no level was
/// set before, the server is told the lowest, because agents that set none get everything
/// (CMCP-094).
pub(crate) async fn raise_level(link: &Arc<Link>, level: LogLevel) {
    match link.current_log_level() {
        Some(told) if level.is_at_least(told) => {}
        Some(_) => send_level(link, level).await,
        None => send_level(link, LogLevel::Debug).await,
    }
}

async fn send_level(link: &Arc<Link>, level: LogLevel) {
    let peer = link.peer_for(ProtocolFamily::Legacy);
    if !peer.is_some_and(|p| p.capabilities.logging) {
        return;
    }
    let params = format!(r#"{{"level":"{}"}}"#, level.as_str());
    let asked = link.request_in(ProtocolFamily::Legacy, "logging/setLevel", Some(&params));
    match asked.await {
        Ok(_) => link.record_log_level(level),
        Err(error) => link.log.push_note(&format!("logging/setLevel: {error}")),
    }
}
