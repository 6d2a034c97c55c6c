//! Requests to access control: who may make them, and what they do.

use mgp_protocol::ids::{AgentId, NodeId, ServerId};
use mgp_protocol::mgp::access::{self, BadTarget, EntryType, Permission, target};

use super::Principal;
use crate::policy::grants::{
    Authority, BadOperation, Grant, GrantChange, GrantId, GrantResource, Grants, IDS_MAX, Revoke,
    Subject,
};
use crate::timestamps::parse_rfc3339;

/// The part of a request that decides who may make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantRequest<'a> {
    /// `mgp/access/query` about this agent.
    Query(&'a str),
    /// `mgp/access/grant`, `revoke`, `list`, `explain`.
    Administer,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantRefusal {
    /// The caller may not make this request.
    #[error("{who} may not do this; only the operator grants, revokes, lists and explains")]
    NotOperator {
        /// The caller.
        who: String,
    },
    /// An agent asks about another one.
    #[error("{who} may ask about itself only, not about {about}")]
    NotOneself {
        /// The caller.
        who: String,
        /// The other agent.
        about: String,
    },
    /// `entry_type` and `tool_name` do not go together.
    #[error(transparent)]
    Target(#[from] BadTarget),
    /// Not a valid time.
    #[error("`expires_at` is no RFC 3339 time such as 2026-03-01T00:00:00Z: {0:?}")]
    NoTime(String),
    /// It would expire before it begins.
    #[error("`expires_at` {0} has passed already")]
    Past(String),
    /// A name or text is too long or empty.
    #[error(transparent)]
    Form(#[from] BadOperation),
    /// The server is named with a node that is not there.
    #[error("no node of the cluster is called {0:?}")]
    NoNode(String),
    /// Too many entries of this kind to replace in one step.
    #[error("there are more than {IDS_MAX} such entries; revoke them first")]
    TooMany,
}

impl GrantRefusal {
    /// The code of §14: 1000 PERMISSION_DENIED for a caller without the right, -32602 for a malformed
    /// request.
    #[must_use]
    pub fn code(&self) -> i64 {
        match self {
            Self::NotOperator { .. } | Self::NotOneself { .. } => 1000,
            Self::Target(_)
            | Self::NoTime(_)
            | Self::Past(_)
            | Self::Form(_)
            | Self::NoNode(_)
            | Self::TooMany => mgp_protocol::jsonrpc::INVALID_PARAMS,
        }
    }
}

/// Checks that the caller may make this request. Agents never administer, whatever they claim.
///
/// # Errors
/// [`GrantRefusal::NotOperator`], [`GrantRefusal::NotOneself`].
pub fn may(principal: &Principal, asked: GrantRequest<'_>) -> Result<(), GrantRefusal> {
    let Some(agent) = principal.agent() else {
        return Ok(());
    };
    let who = agent.to_string();
    match asked {
        GrantRequest::Query(about) if about == agent.as_str() => Ok(()),
        GrantRequest::Query(about) => Err(GrantRefusal::NotOneself {
            who,
            about: about.to_owned(),
        }),
        GrantRequest::Administer => Err(GrantRefusal::NotOperator { who }),
    }
}

/// Who has the names by which people know nodes.
pub trait NamesNodes {
    /// The node that is called so here.
    fn node_called(&self, name: &str) -> Option<NodeId>;
}

/// The operation of `mgp/access/grant`: the new entry, which replaces all earlier ones for the same agent
/// and the same server or tool. `id` is random and new. A server of another node has the node's name before its
/// own, an agent of another node the node's id behind its own: both are in the operation by all digits.
///
/// # Errors
/// [`GrantRefusal`] says what is wrong; then nothing may be recorded.
pub fn grant(
    request: &access::Grant,
    principal: &Principal,
    names: &impl NamesNodes,
    grants: &Grants,
    authority: &Authority,
    id: GrantId,
    now_ms: u64,
) -> Result<GrantChange, GrantRefusal> {
    may(principal, GrantRequest::Administer)?;
    let (subject, resource) = entry(
        (authority.here(), names),
        request.entry_type,
        &request.agent_id,
        &request.server_id,
        request.tool_name.as_deref(),
    )?;
    let not_after_ms = request.expires_at.as_deref().map(|text| end(text, now_ms));
    let standing = grants.standing(&subject, &resource, authority);
    if standing.len() > IDS_MAX {
        return Err(GrantRefusal::TooMany);
    }
    let grant = Grant {
        id,
        replaces: standing.iter().map(|granted| granted.grant.id).collect(),
        subject,
        resource,
        permission: request.permission,
        not_after_ms: not_after_ms.transpose()?,
        told_by: request.granted_by.clone().filter(|by| !by.is_empty()),
        justification: request.justification.clone(),
    };
    grant.check()?;
    Ok(GrantChange::Grant(grant))
}

/// The operations of `mgp/access/revoke`; none when there is no such entry.
///
/// # Errors
/// [`GrantRefusal`] says what is wrong; then nothing may be recorded.
pub fn revoke(
    request: &access::Revoke,
    principal: &Principal,
    names: &impl NamesNodes,
    grants: &Grants,
    authority: &Authority,
) -> Result<Vec<GrantChange>, GrantRefusal> {
    may(principal, GrantRequest::Administer)?;
    let (subject, resource) = entry(
        (authority.here(), names),
        request.entry_type,
        &request.agent_id,
        &request.server_id,
        request.tool_name.as_deref(),
    )?;
    let standing = grants.standing(&subject, &resource, authority);
    let ids: Vec<GrantId> = standing.iter().map(|granted| granted.grant.id).collect();
    let parts = ids.chunks(IDS_MAX).map(<[GrantId]>::to_vec);
    Ok(parts
        .map(|ids| GrantChange::Revoke(Revoke::Ids(ids)))
        .collect())
}

/// The revocations when a server is removed: everything allowed on it and every permission it had, so that
/// another server of its name begins without. Denials remain.
#[must_use]
pub fn vacate(server: &ServerId, grants: &Grants, authority: &Authority) -> Vec<GrantChange> {
    let server = &authority.here().server(server.clone());
    let about = |grant: &Grant| {
        let on = match &grant.resource {
            GrantResource::Server(on) | GrantResource::Tool(on, _) => on == server,
            GrantResource::Permission(_) => false,
        };
        on || matches!(&grant.subject, Subject::Server(its) if its == server)
    };
    let allowed = grants.all().filter(|granted| {
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

fn entry(
    (here, names): (NodeId, &impl NamesNodes),
    entry_type: EntryType,
    agent: &str,
    server: &str,
    tool: Option<&str>,
) -> Result<(Subject, GrantResource), GrantRefusal> {
    let server = ServerId::new(server);
    let server = match server.at_node() {
        Some((node, own)) => match names.node_called(node) {
            Some(node) => node.server(own),
            None => return Err(GrantRefusal::NoNode(node.to_owned())),
        },
        None => here.server(server),
    };
    let resource = match target(entry_type, tool)? {
        Some(tool) => GrantResource::Tool(server, tool.to_owned()),
        None => GrantResource::Server(server),
    };
    let agent = AgentId::new(agent);
    let agent = agent.foreign().unwrap_or_else(|| here.agent(agent));
    Ok((Subject::Agent(agent), resource))
}

fn end(text: &str, now_ms: u64) -> Result<u64, GrantRefusal> {
    let end = parse_rfc3339(text).ok_or_else(|| GrantRefusal::NoTime(text.to_owned()))?;
    if end <= now_ms {
        return Err(GrantRefusal::Past(text.to_owned()));
    }
    Ok(end)
}
