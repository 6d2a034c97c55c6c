//! Methods and notifications of extensions that the kernel does not know: which may be relayed.

use mgp_json::lookalike::are_alike;

use crate::cluster::remote_requests;

/// Longest name that is relayed, in bytes.
const NAME_MAX: usize = 128;

/// Starts of names that have a meaning on both sides or are reserved: a server could take a relayed one for another
/// message than the kernel does.
const RESERVED_PREFIXES: [&str; 25] = [
    "rpc.",
    "mgp",
    "initialize",
    "ping",
    "server/",
    "tools/",
    "prompts/",
    "resources/",
    "completion/",
    "logging/",
    "subscriptions/",
    "tasks/",
    "sampling/",
    "elicitation/",
    "roots/",
    "notifications/",
    "context/",
    "state/",
    "channels/",
    "featureSets/",
    "mcpl/",
    "inference/",
    "push/",
    "model/",
    "scope/",
];

/// True for a method that may be relayed to a server that declares an extension: the kernel has no method of that name, nor
/// one that a reader who ignores case takes for it.
#[must_use]
pub fn is_relayable_method(method: &str) -> bool {
    is_name(method)
        && !has_reserved_prefix(method)
        && !remote_requests::is_like_known_method(method)
}

/// True for a notification of a client that may be relayed to a server that declares an extension.
#[must_use]
pub fn is_relayable_notification(method: &str) -> bool {
    let name = method.strip_prefix("notifications/").unwrap_or(method);
    let core = [
        "initialized",
        "cancelled",
        "progress",
        "message",
        "roots/",
        "tasks",
        "elicitation/",
        "subscriptions/",
    ];
    is_name(method)
        && !has_reserved_prefix(name)
        && !core.iter().any(|core| starts_alike(name, core))
        && !remote_requests::is_like_known_method(method)
}

fn is_name(method: &str) -> bool {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'/');
    (1..=NAME_MAX).contains(&method.len()) && method.bytes().all(plain)
}

fn has_reserved_prefix(method: &str) -> bool {
    RESERVED_PREFIXES
        .iter()
        .any(|prefix| starts_alike(method, prefix))
}

fn starts_alike(method: &str, prefix: &str) -> bool {
    let start = method.get(..prefix.len());
    start.is_some_and(|start| are_alike(start, prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EXT-009, EXT-013: nothing that could be another message for a server or the kernel is relayed.
    #[test]
    fn names_of_the_protocol_are_not_relayed() {
        for method in ["com.example/run", "jobs/list", "x"] {
            assert!(is_relayable_method(method), "{method}");
        }
        let long = "x".repeat(NAME_MAX + 1);
        for method in [
            "",
            "tools/call",
            "Tools/Call",
            "tools/other",
            "resources/directory/read",
            "skills/list",
            "initialize",
            "ping",
            "mgp/kernel/stop",
            "mgp.access.query",
            "state/rollback",
            "Channels/Publish",
            "sampling/createMessage",
            "notifications/x",
            "rpc.discover",
            "a\"b",
            "a b",
            "é",
            &long,
        ] {
            assert!(!is_relayable_method(method), "{method}");
        }
        for notification in ["notifications/com.example/changed", "com.example/changed"] {
            assert!(is_relayable_notification(notification), "{notification}");
        }
        for notification in [
            "notifications/initialized",
            "notifications/Cancelled",
            "notifications/roots/list_changed",
            "notifications/tools/list_changed",
            "notifications/mgp.stream.pace",
            "notifications/tasks/status",
            "featureSets/update",
            "tools/call",
        ] {
            assert!(!is_relayable_notification(notification), "{notification}");
        }
    }
}
