//! Requests to access control: who may make them, and the operations they produce.

use mgp_protocol::ids::{AgentId, BadGroupName, GroupName, NodeId, ServerId};
use mgp_protocol::mgp::access::{self, BadTarget, EntryType, Permission, target};
use mgp_protocol::refusal::Refusal;
use mgp_screening::conditions::{Condition, ConditionError};

use super::explain::CLUSTER_GROUP;
use super::{GROUPS_OF_AGENT_MAX, Principal};
use crate::node_names::NodeNames;
use crate::policy::grants::{
    Authority, BadOperation, Grant, GrantChange, GrantId, GrantResource, Grants, IDS_MAX,
    LoggedGrant, Revoke, Subject,
};
use crate::policy::tool_pattern::ToolPattern;
use crate::timestamps::parse_rfc3339;

/// Most grants with patterns. Each is compared with every revocation, and with the others for the same caller on each
/// call; a person can review that many.
pub(crate) const PATTERNS_MAX: usize = 256;

/// Most grants with conditions: each is compiled, and a person can review that many.
pub(crate) const CONDITIONS_MAX: usize = 256;

/// The part of a request that determines who may make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantRequest<'a> {
    /// `mgp/access/query` about this agent.
    Query(&'a str),
    /// `mgp/access/grant`, `revoke`, `list`, `explain`.
    Administer,
}

