//! `mgp/access/*` (MGP §5.4), as methods and as tools of the kernel: for the operator, and within limits
//! for agents that negotiated access control.

mod cluster;
mod conditions;

use std::sync::Arc;

use mgp_cluster::replication::RequestedBy;
use mgp_engine::doors::name_resolver::{ResolvedName, ServerOrTool};
use mgp_engine::policy::access::{
    self, ChangeRequest, GrantRequest, GrantRequestError, Principal, hidden_query_response,
};
use mgp_engine::policy::grants::GrantChange;
use mgp_engine::tools::catalog::{CatalogTool, CatalogView};
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mgp::access::{
    AccessList, AccessStatus, Entry, EntryType, Explain, Explanation, Grant, Granted, List,
    Permission, Query, Revoke, Revoked, Source,
};
use mgp_protocol::mgp::matches_method;
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::mgp::permission::PermissionType;
use mgp_protocol::refusal::Refusal;

use self::cluster::ClusterDecision;
use crate::Context;
use crate::answer::json_outcome;
use crate::mcpl;
use crate::name_sources::{self, NameSources};
use crate::replicas;
use mgp_callers::request::{Caller, Outcome, Request, identity};
use mgp_runtime::time::unix_ms;

/// One of `mgp/access/*`: a method, and a tool of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessTool {
    /// `mgp/access/query`.
    Query,
    /// `mgp/access/grant`.
    Grant,
    /// `mgp/access/revoke`.
    Revoke,
    /// `mgp/access/list`.
    List,
    /// `mgp/access/explain`.
    Explain,
}

impl AccessTool {
    pub(super) const ALL: [Self; 5] = [
        Self::Query,
        Self::Grant,
        Self::Revoke,
        Self::List,
        Self::Explain,
    ];

    pub(super) const fn method(self) -> &'static str {
        match self {
            Self::Query => Query::METHOD,
            Self::Grant => Grant::METHOD,
            Self::Revoke => Revoke::METHOD,
            Self::List => List::METHOD,
            Self::Explain => Explain::METHOD,
        }
    }
}

/// The tool of that name or spelling, when it is one for this caller.
pub(super) fn find_tool(caller: &Caller, name: &str) -> Option<AccessTool> {
    let mut all = AccessTool::ALL.into_iter();
    let tool = all.find(|tool| matches_method(tool.method(), name))?;
    let agreed = caller.mgp.features().contains(Features::ACCESS_CONTROL);
    (caller.operator || agreed).then_some(tool)
}

/// `mgp/access/*` as a method.
///
/// # Errors
/// [`Refusal::Forbidden`] for who may not ask; [`Refusal::BadParams`].
pub async fn answer(cx: &Context, request: &Request, tool: AccessTool) -> Outcome {
    execute(cx, request, tool, request.params.as_deref()).await
}

/// What the method answers, whichever way it was called.
pub(super) async fn execute(
    cx: &Context,
    request: &Request,
    tool: AccessTool,
    params: Option<&str>,
) -> Outcome {
    let who = request.caller.identity();
    if tool == AccessTool::Query {
        return query(cx, &request.caller, &who, mcp::parse_params(params)?);
    }
    // First, so that a caller that may not ask learns nothing from errors about its params.
    access::authorize(&who, GrantRequest::Administer).map_err(GrantRequestError::into_refusal)?;
    match tool {
        AccessTool::Query => Err(Refusal::UnknownMethod(tool.method().to_owned())),
        AccessTool::Grant => grant(cx, request, who, mcp::parse_params(params)?).await,
        AccessTool::Revoke => revoke(cx, request, who, mcp::parse_params(params)?).await,
        AccessTool::List => list_entries(cx, mcp::parse_params(params)?).await,
        AccessTool::Explain => explain(cx, mcp::parse_params(params)?).await,
    }
}

