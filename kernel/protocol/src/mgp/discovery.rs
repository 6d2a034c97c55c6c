//! `mgp/discovery/*`: the list of servers, and registration at runtime (MGP §15). As methods, and as tools
//! of the kernel under the names of [`super::matches_method`].

pub mod security;
mod tool;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::request;
use crate::mcp::methods;

pub use self::tool::DiscoveryTool;

methods! {
    "mgp/discovery/list" => List,
    "mgp/discovery/register" => Register,
    "mgp/discovery/deregister" => Deregister,
}

request! {
    /// `mgp/discovery/list`; answers [`Servers`].
    List {
        /// The filter; an empty one selects all servers.
        #[serde(default)]
        filter: Filter,
    }
}

/// The conditions of listed servers; all must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// The extensions that the server supports.
    #[serde(default)]
    pub(crate) extensions: Vec<String>,
    /// The permissions that the server needs.
    #[serde(default)]
    pub(crate) permissions: Vec<String>,
    /// The state of the server.
    #[serde(default)]
    pub(crate) status: Option<Status>,
}

impl Filter {
    /// True if the server matches the filter.
    #[must_use]
    pub fn matches(&self, server: &Server) -> bool {
        let has_all = |wanted: &[String], own: &[String]| wanted.iter().all(|w| own.contains(w));
        has_all(&self.extensions, &server.extensions)
            && has_all(&self.permissions, &server.permissions_required)
            && self
                .status
                .is_none_or(|status| status.matches_state(&server.status))
    }
}

/// The state in a filter: one of MGP §11.2, or any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Any (later drafts).
    All,
    /// Configured, not started.
    Registered,
    /// Connecting.
    Connecting,
    /// Accepts calls.
    Connected,
    /// Accepts no new calls.
    Draining,
    /// Stopped.
    Disconnected,
    /// Failed.
    Error,
    /// Stopped, before the next start.
    Restarting,
}

impl Status {
    /// The value on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Registered => "registered",
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Draining => "draining",
            Self::Disconnected => "disconnected",
            Self::Error => "error",
            Self::Restarting => "restarting",
        }
    }

    /// True if a server in this state of MGP §11.2 matches.
    #[must_use]
    pub(crate) fn matches_state(self, state: &str) -> bool {
        self == Self::All || self.as_str() == state
    }
}

/// The answer to `mgp/discovery/list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Servers {
    /// Sorted by id.
    pub servers: Vec<Server>,
}

/// A server, as listed (§15.2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Its id.
    pub id: String,
    /// Its state (§11.2).
    pub status: String,
    /// The negotiated MGP version; `None` without MGP, and before the negotiation.
    pub mgp_version: Option<String>,
    /// The negotiated extensions; before the connection the configured ones.
    pub extensions: Vec<String>,
    /// The permissions it needs, as declared or configured.
    #[serde(default)]
    pub permissions_required: Vec<String>,
    /// Its tools that are visible to the caller.
    pub tools: Vec<String>,
    /// Its trust level.
    pub trust_level: String,
    /// Its node, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The agent that registered it, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// Why it accepts no calls, and its last output: for the agent that registered it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

request! {
    /// `mgp/discovery/register`: registers a server at runtime; answers [`Registered`]. Its variables are
    /// secrets.
    Register {
        /// Its id. It is free again when the server is deregistered.
        id: String,
        /// The program, for `stdio`.
        #[serde(default)]
        command: Option<String>,
        /// Its arguments.
        #[serde(default)]
        args: Vec<String>,
        /// Added to its clean environment.
        #[serde(default)]
        env: BTreeMap<String, String>,
        /// The URL, for `http`.
        #[serde(default)]
        url: Option<String>,
        /// The transport.
        #[serde(default)]
        transport: Transport,
        /// Its program, if it is not on disk yet: the kernel stores it where the server may read it.
        #[serde(default)]
        code: Option<Program>,
        /// Its MGP declaration.
        #[serde(default)]
        mgp: Declaration,
        /// The creator, unverified. Agents can only name themselves.
        #[serde(default)]
        created_by: Option<String>,
        /// The purpose, for the decision and for the audit.
        #[serde(default)]
        justification: Option<String>,
        /// True if it ends with the session that registered it.
        #[serde(default)]
        session_scoped: bool,
        /// Only return the result. Nothing is stored or started.
        #[serde(default)]
        preview: bool,
    }
}

/// The transport of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// A child process.
    #[default]
    Stdio,
    /// Streamable HTTP.
    Http,
}

/// A program in a registration (A-51). The path of its file is appended to the arguments.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// `python` or `javascript`.
    pub language: String,
    /// The whole text.
    pub text: String,
}

/// The `mgp` of a registration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declaration {
    /// The extensions that it supports.
    #[serde(default)]
    pub extensions: Vec<String>,
    /// The permissions that it needs.
    #[serde(default)]
    pub permissions_required: Vec<String>,
    /// The requested trust level, in the values of 0.2 or of later drafts. It is not granted automatically.
    #[serde(default)]
    pub trust_level: Option<String>,
}

/// The answer to `mgp/discovery/register`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// Its id.
    pub id: String,
    /// Its state (§11.2); `preview` if nothing was done.
    pub status: String,
    /// Its effective trust level, whatever was requested.
    pub trust_level: String,
    /// Its tools that can be called now.
    pub tools: Vec<String>,
    /// The decisions that other tools wait for, line by line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<String>,
    /// Changed or omitted parts of the request, line by line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

