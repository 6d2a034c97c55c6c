//! Methods of a capability that is not offered (CMCP-096).

use mgp_engine::tools::catalog::{CatalogView, ListKind};
use mgp_engine::tools::exposure::Exposure;

use super::Relay;
use crate::request::Caller;

impl Relay {
    /// False for a method of a capability that the one server of this view does not have. Who sees
    /// everything is offered all that the kernel relays; so is who looks at a server that is away.
    #[must_use]
    pub fn offers(&self, caller: &Caller, method: &str) -> bool {
        let CatalogView::One(server) = &caller.view else {
            return true;
        };
        let shown = self.shown.load();
        let Some(peer) = shown.peers.get(server) else {
            return true;
        };
        let can = &peer.capabilities;
        match method {
            "logging/setLevel" => peer.takes_levels(),
            "completion/complete" => can.completions,
            "prompts/list" | "prompts/get" => can.prompts,
            "resources/list" | "resources/templates/list" | "resources/read" => can.resources,
            "resources/subscribe" | "resources/unsubscribe" => can.resources_subscribe,
            // The kernel may have tools of its own there.
            "tools/list" | "tools/call" => {
                can.tools
                    || caller.mgp.is_active()
                    || self.exposure(&shown, caller, ListKind::Tools) != Exposure::All
            }
            _ => true,
        }
    }
}