/// Why a request is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantRequestError {
    /// The caller may not make this request.
    #[error("{caller} may not do this; only the operator grants, revokes, lists and explains")]
    NotOperator {
        /// The caller.
        caller: String,
    },
    /// An agent may only query itself.
    #[error("{caller} may ask about itself only, not about {about}")]
    NotSelf {
        /// The caller.
        caller: String,
        /// The other agent.
        about: String,
    },
    /// `entry_type` and `tool_name` contradict each other.
    #[error(transparent)]
    Target(#[from] BadTarget),
    /// It is not a valid time.
    #[error("`expires_at` is no RFC 3339 time such as 2026-03-01T00:00:00Z: {0:?}")]
    BadTime(String),
    /// It has expired already.
    #[error("`expires_at` {0} has passed already")]
    AlreadyExpired(String),
    /// A name or text is too long or empty.
    #[error(transparent)]
    Form(#[from] BadOperation),
    /// The server's node is unknown.
    #[error("no node of the cluster is called {0:?}")]
    UnknownNode(String),
    /// A pattern for all agents of this node at one of its servers: local rules name single agents.
    #[error(
        "all agents of this node are not granted its own servers together: `default_policy` in [access] of mgp.toml is for that"
    )]
    AllLocalAgents,
    /// A pattern of tools for an agent of this node at one of its servers.
    #[error(
        "{0:?}: several tools are granted together to agents of other nodes only; name each tool, or the server"
    )]
    LocalPattern(String),
    /// There are [`PATTERNS_MAX`] already.
    #[error(
        "there are {PATTERNS_MAX} grants with patterns already; revoke some of them, `mgp grants list` lists them"
    )]
    TooManyPatterns,
    /// There are [`CONDITIONS_MAX`] already.
    #[error(
        "there are {CONDITIONS_MAX} grants with conditions already; revoke some of them, `mgp grants list` lists them"
    )]
    TooManyConditions,
    /// There are [`GROUPS_OF_AGENT_MAX`] already.
    #[error("an agent is in {GROUPS_OF_AGENT_MAX} groups at most")]
    TooManyGroups,
    /// A name that no group can have.
    #[error(transparent)]
    BadGroup(#[from] BadGroupName),
    /// Its condition cannot be read.
    #[error("the condition cannot be read, {0}")]
    BadCondition(#[from] ConditionError),
    /// Too many entries of this kind to replace in one step.
    #[error("there are more than {IDS_MAX} such entries; revoke them first")]
    TooMany,
}

impl GrantRequestError {
    /// As the caller reads it.
    #[must_use]
    pub fn into_refusal(self) -> Refusal {
        let words = self.to_string();
        match self {
            Self::NotOperator { .. } | Self::NotSelf { .. } => Refusal::Forbidden(words),
            Self::Target(_)
            | Self::BadTime(_)
            | Self::AlreadyExpired(_)
            | Self::Form(_)
            | Self::UnknownNode(_)
            | Self::AllLocalAgents
            | Self::LocalPattern(_)
            | Self::TooManyPatterns
            | Self::TooManyConditions
            | Self::TooManyGroups
            | Self::BadGroup(_)
            | Self::BadCondition(_)
            | Self::TooMany => Refusal::BadParams(words),
        }
    }
}

/// Checks that the caller may make this request. Agents never administer, whatever they claim.
///
/// # Errors
/// [`GrantRequestError::NotOperator`], [`GrantRequestError::NotSelf`].
pub fn authorize(principal: &Principal, asked: GrantRequest<'_>) -> Result<(), GrantRequestError> {
    let Some(agent) = principal.agent() else {
        return Ok(());
    };
    let who = agent.to_string();
    match asked {
        GrantRequest::Query(about) if about == agent.as_str() => Ok(()),
        GrantRequest::Query(about) => Err(GrantRequestError::NotSelf {
            caller: who,
            about: about.to_owned(),
        }),
        GrantRequest::Administer => Err(GrantRequestError::NotOperator { caller: who }),
    }
}

/// The operations of `mgp/access/grant`: the new entry, which replaces all earlier ones for the same agent and the
/// same server or tool. An entry with a pattern is of a kind that older builds do not know, so a separate revoke
/// before it ends the earlier ones. `id` is random and new. A server of another node is prefixed with the node's
/// name, an agent of another node is suffixed with the node's id: the operation contains the full ids.
///
/// # Errors
/// [`GrantRequestError`]; then nothing may be recorded.
pub fn grant(
    request: &access::Grant,
    principal: &Principal,
    names: &NodeNames,
    grants: &Grants,
    authority: &Authority,
    id: GrantId,
    now_ms: u64,
) -> Result<Vec<GrantChange>, GrantRequestError> {
    authorize(principal, GrantRequest::Administer)?;
    let (subject, resource) = parse_target(
        (authority.local_node(), names),
        request.entry_type,
        &request.agent_id,
        &request.server_id,
        request.tool_name.as_deref(),
    )?;
    let not_after_ms = request
        .expires_at
        .as_deref()
        .map(|text| parse_expiry(text, now_ms));
    let grant = Grant {
        id,
        replaces: Vec::new(),
        subject,
        resource,
        permission: request.permission,
        not_after_ms: not_after_ms.transpose()?,
        told_by: request.granted_by.clone().filter(|by| !by.is_empty()),
        justification: request.justification.clone(),
        when: request.when.clone(),
    };
    if let Some(when) = &grant.when {
        Condition::compile(when)?;
    }
    replace_standing(grant, grants, authority)
}

/// The operations when an agent has registered a server: it may call it, and the operator decides about others. None
/// where the operator denied it, so that registering again does not undo that.
///
/// # Errors
/// [`GrantRequestError`]; then nothing may be recorded.
pub(crate) fn grant_to_creator(
    agent: &AgentId,
    server: &ServerId,
    grants: &Grants,
    authority: &Authority,
    id: GrantId,
) -> Result<Vec<GrantChange>, GrantRequestError> {
    let here = authority.local_node();
    let denied_subject = Subject::Agent(here.agent(agent.clone()));
    let denied_resource = GrantResource::Server(here.server(server.clone()));
    let standing = grants.unrevoked(&denied_subject, &denied_resource, authority);
    if standing
        .iter()
        .any(|granted| granted.grant.permission == Permission::Deny)
    {
        return Ok(Vec::new());
    }
    // The server is of this node.
    let (subject, resource) = parse_target(
        (here, &NodeNames::default()),
        EntryType::ServerGrant,
        agent.as_str(),
        server.as_str(),
        None,
    )?;
    let grant = Grant {
        id,
        replaces: Vec::new(),
        when: None,
        subject,
        resource,
        permission: Permission::Allow,
        not_after_ms: None,
        told_by: None,
        justification: Some("it registered the server".to_owned()),
    };
    replace_standing(grant, grants, authority)
}

/// The operations by which a new entry replaces the earlier ones for the same agent and the same server or tool. The
/// earlier ones end after an entry that may close what they opened.
fn replace_standing(
    mut grant: Grant,
    grants: &Grants,
    authority: &Authority,
) -> Result<Vec<GrantChange>, GrantRequestError> {
    let standing = grants.unrevoked(&grant.subject, &grant.resource, authority);
    if standing.len() > IDS_MAX {
        return Err(GrantRequestError::TooMany);
    }
    let replaced = standing.iter().map(|granted| granted.grant.id);
    let mut changes = Vec::new();
    let count = |is_such: fn(&Grant) -> bool| count_such(grants, authority, is_such);
    if standing.is_empty() && grant.is_pattern() && count(Grant::is_pattern) >= PATTERNS_MAX {
        return Err(GrantRequestError::TooManyPatterns);
    }
    if standing.is_empty()
        && grant.is_conditional()
        && count(Grant::is_conditional) >= CONDITIONS_MAX
    {
        return Err(GrantRequestError::TooManyConditions);
    }
    if standing.is_empty() && grant.joined_group().is_some() {
        let all = grants.for_subject(&grant.subject);
        let joined = all.filter(|it| it.grant.joined_group().is_some());
        let joined = joined.filter(|it| !grants.is_revoked(it, authority));
        if joined.count() >= GROUPS_OF_AGENT_MAX {
            return Err(GrantRequestError::TooManyGroups);
        }
    }
    // A build that does not know the kind of an entry does not start with a journal that has one.
    let can_replace = !grant.has_own_kind() || is_local(&grant, authority.local_node());
    if can_replace {
        grant.replaces = replaced.collect();
    } else if !standing.is_empty() {
        changes.push(GrantChange::Revoke(Revoke::Ids(replaced.collect())));
    }
    grant.check()?;
    check_local_grant(&grant, authority.local_node())?;
    let place = if grant.can_close() { 0 } else { changes.len() };
    changes.insert(place, GrantChange::Grant(grant));
    Ok(changes)
}

/// Whether an entry is about an agent of this node and one of its servers.
fn is_local(grant: &Grant, here: NodeId) -> bool {
    let at_home = grant.resource.server().is_some_and(|on| on.node == here);
    at_home && matches!(&grant.subject, Subject::Agent(agent) if agent.node == here)
}

/// The number of unrevoked grants of a kind.
fn count_such(grants: &Grants, authority: &Authority, is_such: fn(&Grant) -> bool) -> usize {
    let all = grants.iter().filter(|granted| is_such(&granted.grant));
    all.filter(|granted| !grants.is_revoked(granted, authority))
        .count()
}

/// Local grants have no patterns.
fn check_local_grant(grant: &Grant, here: NodeId) -> Result<(), GrantRequestError> {
    let at_home = grant.resource.server().is_some_and(|on| on.node == here);
    match (&grant.subject, &grant.resource) {
        (Subject::AgentsAt(node), _) if at_home && *node == here => {
            Err(GrantRequestError::AllLocalAgents)
        }
        (Subject::Agent(agent), GrantResource::Tool(_, tool))
            if at_home && agent.node == here && tool.ends_with('*') =>
        {
            Err(GrantRequestError::LocalPattern(tool.clone()))
        }
        _ => Ok(()),
    }
}

/// The grants with patterns, and those of the agent's groups, that still allow all of what a revoke names: a revoke ends
/// only grants with exactly the same subject and resource. None where it ends a denial.
///
/// # Errors
/// [`GrantRequestError`].
pub fn remaining_pattern_grants<'a>(
    request: &access::Revoke,
    names: &NodeNames,
    grants: &'a Grants,
    authority: &Authority,
) -> Result<Vec<&'a LoggedGrant>, GrantRequestError> {
    let (subject, resource) = parse_target(
        (authority.local_node(), names),
        request.entry_type,
        &request.agent_id,
        &request.server_id,
        request.tool_name.as_deref(),
    )?;
    let standing = grants.unrevoked(&subject, &resource, authority);
    let denies = |granted: &&LoggedGrant| granted.grant.permission == Permission::Deny;
    if !standing.is_empty() && standing.iter().all(denies) {
        return Ok(Vec::new());
    }
    let goes_on = |granted: &&LoggedGrant| {
        let grant = &granted.grant;
        let same = grant.subject == subject && grant.resource == resource;
        grant.is_pattern()
            && !same
            && grant.permission == Permission::Allow
            && grant.subject.includes(&subject)
            && grant.resource.includes(&resource)
            && !grants.is_revoked(granted, authority)
    };
    let groups = grants.overlapping_grants(&subject).filter_map(|granted| {
        let joins = granted.grant.subject.includes(&subject)
            && !subject.is_group()
            && !grants.is_revoked(granted, authority);
        granted.grant.joined_group().filter(|_| joins)
    });
    let groups = groups.flat_map(|group| grants.for_subject(&Subject::cluster_group(group)));
    let of_groups = groups.filter(|granted| {
        granted.grant.permission == Permission::Allow
            && granted.grant.resource.includes(&resource)
            && !grants.is_revoked(granted, authority)
    });
    let patterns = grants.overlapping_grants(&subject).filter(goes_on);
    Ok(patterns.chain(of_groups).collect())
}

