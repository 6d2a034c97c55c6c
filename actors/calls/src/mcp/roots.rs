//! `notifications/roots/list_changed`.

use crate::Context;
use mgp_callers::request::Caller;

/// The roots of an agent changed, or an agent with roots connected or disconnected. Servers that requested roots are
/// notified, unless there are too many agents with roots both before and after, so that they get none.
pub fn handle_roots_changed(cx: &Context, caller: &Caller) {
    if !caller.capabilities.roots {
        return;
    }
    for upstream in cx.upstreams(caller) {
        upstream.notify_roots_changed(caller, &cx.directory);
    }
}