/// An agent that may not know gets the same answer for what is denied and what does not exist.
fn query(cx: &Context, caller: &Caller, who: &Principal, mut query: Query) -> Outcome {
    if caller.operator {
        query.agent_id = resolve_grantee(&cx.name_sources, &query.agent_id)?;
    }
    access::authorize(who, GrantRequest::Query(&query.agent_id))
        .map_err(GrantRequestError::into_refusal)?;
    let server = ServerId::new(query.server_id);
    let tool = query.tool_name.as_deref().filter(|tool| !tool.is_empty());
    let table = cx.policies.access.table();
    let about = if caller.operator {
        Principal::Agent(AgentId::new(query.agent_id))
    } else {
        // Its own identity, with the limits of this connection.
        who.clone()
    };
    let decision = table.decide(&about, &server, tool, unix_ms());
    let standing = match caller.operator {
        false if !exists(cx, &server, tool) => hidden_query_response(),
        false
            if !cx.policies.access.should_reveal_denials() && table.lease(&decision).is_none() =>
        {
            hidden_query_response()
        }
        _ => decision.to_query_response(),
    };
    let reveals =
        caller.operator || cx.policies.access.should_reveal_denials() && exists(cx, &server, tool);
    let when = tool.filter(|_| reveals && decision.is_conditional);
    let when = when.map(|tool| {
        table
            .conditions(&about, &server, tool, unix_ms())
            .describe()
    });
    json_outcome(&AccessStatus { when, ..standing })
}

fn exists(cx: &Context, server: &ServerId, tool: Option<&str>) -> bool {
    let view = CatalogView::One(server.clone());
    let known = cx.servers.load().contains_key(server);
    let has = |tool| cx.catalog.load().catalog.tool(&view, tool).is_some();
    known && tool.is_none_or(has)
}

async fn grant(cx: &Context, request: &Request, by: Principal, mut grant: Grant) -> Outcome {
    let there = grant.yet_unknown == Some(false);
    let about = if grant.entry_type == EntryType::GroupMember {
        GrantTarget::resolve_member(&cx.name_sources, &grant.agent_id, &grant.server_id, there)?
    } else {
        GrantTarget::resolve(
            &cx.name_sources,
            &grant.agent_id,
            &grant.server_id,
            grant.tool_name.as_deref(),
            there,
        )?
    };
    if let Some(when) = &grant.when {
        conditions::check(cx, when, &about.place, &about.agent)?;
    }
    grant.agent_id = about.agent.to_string();
    grant.server_id = about.place.server.to_string();
    let mut notes = about.notes;
    let is_own = cluster::can_deny_locally(&about.agent, &about.place.server);
    let (changes, confirmed) = if is_own && grant.permission == Permission::Deny {
        notes.push(cluster::LOCAL_DENIAL_NOTE.to_owned());
        (grant_locally(cx, request, by, grant).await?, None)
    } else if cluster::is_cluster_entry(&about.agent, &about.place.server) {
        let own = is_own.then(|| cluster::to_revoke(&grant)).transpose()?;
        grant.agent_id = cluster::group_at(about.agent, &about.place.server).to_string();
        let decided = cluster::grant(cx, to_requester(request, by.clone()), grant).await?;
        if let Some(own) = own {
            revoke_locally(cx, request, by, own).await?;
        }
        notes.extend(decided.notes);
        (decided.changes, decided.confirmations)
    } else {
        (grant_locally(cx, request, by, grant).await?, None)
    };
    let mut granted = changes.iter().filter_map(|change| match change {
        GrantChange::Grant(grant) => Some(grant),
        GrantChange::Revoke(_) => None,
    });
    let Some(granted) = granted.next() else {
        return Err(Refusal::Internal("a grant that is none".into()));
    };
    let replaced = changes.iter().flat_map(GrantChange::revoked_ids);
    json_outcome(&Granted {
        grant_id: granted.id.to_string(),
        replaced: replaced.map(ToString::to_string).collect(),
        confirmed,
        notes,
    })
}

