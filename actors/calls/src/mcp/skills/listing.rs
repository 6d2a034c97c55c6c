//! `skills/list`: of one server page by page, of several in one list.

use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use mgp_engine::tools::catalog::CatalogView;
use mgp_engine::tools::skills::{self, StoredSkill};
use mgp_json::{member, set_members};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::refusal::Refusal;

use super::{can_use, items, skill_servers};
use crate::Context;
use crate::audit;
use crate::mcp::extensions::Relayed;
use mgp_callers::request::{Outcome, Request};

/// Most pages of one server's list.
const PAGES_MAX: usize = 32;
/// Most bytes of all servers' lists together; entries beyond it are left out.
const LIST_BYTES_MAX: usize = 8 << 20;
/// Servers that are asked at once.
const CONCURRENT_MAX: usize = 16;
/// How long a server may take in a list of several; later its last list counts, as of a server that sleeps.
const LIST_TIMEOUT: Duration = Duration::from_secs(2);

/// `skills/list`: of one server as it is, of several in one list. Of a server that fails or sleeps, its last list counts.
///
/// # Errors
/// [`Refusal::UnknownMethod`] without a server with skills; at the endpoint of one server, its own error.
pub async fn list(cx: &Context, request: &Request) -> Outcome {
    let params = request.params.as_deref().unwrap_or("{}");
    let servers = skill_servers(cx, &request.caller);
    audit::run_audited(cx, request, async |facts| {
        facts.set_request(&request.method, request, None);
        cx.policies.rates.count_call(&request.caller.agent)?;
        if let (CatalogView::One(_), [only]) = (&request.caller.view, &*servers) {
            facts.set_server(only);
            return list_page(cx, request, only, params).await;
        }
        if member(params, "cursor").is_some() {
            return Err(Refusal::BadCursor);
        }
        let (mut skills, mut bytes) = (Vec::new(), 0);
        for (server, listed) in servers.iter().zip(list_all(cx, request, &servers).await) {
            for skill in listed {
                bytes += skill.text.len();
                if bytes <= LIST_BYTES_MAX && can_use(cx, &request.caller, server, &skill.uri) {
                    skills.extend(skills::wrap_uris(&[&skill.text], server));
                }
            }
        }
        // Servers come and go, so this answer may not be cached.
        let skills = skills.join(",");
        Ok(format!(
            r#"{{"resultType":"complete","skills":[{skills}],"ttlMs":0,"cacheScope":"private"}}"#
        )
        .into())
    })
    .await
}

/// A page of a server at its own endpoint, without skills that are closed to the caller.
async fn list_page(cx: &Context, request: &Request, server: &ServerId, params: &str) -> Outcome {
    let page = send_list(cx, request, server, params).await?;
    let text = std::str::from_utf8(&page).unwrap_or_default();
    let all = items(text, "skills");
    let is_whole = member(params, "cursor").is_none() && member(text, "nextCursor").is_none();
    let recorded = cx.skills.record(cx, server, &all, is_whole).await?;
    let open = all.iter().zip(&recorded).filter(|(_, recorded)| {
        let uri = recorded.as_ref();
        uri.is_ok_and(|uri| can_use(cx, &request.caller, server, uri))
    });
    let open: Vec<&str> = open.map(|(entry, _)| *entry).collect();
    match open.len() == all.len() {
        true => Ok(page),
        false => {
            let open = format!("[{}]", open.join(","));
            Ok(set_members(text, &[("skills", &open)]).into())
        }
    }
}

/// The skills of these servers, in their order.
pub(super) async fn list_all(
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
pub(super) async fn list_skills(
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
async fn send_list(cx: &Context, request: &Request, server: &ServerId, params: &str) -> Outcome {
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
