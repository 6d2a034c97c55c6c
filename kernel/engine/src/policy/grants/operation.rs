//! One operation of a log: what is signed, stored and sent.

mod conditional;
mod context;
mod groups;
mod membership;
mod patterns;
pub(super) mod v1;

use std::collections::BTreeMap;

use mgp_protocol::hex_id;
use mgp_protocol::ids::{AgentId, GroupName, NodeAgent, NodeId, NodeServer};
use mgp_protocol::mgp::access::Permission;
use mgp_protocol::mgp::permission::PermissionType;
use mgp_screening::conditions::CONDITION_MAX;
use serde::{Deserialize, Serialize};

pub(super) use self::conditional::CONDITIONAL_KIND;
pub(super) use self::context::BRANCHES_NAMED_MAX;
pub use self::context::CausalContext;
pub(super) use self::groups::GROUP_KIND;
pub use self::membership::{LogTip, MemberChange, MemberRole};
pub(super) use self::patterns::PATTERN_KIND;
pub(crate) use self::patterns::Specificity;
use super::{GRANTS_END, ISSUERS_MAX, SEQUENCE_END};
use crate::policy::tool_pattern::ToolPattern;

/// Longest name in an operation, in bytes: agents, servers, tools, permissions, authors.
pub(crate) const NAME_MAX: usize = 1024;
/// Longest justification, in bytes.
pub(crate) const TEXT_MAX: usize = 4096;
/// Most grants that one operation revokes; [`Revoke::UpTo`] revokes more.
pub(crate) const IDS_MAX: usize = 1024;
hex_id! {
    /// The id of a grant: random, never reused.
    GrantId, 16
}

impl GrantId {
    /// No grant has it: ids are random.
    pub(crate) const NIL: Self = Self([0; 16]);
}

hex_id! {
    /// The hash of an operation's bytes.
    OperationId, 32
}
hex_id! {
    /// A cluster: the id of its founding operation.
    ClusterId, 32
}

impl OperationId {
    /// The predecessor of the first operation of a log.
    pub const START: Self = Self([0; 32]);
}

/// A position in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LogPosition {
    /// The issuer of the log.
    pub issuer: NodeId,
    /// Counted from 0, without gaps.
    pub sequence: u64,
}

/// The subject of a grant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// An agent: access to servers and tools (§5).
    Agent(NodeAgent),
    /// A server: permissions it requested (§3).
    Server(NodeServer),
    /// Every agent of a node.
    AgentsAt(NodeId),
    /// The agents of this name, on every node that is a member when they call.
    AgentEverywhere(AgentId),
}

/// The resource of a grant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantResource {
    /// All tools of a server, future ones included.
    Server(NodeServer),
    /// One tool, by the server's own name for it.
    Tool(NodeServer, String),
    /// A permission type, by its full name.
    Permission(String),
    /// The tools of a server with a common prefix, future ones included.
    Tools(NodeServer, ToolPattern),
    /// A group that an agent is in.
    Group(GroupName),
}

impl GrantResource {
    /// A permission type as a resource.
    #[must_use]
    pub(crate) fn permission(permission: &PermissionType) -> Self {
        Self::Permission(permission.as_str().to_owned())
    }
}

/// Allows or denies something, until it expires or is revoked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Its id, for revoking it.
    pub id: GrantId,
    /// The subject.
    pub subject: Subject,
    /// The resource.
    pub resource: GrantResource,
    /// Allow or deny.
    pub permission: Permission,
    /// When it expires, in milliseconds since 1970.
    pub not_after_ms: Option<u64>,
    /// Who decided, as reported by the author; only the author counts.
    pub told_by: Option<String>,
    /// The reason given.
    pub justification: Option<String>,
    /// Grants that this one replaces, in the same step.
    pub replaces: Vec<GrantId>,
    /// The condition on which it allows; an entry with one is of another kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
}

/// A revocation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Revoke {
    /// Revokes these grants, known here or not.
    Ids(Vec<GrantId>),
    /// Revokes all grants of a subject up to a position in each log, inclusive.
    UpTo {
        /// The subject.
        subject: Subject,
        /// The last sequence number of each issuer.
        until: BTreeMap<NodeId, u64>,
    },
}

/// What an operation does.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantChange {
    /// A grant or a denial. With a pattern, a condition or a group, it is an entry of another kind, which older builds
    /// do not know.
    #[serde(
        alias = "grant_pattern",
        alias = "conditional_grant",
        alias = "group_grant"
    )]
    Grant(Grant),
    /// A revocation.
    Revoke(Revoke),
}

impl Revoke {
    /// The operation of an admin that starts again after its log ended with [`MemberChange::Rest`]. It revokes
    /// nothing, builds of every version accept it, and it ends the rest.
    #[must_use]
    pub(crate) fn resume() -> Self {
        Self::Ids(vec![GrantId::NIL])
    }

