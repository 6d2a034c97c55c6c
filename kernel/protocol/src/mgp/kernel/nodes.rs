//! `mgp/kernel/nodes/*`: this node, the nodes of its cluster, and how a node comes in. For the operator.
//!
//! Where a request names a node, it may be its name, its id or the beginning of it; of one that waits to be
//! let in, also the three words.

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

/// `mgp/kernel/nodes/invite`: makes a ticket for one node. A node that is in no cluster founds one with it.
/// Answers [`Invited`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invite {
    /// What the node may do; [`Role::Member`] when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The ticket is good for so many seconds; 15 minutes when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lives_secs: Option<u64>,
    /// Who shows it is let in without a person's yes.
    #[serde(default)]
    pub approved: bool,
    /// Where this node is reached, as `host:port`; what it finds out itself when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
}

/// `mgp/kernel/nodes/tickets`; answers [`Invitations`].
#[derive(Debug)]
pub struct Tickets;

/// `mgp/kernel/nodes/withdraw`: the ticket is good for nothing from now on. Answers the [`Ticket`] there was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Withdraw {
    /// Its name, as [`Invitations`] shows it.
    pub ticket: String,
}

/// `mgp/kernel/nodes/join`: shows a ticket to the node that made it. Answers [`JoinStatus`] at once; what
/// comes of it says `mgp/kernel/nodes/admission`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Join {
    /// The ticket, as it was printed; white space and case do not matter. A secret.
    pub ticket: String,
    /// What this node wants to be called; as it is called already when absent.
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

/// `mgp/kernel/nodes/admission`: how far the last join of this node is. Answers [`JoinStatus`], or null
/// where this node has not asked to be let in since its start.
#[derive(Debug)]
pub struct Admission;

/// `mgp/kernel/nodes/approve`: lets a node in that waits. Answers [`AdmissionResult`] when that is on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approve {
    /// The node; nothing where only one waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The three words that both sides show, where `node` is not them: refused where they are not those of this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
}

/// `mgp/kernel/nodes/refuse`: turns a node away that waits. Its ticket is used up. Answers [`AdmissionResult`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refuse {
    /// The node; nothing where only one waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// `mgp/kernel/nodes/revoke`: cuts a node off, everywhere and for good. Answers [`Revoked`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revoke {
    /// The node.
    pub node: String,
}

/// `mgp/kernel/nodes/rename`: calls a node something else. Answers the [`Node`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rename {
    /// The node; this one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Its new name: small letters, digits and `-`.
    pub name: String,
}

/// `mgp/kernel/nodes/leave`: this node leaves its cluster, and forgets it. Answers [`LeaveResult`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leave {
    /// Leave although nobody else could let nodes in then.
    #[serde(default)]
    pub last_admin: bool,
}

/// What a node may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Signs grants and admits nodes, too.
    Admin,
    /// Shares tools and calls those of others.
    #[default]
    Member,
    /// Only calls.
    Leaf,
}

impl Role {
    /// The word on the wire and in lists.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Member => "member",
            Self::Leaf => "leaf",
        }
    }
}

/// Answer of `mgp/kernel/nodes/id`: who this node is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// All digits of its id.
    pub id: String,
    /// Enough of them to tell it by in lists.
    pub short: String,
    /// The same as three words to be read aloud.
    pub words: String,
    /// What it is called.
    pub name: String,
    /// Its cluster; `None` where it is in none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// What it may do there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Where it listens for other nodes; `None` while it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listens: Option<String>,
    /// What is wrong with this node's key: why, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// Answer of `mgp/kernel/nodes/list`: who is there, as this node sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// The id of the cluster; `None` where this node is in none: then `nodes` is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// This node first, then the others by name.
    pub nodes: Vec<Node>,
    /// What agents of other nodes may do here ends when the logs of all who could deny it were not
    /// confirmed for so many seconds.
    pub lease_secs: u64,
    /// Whether they are confirmed now.
    pub confirmed: bool,
    /// Where this node listens for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listens: Option<String>,
    /// Whether this node still has its part in the cluster, as far as it knows.
    #[serde(default, skip_serializing_if = "MembershipStatus::is_member")]
    pub membership: MembershipStatus,
    /// Nodes that wait to be let in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingNode>,
    /// What this node passes on for nodes that have no direct link to each other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relays: Vec<RelayedNodes>,
    /// What is wrong with the cluster, or soon will be: why, and what to do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<String>,
    /// Grants that are closed by a revoke which their authors did not know of; the first [`CONFLICTS_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<GrantConflict>,
    /// How many there are.
    #[serde(default, skip_serializing_if = "is_none")]
    pub conflict_count: usize,
}

