//! The channels of push events, and their events.

use mgp_protocol::ids::ServerId;
use mgp_protocol::mcpl::push::{CHANNELS, RESOURCES};
use mgp_protocol::mgp::events::ChannelPattern;

/// The channel of a feature set that pushes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushChannel {
    /// The server's name of the set.
    pub set: String,
    /// The channel name that subscribers use.
    pub channel: String,
    /// The server's description of the set.
    pub description: String,
}

/// A push event to publish.
#[derive(Debug)]
pub struct PushedEvent {
    /// The sender; events of an instance are for its agent alone.
    pub server: ServerId,
    /// The channel of its set.
    pub channel: String,
    /// The server's timestamp.
    pub timestamp: String,
    /// The data for subscribers, as JSON text.
    pub data: String,
    /// A host accepted it: it is stored for readers of the resource, even without subscribers.
    pub is_delivered: bool,
}

/// Whether a pattern can match a channel of push events.
pub(super) fn can_cover(pattern: &ChannelPattern) -> bool {
    match pattern.as_str().strip_suffix('*') {
        Some(before) => CHANNELS.starts_with(before) || before.starts_with(CHANNELS),
        None => pattern.as_str().starts_with(CHANNELS),
    }
}

/// The URI of the last events of a set.
pub(super) fn resource_uri(server: &ServerId, set: &str) -> String {
    let mut uri = format!("{RESOURCES}{server}/");
    for byte in set.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'~' | b'-' => {
                uri.push(char::from(byte));
            }
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_that_cover_push_channels_are_recognized() {
        let covers = |pattern: &str| can_cover(&ChannelPattern::parse(pattern).unwrap());
        for pattern in ["*", "push.*", "push.git.*", "push.git.ci"] {
            assert!(covers(pattern), "{pattern}");
        }
        for pattern in [
            "tool.*",
            "push",
            "pushed.*",
            "pushed.x",
            "system.server_state",
        ] {
            assert!(!covers(pattern), "{pattern}");
        }
    }

    #[test]
    fn each_set_has_its_own_resource() {
        let git = ServerId::new("git");
        assert_eq!(
            resource_uri(&git, "gitlab.notifications"),
            "mgp://push/git/gitlab.notifications"
        );
        assert_eq!(resource_uri(&git, "a/b c"), "mgp://push/git/a%2Fb%20c");
    }
}
