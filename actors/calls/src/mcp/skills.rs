//! Skills of servers (SEP-2640): listed together, read under the name of their server, and verified on read.
//!
//! A skill is named by its server and its own URI, in grants, sets and pins as well. Its files are open to whoever may use
//! the innermost skill that they belong to.

use std::sync::Arc;

use bytes::Bytes;
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_engine::tools::catalog::CatalogView;
use mgp_engine::tools::skills;
use mgp_engine::tools::uris;
use mgp_json::{member, quote, set_members, unquote};
use mgp_protocol::ids::ServerId;
use mgp_protocol::jsonrpc::METHOD_NOT_FOUND;
use mgp_protocol::mcp::extensions::is_specified_for;
use mgp_protocol::mcp::meta::SKILLS;
use mgp_protocol::mcp::{self, resources};
use mgp_protocol::mgp::audit::{Event, EventType, Outcome as Ending, Target};
use mgp_protocol::refusal::Refusal;
use serde_json::{Map, json};

use crate::Context;
use crate::answer::{parse_string, require_params};
use crate::audit;
use crate::checks::access;
use crate::relayed::Relayed;
use crate::skills::{
    ListSource, declares_skills, items, list_all, list_skills, list_sleeping, send_list,
    skill_servers,
};
use mgp_callers::request::{Caller, Outcome, Request};
use mgp_runtime::time::unix_ms;

/// Most bytes of all servers' lists together; entries beyond it are left out.
const LIST_BYTES_MAX: usize = 8 << 20;

