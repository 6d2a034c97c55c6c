//! `mgp/kernel/nodes/*`: this node, the nodes of its cluster, and pairing. For the operator.
//!
//! A node is identified by its name, its id or a prefix of it; a node that waits for approval also by its
//! three words.

mod impact;
mod keys;
mod maintenance;

use serde::{Deserialize, Serialize};

pub use self::impact::{IMPACT_NAMED, Impact, RevokeImpact};
pub use self::keys::{Recover, Recovered, Rekey, Rekeyed};
pub use self::maintenance::{Demote, Drain, Drained, Forget, ForgetResult, Promote, RoleChanged};
use crate::mcp::methods;

methods! {
    "mgp/kernel/nodes/id" => Id,
    "mgp/kernel/nodes/list" => List,
    "mgp/kernel/nodes/invite" => Invite,
    "mgp/kernel/nodes/tickets" => Tickets,
    "mgp/kernel/nodes/withdraw" => Withdraw,
    "mgp/kernel/nodes/join" => Join,
    "mgp/kernel/nodes/admission" => Admission,
    "mgp/kernel/nodes/approve" => Approve,
    "mgp/kernel/nodes/refuse" => Refuse,
    "mgp/kernel/nodes/impact" => Impact,
    "mgp/kernel/nodes/revoke" => Revoke,
    "mgp/kernel/nodes/rename" => Rename,
    "mgp/kernel/nodes/promote" => Promote,
    "mgp/kernel/nodes/demote" => Demote,
    "mgp/kernel/nodes/drain" => Drain,
    "mgp/kernel/nodes/forget" => Forget,
    "mgp/kernel/nodes/leave" => Leave,
    "mgp/kernel/nodes/rekey" => Rekey,
    "mgp/kernel/nodes/recover" => Recover,
}

/// `mgp/kernel/nodes/id`; answers [`Identity`].
#[derive(Debug)]
pub struct Id;

/// `mgp/kernel/nodes/list`; answers [`Cluster`].
#[derive(Debug)]
pub struct List;

/// `mgp/kernel/nodes/invite`: creates a ticket for one node. A node without a cluster founds one. Answers
/// [`Invited`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invite {
    /// The role of the new node; [`Role::Member`] if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The lifetime in seconds; 15 minutes if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lives_secs: Option<u64>,
    /// True if the holder is admitted without a person's approval.
    #[serde(default)]
    pub approved: bool,
    /// The addresses of this node, as `host:port`; detected if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
}

/// `mgp/kernel/nodes/tickets`; answers [`Invitations`].
#[derive(Debug)]
pub struct Tickets;

/// `mgp/kernel/nodes/withdraw`: invalidates a ticket. Answers the withdrawn [`Ticket`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Withdraw {
    /// Its id, as in [`Invitations`].
    pub ticket: String,
}

/// `mgp/kernel/nodes/join`: shows a ticket to the node that created it. Answers [`JoinStatus`] at once; the
/// outcome is reported by `mgp/kernel/nodes/admission`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Join {
    /// The printed ticket; white space and case do not matter. A secret.
    pub ticket: String,
    /// The requested name of this node; its current one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl std::fmt::Debug for Join {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Join")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// `mgp/kernel/nodes/admission`: the progress of the last join of this node. Answers [`JoinStatus`], or
/// null if this node has not joined since its start.
#[derive(Debug)]
pub struct Admission;

/// `mgp/kernel/nodes/approve`: admits a waiting node. Answers [`AdmissionResult`] when that is on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approve {
    /// The node; absent if only one waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The three words that both sides show, if `node` is not the words: rejected if they are not those of
    /// this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
}

/// `mgp/kernel/nodes/refuse`: denies a waiting node. Its ticket is used up. Answers [`AdmissionResult`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refuse {
    /// The node; absent if only one waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// `mgp/kernel/nodes/revoke`: cuts a node off, in the whole cluster and permanently. Answers [`Revoked`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revoke {
    /// The node.
    pub node: String,
}

