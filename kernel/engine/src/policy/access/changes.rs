//! Changes of the grants that are requested, as data, and the decisions about them.

use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::access;
use mgp_protocol::mgp::permission::{PermissionType, Verdict};

use super::{
    DefaultPolicies, GrantRequestError, Principal, grant, grant_to_creator, revoke,
    revoke_server_grants,
};
use crate::node_names::NodeNames;
use crate::policy::grants::{Authority, GrantChange, GrantId, Grants};
use crate::policy::permissions;

/// What a decision is based on.
#[derive(Debug)]
pub struct GrantRecords<'a> {
    /// All grants.
    pub grants: &'a Grants,
    /// The keys whose operations count.
    pub authority: &'a Authority,
    /// The default policies.
    pub defaults: &'a DefaultPolicies,
    /// The time, in milliseconds since 1970.
    pub now_ms: u64,
    /// The id for a new grant.
    pub new_id: GrantId,
}

/// A requested change.
#[derive(Clone, Debug)]
pub enum ChangeRequest {
    /// `mgp/access/grant`, with the names of other nodes.
    Grant(Box<access::Grant>, NodeNames),
    /// `mgp/access/revoke`, with the names of other nodes.
    Revoke(access::Revoke, NodeNames),
    /// Allow an agent to call the server that it registered.
    GrantToCreator(AgentId, ServerId),
    /// Revoke what is granted on a server that is removed.
    RevokeServer(ServerId),
    /// Record the operator's decision on a permission of a server.
    SetPermission {
        /// The server.
        server: ServerId,
        /// The permission.
        permission: PermissionType,
        /// The decision.
        verdict: Verdict,
        /// When it ends, in milliseconds since 1970.
        until_ms: Option<u64>,
    },
}

impl ChangeRequest {
    /// The changes to record; none where nothing has to change. Each is one entry of the journal, on disk completely
    /// or not at all, so what belongs together is one change.
    ///
    /// # Errors
    /// [`GrantRequestError`]; then nothing may be recorded.
    pub fn decide(
        &self,
        principal: &Principal,
        records: &GrantRecords<'_>,
    ) -> Result<Vec<GrantChange>, GrantRequestError> {
        let (grants, authority) = (records.grants, records.authority);
        let (id, now_ms) = (records.new_id, records.now_ms);
        match self {
            Self::Grant(request, names) => {
                grant(request, principal, names, grants, authority, id, now_ms)
            }
            Self::Revoke(request, names) => revoke(request, principal, names, grants, authority),
            Self::GrantToCreator(agent, server) => {
                grant_to_creator(agent, server, grants, authority, id)
            }
            Self::RevokeServer(server) => Ok(revoke_server_grants(server, grants, authority)),
            Self::SetPermission {
                server,
                permission,
                verdict,
                until_ms,
            } => {
                let change = permissions::to_grant_change(
                    grants, authority, server, permission, *verdict, *until_ms, id,
                );
                Ok(change.into_iter().collect())
            }
        }
    }
}
