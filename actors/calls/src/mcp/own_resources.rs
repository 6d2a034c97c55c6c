//! The kernel's own resources: what waits for the operator, and the last events of channels.

use std::sync::Arc;

use bytes::Bytes;
use mgp_engine::tools::catalog::{CatalogView, ListKind};
use mgp_protocol::mgp::approvals::PENDING_URI;
use mgp_protocol::mgp::events::RESOURCES;
use mgp_protocol::splice::quoted;

use crate::Context;
use crate::answer::whole;
use mgp_callers::request::{Caller, Outcome};
use mgp_policy::approvals;

/// True for a URI of the kernel's own: the list of what waits, which is there for the operator only, and the
/// last events of a channel.
pub(crate) fn is_own(caller: &Caller, uri: &str) -> bool {
    (shows_own(caller) && uri == PENDING_URI) || is_of_events(caller, uri)
}

/// True for the last events of a channel.
pub(crate) fn is_of_events(caller: &Caller, uri: &str) -> bool {
    caller.view == CatalogView::All && uri.starts_with(RESOURCES)
}

/// The answer to `resources/read` of one of them.
pub(crate) async fn read_own(cx: &Context, caller: &Arc<Caller>, uri: &str) -> Outcome {
    let text = match is_of_events(caller, uri) {
        true => cx.events.last(caller, uri).await?,
        false => cx.policies.approvals.text(),
    };
    let (uri, text) = (quoted(uri), quoted(&text));
    let contents =
        format!(r#"{{"contents":[{{"uri":{uri},"mimeType":"application/json","text":{text}}}]}}"#);
    // It changes whenever somebody asks or answers, and with every event.
    let kept = || r#","ttlMs":0,"cacheScope":"private""#.to_owned();
    Ok(whole(caller, contents.into(), kept))
}

fn shows_own(caller: &Caller) -> bool {
    caller.operator && caller.view == CatalogView::All
}

/// The first page of a list, with the kernel's own entries before the servers'.
pub(crate) fn with_own(page: Bytes, caller: &Caller, kind: ListKind, first: bool) -> Bytes {
    const OPEN: &[u8] = br#"{"resources":["#;
    let servers = page.strip_prefix(OPEN);
    let (true, true, ListKind::Resources, Some(servers)) =
        (first, shows_own(caller), kind, servers)
    else {
        return page;
    };
    let comma: &[u8] = match servers.starts_with(b"]") {
        true => b"",
        false => b",",
    };
    let own = approvals::resource();
    [OPEN, own.as_bytes(), comma, servers].concat().into()
}