/// `mgp/kernel/nodes/rename`: renames a node. Answers the [`Node`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rename {
    /// The node; this one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Its new name: lower-case letters, digits and `-`.
    pub name: String,
}

/// `mgp/kernel/nodes/leave`: this node leaves its cluster, and forgets it. Answers [`LeaveResult`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leave {
    /// Leave even if no other node could admit nodes afterwards.
    #[serde(default)]
    pub last_admin: bool,
}

/// The role of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// As a member; also signs grants and admits nodes.
    Admin,
    /// Shares tools and calls those of others.
    #[default]
    Member,
    /// Only calls tools of others.
    Leaf,
}

impl Role {
    /// The value on the wire and in lists.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Member => "member",
            Self::Leaf => "leaf",
        }
    }
}

/// The answer to `mgp/kernel/nodes/id`: the identity of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The whole id.
    pub id: String,
    /// A prefix of the id for lists.
    pub short: String,
    /// The id as three words that can be read aloud.
    pub words: String,
    /// Its name.
    pub name: String,
    /// Its cluster, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Its role in the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The address on which it listens for other nodes, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listens: Option<String>,
    /// A problem of this node's key, with the fix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// The answer to `mgp/kernel/nodes/list`: the cluster as known to this node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// The id of the cluster; `None` without a cluster: then `nodes` is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// This node first, then the others by name.
    pub nodes: Vec<Node>,
    /// The lease in seconds: grants of other nodes' agents are suspended if a node that could revoke them
    /// has not confirmed its log for so long.
    pub lease_secs: u64,
    /// True if all are confirmed now.
    pub confirmed: bool,
    /// The address on which this node listens for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listens: Option<String>,
    /// The membership of this node, as far as known to it.
    #[serde(default, skip_serializing_if = "MembershipStatus::is_member")]
    pub membership: MembershipStatus,
    /// Nodes that wait for approval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingNode>,
    /// The pairs of nodes that this node relays for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relays: Vec<RelayedNodes>,
    /// Current or impending problems of the cluster, with fixes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<String>,
    /// Grants in conflict with a revocation that their authors did not know; the first [`CONFLICTS_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<GrantConflict>,
    /// The number of such grants.
    #[serde(default, skip_serializing_if = "is_none")]
    pub conflict_count: usize,
}

/// A grant in conflict with a revocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantConflict {
    /// The id of the grant.
    pub grant_id: String,
    /// The agent.
    pub agent_id: String,
    /// The server.
    pub server_id: String,
    /// The tool; all tools if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// The revocation and the fix, as text.
    pub conflict: String,
}

/// The most listed conflicts: a person does not read more.
pub const CONFLICTS_MAX: usize = 20;

fn is_none(count: &usize) -> bool {
    *count == 0
}

/// Two nodes that are linked through a third one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayedNodes {
    /// Their names.
    pub nodes: [String; 2],
    /// The relayed bytes in both directions.
    pub bytes: u64,
    /// The dropped packets: above the rate limit, or without capacity on a link.
    pub dropped: u64,
    /// The duration of the relay in milliseconds.
    pub since_ms: u64,
}

/// The membership of this node in its cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MembershipStatus {
    /// It is a member.
    #[default]
    Member,
    /// No node accepts a link, and at least one refuses it.
    Refused,
    /// It was cut off.
    Revoked,
    /// The cluster does not know the current key of this node.
    Unknown,
}

impl MembershipStatus {
    /// True for a member.
    #[must_use]
    pub fn is_member(&self) -> bool {
        *self == Self::Member
    }

    /// The value on the wire and in lists.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Refused => "refused",
            Self::Revoked => "revoked",
            Self::Unknown => "unknown",
        }
    }
}

/// The link status of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeStatus {
    /// It is this node.
    Here,
    /// It is linked.
    Linked,
    /// It is not linked; `why` of the node describes the last attempt.
    #[default]
    Away,
    /// It has left the cluster.
    Left,
    /// It was cut off.
    Revoked,
}

