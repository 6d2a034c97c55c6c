//! Log levels: each legacy server is told the most verbose one that anybody wants of it (MCP-062);
//! modern ones learn it with each request.

use std::sync::Arc;

use mgp_engine::servers::log_levels::LogLevel;
use mgp_protocol::dialect::Era;

use crate::directory::Directory;
use crate::link::Link;

/// Tells one server; nothing when nobody set a level, or when it has no use for one.
pub async fn tell(directory: &Directory, link: &Arc<Link>) {
    if let Some(floor) = directory.floor(&link.server) {
        say(link, floor).await;
    }
}

/// For a request that brings its own level: the server is told before the call when it has not been
/// told to be that verbose. It is not told to be quieter afterwards; the next change of a level that
/// stands does that. A server that was told none is told the lowest, for those who set none hear
/// everything (CMCP-094).
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
