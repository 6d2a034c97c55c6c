//! Skills of servers (SEP-2640): listed together, read under the name of their server, and verified on read.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_engine::tools::catalog::CatalogView;
use mgp_engine::tools::skills::{self, SkillDigests};
use mgp_engine::tools::uris;
use mgp_json::{elements, member, quote, set_members};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::extensions::{is_specified_for, relayed_extensions};
use mgp_protocol::mcp::meta::{SKILLS, progress_token};
use mgp_protocol::mcp::{self, resources};
use mgp_protocol::mgp::audit::{Event, EventType, Outcome as Ending, Target};
use mgp_protocol::refusal::Refusal;
use serde_json::value::RawValue;
use serde_json::{Map, json};

use crate::Context;
use crate::answer::{parse_string, require_params};
use crate::audit;
use crate::checks::access;
use mgp_callers::request::{Caller, Outcome, Request};
use mgp_runtime::time::unix_ms;
use mgp_servers::upstream::{HeaderParams, Outgoing, may_hold_mgp};

/// Most pages of one server's list.
const PAGES_MAX: usize = 32;
/// Most bytes of all servers' lists together; entries beyond it are left out.
const LIST_BYTES_MAX: usize = 8 << 20;

/// The digests of files of skills that were listed or got.
#[derive(Debug, Default)]
pub struct SkillTable(Mutex<SkillDigests>);

impl SkillTable {
    fn record(&self, server: &ServerId, entries: &[&str]) {
        let mut digests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries
            .iter()
            .for_each(|entry| digests.record(server, entry));
    }
}

/// Verifies what was read of a server, by its own URI, against the digests of its skills. A file that differs is refused and recorded; the
/// next `skills/get` or `skills/list` brings the digests of its new content.
///
/// # Errors
/// [`Refusal::Forbidden`] for content that differs.
pub(crate) fn verify(
    cx: &Context,
    caller: &Caller,
    (server, uri): (&ServerId, &str),
    result: Bytes,
) -> Outcome {
    let mismatch = {
        let digests = cx.skills.0.lock().unwrap_or_else(PoisonError::into_inner);
        if digests.is_empty() {
            return Ok(result);
        }
        let text = std::str::from_utf8(&result).unwrap_or_default();
        digests.verify(server, uri, text)
    };
    let Err((uri, mismatch)) = mismatch else {
        return Ok(result);
    };
    let mut details = Map::new();
    details.insert("uri".into(), json!(uri));
    details.insert("reason".into(), json!(mismatch.to_string()));
    cx.audit.record(Event {
        timestamp: render_rfc3339_ms(unix_ms()),
        trace_id: mgp_runtime::trace::Trace::from_params(None, None).id,
        event_type: EventType::SKILL_REJECTED,
        actor: audit::caller_actor(caller),
        target: Target {
            server_id: Some(server.to_string()),
            tool_name: None,
            agent_id: None,
        },
        result: Ending::Blocked,
        details,
    });
    Err(Refusal::Forbidden(format!(
        "{uri} of server {server} is not the file of its skill: {mismatch}; call `skills/get` for its current entry"
    )))
}

/// Whether the server declares skills, and is open to the caller. Skills are not relayed to other nodes.
fn has_skills(cx: &Context, caller: &Caller, server: &ServerId) -> bool {
    let shown = cx.catalog.load();
    let peer = shown
        .peers
        .get(server)
        .filter(|_| !server.is_remote() && !caller.agent.is_remote());
    peer.is_some_and(|peer| {
        let extensions = relayed_extensions(&peer.raw_capabilities);
        extensions.iter().any(|(id, _)| *id == SKILLS)
    }) && access::is_server_open(cx, caller, server)
}

/// The servers with skills of this view.
fn skill_servers(cx: &Context, caller: &Caller) -> Vec<ServerId> {
    let shown = cx.catalog.load();
    let servers = shown.peers.keys().filter(|id| caller.view.includes(id));
    servers
        .filter(|id| has_skills(cx, caller, id))
        .cloned()
        .collect()
}

/// True if the methods of skills exist for this caller: they are specified for its version, and some server has skills. The
/// operator uses them in a session.
#[must_use]
pub fn is_offered(cx: &Context, caller: &Caller) -> bool {
    caller.operator
        || is_specified_for(SKILLS, caller.version) && !skill_servers(cx, caller).is_empty()
}

