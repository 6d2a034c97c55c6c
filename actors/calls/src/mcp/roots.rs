//! `notifications/roots/list_changed`.

use crate::Context;
use mgp_callers::request::Caller;

/// The roots of an agent changed, or an agent with roots came or went: servers that asked for roots are
/// told, unless there are so many agents with roots that they get none, before and after.
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
