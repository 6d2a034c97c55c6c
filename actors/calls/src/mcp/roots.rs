//! `notifications/roots/list_changed`.

use crate::Context;
use mgp_callers::request::Caller;

/// An agent with roots came, went or changed them. Servers that care ask again, unless so many
/// agents have roots that they are shown none, before and after.
pub fn changed(cx: &Context, caller: &Caller) {
    if !caller.capabilities.roots {
        return;
    }
    for link in cx.links(caller) {
        if link.asks_roots() && cx.directory.rooted(&link.server, 3, None).len() < 3 {
            link.roots_changed();
        }
    }
    let own = cx.own_links(caller).into_iter();
    own.filter(|link| link.asks_roots())
        .for_each(|link| link.roots_changed());
}
