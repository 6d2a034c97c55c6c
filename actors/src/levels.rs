//! Log levels: each server is told the most verbose one that anybody wants of it (MCP-062).

use std::sync::Arc;

use mgp_protocol::dialect::Era;

use crate::directory::Directory;
use crate::link::Link;

/// Tells one server; nothing when nobody set a level, or when it has no use for one.
pub async fn tell(directory: &Directory, link: &Arc<Link>) {
    let can = link
        .peer_in(Era::Legacy)
        .is_some_and(|p| p.capabilities.logging);
    let Some(floor) = directory.floor(&link.server).filter(|_| can) else {
        return;
    };
    let params = format!(r#"{{"level":"{}"}}"#, floor.as_str());
    if let Err(error) = link
        .ask_in(Era::Legacy, "logging/setLevel", Some(&params))
        .await
    {
        link.log.note(&format!("logging/setLevel: {error}"));
    }
}