fn to_requester(request: &Request, principal: Principal) -> RequestedBy {
    RequestedBy {
        principal,
        trace: request.trace.id.clone(),
    }
}

async fn grant_locally(
    cx: &Context,
    request: &Request,
    by: Principal,
    grant: Grant,
) -> Result<Vec<GrantChange>, Refusal> {
    let change = ChangeRequest::Grant(Box::new(grant), cx.name_sources.nodes.others());
    let trace = request.trace.id.clone();
    cx.policies.access.record(by, trace, change).await
}

async fn revoke(cx: &Context, request: &Request, by: Principal, mut revoke: Revoke) -> Outcome {
    revoke.agent_id = resolve_grantee(&cx.name_sources, &revoke.agent_id)?;
    if revoke.entry_type == EntryType::GroupMember {
        let group = cx
            .name_sources
            .name_resolver()
            .resolve_group(&revoke.server_id);
        let group = name_sources::require_name(group, false)?;
        revoke.server_id = group.value.to_string();
    }
    let (agent, server) = (
        AgentId::new(&*revoke.agent_id),
        ServerId::new(&*revoke.server_id),
    );
    let own = if cluster::can_deny_locally(&agent, &server) {
        revoke_locally(cx, request, by.clone(), revoke.clone()).await?
    } else {
        Vec::new()
    };
    let decided = match cluster::is_cluster_entry(&agent, &server) {
        _ if !own.is_empty() => ClusterDecision {
            changes: own,
            confirmations: None,
            notes: vec![cluster::LOCAL_DENIAL_ENDED_NOTE.to_owned()],
        },
        true => {
            revoke.agent_id = cluster::group_at(agent, &server).to_string();
            cluster::revoke(cx, to_requester(request, by), revoke).await?
        }
        false => ClusterDecision {
            changes: revoke_locally(cx, request, by, revoke).await?,
            confirmations: None,
            notes: Vec::new(),
        },
    };
    let revoked = decided.changes.iter().flat_map(GrantChange::revoked_ids);
    json_outcome(&Revoked {
        revoked: revoked.map(ToString::to_string).collect(),
        confirmed: decided.confirmations,
        notes: decided.notes,
    })
}

async fn revoke_locally(
    cx: &Context,
    request: &Request,
    by: Principal,
    revoke: Revoke,
) -> Result<Vec<GrantChange>, Refusal> {
    let change = ChangeRequest::Revoke(revoke, cx.name_sources.nodes.others());
    let trace = request.trace.id.clone();
    cx.policies.access.record(by, trace, change).await
}

/// All entries of this node and of the cluster of one kind, or all grants.
pub(super) async fn list_all(
    cx: &Context,
    entry_type: Option<EntryType>,
) -> Result<Vec<Entry>, Refusal> {
    let list = serde_json::json!({ "entry_type": entry_type });
    let list = mcp::parse_params(Some(&list.to_string()))?;
    list_matching(cx, list).await
}

async fn list_matching(cx: &Context, list: List) -> Result<Vec<Entry>, Refusal> {
    let of_others = cluster::list_entries(cx, &list).await?;
    let names = cx.name_sources.nodes.others();
    let mut entries = cx.policies.access.list(list, names).await?;
    entries.extend(of_others);
    Ok(entries)
}

async fn list_entries(cx: &Context, mut list: List) -> Outcome {
    if let Some(agent) = &mut list.agent_id {
        *agent = resolve_grantee(&cx.name_sources, agent)?;
    }
    let entries = list_matching(cx, list).await?;
    let known = cx.name_sources.name_resolver();
    let grants = entries.iter();
    let grants = grants.filter(|entry| entry.entry_type != EntryType::GroupMember);
    let unknown = grants.filter_map(|entry| {
        let place = known.resolve_parts(&entry.server_id, entry.tool_name.as_deref());
        let why = place.and_then(ResolvedName::require_existing).err()?;
        Some(format!("an entry of {}: {why}", entry.agent_id))
    });
    let notes: Vec<String> = unknown.collect();
    json_outcome(&AccessList { entries, notes })
}

