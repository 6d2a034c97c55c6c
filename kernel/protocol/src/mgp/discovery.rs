//! `mgp/discovery/*`: which servers there are, and servers that come and go while the kernel runs
//! (MGP §15). As methods, and as tools of the kernel under the names of [`super::matches_method`].

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
        /// Which; all when it is empty.
        #[serde(default)]
        filter: Filter,
    }
}

/// Which servers to list: those all of this is true of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// They speak each of these.
    #[serde(default)]
    pub extensions: Vec<String>,
    /// They need each of these.
    #[serde(default)]
    pub(crate) permissions: Vec<String>,
    /// They are in this state.
    #[serde(default)]
    pub(crate) status: Option<Status>,
}

impl Filter {
    /// Whether a server is to be listed that speaks, needs and is this.
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

/// The state a server is to be in: one of MGP §11.2, or any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Any (later drafts).
    All,
    /// Configured, not started.
    Registered,
    /// On its way.
    Connecting,
    /// Takes calls.
    Connected,
    /// Takes nothing new.
    Draining,
    /// Stopped.
    Disconnected,
    /// Failed.
    Error,
    /// Between two lives.
    Restarting,
}

impl Status {
    /// The word on the wire.
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

    /// Whether a server in this state of MGP §11.2 is meant.
    #[must_use]
    pub(crate) fn matches_state(self, state: &str) -> bool {
        self == Self::All || self.as_str() == state
    }
}

/// Answer of `mgp/discovery/list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Servers {
    /// Ordered by id.
    pub servers: Vec<Server>,
}

/// A server, as others are told of it (§15.2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Its id.
    pub id: String,
    /// Its state (§11.2).
    pub status: String,
    /// The MGP spoken with it; `None` for plain MCP, and before it has said so.
    pub mgp_version: Option<String>,
    /// The extensions spoken with it; before it is connected those it is configured with.
    pub extensions: Vec<String>,
    /// The permissions it needs, as far as it has said so or is configured with.
    #[serde(default)]
    pub permissions_required: Vec<String>,
    /// Its tools, those that who asks may know of.
    pub tools: Vec<String>,
    /// How far it is trusted.
    pub trust_level: String,
    /// On which node, when it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The agent that registered it, when it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// Why it takes no calls, and what it wrote last: for who registered it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

request! {
    /// `mgp/discovery/register`: a server made while the kernel runs; answers [`Registered`]. Its
    /// variables are secrets.
    Register {
        /// Its name. It is free again when the server is taken out.
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
        /// Where it is, for `http`.
        #[serde(default)]
        url: Option<String>,
        /// How it is reached.
        #[serde(default)]
        transport: Transport,
        /// Its program, when it is not on disk yet: the kernel writes it where the server may read it.
        #[serde(default)]
        code: Option<Program>,
        /// What it speaks and needs.
        #[serde(default)]
        mgp: Declaration,
        /// Who made it: a claim. Agents can only name themselves.
        #[serde(default)]
        created_by: Option<String>,
        /// What it is for, for those who decide and for the audit.
        #[serde(default)]
        justification: Option<String>,
        /// It ends with the session that registered it.
        #[serde(default)]
        session_scoped: bool,
        /// Only tell what would come of it. Nothing is written and nothing is run.
        #[serde(default)]
        preview: bool,
    }
}

/// How a server is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// A child process.
    #[default]
    Stdio,
    /// Streamable HTTP.
    Http,
}

/// A program that comes with its registration (A-51). Its file's path is added to the arguments.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// `python` or `javascript`.
    pub language: String,
    /// All of it.
    pub text: String,
}

/// `mgp` of a registration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declaration {
    /// Extensions it is said to speak.
    #[serde(default)]
    pub extensions: Vec<String>,
    /// Permissions it needs.
    #[serde(default)]
    pub permissions_required: Vec<String>,
    /// The trust that is asked for, in the words of 0.2 or of later drafts. It is not given for the
    /// asking.
    #[serde(default)]
    pub trust_level: Option<String>,
}

/// Answer of `mgp/discovery/register`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// Its name.
    pub id: String,
    /// Where it stands (§11.2); `preview` when nothing was done.
    pub status: String,
    /// How far it is trusted, whatever was asked for.
    pub trust_level: String,
    /// Its tools that can be called now.
    pub tools: Vec<String>,
    /// What has to be decided before the rest can be, line by line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<String>,
    /// What was changed or left out of what was asked for, line by line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

request! {
    /// `mgp/discovery/deregister`: drains a server that was registered while the kernel ran, stops it
    /// and forgets it; answers [`Deregistered`] when it is gone.
    Deregister {
        /// The server's id.
        id: String,
        /// Why, for the audit.
        #[serde(default)]
        reason: Option<String>,
    }
}

/// Answer of `mgp/discovery/deregister`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deregistered {
    /// The server's id.
    pub id: String,
    /// The tools that went with it.
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

    /// MGP-220, MGP-221: each filter by itself, all together, and none.
    #[test]
    fn a_server_is_listed_when_all_of_the_filter_is_true_of_it() {
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

    /// MGP-220: the members of the document come first and are always there.
    #[test]
    fn a_server_is_told_as_the_document_writes_it() {
        let mut told = server("mind.cerebras", "connected", &["security"], &[]);
        told.mgp_version = Some("0.1.0".into());
        told.tools = vec!["think".into()];
        told.trust_level = "standard".into();
        let text = serde_json::to_string(&told).unwrap();
        assert_eq!(
            text,
            r#"{"id":"mind.cerebras","status":"connected","mgp_version":"0.1.0","extensions":["security"],"permissions_required":[],"tools":["think"],"trust_level":"standard"}"#
        );
    }

    /// MGP-224, MGP-226: the example of §15.4 and the words of later drafts; what is missing or
    /// misspelt is said.
    #[test]
    fn a_registration_is_read_as_the_document_writes_it() {
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
        for (bad, told) in [
            ("{}", "id"),
            (r#"{"id":7}"#, "string"),
            (r#"{"id":"x","args":"-c"}"#, "sequence"),
            (r#"{"id":"x","transport":"carrier-pigeon"}"#, "stdio"),
            (r#"{"id":"x","mgp":{"trust":"core"}}"#, "trust_level"),
            (r#"{"id":"x","shell":true}"#, "shell"),
        ] {
            let error = parse_params::<Register>(Some(bad)).unwrap_err().to_string();
            assert!(error.contains(told), "{bad}: {error}");
        }
    }

    /// MGP-229: the example of §15.5.
    #[test]
    fn a_deregistration_is_read_as_the_document_writes_it() {
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