impl NodeStatus {
    /// The value on the wire and in lists.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Here => "here",
            Self::Linked => "linked",
            Self::Away => "away",
            Self::Left => "left",
            Self::Revoked => "revoked",
        }
    }
}

/// One node of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// The whole id.
    pub id: String,
    /// Its local name: the first part of the names of its tools.
    pub name: String,
    /// Its id as three words.
    pub words: String,
    /// Its role.
    pub role: Role,
    /// Its link status.
    pub standing: NodeStatus,
    /// Its address, or the last verified one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The node that relays the link, if it is not direct.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<String>,
    /// The duration of the link, or the time since it ended, in milliseconds; for a former member the time
    /// since its membership ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// The round-trip time in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<u64>,
    /// The difference of its wall clock to this node's, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_ms: Option<i64>,
    /// The age of its last index digest in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index_age_ms: Option<u64>,
    /// The servers it shares with this node; for this node those it shares with any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<SharedServer>,
    /// Its own lease in seconds, as reported while linked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_secs: Option<u64>,
    /// Whether its lease is confirmed, as reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<bool>,
    /// The names of the nodes that it has no link to, as reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreached: Vec<String>,
    /// Why it is not linked, or another problem, with the fix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A shared server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedServer {
    /// Its id on its owner.
    pub id: String,
    /// The number of its shared tools.
    pub tools: u64,
    /// True if its owner marked it as one of several replicas.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replica: bool,
}

/// The answer to `mgp/kernel/nodes/invite`. The ticket is shown only once.
#[derive(Clone, Serialize, Deserialize)]
pub struct Invited {
    /// For `mgp nodes join`. Its holder may request to join.
    pub ticket: String,
    /// The ticket's properties.
    #[serde(flatten)]
    pub about: Ticket,
    /// The cluster, if one was founded for the ticket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub founded: Option<Founded>,
}

impl std::fmt::Debug for Invited {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Invited")
            .field("about", &self.about)
            .finish_non_exhaustive()
    }
}

/// A newly founded cluster.
#[derive(Clone, Serialize, Deserialize)]
pub struct Founded {
    /// Its id.
    pub cluster: String,
    /// Recovers the cluster when no admin is left. Shown once, not stored.
    pub recovery_key: String,
}

impl std::fmt::Debug for Founded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Founded")
            .field("cluster", &self.cluster)
            .finish_non_exhaustive()
    }
}

/// An open ticket, without its secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// Its id, for withdrawing it.
    pub id: String,
    /// The role of the node that uses it.
    pub role: Role,
    /// The expiry, RFC 3339.
    pub expires_at: String,
    /// True if the holder is admitted without a person's approval.
    #[serde(default)]
    pub approved: bool,
    /// The addresses in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
}

/// The answer to `mgp/kernel/nodes/tickets`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitations {
    /// The valid unused tickets.
    pub tickets: Vec<Ticket>,
    /// Nodes that have shown a ticket, and wait for approval.
    pub waiting: Vec<WaitingNode>,
}

/// A node that waits for approval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingNode {
    /// The whole id.
    pub id: String,
    /// The requested name.
    pub name: String,
    /// The name of its earlier request: under another name it asks anew, with other words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called_before: Option<String>,
    /// A node of the cluster with a confusingly similar name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looks_like: Option<String>,
    /// The three words derived from its key and its name: the node is authentic if it shows the same.
    pub words: String,
    /// What to compare additionally, if the words are those of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words_note: Option<String>,
    /// Its role after admission.
    pub role: Role,
    /// The address it connects from.
    pub from: String,
    /// The shown ticket.
    pub ticket: String,
    /// When the request arrived, RFC 3339.
    pub since: String,
    /// When the request expires, RFC 3339.
    pub until: String,
}

