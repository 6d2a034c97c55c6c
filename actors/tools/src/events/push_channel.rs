//! The channels of push events, and what goes over them.

use mgp_protocol::ids::ServerId;
use mgp_protocol::mcpl::push::{CHANNELS, RESOURCES};
use mgp_protocol::mgp::events::ChannelPattern;

/// The channel of a set that pushes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushChannel {
    /// The server's name of the set.
    pub set: String,
    /// As subscribers write it.
    pub channel: String,
    /// The server's description of the set.
    pub description: String,
}

/// An event for the bus.
#[derive(Debug)]
pub struct PushedEvent {
    /// Whose it is; an instance's is for its agent alone.
    pub server: ServerId,
    /// Of its set.
    pub channel: String,
    /// As the server wrote it.
    pub timestamp: String,
    /// What subscribers read, as JSON text.
    pub data: String,
    /// It is stored for readers of the resource, even without subscribers: a host took it.
    pub is_delivered: bool,
}

/// True for a pattern that can match a channel of push events.
pub(super) fn can_cover(pattern: &ChannelPattern) -> bool {
    match pattern.as_str().strip_suffix('*') {
        Some(before) => CHANNELS.starts_with(before) || before.starts_with(CHANNELS),
        None => pattern.as_str().starts_with(CHANNELS),
    }
}

/// Where the last events of a set are read.
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
    fn patterns_of_push_events_are_told_from_others() {
        let may = |pattern: &str| can_cover(&ChannelPattern::parse(pattern).unwrap());
        for yes in ["*", "push.*", "push.git.*", "push.git.ci"] {
            assert!(may(yes), "{yes}");
        }
        for no in [
            "tool.*",
            "push",
            "pushed.*",
            "pushed.x",
            "system.server_state",
        ] {
            assert!(!may(no), "{no}");
        }
    }

    #[test]
    fn each_set_has_a_resource_of_its_own() {
        let git = ServerId::new("git");
        assert_eq!(
            resource_uri(&git, "gitlab.notifications"),
            "mgp://push/git/gitlab.notifications"
        );
        assert_eq!(resource_uri(&git, "a/b c"), "mgp://push/git/a%2Fb%20c");
    }
}