request! {
    /// `mgp/discovery/deregister`: drains a server that was registered at runtime, stops and removes it;
    /// answers [`Deregistered`] afterwards.
    Deregister {
        /// The server's id.
        id: String,
        /// The reason, for the audit.
        #[serde(default)]
        reason: Option<String>,
    }
}

/// The answer to `mgp/discovery/deregister`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deregistered {
    /// The server's id.
    pub id: String,
    /// Its removed tools.
    pub tools: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::{Method, parse_params};
    use serde_json::json;

    fn server(id: &str, status: &str, extensions: &[&str], permissions: &[&str]) -> Server {
        let owned = |words: &[&str]| words.iter().map(ToString::to_string).collect();
        Server {
            id: id.into(),
            status: status.into(),
            extensions: owned(extensions),
            permissions_required: owned(permissions),
            ..Server::default()
        }
    }

    fn listed(filter: serde_json::Value) -> Vec<String> {
        let params = json!({ "filter": filter }).to_string();
        let list: List = parse_params(Some(&params)).unwrap();
        [
            server("a", "connected", &["streaming"], &["network.outbound"]),
            server("b", "connected", &["streaming", "audit"], &[]),
            server("c", "draining", &["streaming"], &["network.outbound"]),
            server("d", "registered", &[], &["network.outbound", "camera"]),
        ]
        .into_iter()
        .filter(|server| list.filter.matches(server))
        .map(|server| server.id)
        .collect()
    }

    /// MGP-220, MGP-221: each filter separately, all together, and none.
    #[test]
    fn server_must_match_all_conditions_of_the_filter() {
        assert_eq!(listed(json!({})), ["a", "b", "c", "d"]);
        assert_eq!(
            listed(json!({"extensions": ["streaming"]})),
            ["a", "b", "c"]
        );
        assert_eq!(listed(json!({"extensions": ["streaming", "audit"]})), ["b"]);
        assert_eq!(
            listed(json!({"permissions": ["network.outbound"]})),
            ["a", "c", "d"]
        );
        assert_eq!(listed(json!({"status": "connected"})), ["a", "b"]);
        assert_eq!(listed(json!({"status": "all"})), ["a", "b", "c", "d"]);
        let all = json!({"extensions": ["streaming"], "permissions": ["network.outbound"],
            "status": "connected"});
        assert_eq!(listed(all), ["a"]);
        assert!(
            parse_params::<List>(None)
                .unwrap()
                .filter
                .matches(&Server::default())
        );
        for bad in [
            r#"{"filter":{"state":"connected"}}"#,
            r#"{"filter":{"status":"up"}}"#,
        ] {
            assert!(parse_params::<List>(Some(bad)).is_err(), "{bad}");
        }
    }

    /// MGP-220: the members of the document come first and are always present.
    #[test]
    fn server_is_listed_as_in_the_document() {
        let mut expected = server("mind.cerebras", "connected", &["security"], &[]);
        expected.mgp_version = Some("0.1.0".into());
        expected.tools = vec!["think".into()];
        expected.trust_level = "standard".into();
        let text = serde_json::to_string(&expected).unwrap();
        assert_eq!(
            text,
            r#"{"id":"mind.cerebras","status":"connected","mgp_version":"0.1.0","extensions":["security"],"permissions_required":[],"tools":["think"],"trust_level":"standard"}"#
        );
    }

    /// MGP-224, MGP-226: the example of §15.4 and the values of later drafts; missing and misspelt members
    /// are reported.
    #[test]
    fn registration_is_parsed_as_in_the_document() {
        let text = r#"{"id":"dynamic.custom_tool","command":"python","args":["scripts/mcp_custom.py"],
            "transport":"stdio","mgp":{"extensions":["security"],
            "permissions_required":["network.outbound"],"trust_level":"sandboxed"},
            "created_by":"agent.cloto_default","justification":"needed"}"#;
        let ask: Register = parse_params(Some(text)).unwrap();
        assert_eq!(ask.command.as_deref(), Some("python"));
        assert_eq!(ask.mgp.trust_level.as_deref(), Some("sandboxed"));
        assert!(!ask.preview && !ask.session_scoped && ask.code.is_none());
        let later = r#"{"id":"x","transport":"http","url":"https://example.com/mcp",
            "mgp":{"trust_level":"experimental"},"preview":true}"#;
        let later: Register = parse_params(Some(later)).unwrap();
        assert_eq!((later.transport, later.preview), (Transport::Http, true));
        for (bad, expected) in [
            ("{}", "id"),
            (r#"{"id":7}"#, "string"),
            (r#"{"id":"x","args":"-c"}"#, "sequence"),
            (r#"{"id":"x","transport":"carrier-pigeon"}"#, "stdio"),
            (r#"{"id":"x","mgp":{"trust":"core"}}"#, "trust_level"),
            (r#"{"id":"x","shell":true}"#, "shell"),
        ] {
            let error = parse_params::<Register>(Some(bad)).unwrap_err().to_string();
            assert!(error.contains(expected), "{bad}: {error}");
        }
    }

    /// MGP-229: the example of §15.5.
    #[test]
    fn deregistration_is_parsed_as_in_the_document() {
        let text = r#"{"id":"dynamic.custom_tool","reason":"no_longer_needed"}"#;
        let ask: Deregister = parse_params(Some(text)).unwrap();
        assert_eq!(
            (&*ask.id, ask.reason.is_some()),
            ("dynamic.custom_tool", true)
        );
        assert!(parse_params::<Deregister>(Some("{}")).is_err());
        assert_eq!(
            [List::METHOD, Register::METHOD, Deregister::METHOD],
            [
                "mgp/discovery/list",
                "mgp/discovery/register",
                "mgp/discovery/deregister"
            ]
        );
    }
}
