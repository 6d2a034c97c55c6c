//! `notifications/roots/list_changed`.

use crate::Context;
use mgp_callers::request::Caller;

/// The roots of an agent changed, or an agent with roots came or went: servers that asked for roots are
/// told, unless there are so many agents with roots that they get none, before and after.
pub fn handle_roots_changed(cx: &Context, caller: &Caller) {
    if !caller.capabilities.roots {
        return;
    }
    for upstream in cx.upstreams(caller) {
        upstream.notify_roots_changed(caller, &cx.directory);
    }
}