    /// True when it only announces that its issuer is active again.
    #[must_use]
    pub(crate) fn is_resume(&self) -> bool {
        *self == Self::resume()
    }
}

impl GrantChange {
    /// The ids of the grants it revokes.
    #[must_use]
    pub fn revoked_ids(&self) -> &[GrantId] {
        match self {
            Self::Grant(grant) => &grant.replaces,
            Self::Revoke(Revoke::Ids(ids)) => ids,
            Self::Revoke(Revoke::UpTo { .. }) => &[],
        }
    }

    fn check(&self) -> Result<(), BadOperation> {
        match self {
            Self::Grant(grant) => grant.check(),
            Self::Revoke(Revoke::Ids(ids)) => match ids.len() {
                1..=IDS_MAX => Ok(()),
                _ => Err(BadOperation::Ids),
            },
            Self::Revoke(Revoke::UpTo { subject, until }) => {
                subject.check()?;
                if subject.is_pattern() {
                    return Err(BadOperation::PatternUpTo);
                }
                match until.len() {
                    1..=ISSUERS_MAX => Ok(()),
                    _ => Err(BadOperation::Logs),
                }
            }
        }
    }
}

/// The change of an operation, as far as this build knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum LogChange {
    /// Grants or revokes access.
    Grants(GrantChange),
    /// Changes the members of the cluster.
    Members(MemberChange),
    /// A change of a kind unknown to this build, by its name. It may be a revocation, so nothing that its issuer
    /// allowed counts here.
    Unknown(String),
}

impl LogChange {
    /// The grant or revocation.
    #[must_use]
    pub fn grants(&self) -> Option<&GrantChange> {
        match self {
            Self::Grants(change) => Some(change),
            Self::Members(_) | Self::Unknown(_) => None,
        }
    }

    /// The change of the members.
    #[must_use]
    pub fn members(&self) -> Option<&MemberChange> {
        match self {
            Self::Members(change) => Some(change),
            Self::Grants(_) | Self::Unknown(_) => None,
        }
    }

    /// True when it only announces that its issuer stops, or is active again.
    #[must_use]
    pub fn is_rest_or_resume(&self) -> bool {
        match self {
            Self::Grants(GrantChange::Revoke(revoke)) => revoke.is_resume(),
            Self::Members(change) => *change == MemberChange::Rest {},
            Self::Grants(GrantChange::Grant(_)) | Self::Unknown(_) => false,
        }
    }

    /// True when it grants something: such operations have a lower limit, so that a full log can still revoke.
    #[must_use]
    pub(crate) fn is_granting(&self) -> bool {
        match self {
            Self::Grants(change) => matches!(change, GrantChange::Grant(_)),
            Self::Members(change) => change.is_granting(),
            Self::Unknown(_) => false,
        }
    }

    /// Validates it.
    ///
    /// # Errors
    /// [`BadOperation`].
    pub fn check(&self) -> Result<(), BadOperation> {
        match self {
            Self::Grants(change) => change.check(),
            Self::Members(change) => change.check(),
            Self::Unknown(_) => Ok(()),
        }
    }
}

/// One entry of an issuer's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Operation {
    /// The cluster it belongs to, so that logs of two clusters never mix. `None` in a node's own journal, which
    /// counts at its own servers only, and in the operation that founds a cluster.
    pub cluster: Option<ClusterId>,
    /// Its position.
    pub place: LogPosition,
    /// The id of the operation before it, [`OperationId::START`] for the first.
    pub previous: OperationId,
    /// Who requested it, as authenticated by the issuer's endpoint; never taken from a message body.
    pub author: String,
    /// When, in milliseconds since 1970, by the issuer's clock.
    pub told_at_ms: u64,
    /// Its change.
    pub change: LogChange,
    /// What its issuer knew of other logs; older builds neither write nor read it.
    #[serde(skip_serializing_if = "CausalContext::is_empty")]
    pub context: CausalContext,
}

