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
use mgp_protocol::mgp::health::Health;
use mgp_protocol::refusal::Refusal;
use serde_json::value::RawValue;

pub use self::search::search;
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

/// Whether the server declares skills.
pub(crate) fn declares_skills(cx: &Context, server: &ServerId) -> bool {
    let shown = cx.catalog.load();
    shown.peers.get(server).is_some_and(|peer| {
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

/// Whose answer a list is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListSource {
    /// Servers that run are asked.
    Servers,
    /// Only those are asked whose skills are not known.
    KnownFirst,
}

/// The skills of these servers, in their order.
pub(crate) async fn list_all(
    cx: &Context,
    request: &Request,
    servers: &[ServerId],
    source: ListSource,
) -> Vec<Vec<StoredSkill>> {
    let mut listed = Vec::new();
    for some in servers.chunks(CONCURRENT_MAX) {
        let mut listing = Vec::new();
        for server in some {
            // The owner of a server decides for each caller.
            let is_known = !server.is_remote() && cx.skills.knows(server);
            let one: BoxFuture<'_, _> = match source {
                ListSource::KnownFirst if is_known => {
                    Box::pin(std::future::ready(cx.skills.listed(server)))
                }
                ListSource::KnownFirst | ListSource::Servers => {
                    Box::pin(list_skills(cx, request, server))
                }
            };
            listing.push(one);
        }
        listed.extend(join_all(listing).await);
    }
    listed
}

/// The skills of a server: it is asked if it runs; otherwise, and if that fails, its last list counts. Of a server of
/// another node no list does: the owner decides for each caller what is in it.
pub(crate) async fn list_skills(
    cx: &Context,
    request: &Request,
    server: &ServerId,
) -> Vec<StoredSkill> {
    if is_reachable(cx, server) {
        let listing = tokio::time::timeout(LIST_TIMEOUT, list_server(cx, request, server));
        if let Ok(Ok(listed)) = listing.await {
            return listed;
        }
    }
    last_list(cx, server).await
}

async fn last_list(cx: &Context, server: &ServerId) -> Vec<StoredSkill> {
    if server.is_remote() {
        return Vec::new();
    }
    if !cx.skills.knows(server) {
        cx.skills.load(cx, server).await;
    }
    cx.skills.listed(server)
}

/// Whether the server can answer now, without being started.
fn is_reachable(cx: &Context, server: &ServerId) -> bool {
    let servers = cx.servers.load();
    let handle = servers.get(server);
    handle.is_some_and(|handle| {
        let is_away = server.is_remote() && handle.health() == Some(Health::Unhealthy);
        handle.link().is_some() && !is_away
    })
}

/// The last list of a server that sleeps; empty for any other one, and for one that never listed any: it has to be asked.
pub(crate) async fn list_sleeping(cx: &Context, server: &ServerId) -> Vec<StoredSkill> {
    let servers = cx.servers.load();
    let handle = servers.get(server);
    match handle.is_some_and(|handle| handle.status().is_asleep()) {
        true => last_list(cx, server).await,
        false => Vec::new(),
    }
}

/// Lists the skills of servers of which none are known yet, so that it is known which resources are theirs.
pub(crate) async fn learn_all(cx: &Context, request: &Request) {
    let servers = unlisted_servers(cx, &request.caller);
    list_all(cx, request, &servers, ListSource::Servers).await;
}

/// The servers with skills of this view whose skills are not known yet. A list of another node leaves out what is closed
/// there.
pub(crate) fn unlisted_servers(cx: &Context, caller: &Caller) -> Vec<ServerId> {
    let mut servers = skill_servers(cx, caller);
    servers.retain(|server| !server.is_remote() && !cx.skills.knows(server));
    servers
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
    let is_whole = !server.is_remote();
    let recorded = cx.skills.record(cx, server, &entries, is_whole).await?;
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
