//! `mgp/access/*`: access control of agents to tools (MGP §5). As methods, and as tools of the kernel under
//! the names of [`super::matches_method`].

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::kernel::nodes::Confirmations;
use super::request;
use crate::mcp::methods;

methods! {
    "mgp/access/query" => Query,
    "mgp/access/grant" => Grant,
    "mgp/access/revoke" => Revoke,
    "mgp/access/list" => List,
    "mgp/access/explain" => Explain,
}

/// The extent of an entry (§5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryType {
    /// All tools of a server.
    ServerGrant,
    /// One tool.
    ToolGrant,
    /// None: the agent is in a group, which `server_id` names as `group.NAME`, or `group.NAME@*` for that of the cluster.
    GroupMember,
}

/// Allow or deny.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Permission {
    /// The call is allowed.
    Allow,
    /// The call is denied.
    Deny,
}

/// The level that decided (§5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// An entry for the tool.
    ToolGrant,
    /// An entry for the whole server.
    ServerGrant,
    /// No entry.
    DefaultPolicy,
    /// The caller is the operator, who has access to everything.
    Operator,
}

/// The decision without an entry (§5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DefaultPolicy {
    /// Deny.
    OptIn,
    /// Allow.
    OptOut,
}

impl DefaultPolicy {
    /// The permission of the policy.
    #[must_use]
    pub const fn permission(self) -> Permission {
        match self {
            Self::OptIn => Permission::Deny,
            Self::OptOut => Permission::Allow,
        }
    }
}

request! {
    /// `mgp/access/query`; answers an [`AccessStatus`].
    Query {
        /// The agent; allowed for the operator and for that agent itself.
        agent_id: String,
        /// The server.
        server_id: String,
        /// The tool; the whole server if absent.
        #[serde(default)]
        tool_name: Option<String>,
    }
}

request! {
    /// `mgp/access/grant`; answers [`Granted`] once it is on disk and in force.
    Grant {
        /// The extent: a server or one tool.
        entry_type: EntryType,
        /// The agent.
        agent_id: String,
        /// The server.
        server_id: String,
        /// The tool; only with `tool_grant`.
        #[serde(default)]
        tool_name: Option<String>,
        /// Allow or deny.
        permission: Permission,
        /// The person who decided, as stated by the caller: shown, and never taken for the caller.
        #[serde(default)]
        granted_by: Option<String>,
        /// The reason, for later readers.
        #[serde(default)]
        justification: Option<String>,
        /// The expiry, RFC 3339; never if absent.
        #[serde(default)]
        expires_at: Option<String>,
        /// The condition on which a call of a tool is allowed, in a subset of CEL. Only what allows has one.
        #[serde(default)]
        when: Option<String>,
        /// `false`: only for an existing agent, server and tool. Otherwise, as in the document, also for
        /// future ones.
        #[serde(default)]
        yet_unknown: Option<bool>,
    }
}

request! {
    /// `mgp/access/revoke`; answers [`Revoked`]. Revokes every entry of this kind, whatever its permission.
    Revoke {
        /// The agent of the entry.
        agent_id: String,
        /// The server.
        server_id: String,
        /// The extent.
        entry_type: EntryType,
        /// The tool; only with `tool_grant`.
        #[serde(default)]
        tool_name: Option<String>,
    }
}

request! {
    /// `mgp/access/list`: the entries in force; answers [`AccessList`]. For the operator.
    List {
        /// Only for this agent.
        #[serde(default)]
        agent_id: Option<String>,
        /// Only for this server.
        #[serde(default)]
        server_id: Option<String>,
        /// Only of this kind. Memberships of groups are listed only so.
        #[serde(default)]
        entry_type: Option<EntryType>,
    }
}

impl List {
    /// Whether entries of this kind are requested.
    #[must_use]
    pub fn lists(&self, entry: EntryType) -> bool {
        match self.entry_type {
            Some(wanted) => entry == wanted,
            None => entry != EntryType::GroupMember,
        }
    }
}

request! {
    /// `mgp/access/explain`: the rule that decides, and those that do not; answers an [`Explanation`]. For
    /// the operator: it reveals what is hidden from agents.
    Explain {
        /// The agent.
        agent_id: String,
        /// The server.
        server_id: String,
        /// The tool; the whole server if absent.
        #[serde(default)]
        tool_name: Option<String>,
        /// The arguments of a call, for the conditions of grants.
        #[serde(default)]
        arguments: Option<Map<String, Value>>,
    }
}

/// The answer to `mgp/access/query` (§5.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessStatus {
    /// The decision in force.
    pub permission: Permission,
    /// The level that decided.
    pub source: Source,
    /// The person who decided, if any.
    pub granted_by: Option<String>,
    /// When, RFC 3339.
    pub granted_at: Option<String>,
    /// Until when, RFC 3339.
    pub expires_at: Option<String>,
    /// A call that is denied otherwise is allowed on this condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
}

/// The answer to `mgp/access/grant`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// The new entry, 32 hexadecimal digits.
    pub grant_id: String,
    /// The replaced entries.
    pub replaced: Vec<String>,
    /// The nodes that have confirmed it, if it names an agent or a server of another node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<Confirmations>,
    /// Messages about names that do not exist, or cannot be looked up now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The answer to `mgp/access/revoke`; `revoked` is empty if there was no entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoked {
    /// The revoked entries.
    pub revoked: Vec<String>,
    /// The nodes that have confirmed it, if they name an agent or a server of another node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<Confirmations>,
    /// Messages for the operator.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The answer to `mgp/access/list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessList {
    /// The entries in force, and those in conflict with a revocation.
    pub entries: Vec<Entry>,
    /// Messages about entries that name a server or a tool that does not exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// 32 hexadecimal digits.
    pub grant_id: String,
    /// The extent: a server or one tool.
    pub entry_type: EntryType,
    /// The agent.
    pub agent_id: String,
    /// The server.
    pub server_id: String,
    /// The tool.
    pub tool_name: Option<String>,
    /// Allow or deny.
    pub permission: Permission,
    /// The person who decided.
    pub granted_by: String,
    /// When, RFC 3339.
    pub granted_at: String,
    /// Until when, RFC 3339.
    pub expires_at: Option<String>,
    /// The justification.
    pub justification: Option<String>,
    /// The condition on which it allows a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// Why it is suspended, if it conflicts with a revocation that its author did not know, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict: Option<String>,
}

