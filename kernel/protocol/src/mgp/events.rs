//! `mgp/events/*`: event subscriptions (MGP §13.2), and the data of events (§13.3, §13.5). Members added by
//! later drafts and this kernel have the prefix `_mgp.`.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::request;
use crate::mcp::methods;

methods! {
    "mgp/events/subscribe" => Subscribe,
    "mgp/events/unsubscribe" => Unsubscribe,
    "mgp/events/replay" => Replay,
    "mgp/events/channels" => Channels,
    "notifications/mgp.events.subscribed" => Subscribed,
}

/// The URI prefix of the resource with a channel's last events; the name of the channel follows.
pub const RESOURCES: &str = "mgp://events/";
/// The default number of events in one answer of `mgp/events/replay`, and the maximum.
pub const REPLAY_DEFAULT: u64 = 100;
/// See [`REPLAY_DEFAULT`].
pub const REPLAY_MAX: u64 = 1_000;

request! {
    /// `mgp/events/subscribe`; answers [`Subscribed`].
    Subscribe {
        /// Names of channels, or patterns that end in `*`.
        channels: Vec<String>,
        #[serde(default)]
        /// The filter for their events.
        filter: Option<Filter>,
        #[serde(default, rename = "_mgp.cursor")]
        /// Start with stored events after the one with this cursor.
        cursor: Option<String>,
    }
}

request! {
    /// `mgp/events/unsubscribe`; answers an empty result.
    Unsubscribe {
        /// The id from `mgp/events/subscribe`.
        subscription_id: String,
    }
}

request! {
    /// `mgp/events/replay`: missed events of a subscription. Answers [`Replayed`].
    Replay {
        /// The id from `mgp/events/subscribe`.
        subscription_id: String,
        #[serde(default)]
        /// Continue after the event with this `_mgp.seq`.
        after_seq: u64,
        #[serde(default)]
        /// The most events; 100 if absent, never more than 1,000.
        limit: Option<u64>,
    }
}

/// `mgp/events/channels`; answers `{"channels": [`[`Channel`]`, …]}`.
#[derive(Debug)]
pub struct Channels;

/// The filter of a subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// The minimum severity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_severity: Option<Severity>,
}

/// The severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// For debugging.
    Debug,
    /// Normal operation.
    Info,
    /// A problem that was handled.
    Warning,
    /// A failure.
    Error,
    /// A failure of everything.
    Critical,
}

/// The answer to `mgp/events/subscribe`; between kernels also `notifications/mgp.events.subscribed`, where
/// the request stays open for its events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscribed {
    /// The subscribed channels, as requested.
    pub subscribed: Vec<String>,
    /// Channels that do not exist, or have invalid names.
    pub unsupported: Vec<String>,
    /// The id in its events.
    pub subscription_id: String,
}

/// The members of a server's answer to `mgp/events/subscribe` that are read.
#[derive(Debug, Deserialize)]
pub struct SubscribedAtServer {
    /// The subscribed channels.
    #[serde(default)]
    pub subscribed: Vec<String>,
    /// The id in its events.
    pub subscription_id: String,
}

/// The answer to `mgp/events/replay`.
#[derive(Debug, Serialize)]
pub struct Replayed {
    /// The requested id.
    pub subscription_id: String,
    /// Oldest first, each as it was sent, without the id of the subscription.
    pub events: Vec<Box<RawValue>>,
    /// True if there are more events.
    pub has_more: bool,
    /// True if some events between `after_seq` and these are no longer stored.
    pub truncated: bool,
}

/// A channel of the kernel, or one declared by a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channel {
    /// Its name, or a pattern that a server accepts.
    pub channel: String,
    /// Its server; the kernel if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_id: Option<String>,
    /// The description of its events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// True if its events are in the audit log, and its cursors survive a restart.
    #[serde(default)]
    pub logged: bool,
}

/// The name of a channel, or a pattern: names are words of letters, digits, `_` and `-` separated by dots,
/// and the last word of a pattern is `*`, which matches one or more words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelPattern(Arc<str>);

