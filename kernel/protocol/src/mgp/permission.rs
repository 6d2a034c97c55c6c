//! `mgp/permission/*`: the permissions of servers (MGP §3). Version 0.2 uses `request` and `response`,
//! later drafts `await` and `grant`, for the same two messages.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::discovery::security::RiskLevel;
use crate::mcp::methods;

methods! {
    "mgp/permission/request" => Request,
    "mgp/permission/response" => Response,
    "mgp/permission/await" => Await,
    "mgp/permission/grant" => Grant,
    "mgp/permission/revoke" => Revoke,
}

/// `mgp/permission/revoke`: the operator revokes a permission of a server. Answers [`Revoked`] when that is
/// on disk and applies to every call that was not dispatched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revoke {
    /// The server.
    pub server: String,
    /// The permission; a short form for all it stands for.
    pub permission: String,
}

/// The answer to `mgp/permission/revoke`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoked {
    /// The server.
    pub server: String,
    /// The permissions, by their full names.
    pub permissions: Vec<String>,
    /// True if the server had any of them; they are denied from now on in any case.
    pub had: bool,
    /// True if the server is restarted, because its sandbox allowed the revoked permission.
    pub restarts: bool,
}

/// `mgp/permission/request` of 0.2: a server's request for a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request(pub Ask);

/// `mgp/permission/await` of later drafts: a [`Request`] under another name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Await(pub Ask);

/// `mgp/permission/response` of 0.2; also the form of the result of a [`Request`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Response(pub Decision);

/// `mgp/permission/grant` of later drafts: a [`Response`] under another name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Grant(pub Decision);

/// The requested permissions (§3.5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// The id of the request.
    pub request_id: String,
    /// The permissions, in the server's spelling.
    pub permissions: Vec<String>,
    /// The policy of the decision; set by the kernel only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// The text for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The decision (§3.6).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Decision {
    /// The id of the request.
    pub request_id: String,
    /// By permission, in the server's spelling.
    pub grants: BTreeMap<String, PermissionDecision>,
    /// The person who decided.
    #[serde(default)]
    pub approved_by: Option<String>,
    /// When an approval expires, RFC 3339; never if null.
    #[serde(default)]
    pub expires_at: Option<String>,
}

/// The decision about one permission: plain, or with a scope (later drafts, §3.7).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PermissionDecision {
    /// `"approved"`.
    Plain(Verdict),
    /// `{"decision": "approved", "scope": {…}}`.
    Scoped {
        /// The decision.
        decision: Verdict,
        /// The scope of an approval, relayed unchanged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scope: Option<serde_json::Value>,
    },
}

impl PermissionDecision {
    /// The decision, whatever its scope.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Plain(verdict)
            | Self::Scoped {
                decision: verdict, ..
            } => *verdict,
        }
    }
}

/// A decision about one permission (§3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It may.
    Approved,
    /// Not decided yet; the request stays pending.
    Deferred,
    /// It may not.
    Denied,
}

/// The policy for permission requests (§3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// A person decides each request.
    Interactive,
    /// All are approved.
    AutoApprove,
    /// Permissions that are not configured are denied.
    DenyAll,
    /// Only configured permissions are approved.
    ConfigOnly,
}

/// A permission type (§3.2).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PermissionType {
    /// One of the eleven standard types.
    Standard(Standard),
    /// A custom type: in reverse-domain notation, or an unknown name.
    Custom(Box<str>),
}

macro_rules! standard {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $risk:ident;)*) => {
        /// The eleven permission types of §3.2.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Standard { $($(#[$doc])* $variant,)* }

        impl Standard {
            /// All types, in the order of the document.
            pub const ALL: [Self; 11] = [$(Self::$variant),*];

            /// The name on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The risk according to the document.
            #[must_use]
            pub const fn risk(self) -> RiskLevel {
                match self { $(Self::$variant => RiskLevel::$risk,)* }
            }
        }
    };
}

standard! {
    /// Read files of the host.
    FilesystemRead = "filesystem.read", Moderate;
    /// Write, create and delete files.
    FilesystemWrite = "filesystem.write", Dangerous;
    /// Make network requests.
    NetworkOutbound = "network.outbound", Moderate;
    /// Listen on a port.
    NetworkListen = "network.listen", Dangerous;
    /// Run shell commands.
    ShellExecute = "shell.execute", Dangerous;
    /// Run any code.
    CodeExecution = "code_execution", Dangerous;
    /// Read memory and knowledge stores.
    MemoryRead = "memory.read", Safe;
    /// Write memory and knowledge stores.
    MemoryWrite = "memory.write", Moderate;
    /// Read system information.
    SystemInformation = "system.info", Safe;
    /// Use cameras.
    Camera = "camera", Dangerous;
    /// Notify the user.
    Notification = "notification", Safe;
}

/// The short forms in the examples of §2.3 and §3.4, with their permissions (A-03).
const SHORT_FORMS: [(&str, &[Standard]); 3] = [
    ("shell", &[Standard::ShellExecute]),
    ("network", &[Standard::NetworkOutbound]),
    (
        "filesystem",
        &[Standard::FilesystemRead, Standard::FilesystemWrite],
    ),
];