/// A grant that a revoke closes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantConflict {
    /// The id of the grant.
    pub grant_id: String,
    /// The agent it is for.
    pub agent_id: String,
    /// On which server.
    pub server_id: String,
    /// The tool; all of them when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// Which revoke, and what to do; in words.
    pub conflict: String,
}

/// Most grants that an answer lists as closed by a conflict: as many as a person reads.
pub const CONFLICTS_MAX: usize = 20;

fn is_none(count: &usize) -> bool {
    *count == 0
}

/// Two nodes between which a third one passes on what they send each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayedNodes {
    /// Their names.
    pub nodes: [String; 2],
    /// Bytes passed on, both ways.
    pub bytes: u64,
    /// Packets that were dropped: they came too fast, or a link had no room.
    pub dropped: u64,
    /// How long it has lasted, in milliseconds.
    pub since_ms: u64,
}

/// Whether this node has its part in its cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MembershipStatus {
    /// It has.
    #[default]
    Member,
    /// No node takes a link of this one, and at least one says that it takes none.
    Refused,
    /// It was cut off.
    Revoked,
    /// The cluster does not know the key that this node has now.
    Unknown,
}

impl MembershipStatus {
    /// True for a node that has.
    #[must_use]
    pub fn is_member(&self) -> bool {
        *self == Self::Member
    }

    /// The word on the wire and in lists.
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

/// How a node is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeStatus {
    /// It is this node.
    Here,
    /// A link to it is open.
    Linked,
    /// No link is open; `why` of the node says what the last try came to.
    #[default]
    Away,
    /// It said that it leaves.
    Left,
    /// It was cut off.
    Revoked,
}

impl NodeStatus {
    /// The word on the wire and in lists.
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
    /// All digits of its id.
    pub id: String,
    /// What it is called here: the first part of the names of its tools.
    pub name: String,
    /// Its id as three words.
    pub words: String,
    /// What it may do.
    pub role: Role,
    /// How it is reached.
    pub standing: NodeStatus,
    /// Where it is, or where a link last proved it to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The node that passes on what both send each other, where the link is not direct.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<String>,
    /// The link has been open, or closed, for so many milliseconds; of a node that is out, how long ago that was
    /// written down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// The way there and back, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<u64>,
    /// Its wall clock less this node's, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_ms: Option<i64>,
    /// What it shares was last told so many milliseconds ago.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index_age_ms: Option<u64>,
    /// What is shared: by it with this node, and of this node with anybody.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<SharedServer>,
    /// Its own lease in seconds, as it says; known while it is linked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_secs: Option<u64>,
    /// Whether that is confirmed, as it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<bool>,
    /// The names of the nodes in the cluster that it has no link to, as it says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreached: Vec<String>,
    /// Why it is not linked, or what is wrong with it, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A server that is shared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedServer {
    /// Its id at its owner.
    pub id: String,
    /// How many of its tools.
    pub tools: u64,
    /// Its owner marked it as one of several that are alike.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replica: bool,
}

/// Answer of `mgp/kernel/nodes/invite`. The only time the ticket is shown.
#[derive(Clone, Serialize, Deserialize)]
pub struct Invited {
    /// For `mgp nodes join`. Whoever has it may ask to be let in.
    pub ticket: String,
    /// What is known of it from now on.
    #[serde(flatten)]
    pub about: Ticket,
    /// Set if a cluster was founded for it.
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

/// A cluster that was just founded.
#[derive(Clone, Serialize, Deserialize)]
pub struct Founded {
    /// Its id.
    pub cluster: String,
    /// The only way on when no admin is left. Shown once, kept nowhere.
    pub recovery_key: String,
}

impl std::fmt::Debug for Founded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Founded")
            .field("cluster", &self.cluster)
            .finish_non_exhaustive()
    }
}

/// A ticket that was given out, without its secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// Its name, to withdraw it by.
    pub id: String,
    /// What the node may do that shows it.
    pub role: Role,
    /// From then on it is good for nothing, RFC 3339.
    pub expires_at: String,
    /// Who shows it is let in without a person's yes.
    #[serde(default)]
    pub approved: bool,
    /// The addresses in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
}

/// Answer of `mgp/kernel/nodes/tickets`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitations {
    /// Those nobody has shown yet, and which are good still.
    pub tickets: Vec<Ticket>,
    /// Nodes that have shown one, and wait for a person.
    pub waiting: Vec<WaitingNode>,
}

