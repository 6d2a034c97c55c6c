//! Tool rejections (MGP 0.6.1 §14.7): calls that were delivered and that policy refused, as results with `isError`. A
//! peer that announces an older version neither gets nor gives them.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Denial, Refusal};
use crate::dialect::{ProtocolFamily, Version};

/// The most content blocks of a server's result in which a rejection is looked for.
const BLOCKS_MAX: usize = 8;
/// The most bytes of a server's rejection; it is stored in the audit log.
const BODY_MAX: usize = 8 << 10;

/// The registry of §14.7.3.
const CODES: [&str; 9] = [
    "YOLO_REQUIRED",
    ACCESS_DENIED,
    "SEAL_UNSIGNED",
    RISK_UNAPPROVED,
    CODE_UNSAFE,
    DELEGATION_CYCLE,
    DELEGATION_DEPTH,
    "SELF_DELEGATION",
    UNKNOWN,
];
const ACCESS_DENIED: &str = "ACCESS_DENIED";
const RISK_UNAPPROVED: &str = "RISK_UNAPPROVED";
const CODE_UNSAFE: &str = "CODE_UNSAFE";
const DELEGATION_CYCLE: &str = "DELEGATION_CYCLE";
const DELEGATION_DEPTH: &str = "DELEGATION_DEPTH";
/// The code of a rejection without one of the registry.
const UNKNOWN: &str = "UNKNOWN";

/// A refusal of the kernel, for a caller that gets a rejection in its place.
#[derive(Clone, Debug)]
pub struct ToolRejection {
    /// The refusal, which decides everything but the rendering.
    pub refusal: Refusal,
    body: Value,
}

impl ToolRejection {
    /// Renders the result for this version.
    pub(super) fn render(&self, version: Version) -> String {
        let text = self.body.to_string();
        let mut result = json!({"content": [{"type": "text", "text": text}], "isError": true});
        if version.family() == ProtocolFamily::Stateless {
            result["resultType"] = "complete".into();
        }
        result.to_string()
    }
}

impl Refusal {
    /// As a rejection, if a policy of the registry refused the call; unchanged otherwise: those stay errors.
    #[must_use]
    pub fn into_tool_rejection(self) -> Self {
        let Self::Denied(denial) = &self else {
            return self;
        };
        let Some((code, is_retryable)) = rejection_code(denial) else {
            return self;
        };
        let mut body = json!({
            "status": "rejected", "code": code, "reason": rejection_reason(denial), "retryable": is_retryable
        });
        if let Denial::UnsafeCode { violations, .. } = &**denial {
            body["violations"] = violations.as_slice().into();
        }
        Self::Rejected(Box::new(ToolRejection {
            refusal: self,
            body,
        }))
    }
}

/// The code of the registry, and whether an operator can lift the refusal.
fn rejection_code(denial: &Denial) -> Option<(&'static str, bool)> {
    match denial {
        Denial::NotGranted { .. } | Denial::Condition { .. } => Some((ACCESS_DENIED, true)),
        Denial::Unconfirmed { .. } => Some((RISK_UNAPPROVED, true)),
        Denial::UnsafeCode { .. } => Some((CODE_UNSAFE, true)),
        Denial::AskCycle(_) => Some((DELEGATION_CYCLE, false)),
        Denial::AskDepth(_) => Some((DELEGATION_DEPTH, false)),
        // §14.3 has codes of errors for these.
        Denial::Permission { .. }
        | Denial::NoCredentials(_)
        | Denial::CredentialsExpired(_)
        | Denial::Validator { .. }
        | Denial::Registration { .. }
        | Denial::RateLimited { .. }
        | Denial::OverQuota { .. }
        | Denial::Disabled { .. }
        | Denial::NoSubscription { .. } => None,
    }
}

/// The text for a model, which must not need the code to understand it.
fn rejection_reason(denial: &Denial) -> String {
    match denial.shown_as_denied() {
        Some(tool) => {
            format!("Access denied: {tool}. The operator has not granted it to this agent.")
        }
        None => denial.to_string(),
    }
}

/// A rejection by a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerRejection {
    /// A code of the registry.
    pub code: &'static str,
    /// False: nobody can lift it.
    pub is_retryable: bool,
    /// The body, as written.
    pub body: String,
}

#[derive(Deserialize)]
struct RawResult<'a> {
    #[serde(borrow, default)]
    content: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawBlock<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    text: Cow<'a, str>,
}

#[derive(Deserialize)]
struct RawBody<'a> {
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(rename = "reason")]
    _reason: &'a RawValue,
    #[serde(default = "is_retryable_by_default")]
    retryable: bool,
    #[serde(borrow, default)]
    code: Option<Cow<'a, str>>,
}