/// The operations of `mgp/access/revoke`; none when there is no such entry.
///
/// # Errors
/// [`GrantRequestError`]; then nothing may be recorded.
pub fn revoke(
    request: &access::Revoke,
    principal: &Principal,
    names: &NodeNames,
    grants: &Grants,
    authority: &Authority,
) -> Result<Vec<GrantChange>, GrantRequestError> {
    authorize(principal, GrantRequest::Administer)?;
    let (subject, resource) = parse_target(
        (authority.local_node(), names),
        request.entry_type,
        &request.agent_id,
        &request.server_id,
        request.tool_name.as_deref(),
    )?;
    let standing = grants.unrevoked(&subject, &resource, authority);
    let ids: Vec<GrantId> = standing.iter().map(|granted| granted.grant.id).collect();
    let parts = ids.chunks(IDS_MAX).map(<[GrantId]>::to_vec);
    Ok(parts
        .map(|ids| GrantChange::Revoke(Revoke::Ids(ids)))
        .collect())
}

/// The revocations when a server is removed: all allowing entries for it and all its permissions, so that another
/// server of its name starts without. Denials remain.
#[must_use]
pub(crate) fn revoke_server_grants(
    server: &ServerId,
    grants: &Grants,
    authority: &Authority,
) -> Vec<GrantChange> {
    let server = &authority.local_node().server(server.clone());
    let about = |grant: &Grant| {
        grant.resource.server() == Some(server)
            || matches!(&grant.subject, Subject::Server(its) if its == server)
    };
    let allowed = grants.iter().filter(|granted| {
        let grant = &granted.grant;
        grant.permission == Permission::Allow
            && about(grant)
            && !grants.is_revoked(granted, authority)
    });
    let ids: Vec<GrantId> = allowed.map(|granted| granted.grant.id).collect();
    let parts = ids.chunks(IDS_MAX).map(<[GrantId]>::to_vec);
    parts
        .map(|ids| GrantChange::Revoke(Revoke::Ids(ids)))
        .collect()
}

