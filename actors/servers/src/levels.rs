//! Log levels: a legacy server is told the most verbose level any agent wants of it (MCP-062);
//! a modern server gets the level with each request.

use std::sync::Arc;

use mgp_engine::servers::log_levels::LogLevel;
use mgp_protocol::dialect::Era;

use crate::link::Link;
use mgp_callers::directory::Directory;

/// Tells one server; nothing when no agent set a level or the server does not support levels.
pub async fn tell(directory: &Directory, link: &Arc<Link>) {
    if let Some(floor) = directory.floor(&link.server) {
        say(link, floor).await;
    }
}

/// For a request with a level of its own: makes the server at least that verbose before the call. It is
/// not made quieter afterwards; that is left to the next change of a session's level. If no level was
/// set before, the server is told the lowest, because agents that set none get everything
/// (CMCP-094).
pub async fn want(link: &Arc<Link>, level: LogLevel) {
    match link.told_level() {
        Some(told) if level.passes(told) => {}
        Some(_) => say(link, level).await,
        None => say(link, LogLevel::Debug).await,
    }
}

async fn say(link: &Arc<Link>, level: LogLevel) {
    let peer = link.peer_in(Era::Legacy);
    if !peer.is_some_and(|p| p.capabilities.logging) {
        return;
    }
    let params = format!(r#"{{"level":"{}"}}"#, level.as_str());
    let asked = link.ask_in(Era::Legacy, "logging/setLevel", Some(&params));
    match asked.await {
        Ok(_) => link.level_told(level),
        Err(error) => link.log.note(&format!("logging/setLevel: {error}")),
    }
}
