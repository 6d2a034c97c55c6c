//! The four lists: bytes that were made when the catalog was published, how long they may be kept, and how
//! long a request waits for servers that start for the first time: many clients ask once and never again.

pub mod exposure;
pub mod filtered;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mgp_engine::tools::catalog::freshness::{Freshness, Scope};
use mgp_engine::tools::catalog::{CatalogView, ListKind, Outlook};
use mgp_protocol::dialect::Era;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::meta::SERVER_INFO;
use mgp_protocol::mcp::{self, ServerCapabilities};
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::refusal::Refusal;

use crate::Context;
use crate::answer::kernel_info;
use crate::checks::access;
use crate::mcp::lists::exposure::before;
use crate::mcp::own_resources::with_own;
use crate::mgp::discovery;
use mgp_callers::request::{Caller, Outcome, Request};
use mgp_runtime::time::moment;
use mgp_servers::link::List;
use mgp_servers::server::ServerHandle;
use mgp_tools::catalog::Shown;

/// A list that is stale is fetched again no sooner than this after the last time, however often
/// clients ask and however short a time its server promised.
const REFETCH: Duration = Duration::from_secs(1);

/// `tools/list` and its three sisters: bytes that were made when the catalog was published.
///
/// # Errors
/// [`Refusal::BadCursor`], [`Refusal::BadParams`].
pub fn list(cx: &Context, request: &Request, kind: ListKind) -> Outcome {
    let listing: mcp::Listing<'_> = mcp::read(request.params.as_deref())?;
    let version = request.caller.version;
    let shown = cx.shown.load();
    let cursor = listing.cursor.as_deref();
    let page = filtered::page(cx, &shown, &request.caller, kind, cursor)
        .map_err(|_| Refusal::BadCursor)?;
    let page = with_own(page, &request.caller, kind, listing.cursor.is_none());
    let page = match kind {
        ListKind::Tools if listing.cursor.is_none() => {
            let security = request.caller.mgp.features();
            let security = security.contains(Features::TOOL_SECURITY);
            before(
                page,
                &discovery::registering_tools(cx, &request.caller, security),
            )
        }
        ListKind::Tools | ListKind::Prompts | ListKind::Resources | ListKind::Templates => page,
    };
    match version.era() {
        Era::Legacy => Ok(page),
        Era::Modern => Ok(complete_page(
            &page,
            freshness(cx, &shown, &request.caller, kind),
        )),
    }
}

/// A page as a stateless client gets it, with how long it may be kept (MCP 2026-07-28, caching).
fn complete_page(page: &[u8], freshness: Freshness) -> Bytes {
    let tail = format!(
        r#","resultType":"complete","ttlMs":{},"cacheScope":"{}","_meta":{{"{SERVER_INFO}":{}}}}}"#,
        freshness.ttl_ms,
        freshness.scope.as_str(),
        kernel_info()
    );
    let open = page.strip_suffix(b"}").unwrap_or(page);
    [open, tail.as_bytes()].concat().into()
}

/// How long a list may be kept. What a server that says when it changes promised holds from now
/// on, for the kernel would know better; what another promised holds from when it was fetched,
/// and is fetched again when that is over. A list that lacks a server that is still starting is stale
/// at once.
fn freshness(cx: &Context, shown: &Shown, caller: &Caller, kind: ListKind) -> Freshness {
    let view = &caller.view;
    let mut freshness = shown.catalog.freshness(view, kind);
    if !cx.policies.access.table().is_uniform() {
        freshness.scope = Scope::Private;
    }
    for (server, peer) in &shown.peers {
        let told = tells(&peer.capabilities, kind);
        if told || peer.version.is_legacy() || !view.shows(server) {
            continue;
        }
        let Some(fetched) = shown.fetched.get(server).map(|at| at[kind as usize]) else {
            continue;
        };
        let Some(promised) = shown.catalog.freshness_of(server, kind) else {
            continue;
        };
        let age = moment().since(fetched);
        let left = promised.remaining(age);
        if left.ttl_ms == 0 && age >= REFETCH {
            refetch(cx, server, kind);
        }
        freshness = freshness.and(left);
    }
    if lacks_some(cx, caller) {
        freshness.ttl_ms = 0;
    }
    freshness
}

fn refetch(cx: &Context, server: &ServerId, kind: ListKind) {
    let list = match kind {
        ListKind::Tools => List::Tools,
        ListKind::Prompts => List::Prompts,
        ListKind::Resources | ListKind::Templates => List::Resources,
    };
    if let Some(handle) = cx.servers.load().get(server) {
        handle.refresh(list);
    }
}

fn tells(can: &ServerCapabilities, kind: ListKind) -> bool {
    match kind {
        ListKind::Tools => can.tools_list_changed,
        ListKind::Prompts => can.prompts_list_changed,
        ListKind::Resources | ListKind::Templates => can.resources_list_changed,
    }
}

/// A list, once the servers that are just starting are there, or their moment is over.
///
/// # Errors
/// As of [`Context::list`], and [`Refusal::Cancelled`].
pub async fn list_with_newcomers(cx: &Context, request: &Request, kind: ListKind) -> Outcome {
    let newcomers = newcomers(cx, &request.caller);
    let arriving = async {
        // Each has its own deadline, whoever is waited for first.
        for newcomer in &newcomers {
            newcomer.arrives().await;
        }
    };
    tokio::select! {
        () = arriving => list(cx, request, kind),
        () = request.exchange.cancelled() => Err(Refusal::Cancelled),
    }
}

/// Whether a list of the caller's would lack a server that is just starting.
#[must_use]
pub fn awaits_newcomers(cx: &Context, caller: &Caller) -> bool {
    any(cx, caller, ServerHandle::is_new)
}

/// Whether lists of the caller's lack a server that has not been there yet and comes, however long
/// that takes.
pub(crate) fn lacks_some(cx: &Context, caller: &Caller) -> bool {
    any(cx, caller, |server| server.outlook() == Outlook::First)
}

fn newcomers(cx: &Context, caller: &Caller) -> Vec<Arc<ServerHandle>> {
    let servers = cx.servers.load();
    let mut all: Vec<_> = match &caller.view {
        CatalogView::All => servers.values().cloned().collect(),
        CatalogView::One(only) => servers.get(only).cloned().into_iter().collect(),
    };
    all.retain(|server| server.is_new() && access::sees(cx, caller, &server.id));
    all
}

/// Whether a server that the caller may see is like this: what is hidden from it shows nowhere.
fn any(cx: &Context, caller: &Caller, is: impl Fn(&ServerHandle) -> bool) -> bool {
    let servers = cx.servers.load();
    let is = |server: &Arc<ServerHandle>| is(server) && access::sees(cx, caller, &server.id);
    match &caller.view {
        CatalogView::All => servers.values().any(is),
        CatalogView::One(only) => servers.get(only).is_some_and(is),
    }
}
