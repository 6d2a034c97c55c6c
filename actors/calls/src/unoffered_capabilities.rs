//! Methods of capabilities that are not offered (CMCP-096).

use mgp_engine::tools::catalog::{CatalogView, ListKind};
use mgp_engine::tools::exposure::Exposure;

use crate::Context;
use crate::mcp::lists::exposure;
use mgp_callers::request::Caller;

/// The capability a method needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// `tools`; the kernel may have tools of its own beside them.
    Tools,
    /// `prompts`.
    Prompts,
    /// `resources`.
    Resources,
    /// `resources.subscribe`.
    ResourceUpdates,
    /// `completions`.
    Completions,
    /// `logging`.
    Logging,
}

/// False for a capability that the only server of this view lacks. A view of all servers, or of an unavailable one,
/// offers all that the kernel relays.
#[must_use]
pub fn is_offered(cx: &Context, caller: &Caller, capability: Capability) -> bool {
    let CatalogView::One(server) = &caller.view else {
        return true;
    };
    let shown = cx.catalog.load();
    let Some(peer) = shown.peers.get(server) else {
        return true;
    };
    let can = &peer.capabilities;
    match capability {
        Capability::Tools => {
            can.tools
                || caller.mgp.is_active()
                || exposure::exposure(cx, &shown, caller, ListKind::Tools) != Exposure::All
        }
        Capability::Prompts => can.prompts,
        Capability::Resources => can.resources,
        Capability::ResourceUpdates => can.resources_subscribe,
        Capability::Completions => can.completions,
        Capability::Logging => peer.supports_log_levels(),
    }
}
