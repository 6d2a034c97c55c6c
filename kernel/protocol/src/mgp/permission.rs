//! `mgp/permission/*`: what a server needs, and what it was given (MGP §3). Version 0.2 says
//! `request` and `response`, later drafts `await` and `grant`, of the same two things.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::discovery::security::RiskLevel;
use crate::mcp::methods;

methods! {
    "mgp/permission/request" => Request,
    "mgp/permission/response" => Response,
    "mgp/permission/await" => Await,
    "mgp/permission/grant" => Grant,
    "mgp/permission/revoke" => Revoke,
}

/// `mgp/permission/revoke`: the operator takes a permission back from a server. Answers [`Revoked`]
/// when that is on disk and holds for every call that has not left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revoke {
    /// From which server.
    pub server: String,
    /// Which; a short form is all it stands for.
    pub permission: String,
}

/// Answer of `mgp/permission/revoke`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoked {
    /// From which server.
    pub server: String,
    /// Which, by their full names.
    pub permissions: Vec<String>,
    /// Whether the server had any of it; it is denied from now on in any case.
    pub had: bool,
    /// Whether it is started again for that: its sandbox was opened by what was taken back.
    pub restarts: bool,
}

/// `mgp/permission/request` of 0.2. From a server it asks for a decision.
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

/// What is asked for (§3.5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Ties the decision to the question.
    pub request_id: String,
    /// In the spelling of the server.
    pub permissions: Vec<String>,
    /// How it will be decided; only the kernel says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// The message for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What was decided (§3.6).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Decision {
    /// The question it answers.
    pub request_id: String,
    /// By permission, in the spelling of the server.
    pub grants: BTreeMap<String, PermissionDecision>,
    /// Who decided.
    #[serde(default)]
    pub approved_by: Option<String>,
    /// When what was approved ends, RFC 3339; never when null.
    #[serde(default)]
    pub expires_at: Option<String>,
}

/// One permission's decision: alone, or with a scope (later drafts, §3.7).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PermissionDecision {
    /// `"approved"`.
    Plain(Verdict),
    /// `{"decision": "approved", "scope": {…}}`.
    Scoped {
        /// The decision.
        decision: Verdict,
        /// Bounds within which it holds, relayed as they are.
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

/// A decision on one permission (§3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It may.
    Approved,
    /// Not decided yet; the question stays open.
    Deferred,
    /// It may not.
    Denied,
}

/// How permission requests are decided (§3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The operator is asked for each.
    Interactive,
    /// All are approved.
    AutoApprove,
    /// All are denied that the configuration does not list.
    DenyAll,
    /// Those the configuration lists are approved, and no other.
    ConfigOnly,
}

/// What a server may want to do (§3.2).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PermissionType {
    /// One of the eleven of the document.
    Standard(Standard),
    /// Anything else, by its name: reverse-domain notation, or a name nobody knows.
    Custom(Box<str>),
}

macro_rules! standard {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $risk:ident;)*) => {
        /// The eleven permission types of §3.2.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Standard { $($(#[$doc])* $variant,)* }

        impl Standard {
            /// All of them, in the order of the document.
            pub const ALL: [Self; 11] = [$(Self::$variant),*];

            /// The name on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What the document says of it.
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
    /// Read what system this is.
    SystemInformation = "system.info", Safe;
    /// Use cameras.
    Camera = "camera", Dangerous;
    /// Notify the user.
    Notification = "notification", Safe;
}

/// The short forms in the examples of §2.3 and §3.4, and what each of them means (A-03).
const SHORT_FORMS: [(&str, &[Standard]); 3] = [
    ("shell", &[Standard::ShellExecute]),
    ("network", &[Standard::NetworkOutbound]),
    (
        "filesystem",
        &[Standard::FilesystemRead, Standard::FilesystemWrite],
    ),
];

impl PermissionType {
    /// What a name means: one type, or several for a short form (A-03). A name nobody knows is a
    /// custom type.
    #[must_use]
    pub fn parse_all(name: &str) -> Vec<Self> {
        if let Some((_, means)) = SHORT_FORMS.iter().find(|(short, _)| *short == name) {
            return means.iter().copied().map(Self::Standard).collect();
        }
        let standard = Standard::ALL.into_iter().find(|s| s.as_str() == name);
        vec![standard.map_or_else(|| Self::Custom(name.into()), Self::Standard)]
    }

    /// The names of the standard types, short forms included.
    pub fn standard_names() -> impl Iterator<Item = &'static str> + Clone {
        let short = SHORT_FORMS.iter().map(|(short, _)| *short);
        Standard::ALL.into_iter().map(Standard::as_str).chain(short)
    }

    /// The name on the wire, in full.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Standard(standard) => standard.as_str(),
            Self::Custom(name) => name,
        }
    }

    /// Its risk: what nobody knows is dangerous (A-03).
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::{Method, parse_params};

    /// MGP-032: eleven types with the risks of the document.
    #[test]
    fn the_eleven_types_have_their_risks() {
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

    /// MGP-033, MGP-034, A-03: short forms mean what they stand for, what nobody knows is dangerous.
    #[test]
    fn short_and_custom_names_are_read() {
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
    fn a_decision_is_read_with_and_without_scopes() {
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
