//! Groups in grants: as the subject, in place of an agent, and as what an agent is in.
//!
//! Such an entry has a kind of its own (`group_grant`), whatever else is in it: a build that does not know it denies what
//! its issuer allowed.

use mgp_protocol::ids::{GroupName, NodeId};
use mgp_protocol::mgp::access::Permission;

use super::{BadOperation, Grant, GrantResource, Subject};

/// The kind of an entry with a group.
pub(in crate::policy::grants) const GROUP_KIND: &str = "group_grant";

impl Subject {
    /// The group that it is.
    #[must_use]
    pub fn group(&self) -> Option<GroupName> {
        match self {
            Self::Agent(agent) => agent.agent.group(),
            Self::AgentEverywhere(agent) => agent.group(),
            Self::Server(_) | Self::AgentsAt(_) => None,
        }
    }

    /// True for a group.
    #[must_use]
    pub(crate) fn is_group(&self) -> bool {
        match self {
            Self::Agent(agent) => agent.agent.is_group(),
            Self::AgentEverywhere(agent) => agent.is_group(),
            Self::Server(_) | Self::AgentsAt(_) => false,
        }
    }

    /// A group as the logs of a cluster name it.
    #[must_use]
    pub(crate) fn cluster_group(group: &GroupName) -> Self {
        Self::AgentEverywhere(group.id())
    }

    /// A group as the own journal of a node names it.
    #[must_use]
    pub(crate) fn local_group(group: &GroupName, here: NodeId) -> Self {
        Self::Agent(here.agent(group.id()))
    }
}

impl Grant {
    /// The group that it makes its subject a member of.
    #[must_use]
    pub fn joined_group(&self) -> Option<&GroupName> {
        match &self.resource {
            GrantResource::Group(group) => Some(group),
            GrantResource::Server(_)
            | GrantResource::Tool(..)
            | GrantResource::Permission(_)
            | GrantResource::Tools(..) => None,
        }
    }

    /// True when it names a group, as its subject or as what its subject is in.
    #[must_use]
    pub fn has_group(&self) -> bool {
        self.joined_group().is_some() || self.subject.is_group()
    }

    /// Whether what allows something closes something as well: by a condition, or by what the group is denied. Then it
    /// counts as a denial does where it is in doubt, and until a revoke that certainly counts.
    #[must_use]
    pub(crate) fn can_close(&self) -> bool {
        self.is_conditional() || self.joined_group().is_some()
    }

    /// Checks a membership: it has no end and no condition, and groups are in no groups.
    pub(super) fn check_group(&self) -> Result<(), BadOperation> {
        if self.subject.is_group() && self.subject.group().is_none() {
            return Err(BadOperation::NameLength("a group's name"));
        }
        let is_plain = self.permission == Permission::Allow
            && self.not_after_ms.is_none()
            && self.when.is_none()
            && !self.subject.is_group();
        match self.joined_group() {
            Some(_) if !is_plain => Err(BadOperation::Membership),
            Some(_) | None => Ok(()),
        }
    }

    /// Checks an entry with a group in the logs of a cluster.
    pub(super) fn check_in_cluster(&self) -> Result<(), BadOperation> {
        if !self.has_group() {
            return Ok(());
        }
        if !self.replaces.is_empty() {
            return Err(BadOperation::GroupReplaces);
        }
        match &self.subject {
            Subject::Agent(agent) if agent.agent.is_group() => Err(BadOperation::GroupOfNode),
            Subject::Agent(_)
            | Subject::Server(_)
            | Subject::AgentsAt(_)
            | Subject::AgentEverywhere(_) => Ok(()),
        }
    }
}
