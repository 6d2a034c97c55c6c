//! `mgp/lifecycle/*`: shuts down a server, or the kernel, without losing calls (MGP §11.4).

use serde::{Deserialize, Serialize};

use crate::mcp::methods;

methods! { "mgp/lifecycle/shutdown" => Shutdown }

/// `mgp/lifecycle/shutdown`: finish in-flight requests, accept no new ones, terminate. Answers
/// [`Accepted`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shutdown {
    /// At a kernel: the server, as in later drafts. The kernel itself if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_id: Option<String>,
    /// The reason.
    #[serde(default)]
    pub reason: Reason,
    /// The deadline for in-flight requests, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// The reason of a shutdown (§11.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A person requested it.
    #[default]
    OperatorRequest,
    /// Its configuration changed.
    ConfigurationChange,
    /// A limit was exceeded.
    ResourceLimit,
    /// It was idle for too long.
    IdleTimeout,
    /// The whole kernel shuts down.
    KernelShutdown,
}

/// The answer to `mgp/lifecycle/shutdown`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// True if it will shut down.
    #[serde(default)]
    pub accepted: bool,
    /// The number of in-flight requests.
    #[serde(default)]
    pub pending_requests: u64,
    /// The estimated time for them, in milliseconds.
    #[serde(default)]
    pub estimated_drain_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::{Method, parse_params};

    /// MGP-138, MGP-140: the members of the document, and its five reasons.
    #[test]
    fn shutdown_has_one_of_five_reasons() {
        assert_eq!(Shutdown::METHOD, "mgp/lifecycle/shutdown");
        let text = r#"{"reason":"idle_timeout","timeout_ms":30000}"#;
        let shutdown: Shutdown = parse_params(Some(text)).unwrap();
        assert_eq!(serde_json::to_string(&shutdown).unwrap(), text);
        for reason in [
            "operator_request",
            "configuration_change",
            "resource_limit",
            "idle_timeout",
            "kernel_shutdown",
        ] {
            let text = format!("{{\"reason\":\"{reason}\"}}");
            let read: Shutdown = parse_params(Some(&text)).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), text);
        }
        let unknown = parse_params::<Shutdown>(Some(r#"{"reason":"boredom"}"#)).unwrap_err();
        assert!(
            unknown.to_string().contains("operator_request"),
            "{unknown}"
        );
    }

    /// MGP-138: omitted members of a server's answer have their defaults.
    #[test]
    fn shutdown_answer_is_parsed_with_defaults() {
        let text = r#"{"accepted":true,"pending_requests":2,"estimated_drain_ms":5000}"#;
        let accepted: Accepted = parse_params(Some(text)).unwrap();
        assert_eq!(serde_json::to_string(&accepted).unwrap(), text);
        assert_eq!(
            parse_params::<Accepted>(Some("{}")).unwrap(),
            Accepted::default()
        );
    }
}