/// Verifies what was read of a server, by its own URI, against the digests of its skills. A file that differs is refused and
/// recorded; the next `skills/get` or `skills/list` brings the digests of its new content.
///
/// # Errors
/// [`Refusal::Forbidden`] for content that differs.
pub(crate) fn verify(
    cx: &Context,
    request: &Request,
    (server, uri): (&ServerId, &str),
    result: Bytes,
) -> Outcome {
    let Err((uri, mismatch)) = cx.skills.verify(server, uri, &result) else {
        return Ok(result);
    };
    let mut details = Map::new();
    details.insert("uri".into(), json!(uri));
    details.insert("reason".into(), json!(mismatch.to_string()));
    cx.audit.record(Event {
        timestamp: render_rfc3339_ms(unix_ms()),
        trace_id: request.trace.id.clone(),
        event_type: EventType::SKILL_REJECTED,
        actor: audit::caller_actor(&request.caller),
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

/// True if the methods of skills exist for this caller: they are specified for its version, and some server has skills. The
/// operator uses them in a session.
#[must_use]
pub fn is_offered(cx: &Context, caller: &Caller) -> bool {
    caller.operator
        || is_specified_for(SKILLS, caller.version) && !skill_servers(cx, caller).is_empty()
}

/// Lists the skills of the server that a URI of a merged view names, if that was not done yet. A server that the caller may
/// not know of is not asked: the time that takes would show that it exists.
pub(crate) async fn learn(cx: &Context, request: &Request, uri: &str) {
    let caller = &request.caller;
    let named = uris::unwrap_skill(uri).filter(|_| caller.view.is_merged());
    if let Some((server, _)) = named
        && !cx.skills.knows(&server)
        && declares_skills(cx, &server)
        && access::can_see_server(cx, caller, &server)
    {
        list_skills(cx, request, &server).await;
    }
}

/// The skill of a file of a server with skills, once the server's entries are known. `None` for any other resource.
///
/// # Errors
/// [`Refusal::UnknownResource`] for a file of a skill that is closed to the caller, and for a URI that the server may take for
/// another one.
pub(crate) async fn admit_file(
    cx: &Context,
    request: &Request,
    (server, own): (&ServerId, &str),
    shown: &str,
) -> Result<Option<Arc<str>>, Refusal> {
    let caller = &request.caller;
    if !cx.skills.knows(server) {
        if !declares_skills(cx, server) {
            return Ok(None);
        }
        list_skills(cx, request, server).await;
    }
    let unknown = || Refusal::UnknownResource(shown.to_owned());
    if cx.skills.has_any(server) && skills::has_dot_segments(own) {
        return Err(unknown());
    }
    let skill = cx.skills.find_skill(server, own);
    match skill {
        Some(skill) if !access::can_use_skill(cx, &caller.identity(), server, &skill) => {
            Err(unknown())
        }
        skill => Ok(skill),
    }
}

/// The server and its own URI of a skill's file that the server does not list as a resource.
pub(crate) fn find_unlisted_file(
    cx: &Context,
    caller: &Caller,
    uri: &str,
) -> Option<(ServerId, String)> {
    let (server, own) = match &caller.view {
        CatalogView::One(server) => (server.clone(), uri.to_owned()),
        CatalogView::All | CatalogView::Set(_) => uris::unwrap_skill(uri)?,
    };
    cx.skills.find_skill(&server, &own)?;
    access::is_resource_open(cx, caller, &server, &own).then_some((server, own))
}

/// `skills/list`: of one server as it is, of several in one list. Of a server that fails or sleeps, its last list counts.
///
/// # Errors
/// [`Refusal::UnknownMethod`] without a server with skills; at the endpoint of one server, its own error.
pub async fn list(cx: &Context, request: &Request) -> Outcome {
    let params = request.params.as_deref().unwrap_or("{}");
    let servers = skill_servers(cx, &request.caller);
    audit::run_audited(cx, request, async |facts| {
        facts.set_request(&request.method, request, None);
        cx.policies.count_call(&request.caller)?;
        if let (CatalogView::One(_), [only]) = (&request.caller.view, &*servers) {
            facts.set_server(only);
            return list_page(cx, request, only, params).await;
        }
        if member(params, "cursor").is_some() {
            return Err(Refusal::BadCursor);
        }
        let (mut skills, mut bytes) = (Vec::new(), 0);
        let listed = list_all(cx, request, &servers, ListSource::Servers).await;
        for (server, listed) in servers.iter().zip(listed) {
            for skill in listed {
                bytes += skill.text.len();
                if bytes <= LIST_BYTES_MAX
                    && access::can_use_skill(cx, &request.caller.identity(), server, &skill.uri)
                {
                    skills.extend(skills::wrap_uris(&[&skill.text], server));
                }
            }
        }
        Ok(render_list(&skills))
    })
    .await
}

/// A list that the kernel made. Servers come and go, so it may not be cached.
fn render_list(skills: &[impl AsRef<str>]) -> Bytes {
    let skills: Vec<&str> = skills.iter().map(AsRef::as_ref).collect();
    let skills = skills.join(",");
    format!(r#"{{"resultType":"complete","skills":[{skills}],"ttlMs":0,"cacheScope":"private"}}"#)
        .into()
}

/// A page of a server at its own endpoint, without skills that are closed to the caller. A server that sleeps is not woken:
/// its last list counts, if there is one.
async fn list_page(cx: &Context, request: &Request, server: &ServerId, params: &str) -> Outcome {
    if member(params, "cursor").is_none() {
        let mut last = list_sleeping(cx, server).await;
        if !last.is_empty() {
            let who = request.caller.identity();
            last.retain(|skill| access::can_use_skill(cx, &who, server, &skill.uri));
            let last: Vec<_> = last.into_iter().map(|skill| skill.text).collect();
            return Ok(render_list(&last));
        }
    }
    let page = send_list(cx, request, server, params).await?;
    let text = std::str::from_utf8(&page).unwrap_or_default();
    let all = items(text, "skills");
    let is_whole = !server.is_remote()
        && member(params, "cursor").is_none()
        && member(text, "nextCursor").is_none();
    let recorded = cx.skills.record(cx, server, &all, is_whole).await?;
    let open = all.iter().zip(&recorded).filter(|(_, recorded)| {
        let uri = recorded.as_ref();
        uri.is_ok_and(|uri| access::can_use_skill(cx, &request.caller.identity(), server, uri))
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

/// `skills/get`: the entry of one skill.
///
/// # Errors
/// [`Refusal::UnknownResource`] for a URI of no skill that is open to the caller; the server's own error.
pub async fn get(cx: &Context, request: &Request) -> Outcome {
    let target = SkillRequest::read(cx, request)?;
    let SkillRequest { server, own, .. } = &target;
    let result = match target.relay(cx, request, Some(own)).await {
        Err(refusal) if is_unknown_method(&refusal) => target.find_listed(cx, request).await?,
        answer => answer?,
    };
    let text = std::str::from_utf8(&result).unwrap_or_default();
    let Some(skill) = member(text, "skill") else {
        return Ok(result);
    };
    let recorded = cx.skills.record(cx, server, &[skill], false).await?;
    let bad = |why: &skills::BadSkill| Refusal::Forbidden(format!("server {server}: {why}"));
    let uri = recorded[0].as_ref().map_err(bad)?;
    if !access::can_use_skill(cx, &request.caller.identity(), server, uri) {
        return Err(target.unknown());
    }
    match target.is_own {
        true => Ok(result),
        false => {
            let wrapped = skills::wrap_uris(&[skill], server);
            Ok(set_members(text, &[("skill", &wrapped[0])]).into())
        }
    }
}

/// `resources/directory/read`: the children of a directory.
///
/// # Errors
/// As [`get`].
pub async fn read_directory(cx: &Context, request: &Request) -> Outcome {
    let target = SkillRequest::read(cx, request)?;
    let SkillRequest { server, own, .. } = &target;
    let of = (server, &*format!("{own}/"));
    let skill = admit_file(cx, request, of, &target.shown).await?;
    let result = target.relay(cx, request, skill.as_deref()).await?;
    let text = std::str::from_utf8(&result).unwrap_or_default();
    let all = items(text, "resources");
    let is_open = |child: &&&str| {
        let uri = member(child, "uri").and_then(unquote).unwrap_or_default();
        let within = format!("{uri}/");
        access::is_resource_open(cx, &request.caller, server, &uri)
            && access::is_resource_open(cx, &request.caller, server, &within)
    };
    let open: Vec<&str> = all.iter().filter(is_open).copied().collect();
    if target.is_own && open.len() == all.len() {
        return Ok(result);
    }
    let open = match target.is_own {
        true => open.join(","),
        false => skills::wrap_uris(&open, server).join(","),
    };
    Ok(set_members(text, &[("resources", &format!("[{open}]"))]).into())
}

/// What a request about a URI is about.
struct SkillRequest {
    server: ServerId,
    /// The server's own URI.
    own: String,
    /// The client knows the server's own URIs.
    is_own: bool,
    /// As the client wrote it.
    shown: String,
}

impl SkillRequest {
    fn read(cx: &Context, request: &Request) -> Result<Self, Refusal> {
        let about: resources::ResourceParams<'_> =
            mcp::parse_params(Some(require_params(request)?))?;
        let shown = parse_string(about.uri, "uri")?;
        let caller = &request.caller;
        let (server, own, is_own) = match &caller.view {
            CatalogView::One(server) => (server.clone(), shown.clone(), true),
            CatalogView::All | CatalogView::Set(_) => {
                let (server, own) = uris::unwrap_skill(&shown)
                    .ok_or_else(|| Refusal::UnknownResource(shown.clone()))?;
                (server, own, false)
            }
        };
        let target = Self {
            server,
            own,
            is_own,
            shown,
        };
        let is_visible = caller.view.includes(&target.server)
            && declares_skills(cx, &target.server)
            && access::can_see_server(cx, caller, &target.server);
        if !is_visible || skills::has_dot_segments(&target.own) {
            return Err(target.unknown());
        }
        Ok(target)
    }

    fn unknown(&self) -> Refusal {
        Refusal::UnknownResource(self.shown.clone())
    }

    /// The entry of the server's list, as a result: for servers without `skills/get`.
    async fn find_listed(&self, cx: &Context, request: &Request) -> Outcome {
        let listed = list_skills(cx, request, &self.server).await;
        let skill = listed.into_iter().find(|skill| *skill.uri == *self.own);
        let skill = skill.ok_or_else(|| {
            Refusal::BadParams(format!(
                "server {} does not answer `skills/get`, and does not list {}",
                self.server, self.own
            ))
        })?;
        let text = skill.text;
        let result = format!(
            r#"{{"resultType":"complete","skill":{text},"ttlMs":0,"cacheScope":"private"}}"#
        );
        Ok(result.into())
    }

    /// Sends the request with the server's own URI; `skill` is what the caller must be allowed to use.
    async fn relay(&self, cx: &Context, request: &Request, skill: Option<&str>) -> Outcome {
        let params = require_params(request)?;
        let about: resources::ResourceParams<'_> = mcp::parse_params(Some(params))?;
        audit::run_audited(cx, request, async |facts| {
            facts.set_request(&request.method, request, request.params.as_deref());
            facts.set_server(&self.server);
            cx.policies.count_call(&request.caller)?;
            let relayed = Relayed {
                server: &self.server,
                tool: skill,
                method: &request.method,
                params,
                edit: (about.uri.get(), &quote(&self.own)),
                unknown: self.unknown(),
            };
            relayed.send(cx, request).await
        })
        .await
    }
}

fn is_unknown_method(refusal: &Refusal) -> bool {
    let code = refusal.relayed_error().and_then(|it| member(it, "code"));
    code.is_some_and(|code| code.parse() == Ok(METHOD_NOT_FOUND))
        || matches!(refusal, Refusal::UnknownMethod(_))
}