const fn is_retryable_by_default() -> bool {
    true
}

impl PeerRejection {
    /// Finds the rejection in a result with `isError`, which the caller has checked. Anything else is an ordinary error
    /// of a tool (§14.7.4).
    #[must_use]
    pub fn find(result: &[u8]) -> Option<Self> {
        let result: RawResult<'_> = serde_json::from_slice(result).ok()?;
        let mut blocks = result.content.into_iter().take(BLOCKS_MAX);
        blocks.find_map(|block| {
            let block: RawBlock<'_> = serde_json::from_str(block.get()).ok()?;
            let text = block.text.as_ref();
            let is_candidate = block.kind == "text" && text.len() <= BODY_MAX;
            is_candidate.then(|| Self::parse(text)).flatten()
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let body: RawBody<'_> = Some(text.trim_start())
            .filter(|text| text.starts_with('{'))
            .and_then(|text| serde_json::from_str(text).ok())?;
        if !matches!(body.status.as_ref(), "rejected" | "denied") {
            return None;
        }
        let named = |code: &&&str| body.code.as_deref() == Some(**code);
        Some(Self {
            code: CODES.iter().find(named).copied().unwrap_or(UNKNOWN),
            is_retryable: body.retryable,
            body: text.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Dialect;
    use crate::refusal::Rendered;

    fn result(text: &str) -> String {
        json!({"content": [{"type": "text", "text": "first"}, {"type": "text", "text": text}], "isError": true})
            .to_string()
    }

    /// EXT-165: only the words of the specification make a rejection, and an unknown code is `UNKNOWN`.
    #[test]
    fn rejections_of_servers_are_recognized_exactly() {
        let body = r#"{"status":"rejected","code":"DELEGATION_CYCLE","reason":"r","retryable":false,"chain":["a"]}"#;
        assert_eq!(
            PeerRejection::find(result(body).as_bytes()),
            Some(PeerRejection {
                code: "DELEGATION_CYCLE",
                is_retryable: false,
                body: body.to_owned()
            })
        );
        for (body, code) in [
            (r#"{"status":"denied","reason":"r"}"#, "UNKNOWN"),
            (
                r#"{"status":"denied","reason":"r","code":"OWN"}"#,
                "UNKNOWN",
            ),
        ] {
            let found = PeerRejection::find(result(body).as_bytes()).unwrap();
            assert!(found.is_retryable && found.code == code, "{body}");
        }
        let long = format!(
            r#"{{"status":"rejected","reason":"{}"}}"#,
            "x".repeat(BODY_MAX)
        );
        for none in [
            r#"{"status":"Rejected","reason":"r"}"#,
            r#"{"status":"rejected"}"#,
            r#"{"status":"rejected","reason":"r","retryable":"no"}"#,
            r#"{"error":"r"}"#,
            r#"["rejected"]"#,
            "rejected",
            &long,
        ] {
            assert_eq!(PeerRejection::find(result(none).as_bytes()), None, "{none}");
        }
    }

    /// EXT-163: a refusal by policy is a result with the envelope, whose reason explains itself.
    #[test]
    fn refusals_by_policy_are_rendered_as_rejections() {
        let render = |denial: Denial, version: Version| {
            let refusal = Refusal::Denied(Box::new(denial)).into_tool_rejection();
            match refusal.render_for_dialect(Dialect { version, mgp: true }) {
                Rendered::Result(result) => {
                    let result: Value = serde_json::from_str(&result).unwrap();
                    let text = result["content"][0]["text"].as_str().unwrap();
                    let body: Value = serde_json::from_str(text).unwrap();
                    Some((result, body))
                }
                Rendered::Error(_) => None,
            }
        };
        let denied = Denial::NotGranted {
            tool: "a.b".into(),
            rule: "secret".into(),
        };
        let (result, body) = render(denied.clone(), Version::V2025_06_18).unwrap();
        assert_eq!(result["isError"], true);
        assert!(result.get("resultType").is_none());
        assert_eq!(body["status"], "rejected");
        assert_eq!(body["code"], ACCESS_DENIED);
        assert_eq!(body["retryable"], true);
        assert!(body["reason"].as_str().unwrap().contains("a.b"), "{body}");
        assert!(!body.to_string().contains("secret"), "{body}");
        let (result, _) = render(denied, Version::STATELESS).unwrap();
        assert_eq!(result["resultType"], "complete");
        let (_, body) = render(Denial::AskDepth("too deep".into()), Version::STATELESS).unwrap();
        assert_eq!(body["retryable"], false);
        let limited = Denial::OverQuota {
            what: "x".into(),
            limit: 1,
            next: None,
        };
        assert!(render(limited, Version::STATELESS).is_none());
    }
}