impl ChannelPattern {
    /// The longest name, in bytes: short enough for a log line.
    pub const MAX_LEN: usize = 128;
    /// The patterns of §13.5, which are always valid, with or without such a channel.
    pub(crate) const STANDARD: [&'static str; 4] = ["model.*", "system.*", "tool.*", "security.*"];

    /// Parses a name or a pattern.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let letter = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
        let word = |word: &str| !word.is_empty() && word.bytes().all(letter);
        let words = text.strip_suffix('*').map_or(text, |before| match before {
            // `*` alone matches every channel.
            "" => "any",
            before => before.strip_suffix('.').unwrap_or(""),
        });
        let is_valid = text.len() <= Self::MAX_LEN && words.split('.').all(word);
        is_valid.then(|| Self(text.into()))
    }

    /// The original text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True if it may match several channels.
    #[must_use]
    pub fn is_wide(&self) -> bool {
        self.0.ends_with('*')
    }

    /// True for a standard pattern.
    #[must_use]
    pub fn is_standard(&self) -> bool {
        matches!(&*self.0, "*" | "push.*") || Self::STANDARD.contains(&&*self.0)
    }

    /// True if it matches the channel, or, for a pattern, all channels that the pattern may match.
    #[must_use]
    pub fn covers(&self, channel: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(before) => channel.len() > before.len() && channel.starts_with(before),
            None => &*self.0 == channel,
        }
    }
}

impl fmt::Display for ChannelPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for ChannelPattern {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ChannelPattern {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(d)?;
        let unknown = || serde::de::Error::custom(format_args!("{text:?} names no channel"));
        Self::parse(&text).ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp;
    use crate::refusal::Refusal;

    #[test]
    fn only_names_and_patterns_are_parsed() {
        for is_valid in [
            "model.token_usage",
            "zzz",
            "a-1.b_2.c",
            "*",
            "tool.*",
            "a.b.*",
        ] {
            assert!(ChannelPattern::parse(is_valid).is_some(), "{is_valid}");
        }
        let long = "x".repeat(ChannelPattern::MAX_LEN + 1);
        for bad in [
            "", ".", "a.", ".a", "a..b", "a*", "*.a", "a.*.b", "**", "a b", "ü", &long,
        ] {
            assert!(ChannelPattern::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn star_matches_one_or_more_words() {
        let covers =
            |pattern: &str, channel: &str| ChannelPattern::parse(pattern).unwrap().covers(channel);
        assert!(covers("tool.*", "tool.started") && covers("tool.*", "tool.a.b"));
        assert!(covers("*", "tool") && covers("tool.*", "tool.*"));
        assert!(
            !covers("tool.*", "tool") && !covers("tool.*", "tool.") && !covers("tool.*", "tools.x")
        );
        assert!(covers("a.b", "a.b") && !covers("a.b", "a.b.c") && !covers("a.b", "a.*"));
    }

    #[test]
    fn subscription_is_parsed_strictly() {
        let read = |params: &str| mcp::parse_params::<Subscribe>(Some(params));
        let subscription = read(
            r#"{"channels":["a"],"filter":{"min_severity":"critical"},"_mgp.cursor":"7","_meta":{}}"#,
        )
        .unwrap();
        let filter = subscription.filter.unwrap();
        assert_eq!(filter.min_severity, Some(Severity::Critical));
        assert_eq!(subscription.cursor.as_deref(), Some("7"));
        for bad in [
            "{}",
            r#"{"channels":"a"}"#,
            r#"{"channels":[1]}"#,
            r#"{"channels":[],"filter":{"min_severity":"loud"}}"#,
            r#"{"channels":[],"filter":{"max":1}}"#,
            r#"{"channels":[],"since":1}"#,
        ] {
            assert!(matches!(read(bad), Err(Refusal::BadParams(_))), "{bad}");
        }
        assert!(Severity::Info < Severity::Warning && Severity::Warning < Severity::Error);
    }
}
