//! Log levels: a legacy server gets the most verbose level of all agents (MCP-062); a stateless server gets the
//! level with each request.

use std::sync::Arc;

use mgp_engine::servers::log_levels::LogLevel;
use mgp_protocol::dialect::ProtocolFamily;

use crate::link::Link;
use mgp_callers::Directory;

/// Sends the level to one server, if an agent has set one and the server supports levels.
pub(crate) async fn sync_level(directory: &Directory, link: &Arc<Link>) {
    if let Some(floor) = directory.most_verbose_level(&link.server) {
        send_level(link, floor).await;
    }
}

/// Makes the server at least this verbose before a request with a level of its own. It stays that verbose until
/// the next change of a session's level. If no level was set before, the lowest is sent, because agents that set
/// none receive all messages (CMCP-094).
pub(crate) async fn raise_level(link: &Arc<Link>, level: LogLevel) {
    match link.current_log_level() {
        Some(current) if level.is_at_least(current) => {}
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
    let request = link.request_in(ProtocolFamily::Legacy, "logging/setLevel", Some(&params));
    match request.await {
        Ok(_) => link.record_log_level(level),
        Err(error) => link.log.push_note(&format!("logging/setLevel: {error}")),
    }
}