/// `skills/list`: of one server as it is, of several in one list. A server that fails is left out.
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
            let page = send(cx, request, only, params, ("", "")).await?;
            let text = std::str::from_utf8(&page).unwrap_or_default();
            cx.skills.record(only, &items(text, "skills"));
            return Ok(page);
        }
        if member(params, "cursor").is_some() {
            return Err(Refusal::BadCursor);
        }
        let mut skills: Vec<String> = Vec::new();
        let mut bytes = 0;
        for server in &servers {
            for entry in list_of_server(cx, request, server, params).await {
                bytes += entry.len();
                if bytes <= LIST_BYTES_MAX {
                    skills.push(entry);
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

/// All entries of one server, as visible in a merged view.
async fn list_of_server(
    cx: &Context,
    request: &Request,
    server: &ServerId,
    params: &str,
) -> Vec<String> {
    let (mut entries, mut params) = (Vec::new(), params.to_owned());
    for _ in 0..PAGES_MAX {
        let Ok(page) = send(cx, request, server, &params, ("", "")).await else {
            break;
        };
        let page = String::from_utf8_lossy(&page).into_owned();
        let skills = items(&page, "skills");
        cx.skills.record(server, &skills);
        entries.extend(skills::wrap_uris(&skills, server));
        match member(&page, "nextCursor") {
            Some(cursor) => params = set_members(&params, &[("cursor", cursor)]),
            None => break,
        }
    }
    entries
}

/// `skills/get`: the entry of one skill.
///
/// # Errors
/// [`Refusal::UnknownResource`] for a URI of no server with skills; the server's own error.
pub async fn get(cx: &Context, request: &Request) -> Outcome {
    relay_by_uri(cx, request, |server, own, result| {
        let Some(skill) = member(result, "skill") else {
            return result.to_owned();
        };
        cx.skills.record(server, &[skill]);
        match own {
            true => result.to_owned(),
            false => {
                let wrapped = skills::wrap_uris(&[skill], server);
                set_members(result, &[("skill", &wrapped[0])])
            }
        }
    })
    .await
}

/// `resources/directory/read`: the children of a directory.
///
/// # Errors
/// As [`get`].
pub async fn read_directory(cx: &Context, request: &Request) -> Outcome {
    relay_by_uri(cx, request, |server, own, result| match own {
        true => result.to_owned(),
        false => {
            let wrapped = skills::wrap_uris(&items(result, "resources"), server);
            let resources = format!("[{}]", wrapped.join(","));
            set_members(result, &[("resources", &resources)])
        }
    })
    .await
}

/// Sends a request about a URI to its server, and edits the result; `true` in `edit` if the client knows the server's own
/// URIs.
async fn relay_by_uri(
    cx: &Context,
    request: &Request,
    edit: impl Fn(&ServerId, bool, &str) -> String,
) -> Outcome {
    let params = require_params(request)?;
    let about: resources::ResourceParams<'_> = mcp::parse_params(Some(params))?;
    let uri = parse_string(about.uri, "uri")?;
    let caller = &request.caller;
    let (server, own) = match &caller.view {
        CatalogView::One(server) => (server.clone(), uri.clone()),
        CatalogView::All | CatalogView::Set(_) => {
            uris::unwrap_skill(&uri).ok_or_else(|| Refusal::UnknownResource(uri.clone()))?
        }
    };
    if !has_skills(cx, caller, &server) {
        return Err(Refusal::UnknownResource(uri));
    }
    audit::run_audited(cx, request, async |facts| {
        facts.set_request(&request.method, request, request.params.as_deref());
        facts.set_server(&server);
        cx.policies.rates.count_call(&caller.agent)?;
        let own_json = quote(&own);
        let edited = (about.uri.get(), &*own_json);
        let result = send(cx, request, &server, params, edited).await?;
        let is_own = matches!(caller.view, CatalogView::One(_));
        let text = std::str::from_utf8(&result).unwrap_or_default();
        Ok(edit(&server, is_own, text).into())
    })
    .await
}

async fn send(
    cx: &Context,
    request: &Request,
    server: &ServerId,
    params: &str,
    edit: (&str, &str),
) -> Outcome {
    let unknown = Refusal::UnknownMethod(request.method.to_string());
    let final_check = access::admit(cx, &request.caller, server, None, unknown)?;
    let outgoing = Outgoing {
        tool: None,
        final_check: Some(&final_check),
        method: &request.method,
        params,
        may_hold_mgp: may_hold_mgp(params),
        mcpl: None,
        edit,
        token: progress_token(params)?,
        stream_options: None,
        header_params: HeaderParams::default(),
    };
    cx.upstream(server).send(request, outgoing).await
}

/// The items of a list in a result.
fn items<'a>(result: &'a str, name: &str) -> Vec<&'a str> {
    let items = member(result, name).and_then(elements);
    let items = items.unwrap_or_default().into_iter();
    items.map(RawValue::get).collect()
}
