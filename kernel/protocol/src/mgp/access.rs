//! `mgp/access/*`: which agent may call which tool (MGP §5). As methods, and as tools of the kernel
//! under the names of [`super::matches_method`].

use serde::{Deserialize, Serialize};

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

/// How far an entry reaches (§5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryType {
    /// All tools of a server.
    ServerGrant,
    /// One tool.
    ToolGrant,
}

/// Allow or deny.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Permission {
    /// The call may be made.
    Allow,
    /// It may not.
    Deny,
}

/// What decided (§5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// An entry for the tool.
    ToolGrant,
    /// An entry for the whole server.
    ServerGrant,
    /// No entry.
    DefaultPolicy,
    /// The caller is the operator, to whom nothing is closed.
    Operator,
}

/// What holds where no entry does (§5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DefaultPolicy {
    /// Deny.
    OptIn,
    /// Allow.
    OptOut,
}

impl DefaultPolicy {
    /// What it says.
    #[must_use]
    pub const fn permission(self) -> Permission {
        match self {
            Self::OptIn => Permission::Deny,
            Self::OptOut => Permission::Allow,
        }
    }
}

request! {
    /// `mgp/access/query`; answers a [`AccessStatus`].
    Query {
        /// Whom it is about: a claim, allowed to the operator and to that agent itself.
        agent_id: String,
        /// The server.
        server_id: String,
        /// Which of its tools; the server as a whole when absent.
        #[serde(default)]
        tool_name: Option<String>,
    }
}

request! {
    /// `mgp/access/grant`; answers [`Granted`] once it is on disk and in force.
    Grant {
        /// Whether it is for a server or for one tool.
        entry_type: EntryType,
        /// The agent it is for.
        agent_id: String,
        /// On which server.
        server_id: String,
        /// For which tool; belongs to `tool_grant` and to nothing else.
        #[serde(default)]
        tool_name: Option<String>,
        /// Allow or deny.
        permission: Permission,
        /// Who decided, as the caller tells it: shown, and never taken for who asked.
        #[serde(default)]
        granted_by: Option<String>,
        /// Why, for those who read it later.
        #[serde(default)]
        justification: Option<String>,
        /// When it ends, RFC 3339; never when absent.
        #[serde(default)]
        expires_at: Option<String>,
        /// `false`: only for an agent, a server and a tool that are there. Else, as in the document,
        /// also for those that are still to come.
        #[serde(default)]
        yet_unknown: Option<bool>,
    }
}

request! {
    /// `mgp/access/revoke`; answers [`Revoked`]. Takes back every entry of this kind, whatever it says.
    Revoke {
        /// The agent of the entry.
        agent_id: String,
        /// On which server.
        server_id: String,
        /// Which of the two kinds.
        entry_type: EntryType,
        /// For which tool; belongs to `tool_grant` and to nothing else.
        #[serde(default)]
        tool_name: Option<String>,
    }
}

request! {
    /// `mgp/access/list`: the entries in force; answers [`AccessList`]. For the operator.
    List {
        /// Only of this agent.
        #[serde(default)]
        agent_id: Option<String>,
        /// Only on this server.
        #[serde(default)]
        server_id: Option<String>,
    }
}

request! {
    /// `mgp/access/explain`: which rule decides and which do not; answers an [`Explanation`]. For the
    /// operator: it tells of what is hidden from agents.
    Explain {
        /// The agent.
        agent_id: String,
        /// The server.
        server_id: String,
        /// Which of its tools; the server as a whole when absent.
        #[serde(default)]
        tool_name: Option<String>,
    }
}

/// Answer of `mgp/access/query` (§5.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessStatus {
    /// The decision in force.
    pub permission: Permission,
    /// The level that decided.
    pub source: Source,
    /// Who decided, where somebody did.
    pub granted_by: Option<String>,
    /// When, RFC 3339.
    pub granted_at: Option<String>,
    /// Until when, RFC 3339.
    pub expires_at: Option<String>,
}