impl PermissionType {
    /// Parses a name: one type, or several for a short form (A-03). An unknown name is a custom type.
    #[must_use]
    pub fn parse_all(name: &str) -> Vec<Self> {
        if let Some((_, means)) = SHORT_FORMS.iter().find(|(short, _)| *short == name) {
            return means.iter().copied().map(Self::Standard).collect();
        }
        let standard = Standard::ALL.into_iter().find(|s| s.as_str() == name);
        vec![standard.map_or_else(|| Self::Custom(name.into()), Self::Standard)]
    }

    /// The names of the standard types, including short forms.
    pub fn standard_names() -> impl Iterator<Item = &'static str> + Clone {
        let short = SHORT_FORMS.iter().map(|(short, _)| *short);
        Standard::ALL.into_iter().map(Standard::as_str).chain(short)
    }

    /// The full name on the wire.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Standard(standard) => standard.as_str(),
            Self::Custom(name) => name,
        }
    }

    /// Its risk: unknown types are dangerous (A-03).
    #[must_use]
    pub fn risk(&self) -> RiskLevel {
        match self {
            Self::Standard(standard) => standard.risk(),
            Self::Custom(_) => RiskLevel::Dangerous,
        }
    }
}

impl fmt::Display for PermissionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The answer of a server to `mgp/permission/request`: a decision of its own has no effect here; an answer
/// shows that the server supports the method.
#[derive(Debug, Deserialize)]
pub struct Acknowledged<'a> {
    /// The id of the acknowledged request.
    #[serde(borrow, default)]
    pub request_id: Option<&'a RawValue>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::{Method, parse_params};

    /// MGP-032: eleven types with the risks of the document.
    #[test]
    fn standard_types_have_their_risks() {
        let table: Vec<String> = Standard::ALL
            .iter()
            .map(|s| format!("{} {}", s.as_str(), s.risk().as_str()))
            .collect();
        assert_eq!(
            table,
            [
                "filesystem.read moderate",
                "filesystem.write dangerous",
                "network.outbound moderate",
                "network.listen dangerous",
                "shell.execute dangerous",
                "code_execution dangerous",
                "memory.read safe",
                "memory.write moderate",
                "system.info safe",
                "camera dangerous",
                "notification safe",
            ]
        );
        for standard in Standard::ALL {
            let read = PermissionType::parse_all(standard.as_str());
            assert_eq!(read, [PermissionType::Standard(standard)]);
        }
    }

    /// MGP-033, MGP-034, A-03: short forms are expanded, unknown types are dangerous.
    #[test]
    fn short_and_custom_names_are_parsed() {
        let names = |name| {
            let read = PermissionType::parse_all(name);
            read.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(names("shell"), ["shell.execute"]);
        assert_eq!(names("network"), ["network.outbound"]);
        assert_eq!(names("filesystem"), ["filesystem.read", "filesystem.write"]);
        assert_eq!(names("com.example.custom"), ["com.example.custom"]);
        for custom in ["com.example.custom", "root", "Shell", "shell.execute "] {
            assert_eq!(
                PermissionType::parse_all(custom)[0].risk(),
                RiskLevel::Dangerous
            );
        }
    }

    /// MGP-040, MGP-041: both spellings, the members of the document.
    #[test]
    fn both_spellings_carry_the_same_members() {
        let ask = Ask {
            request_id: "perm-001".into(),
            permissions: vec!["shell.execute".into()],
            policy: Some(Policy::Interactive),
            message: Some("Waiting for operator approval".into()),
        };
        let text = serde_json::to_string(&Request(ask.clone())).unwrap();
        assert_eq!(
            text,
            r#"{"request_id":"perm-001","permissions":["shell.execute"],"policy":"interactive","message":"Waiting for operator approval"}"#
        );
        assert_eq!(parse_params::<Await>(Some(&text)).unwrap().0, ask);
        assert_eq!(
            [
                Request::METHOD,
                Response::METHOD,
                Await::METHOD,
                Grant::METHOD
            ],
            [
                "mgp/permission/request",
                "mgp/permission/response",
                "mgp/permission/await",
                "mgp/permission/grant"
            ]
        );
    }

    /// MGP-042: the three values, with and without a scope.
    #[test]
    fn decision_is_parsed_with_and_without_scopes() {
        let text = r#"{"request_id":"p","grants":{"shell.execute":{"decision":"approved",
            "scope":{"commands":["git"]}},"camera":"denied","notification":"deferred"},
            "approved_by":"admin","expires_at":"2026-03-01T00:00:00Z"}"#;
        let Grant(decision) = parse_params(Some(text)).unwrap();
        let verdicts: Vec<Verdict> = decision
            .grants
            .values()
            .map(PermissionDecision::verdict)
            .collect();
        assert_eq!(
            verdicts,
            [Verdict::Denied, Verdict::Deferred, Verdict::Approved]
        );
        assert!(
            parse_params::<Grant>(Some(r#"{"request_id":"p","grants":{"camera":"yes"}}"#)).is_err()
        );
    }
}
