//! The kernel's own resources, for connections of the operator only.

use bytes::Bytes;
use mgp_engine::tools::catalog::{CatalogView, ListKind};
use mgp_protocol::mgp::approvals::PENDING_URI;
use mgp_protocol::splice::quoted;

use crate::Context;
use crate::answer::whole;
use mgp_callers::request::Caller;
use mgp_policy::approvals;

/// True for a URI of the kernel's own, if the caller is the operator; for agents it does not exist.
pub(crate) fn is_own(caller: &Caller, uri: &str) -> bool {
    shows_own(caller) && uri == PENDING_URI
}

/// The answer to `resources/read` of [`PENDING_URI`].
pub(crate) fn read_own(cx: &Context, caller: &Caller) -> Bytes {
    let text = quoted(&cx.policies.approvals.text()).to_string();
    let contents = format!(
        r#"{{"contents":[{{"uri":"{PENDING_URI}","mimeType":"application/json","text":{text}}}]}}"#
    );
    // It changes whenever somebody asks or answers.
    let kept = || r#","ttlMs":0,"cacheScope":"private""#.to_owned();
    whole(caller, contents.into(), kept)
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