/// The answer to `mgp/kernel/nodes/join` and `mgp/kernel/nodes/admission`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinStatus {
    /// The stage.
    pub stage: JoinStage,
    /// The node that created the ticket: its id, and its name once known.
    pub inviter: String,
    /// The three words: the inviter is authentic if it shows the same. Known once it was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
    /// What to compare additionally, if the words are those of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words_note: Option<String>,
    /// The requested name of this node.
    pub name: String,
    /// Its role, once admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The cluster, once admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The expiry of the ticket, RFC 3339.
    pub until: String,
    /// Why it was refused or failed, or the error of the last attempt, with the fix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The stage of a join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JoinStage {
    /// Connecting to the inviter.
    #[default]
    Reaching,
    /// Waiting for a person's decision at the inviter.
    Waiting,
    /// Approved; the admission is being received.
    Entering,
    /// Admitted.
    Admitted,
    /// Denied.
    Refused,
    /// No decision before the expiry.
    Expired,
    /// Failed.
    Failed,
}

impl JoinStage {
    /// True for a final stage.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::Reaching | Self::Waiting | Self::Entering => false,
            Self::Admitted | Self::Refused | Self::Expired | Self::Failed => true,
        }
    }
}

/// The answer to `mgp/kernel/nodes/approve` and `mgp/kernel/nodes/refuse`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmissionResult {
    /// The whole id of the node.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The three words that both sides showed.
    pub words: String,
    /// True if it was admitted.
    pub admitted: bool,
    /// Its role.
    pub role: Role,
}

/// The answer to `mgp/kernel/nodes/revoke`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoked {
    /// The whole id of the node.
    pub id: String,
    /// Its former name.
    pub name: String,
    /// The confirmations.
    pub confirmed: Confirmations,
}

/// The confirmations of a revocation: "3/3 in 180 ms", "2/3; nas unreachable, stops by itself in 30 s or
/// less", or "2/3; nas unreachable, not bounded: nas may go on allowing until it is reached".
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmations {
    /// The number of nodes that have confirmed it.
    pub nodes: u64,
    /// The number of nodes that have to confirm it.
    pub of: u64,
    /// The time it took in milliseconds.
    pub after_ms: u64,
    /// The names of nodes without a confirmation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// The seconds until the grant has expired on all of them; absent if one of them has no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lapses_secs: Option<u64>,
    /// The bound of each of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<RevokeBound>,
    /// The missing admins: no bound holds if one of them has demoted or cut off this node meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_admins: Vec<String>,
}

/// The time until an unreachable node stops allowing a revoked grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokeBound {
    /// The name of the node.
    pub node: String,
    /// The seconds; absent if it is unlimited, or its lease is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secs: Option<u64>,
    /// True if its lease is unknown because it runs an older version.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lease_unknown: bool,
}

/// The answer to `mgp/kernel/nodes/leave`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaveResult {
    /// The former cluster.
    pub cluster: String,
    /// True if the leave is recorded in the cluster. Otherwise the other nodes list it as unreachable until
    /// one of them cuts it off.
    pub noted: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Secrets for admission are not in any log, whatever is logged.
    #[test]
    fn debug_output_hides_secrets() {
        let invited = Invited {
            ticket: "mgp1-secret".into(),
            about: Ticket::default(),
            founded: Some(Founded {
                cluster: "c".into(),
                recovery_key: "recovery-secret".into(),
            }),
        };
        let join = Join {
            ticket: "mgp1-secret".into(),
            name: None,
        };
        let shown = format!("{invited:?} {:?} {join:?}", invited.founded);
        assert!(!shown.contains("secret"), "{shown}");
        // A ticket is a flat object, for programs.
        let json = serde_json::to_value(&invited).unwrap();
        assert_eq!(json["role"], "member");
        assert_eq!(json["ticket"], "mgp1-secret");
    }

    #[test]
    fn unknown_members_of_requests_are_rejected() {
        assert!(serde_json::from_str::<Invite>("{}").is_ok());
        assert!(serde_json::from_str::<Invite>(r#"{"rôle": "admin"}"#).is_err());
        assert!(serde_json::from_str::<Approve>(r#"{"nod": "nas"}"#).is_err());
    }
}