/// Why every node rejects an operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadOperation {
    /// An empty name, or one over [`NAME_MAX`].
    #[error("{0} must have between 1 and {NAME_MAX} bytes")]
    NameLength(&'static str),
    /// A text over [`TEXT_MAX`].
    #[error("the justification has more than {TEXT_MAX} bytes")]
    TextLength,
    /// Nothing to revoke, or more than [`IDS_MAX`].
    #[error("an operation takes back between 1 and {IDS_MAX} grants")]
    Ids,
    /// Nothing to revoke, or more issuers than are possible.
    #[error("a revoke up to a place names between 1 and {ISSUERS_MAX} logs")]
    Logs,
    /// A grant that replaces itself.
    #[error("a grant cannot replace itself")]
    ReplacesItself,
    /// Older builds do not know its kind: they would miss the revocation.
    #[error("a grant with a pattern replaces none; revoke them first")]
    PatternReplaces,
    /// The same reason.
    #[error(
        "a grant with a condition replaces none in the logs of a cluster; revoke them afterwards"
    )]
    ConditionReplaces,
    /// Where it is not clear what a condition means.
    #[error("only what allows an agent something has a condition")]
    ConditionOnDenial,
    /// An empty condition, or one over [`CONDITION_MAX`].
    #[error("a condition has between 1 and {CONDITION_MAX} bytes")]
    ConditionLength,
    /// The same reason as [`Self::PatternReplaces`].
    #[error("a revoke up to a place names an agent or a server, not a pattern")]
    PatternUpTo,
    /// The same reason.
    #[error("a grant with a group replaces none in the logs of a cluster; revoke them afterwards")]
    GroupReplaces,
    /// A group that would mean another thing at each node.
    #[error("a group in the logs of a cluster is that of all nodes")]
    GroupOfNode,
    /// A group in a group, or a membership that denies, ends by itself or has a condition.
    #[error("an agent is in a group without an end and a condition, and a group is in none")]
    Membership,
    /// A pattern that is the name of one tool, or matches all of a server.
    #[error("a pattern of tools is the beginning of their names and '*'")]
    NoPattern,
    /// A permission for an agent, or a tool for a server.
    #[error("agents are granted servers and tools, servers are granted permissions")]
    WrongResource,
    /// The first operation of a log names a predecessor.
    #[error("the first operation of a log names none before it")]
    First,
    /// The log is full: [`GRANTS_END`], [`SEQUENCE_END`].
    #[error("this issuer's log is full; revokes fit a little longer than grants")]
    Full,
}

impl Operation {
    /// Validates what every node must judge in the same way.
    ///
    /// # Errors
    /// [`BadOperation`].
    pub fn check(&self) -> Result<(), BadOperation> {
        check_name("an author", &self.author)?;
        if self.place.sequence == 0 && self.previous != OperationId::START {
            return Err(BadOperation::First);
        }
        let end = if self.change.is_granting() {
            GRANTS_END
        } else {
            SEQUENCE_END
        };
        if self.place.sequence >= end {
            return Err(BadOperation::Full);
        }
        self.check_change()
    }

    /// Validates its change, in its log.
    pub(in crate::policy::grants) fn check_change(&self) -> Result<(), BadOperation> {
        if self.cluster.is_some()
            && let LogChange::Grants(GrantChange::Grant(grant)) = &self.change
        {
            grant.check_in_cluster()?;
            if grant.is_conditional() && !grant.replaces.is_empty() {
                return Err(BadOperation::ConditionReplaces);
            }
        }
        self.change.check()
    }
}

fn check_name(what: &'static str, text: &str) -> Result<(), BadOperation> {
    match text.len() {
        1..=NAME_MAX => Ok(()),
        _ => Err(BadOperation::NameLength(what)),
    }
}

impl Subject {
    fn check(&self) -> Result<(), BadOperation> {
        match self {
            Self::Agent(agent) => check_name("an agent's id", agent.agent.as_str()),
            Self::Server(server) => check_name("a server's id", server.server.as_str()),
            Self::AgentsAt(_) => Ok(()),
            Self::AgentEverywhere(agent) => check_name("an agent's id", agent.as_str()),
        }
    }
}

impl GrantResource {
    fn check(&self) -> Result<(), BadOperation> {
        match self {
            Self::Server(on) => check_name("a server's id", on.server.as_str()),
            Self::Tool(on, tool) => {
                check_name("a server's id", on.server.as_str())?;
                check_name("a tool's name", tool)
            }
            Self::Tools(on, tools) => {
                check_name("a server's id", on.server.as_str())?;
                match tools.prefix() {
                    None | Some("") => Err(BadOperation::NoPattern),
                    Some(_) => Ok(()),
                }
            }
            Self::Permission(permission) => check_name("a permission's name", permission),
            // Its name was validated when it was read.
            Self::Group(_) => Ok(()),
        }
    }
}

impl Grant {
    /// Validates it.
    ///
    /// # Errors
    /// [`BadOperation`].
    pub fn check(&self) -> Result<(), BadOperation> {
        self.subject.check()?;
        self.resource.check()?;
        let of_server = matches!(self.subject, Subject::Server(_));
        if of_server != matches!(self.resource, GrantResource::Permission(_)) {
            return Err(BadOperation::WrongResource);
        }
        self.check_condition()?;
        self.check_group()?;
        if self.is_pattern() && !self.replaces.is_empty() {
            return Err(BadOperation::PatternReplaces);
        }
        if let Some(told_by) = &self.told_by {
            check_name("granted_by", told_by)?;
        }
        if self
            .justification
            .as_ref()
            .is_some_and(|text| text.len() > TEXT_MAX)
        {
            return Err(BadOperation::TextLength);
        }
        if self.replaces.len() > IDS_MAX {
            return Err(BadOperation::Ids);
        }
        if self.replaces.contains(&self.id) {
            return Err(BadOperation::ReplacesItself);
        }
        Ok(())
    }
}