/// The answer to `mgp/access/explain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The decision in force.
    pub permission: Permission,
    /// The level that decided.
    pub source: Source,
    /// The rule that decided, in a sentence.
    pub rule: String,
    /// All rules that were considered, in order of precedence, a sentence each.
    pub considered: Vec<String>,
    /// The conditions of which one must hold for a call, if they decide: `permission` is what they decide about the
    /// given arguments, and `deny` without arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<ExplainedCondition>,
    /// Messages about names that do not exist, or cannot be looked up now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Approvals that an allowed call still needs, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
}

/// A condition that decides about a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedCondition {
    /// The grant with it, 32 hexadecimal digits.
    pub grant_id: String,
    /// The condition, as it was written.
    pub when: String,
    /// Whether it holds for the given arguments; `None` without arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<bool>,
    /// The parts of it that do not hold, with the values they read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// `tool_name` does not match `entry_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTarget {
    /// A tool entry without a tool.
    #[error("entry_type \"tool_grant\" needs `tool_name`")]
    NoTool,
    /// A server entry with a tool.
    #[error(
        "entry_type \"server_grant\" is for all tools of a server; leave `tool_name` out, or say \"tool_grant\""
    )]
    ToolOfServer,
    /// A membership with a tool.
    #[error("entry_type \"group_member\" names a group in `server_id`, and no tool")]
    ToolOfGroup,
}

/// The tool of an entry: `None` for the whole server. An empty name counts as absent.
///
/// # Errors
/// [`BadTarget`] if the two do not match.
pub fn target(entry: EntryType, tool: Option<&str>) -> Result<Option<&str>, BadTarget> {
    match (entry, tool.filter(|tool| !tool.is_empty())) {
        (EntryType::ToolGrant, Some(tool)) => Ok(Some(tool)),
        (EntryType::ToolGrant, None) => Err(BadTarget::NoTool),
        (EntryType::ServerGrant, None) => Ok(None),
        (EntryType::ServerGrant, Some(_)) => Err(BadTarget::ToolOfServer),
        (EntryType::GroupMember, None) => Ok(None),
        (EntryType::GroupMember, Some(_)) => Err(BadTarget::ToolOfGroup),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::{Method, parse_params};
    use crate::refusal::Refusal;

    /// MGP-066, MGP-071: the request of §5.4 is parsed verbatim.
    #[test]
    fn grant_is_parsed_as_in_the_document() {
        let grant: Grant = parse_params(Some(
            r#"{"entry_type":"server_grant","agent_id":"agent.cloto_default",
                "server_id":"mind.cerebras","tool_name":null,"permission":"allow",
                "granted_by":"admin","justification":"Required for agent reasoning",
                "expires_at":null,"trace_id":"t","_meta":{}}"#,
        ))
        .unwrap();
        assert_eq!(Grant::METHOD, "mgp/access/grant");
        assert_eq!(grant.permission, Permission::Allow);
        assert_eq!(
            target(grant.entry_type, grant.tool_name.as_deref()),
            Ok(None)
        );
    }

    /// An unknown member might narrow a grant, so it is rejected.
    #[test]
    fn unknown_member_is_rejected_by_name() {
        let text = r#"{"agent_id":"a","server_id":"s","entry_type":"server_grant","scope":{}}"#;
        let why = parse_params::<Revoke>(Some(text)).unwrap_err();
        assert!(
            matches!(&why, Refusal::BadParams(words) if words.contains("scope")),
            "{why}"
        );
        assert!(parse_params::<Query>(Some(r#"{"agent_id":"a"}"#)).is_err());
    }

    /// MGP-069, MGP-072: a tool's entry has a tool, a server's entry has none.
    #[test]
    fn tool_name_must_match_the_entry_type() {
        use EntryType::{ServerGrant, ToolGrant};
        assert_eq!(target(ToolGrant, Some("think")), Ok(Some("think")));
        assert_eq!(target(ToolGrant, None), Err(BadTarget::NoTool));
        assert_eq!(target(ToolGrant, Some("")), Err(BadTarget::NoTool));
        assert_eq!(target(ServerGrant, None), Ok(None));
        assert_eq!(
            target(ServerGrant, Some("think")),
            Err(BadTarget::ToolOfServer)
        );
    }

    /// MGP-070: the answer has the members of §5.4, including null ones.
    #[test]
    fn access_status_has_all_members() {
        let status = AccessStatus {
            permission: Permission::Deny,
            source: Source::DefaultPolicy,
            granted_by: None,
            granted_at: None,
            expires_at: None,
            when: None,
        };
        assert_eq!(
            serde_json::to_string(&status).unwrap(),
            r#"{"permission":"deny","source":"default_policy","granted_by":null,"granted_at":null,"expires_at":null}"#
        );
        let policy: DefaultPolicy = serde_json::from_str(r#""opt-in""#).unwrap();
        assert_eq!(policy.permission(), Permission::Deny);
        assert_eq!(DefaultPolicy::OptOut.permission(), Permission::Allow);
    }
}