/// Answer of `mgp/access/grant`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// The new entry, 32 hexadecimal digits.
    pub grant_id: String,
    /// The entries it took the place of.
    pub replaced: Vec<String>,
    /// Who has it, where it names an agent or a server of another node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<Confirmations>,
    /// What it names and is not there, or cannot be looked up now; in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Answer of `mgp/access/revoke`; `revoked` is empty when there was nothing to take back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoked {
    /// The entries that ended.
    pub revoked: Vec<String>,
    /// Who knows, where they name an agent or a server of another node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<Confirmations>,
    /// What is worth knowing; in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Answer of `mgp/access/list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessList {
    /// The entries in force, and those that are in conflict with a revoke.
    pub entries: Vec<Entry>,
    /// Which of them name a server or a tool that is not there; in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// One entry, as shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// 32 hexadecimal digits.
    pub grant_id: String,
    /// Whether it is for a server or for one tool.
    pub entry_type: EntryType,
    /// The agent it is for.
    pub agent_id: String,
    /// On which server.
    pub server_id: String,
    /// The tool.
    pub tool_name: Option<String>,
    /// Allow or deny.
    pub permission: Permission,
    /// Who decided.
    pub granted_by: String,
    /// When, RFC 3339.
    pub granted_at: String,
    /// Until when, RFC 3339.
    pub expires_at: Option<String>,
    /// The reason given.
    pub justification: Option<String>,
    /// Why it does not count, where a revoke that its author did not know of closes it; in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict: Option<String>,
}

/// Answer of `mgp/access/explain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The decision in force.
    pub permission: Permission,
    /// The level that decided.
    pub source: Source,
    /// The rule that decided, in a sentence.
    pub rule: String,
    /// Everything that was looked at, the most important first, a sentence each.
    pub considered: Vec<String>,
    /// What was asked about and is not there, or cannot be looked up now; in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What a call has to wait for although it is allowed, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
}

/// `tool_name` does not go with `entry_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTarget {
    /// One tool was meant and none is named.
    #[error("entry_type \"tool_grant\" needs `tool_name`")]
    NoTool,
    /// A whole server was meant and a tool is named.
    #[error(
        "entry_type \"server_grant\" is for all tools of a server; leave `tool_name` out, or say \"tool_grant\""
    )]
    ToolOfServer,
}

/// The tool an entry is for: `None` for the whole server. An empty name counts as none.
///
/// # Errors
/// [`BadTarget`] when the two do not go together.
pub fn target(entry: EntryType, tool: Option<&str>) -> Result<Option<&str>, BadTarget> {
    match (entry, tool.filter(|tool| !tool.is_empty())) {
        (EntryType::ToolGrant, Some(tool)) => Ok(Some(tool)),
        (EntryType::ToolGrant, None) => Err(BadTarget::NoTool),
        (EntryType::ServerGrant, None) => Ok(None),
        (EntryType::ServerGrant, Some(_)) => Err(BadTarget::ToolOfServer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::{Method, parse_params};
    use crate::refusal::Refusal;

    /// MGP-066, MGP-071: the request of §5.4 is read as it stands in the document.
    #[test]
    fn a_grant_is_read_as_the_document_writes_it() {
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

    /// A member that might narrow a grant is not read over.
    #[test]
    fn an_unknown_member_is_refused_by_name() {
        let text = r#"{"agent_id":"a","server_id":"s","entry_type":"server_grant","scope":{}}"#;
        let why = parse_params::<Revoke>(Some(text)).unwrap_err();
        assert!(
            matches!(&why, Refusal::BadParams(words) if words.contains("scope")),
            "{why}"
        );
        assert!(parse_params::<Query>(Some(r#"{"agent_id":"a"}"#)).is_err());
    }

    /// MGP-069, MGP-072: a tool's entry names its tool, a server's entry none.
    #[test]
    fn an_entry_names_a_tool_exactly_when_it_is_for_one() {
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

    /// MGP-070: the answer has the members of §5.4, null ones too.
    #[test]
    fn a_standing_has_all_its_members() {
        let standing = AccessStatus {
            permission: Permission::Deny,
            source: Source::DefaultPolicy,
            granted_by: None,
            granted_at: None,
            expires_at: None,
        };
        assert_eq!(
            serde_json::to_string(&standing).unwrap(),
            r#"{"permission":"deny","source":"default_policy","granted_by":null,"granted_at":null,"expires_at":null}"#
        );
        let policy: DefaultPolicy = serde_json::from_str(r#""opt-in""#).unwrap();
        assert_eq!(policy.permission(), Permission::Deny);
        assert_eq!(DefaultPolicy::OptOut.permission(), Permission::Allow);
    }
}
