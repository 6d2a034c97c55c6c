//! The four lists: prepared when the catalog is published, how long clients may cache them, and how long a request
//! waits for servers that start for the first time, because many clients list only once.

pub(crate) mod exposure;
pub(crate) mod filtered;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mgp_engine::tools::catalog::freshness::{CacheScope, Freshness};
use mgp_engine::tools::catalog::{Availability, CatalogView, ListKind};
use mgp_engine::tools::exposure::Exposure;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::meta::SERVER_INFO;
use mgp_protocol::mcp::{self, ServerCapabilities};
use mgp_protocol::refusal::Refusal;

use crate::Context;
use crate::answer::complete_result;
use crate::checks::access;
use crate::icons;
use crate::mcp::initialize::unavailable_for_node;
use crate::mcp::kernel_resources::add_kernel_entries;
use crate::mcp::lists::exposure::prepend_tools;
use crate::mgp::kernel_tool;
use crate::skills;
use mgp_callers::negotiation::render_kernel_info;
use mgp_callers::request::{Caller, Outcome, Request};
use mgp_runtime::time::monotonic_now;
use mgp_servers::ServerHandle;
use mgp_servers::link::List;
use mgp_tools::PublishedCatalog;

/// The shortest time between two fetches of a stale list, however often clients ask and however short
/// a time its server promised.
const REFETCH_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// Pages of all tools of a caller: with [`Paging`](mgp_engine::tools::catalog::Paging) as it is, 8000 tools or
/// 32 MiB, more than any program reads.
const ALL_PAGES_MAX: usize = 8;

/// Answers `tools/list` and the three like it from what was prepared with the catalog.
///
/// # Errors
/// [`Refusal::BadCursor`], [`Refusal::BadParams`]; [`Refusal::NotReady`] to another node whose server is away.
pub fn list(cx: &Context, request: &Request, kind: ListKind) -> Outcome {
    // An empty list would remove what the node has of the server.
    if let Some(away) = unavailable_for_node(cx, &request.caller) {
        return Err(away);
    }
    let listing: mcp::ListParams<'_> = mcp::parse_params(request.params.as_deref())?;
    let shown = cx.catalog.load();
    let cursor = listing.cursor.as_deref();
    let page = filtered::page(cx, &shown, &request.caller, kind, cursor)
        .map_err(|_| Refusal::BadCursor)?;
    let page = add_kernel_entries(page, &request.caller, kind, listing.cursor.is_none());
    let page = match kind {
        ListKind::Tools if listing.cursor.is_none() => {
            let mut own = kernel_tool::listed_tools(cx, &request.caller);
            own.extend(exposure::describe_search_tools(cx, &shown, &request.caller));
            prepend_tools(page, &own)
        }
        ListKind::Tools | ListKind::Prompts | ListKind::Resources | ListKind::Templates => page,
    };
    let page = icons::with_addresses(cx, &shown, &request.caller, kind, page);
    Ok(complete_result(&request.caller, page, || {
        render_freshness(freshness(cx, &shown, &request.caller, kind))
    }))
}

/// The cache hints of a page for a stateless client (MCP 2026-07-28, caching).
fn render_freshness(freshness: Freshness) -> String {
    format!(
        r#","ttlMs":{},"cacheScope":"{}","_meta":{{"{SERVER_INFO}":{}}}"#,
        freshness.ttl_ms,
        freshness.scope.as_str(),
        render_kernel_info()
    )
}

/// How long clients may cache a list. The promise of a server that announces changes counts from now;
/// that of another one from when the list was fetched, and when it has run out the list is fetched
/// again. A list that lacks a server that is still starting may not be cached.
fn freshness(cx: &Context, shown: &PublishedCatalog, caller: &Caller, kind: ListKind) -> Freshness {
    let view = &caller.view;
    let mut freshness = shown.catalog.freshness(view, kind);
    if !cx.policies.access.table().is_uniform() {
        freshness.scope = CacheScope::Private;
    }
    for (server, peer) in &shown.peers {
        let told = has_change_notifications(&peer.capabilities, kind);
        if told || !peer.declares_freshness() || !view.includes(server) {
            continue;
        }
        let Some(fetched) = shown.fetched.get(server).map(|at| at[kind as usize]) else {
            continue;
        };
        let Some(promised) = shown.catalog.server_freshness(server, kind) else {
            continue;
        };
        let age = monotonic_now().duration_since(fetched);
        let left = promised.remaining(age);
        if left.ttl_ms == 0 && age >= REFETCH_INTERVAL_MIN {
            refetch(cx, server, kind);
        }
        freshness = freshness.combine(left);
    }
    if is_missing_servers(cx, caller) {
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
        handle.refetch_list(list);
    }
}

