//! `mgp/lifecycle/*`: stops a server, or the kernel, without losing calls (MGP §11.4).

use serde::{Deserialize, Serialize};

use crate::mcp::methods;

methods! { "mgp/lifecycle/shutdown" => Shutdown }

/// `mgp/lifecycle/shutdown`: finish what is under way, take nothing new, end. Answers [`Accepted`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shutdown {
    /// Of a kernel: which of its servers is meant, as later drafts say it. The kernel itself when
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_id: Option<String>,
    /// The reason.
    #[serde(default)]
    pub reason: Reason,
    /// How long what is under way may take, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// Why somebody is to end (§11.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A person asked.
    #[default]
    OperatorRequest,
    /// Its configuration changed.
    ConfigurationChange,
    /// It went over a limit.
    ResourceLimit,
    /// Nobody used it for too long.
    IdleTimeout,
    /// The whole kernel stops.
    KernelShutdown,
}

/// Answer of `mgp/lifecycle/shutdown`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// It will end.
    #[serde(default)]
    pub accepted: bool,
    /// How much is under way.
    #[serde(default)]
    pub pending_requests: u64,
    /// How long that is likely to take, in milliseconds.
    #[serde(default)]
    pub estimated_drain_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::{Method, parse_params};

    /// MGP-138, MGP-140: the members of the document, and its five reasons.
    #[test]
    fn a_shutdown_has_one_of_five_reasons() {
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

    /// MGP-138: what a server leaves out of its answer is nothing.
    #[test]
    fn an_answer_to_a_shutdown_is_read_for_what_it_says() {
        let text = r#"{"accepted":true,"pending_requests":2,"estimated_drain_ms":5000}"#;
        let accepted: Accepted = parse_params(Some(text)).unwrap();
        assert_eq!(serde_json::to_string(&accepted).unwrap(), text);
        assert_eq!(
            parse_params::<Accepted>(Some("{}")).unwrap(),
            Accepted::default()
        );
    }
}