/// A node that waits to be let in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingNode {
    /// All digits of its id.
    pub id: String,
    /// What it wants to be called.
    pub name: String,
    /// What it wanted to be called when it asked before: under another name it asks anew, with other words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called_before: Option<String>,
    /// A node of the cluster whose name is hard to tell from this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looks_like: Option<String>,
    /// Three words, of its key and its name: it is the node that is meant if it shows the same.
    pub words: String,
    /// What to compare besides, where the words are those of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words_note: Option<String>,
    /// What it may do once it is in.
    pub role: Role,
    /// Where it asks from.
    pub from: String,
    /// The ticket it showed.
    pub ticket: String,
    /// Since when it waits, RFC 3339.
    pub since: String,
    /// When that is over without an answer, RFC 3339.
    pub until: String,
}

/// Answer of `mgp/kernel/nodes/join` and `mgp/kernel/nodes/admission`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinStatus {
    /// How far it is.
    pub stage: JoinStage,
    /// The node that made the ticket; its id, and its name once that is known.
    pub inviter: String,
    /// Three words: this node has reached the right one if that shows the same. Known once it was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
    /// What to compare besides, where the words are those of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words_note: Option<String>,
    /// What this node is to be called.
    pub name: String,
    /// What it may do, once it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The cluster, once it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// From then on the ticket is good for nothing, RFC 3339.
    pub until: String,
    /// Why it was refused or failed, or what the last try to reach the inviter came to, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// How far a join is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JoinStage {
    /// The inviter is looked for.
    #[default]
    Reaching,
    /// A person is asked there.
    Waiting,
    /// A person said yes, and what the cluster knows is on its way here.
    Entering,
    /// It is in.
    Admitted,
    /// It was turned away.
    Refused,
    /// Nobody said anything in time.
    Expired,
    /// It came to nothing.
    Failed,
}

impl JoinStage {
    /// Whether nothing more comes of it.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::Reaching | Self::Waiting | Self::Entering => false,
            Self::Admitted | Self::Refused | Self::Expired | Self::Failed => true,
        }
    }
}

/// Answer of `mgp/kernel/nodes/approve` and `mgp/kernel/nodes/refuse`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmissionResult {
    /// All digits of the node's id.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// The three words both sides showed.
    pub words: String,
    /// Whether it was let in.
    pub admitted: bool,
    /// What it may do.
    pub role: Role,
}

/// Answer of `mgp/kernel/nodes/revoke`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoked {
    /// All digits of the node's id.
    pub id: String,
    /// What it was called.
    pub name: String,
    /// Who knows.
    pub confirmed: Confirmations,
}

/// Who has a revocation: "3/3 in 180 ms", "2/3; nas unreachable, stops by itself in 30 s or less", or "2/3; nas
/// unreachable, not bounded: nas may go on allowing until it is reached".
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmations {
    /// So many other nodes have confirmed it.
    pub nodes: u64,
    /// Of so many that have to.
    pub of: u64,
    /// That took so many milliseconds.
    pub after_ms: u64,
    /// The names of those that have not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// With all of them it is over by itself within so many seconds; absent where one of them has no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lapses_secs: Option<u64>,
    /// The same for each of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<RevokeBound>,
    /// Those of the missing that are admins: no bound holds where one of them has demoted or cut off this node
    /// meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_admins: Vec<String>,
}

/// When a node that has not confirmed a revocation stops allowing what it takes away, though nobody reaches it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokeBound {
    /// The node's name.
    pub node: String,
    /// Within so many seconds; absent where it may go on until it is reached, or its lease is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secs: Option<u64>,
    /// After its own lease, which is not known: it runs an older version.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lease_unknown: bool,
}

/// Answer of `mgp/kernel/nodes/leave`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaveResult {
    /// The cluster it was in.
    pub cluster: String,
    /// Whether that is written down in the cluster. Otherwise the others list it as away until one of them cuts
    /// it off.
    pub noted: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What lets a node in stands in no log, whatever is printed there.
    #[test]
    fn no_secret_is_shown_by_debug() {
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
        // A ticket is flat, for programs.
        let json = serde_json::to_value(&invited).unwrap();
        assert_eq!(json["role"], "member");
        assert_eq!(json["ticket"], "mgp1-secret");
    }

    #[test]
    fn a_request_takes_no_member_that_it_does_not_know() {
        assert!(serde_json::from_str::<Invite>("{}").is_ok());
        assert!(serde_json::from_str::<Invite>(r#"{"rôle": "admin"}"#).is_err());
        assert!(serde_json::from_str::<Approve>(r#"{"nod": "nas"}"#).is_err());
    }
}