async fn explain(cx: &Context, explain: Explain) -> Outcome {
    let target = GrantTarget::resolve(
        &cx.name_sources,
        &explain.agent_id,
        &explain.server_id,
        explain.tool_name.as_deref(),
        false,
    )?;
    if target.agent.is_pattern() {
        let why = "an explanation is about one agent: name it, as in alice@desk";
        return Err(Refusal::BadParams(why.into()));
    }
    let (agent, place) = (target.agent.clone(), target.place.clone());
    let unseen = unseen_claims(cx, &agent);
    let explained = if cluster::is_cluster_entry(&agent, &place.server) {
        cluster::explain(cx, target).await?
    } else {
        Explanation {
            notes: target.notes,
            ..explain_locally(cx, target.agent, target.place).await?
        }
    };
    let explained = match &explain.arguments {
        Some(arguments) => conditions::apply(cx, &agent, &place, arguments, explained).await?,
        None => explained,
    };
    let called = describe_visible_name(cx, &place);
    // Those of other nodes name the server they call.
    let places = if agent.is_remote() {
        Vec::new()
    } else {
        replicas::describe_replicas(cx, &agent, &place.server, place.tool.as_deref())
    };
    let own = place.tool.as_deref();
    let scopes = own.map(|own| mcpl::call::explain(cx, &place.server, own));
    let scopes = scopes.unwrap_or_default();
    let handle = cx.servers.load().get(&place.server).cloned();
    let guards = handle.and_then(|handle| handle.describe_guard());
    let guards: Vec<_> = guards
        .map(|guard| format!("its results are guarded here: {guard}"))
        .into_iter()
        .collect();
    let is_allowed = explained.permission == Permission::Allow || !explained.conditions.is_empty();
    json_outcome(&Explanation {
        notes: [explained.notes, unseen, called, places, scopes, guards].concat(),
        waits: is_allowed.then(|| pending_approval(cx, &place)).flatten(),
        ..explained
    })
}

/// That the claims of an agent's tokens may give it groups that are not known now.
fn unseen_claims(cx: &Context, agent: &AgentId) -> Vec<String> {
    let mut groups = cx.name_sources.configured_groups.values();
    let is_mapped = groups.any(|claims| !claims.is_empty());
    let is_seen = agent.is_remote() || !cx.name_sources.directory.claimed_groups(agent).is_empty();
    let note = "groups that its token gives it count, and are known here while it has a session";
    let is_unseen = is_mapped && !is_seen;
    is_unseen.then(|| note.to_owned()).into_iter().collect()
}

/// What the operator has yet to approve before a call of this can be made.
fn pending_approval(cx: &Context, place: &ServerOrTool) -> Option<String> {
    let server = &place.server;
    let handle = cx.servers.load().get(server).cloned();
    if handle.is_some_and(|handle| handle.status().awaits_operator) {
        return Some(format!("server {server} waits for the operator's approval"));
    }
    let tool = place.tool.as_deref()?;
    if cx.policies.pins.is_blocked(server, tool) {
        return Some(format!(
            "the changed definition of {} waits for the operator's approval",
            place.canonical_name()
        ));
    }
    let shown = cx.catalog.load();
    let offered = shown.catalog.offer(server)?.tools().iter();
    let tool = offered.into_iter().find(|it| *it.own_name == *tool)?;
    let needs = &tool.requirements.permissions;
    let lacking = cx.policies.permissions.find_missing(server, needs)?;
    let names = lacking.permissions.iter().map(PermissionType::as_str);
    let names: Vec<&str> = names.collect();
    lacking.is_pending.then(|| {
        let place = place.canonical_name();
        format!(
            "{place} needs {}, which waits for the operator's approval",
            names.join(", ")
        )
    })
}

