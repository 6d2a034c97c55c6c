//! The skills of servers (SEP-2640): which servers have some, their lists, and the search for them.

mod search;

use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use mgp_engine::tools::skills::StoredSkill;
use mgp_json::{elements, member, set_members};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::extensions::relayed_extensions;
use mgp_protocol::mcp::meta::SKILLS;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::refusal::Refusal;
use serde_json::value::RawValue;

pub(crate) use self::search::search;
use crate::Context;
use crate::checks::access;
use crate::relayed::Relayed;
use mgp_callers::request::{Caller, Outcome, Request};

/// Most pages of one server's list.
const PAGES_MAX: usize = 32;
/// Servers that are asked at once.
const CONCURRENT_MAX: usize = 16;
/// How long a server may take in a list of several; later its last list counts, as of a server that sleeps.
const LIST_TIMEOUT: Duration = Duration::from_secs(2);

/// Whether the server declares skills. Those of other nodes are not listed here.
pub(crate) fn declares_skills(cx: &Context, server: &ServerId) -> bool {
    let shown = cx.catalog.load();
    let peer = shown.peers.get(server).filter(|_| !server.is_remote());
    peer.is_some_and(|peer| {
        let extensions = relayed_extensions(&peer.raw_capabilities);
        extensions.iter().any(|(id, _)| *id == SKILLS)
    })
}

/// The servers with skills of this view, of which the caller may know.
pub(crate) fn skill_servers(cx: &Context, caller: &Caller) -> Vec<ServerId> {
    let shown = cx.catalog.load();
    let servers = shown.peers.keys().filter(|id| caller.view.includes(id));
    servers
        .filter(|id| declares_skills(cx, id) && access::can_see_server(cx, caller, id))
        .cloned()
        .collect()
}

/// The skills of these servers, in their order.
pub(crate) async fn list_all(
    cx: &Context,
    request: &Request,
    servers: &[ServerId],
) -> Vec<Vec<StoredSkill>> {
    let mut listed = Vec::new();
    for some in servers.chunks(CONCURRENT_MAX) {
        let mut listing = Vec::new();
        for server in some {
            let one: BoxFuture<'_, _> = Box::pin(list_skills(cx, request, server));
            listing.push(one);
        }
        listed.extend(join_all(listing).await);
    }
    listed
}

/// The skills of a server: it is asked if it runs; otherwise, and if that fails, its last list counts.
pub(crate) async fn list_skills(
    cx: &Context,
    request: &Request,
    server: &ServerId,
) -> Vec<StoredSkill> {
    let handle = cx.servers.load().get(server).cloned();
    let is_running = handle.is_some_and(|handle| handle.link().is_some());
    if is_running {
        let listing = tokio::time::timeout(LIST_TIMEOUT, list_server(cx, request, server));
        if let Ok(Ok(listed)) = listing.await {
            return listed;
        }
    }
    if !cx.skills.knows(server) {
        cx.skills.load(cx, server).await;
    }
    cx.skills.listed(server)
}

/// Asks a server for all its entries, and stores them.
async fn list_server(
    cx: &Context,
    request: &Request,
    server: &ServerId,
) -> Result<Vec<StoredSkill>, Refusal> {
    let meta = request.params.as_deref().and_then(|it| member(it, "_meta"));
    let mut params = meta.map_or("{}".into(), |meta| format!(r#"{{"_meta":{meta}}}"#));
    let mut entries = Vec::new();
    for _ in 0..PAGES_MAX {
        let page = send_list(cx, request, server, &params).await?;
        let page = String::from_utf8_lossy(&page).into_owned();
        entries.extend(items(&page, "skills").into_iter().map(str::to_owned));
        match member(&page, "nextCursor") {
            Some(cursor) => params = set_members(&params, &[("cursor", cursor)]),
            None => break,
        }
    }
    let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
    let recorded = cx.skills.record(cx, server, &entries, true).await?;
    let recorded = recorded.iter().flatten();
    Ok(recorded
        .filter_map(|uri| cx.skills.find(server, uri))
        .collect())
}

/// The kernel lists a server's skills for everyone; what the caller may use is decided for each skill.
pub(crate) async fn send_list(
    cx: &Context,
    request: &Request,
    server: &ServerId,
    params: &str,
) -> Outcome {
    let relayed = Relayed {
        server,
        tool: None,
        method: mcp::skills::List::METHOD,
        params,
        edit: ("", ""),
        unknown: Refusal::UnknownMethod(request.method.to_string()),
    };
    relayed.send_as_kernel(cx, request).await
}

/// The items of a list in a result.
pub(crate) fn items<'a>(result: &'a str, name: &str) -> Vec<&'a str> {
    let items = member(result, name).and_then(elements);
    let items = items.unwrap_or_default().into_iter();
    items.map(RawValue::get).collect()
}