fn has_change_notifications(can: &ServerCapabilities, kind: ListKind) -> bool {
    match kind {
        ListKind::Tools => can.tools_list_changed,
        ListKind::Prompts => can.prompts_list_changed,
        ListKind::Resources | ListKind::Templates => can.resources_list_changed,
    }
}

/// A list, after servers that are just starting have connected or timed out, and of resources once it is known which of
/// them are files of skills.
///
/// # Errors
/// As of [`Context::list`], and [`Refusal::Cancelled`].
pub async fn list_after_starts(cx: &Context, request: &Request, kind: ListKind) -> Outcome {
    let newcomers = starting_servers(cx, &request.caller);
    let arriving = async {
        // Each has its own deadline, so the order does not matter.
        for newcomer in &newcomers {
            newcomer.wait_for_first_start().await;
        }
        if kind == ListKind::Resources {
            skills::learn_all(cx, request).await;
        }
    };
    tokio::select! {
        () = arriving => list(cx, request, kind),
        () = request.call.wait_until_cancelled() => Err(Refusal::Cancelled),
    }
}

/// The definitions of all tools that the caller may call, however many its list shows of them, as pages of a
/// list; after servers that are just starting, as for a list. At most [`ALL_PAGES_MAX`], for documents about the
/// tools.
///
/// # Errors
/// None that a caller could cause.
pub async fn all_tools(cx: &Context, caller: &Caller) -> Result<Vec<Bytes>, Refusal> {
    for newcomer in &starting_servers(cx, caller) {
        newcomer.wait_for_first_start().await;
    }
    // One edition of the catalog is read to its end: its cursors stay good.
    let shown = cx.catalog.load();
    let (mut pages, mut cursor) = (Vec::new(), None);
    while pages.len() < ALL_PAGES_MAX {
        let asked = (Exposure::All, cursor.as_deref());
        let page = filtered::page_with_exposure(cx, &shown, caller, ListKind::Tools, asked)
            .map_err(|_| Refusal::BadCursor)?;
        let next: NextPage =
            serde_json::from_slice(&page).map_err(|error| Refusal::Internal(error.to_string()))?;
        pages.push(page);
        match next.next_cursor {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    Ok(pages)
}

/// The cursor of a page.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct NextPage {
    #[serde(default)]
    next_cursor: Option<String>,
}

/// Whether the caller's list has to wait: it lacks a server that is just starting, or skills are not known whose files it
/// may have.
#[must_use]
pub fn has_to_wait(cx: &Context, caller: &Caller, kind: ListKind) -> bool {
    has_visible_server(cx, caller, ServerHandle::is_new)
        || kind == ListKind::Resources && !skills::unlisted_servers(cx, caller).is_empty()
}

/// Whether the caller's lists lack a server that has never been connected and is still expected,
/// however long that takes.
pub(crate) fn is_missing_servers(cx: &Context, caller: &Caller) -> bool {
    has_visible_server(cx, caller, |server| {
        server.outlook() == Availability::FirstStart
    })
}

fn starting_servers(cx: &Context, caller: &Caller) -> Vec<Arc<ServerHandle>> {
    let servers = cx.servers.load();
    let mut all: Vec<_> = match &caller.view {
        CatalogView::All | CatalogView::Set(_) => servers.values().cloned().collect(),
        CatalogView::One(only) => servers.get(only).cloned().into_iter().collect(),
    };
    all.retain(|server| server.is_new() && access::can_see_server(cx, caller, &server.id));
    all
}

/// Whether this is true of a server that the caller may see; hidden servers must not show.
fn has_visible_server(cx: &Context, caller: &Caller, is: impl Fn(&ServerHandle) -> bool) -> bool {
    let servers = cx.servers.load();
    let is =
        |server: &Arc<ServerHandle>| is(server) && access::can_see_server(cx, caller, &server.id);
    match &caller.view {
        CatalogView::All | CatalogView::Set(_) => servers.values().any(is),
        CatalogView::One(only) => servers.get(only).is_some_and(is),
    }
}