/// That agents are shown the tool under another name.
fn describe_visible_name(cx: &Context, place: &ServerOrTool) -> Vec<String> {
    let shown = cx.catalog.load();
    let tool = || {
        shown
            .catalog
            .tool(&CatalogView::All, &place.canonical_name())
    };
    let tool = place.tool.as_ref().and_then(|_| tool());
    let tool = tool.filter(|tool| tool.exposed_name != tool.own_name);
    let note = |tool: &Arc<CatalogTool>| format!("agents are shown it as {}", tool.merged_name);
    tool.map(note).into_iter().collect()
}

/// What this node's own entries and defaults decide.
async fn explain_locally(
    cx: &Context,
    agent: AgentId,
    place: ServerOrTool,
) -> Result<Explanation, Refusal> {
    let (access, about) = (&cx.policies.access, place.clone());
    let claimed = cx.name_sources.directory.claimed_groups(&agent);
    let who = identity(&agent, false, &CatalogView::All, &claimed);
    let explained = access.explain(who.clone(), about.server, about.tool);
    let (explained, table) = (explained.await?, access.table());
    let Some((_, set)) = table.excluding_set(&who, &place.server, place.tool.as_deref()) else {
        return Ok(explained);
    };
    let rule = format!(
        "{} is held to the set {set} (`set` in [agents.*]), which does not have it",
        who.name()
    );
    Ok(Explanation {
        permission: Permission::Deny,
        source: Source::DefaultPolicy,
        considered: [vec![rule.clone()], explained.considered].concat(),
        rule,
        ..explained
    })
}

/// The agent and the server or tool that a request is about.
struct GrantTarget {
    agent: AgentId,
    place: ServerOrTool,
    /// Which of the names do not exist.
    notes: Vec<String>,
}

impl GrantTarget {
    /// Reads the names of an entry that puts an agent into a group. The first member makes the group.
    fn resolve_member(
        name_sources: &NameSources,
        agent: &str,
        group: &str,
        there: bool,
    ) -> Result<Self, Refusal> {
        let known = name_sources.name_resolver();
        let agent = name_sources::require_name(known.resolve_grantee(agent), there)?;
        let group = name_sources::require_name(known.resolve_group(group), false)?;
        if agent.value.as_str() == AgentId::ALL && !group.value.is_pattern() {
            let why =
                "every agent of this node: `default_group` in [access] of mgp.toml is for that";
            return Err(Refusal::BadParams(why.into()));
        }
        let is_new = group.unknown.is_some();
        let new = is_new.then(|| format!("{} is new", group.value));
        let unknown = agent.unknown.map(|unknown| unknown.to_string());
        Ok(Self {
            agent: agent.value,
            place: ServerOrTool {
                server: ServerId::new(group.value.as_str()),
                tool: None,
            },
            notes: [unknown, new].into_iter().flatten().collect(),
        })
    }

    /// Reads the names of a request; with `there`, only existing ones are allowed.
    fn resolve(
        name_sources: &NameSources,
        agent: &str,
        server: &str,
        tool: Option<&str>,
        there: bool,
    ) -> Result<Self, Refusal> {
        let known = name_sources.name_resolver();
        let agent = name_sources::require_name(known.resolve_grantee(agent), there)?;
        let tool = tool.filter(|tool| !tool.is_empty());
        let place = name_sources::require_name(known.resolve_parts(server, tool), there)?;
        let notes = [agent.unknown, place.unknown].into_iter().flatten();
        Ok(Self {
            notes: notes.map(|unknown| unknown.to_string()).collect(),
            agent: agent.value,
            place: place.value,
        })
    }
}

/// The id of whom an entry is for, whether somebody is called so or not.
fn resolve_grantee(name_sources: &NameSources, name: &str) -> Result<String, Refusal> {
    let agent =
        name_sources::require_name(name_sources.name_resolver().resolve_grantee(name), false)?;
    Ok(agent.value.to_string())
}