fn parse_target(
    (here, names): (NodeId, &NodeNames),
    entry_type: EntryType,
    agent: &str,
    server: &str,
    tool: Option<&str>,
) -> Result<(Subject, GrantResource), GrantRequestError> {
    let subject = Subject::from_agent_id(&AgentId::new(agent), here);
    if entry_type == EntryType::GroupMember {
        target(entry_type, tool)?;
        let group = server.strip_suffix(CLUSTER_GROUP).unwrap_or(server);
        return Ok((subject, GrantResource::Group(GroupName::parse(group)?)));
    }
    let server = ServerId::new(server);
    let server = match server.remote_parts() {
        Some((node, own)) => match names.get(node) {
            Some(node) => node.server(own),
            None => return Err(GrantRequestError::UnknownNode(node.to_owned())),
        },
        None => here.server(server),
    };
    let of_home = matches!(&subject, Subject::Agent(agent) if agent.node == here);
    let pattern = |tool: &str| {
        let in_cluster = server.node != here || !of_home;
        let pattern = ToolPattern::try_from(tool.to_owned()).ok()?;
        (in_cluster && pattern.prefix().is_some()).then_some(pattern)
    };
    let resource = match target(entry_type, tool)? {
        Some(tool) => match pattern(tool) {
            Some(all) if all.is_all() => GrantResource::Server(server),
            Some(pattern) => GrantResource::Tools(server, pattern),
            None => GrantResource::Tool(server, tool.to_owned()),
        },
        None => GrantResource::Server(server),
    };
    Ok((subject, resource))
}

fn parse_expiry(text: &str, now_ms: u64) -> Result<u64, GrantRequestError> {
    let end = parse_rfc3339(text).ok_or_else(|| GrantRequestError::BadTime(text.to_owned()))?;
    if end <= now_ms {
        return Err(GrantRequestError::AlreadyExpired(text.to_owned()));
    }
    Ok(end)
}
