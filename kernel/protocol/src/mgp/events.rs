//! `mgp/events/*`: who hears of what happens (MGP §13.2), and the words of its events (§13.3, §13.5). The
//! members that later drafts and this kernel add have the prefix `_mgp.` in their own names.

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

/// Where the last events of a channel are a resource; the name of the channel follows.
pub const RESOURCES: &str = "mgp://events/";
/// Events in one answer of `mgp/events/replay`, where nobody says how many, and at most.
pub const REPLAY_DEFAULT: u64 = 100;
/// See [`REPLAY_DEFAULT`].
pub const REPLAY_MAX: u64 = 1_000;

request! {
    /// `mgp/events/subscribe`; answers [`Subscribed`].
    Subscribe {
        /// Names of channels, or patterns that end in `*`.
        channels: Vec<String>,
        #[serde(default)]
        /// Which of their events.
        filter: Option<Filter>,
        #[serde(default, rename = "_mgp.cursor")]
        /// First those after the event that had this cursor, as far as they are written down.
        cursor: Option<String>,
    }
}

request! {
    /// `mgp/events/unsubscribe`; answers an empty result.
    Unsubscribe {
        /// As `mgp/events/subscribe` answered it.
        subscription_id: String,
    }
}

request! {
    /// `mgp/events/replay`: events of a subscription that were missed. Answers [`Replayed`].
    Replay {
        /// As `mgp/events/subscribe` answered it.
        subscription_id: String,
        #[serde(default)]
        /// Go on after the event with this `_mgp.seq`.
        after_seq: u64,
        #[serde(default)]
        /// At most this many events; 100 when absent, never more than 1,000.
        limit: Option<u64>,
    }
}

/// `mgp/events/channels`; answers `{"channels": [`[`Channel`]`, …]}`.
#[derive(Debug)]
pub struct Channels;

/// Which events of its channels a subscription gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// None below this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_severity: Option<Severity>,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Of interest to who looks for a mistake.
    Debug,
    /// It went as it should.
    Info,
    /// It went as it should not, and somebody was told.
    Warning,
    /// Something does not work.
    Error,
    /// Nothing works.
    Critical,
}

/// Answer of `mgp/events/subscribe`; between kernels also `notifications/mgp.events.subscribed`, where the request itself
/// stays open for its events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscribed {
    /// As they were asked for.
    pub subscribed: Vec<String>,
    /// Those that nobody has, or that are no names of channels.
    pub unsupported: Vec<String>,
    /// What its events carry.
    pub subscription_id: String,
}

/// What is read of a server's answer to `mgp/events/subscribe`.
#[derive(Debug, Deserialize)]
pub struct SubscribedAtServer {
    /// What it will tell.
    #[serde(default)]
    pub subscribed: Vec<String>,
    /// What its events will carry.
    pub subscription_id: String,
}

/// Answer of `mgp/events/replay`.
#[derive(Debug, Serialize)]
pub struct Replayed {
    /// As it was asked for.
    pub subscription_id: String,
    /// Oldest first, each as it was sent, without the id of the subscription.
    pub events: Vec<Box<RawValue>>,
    /// There are more after these.
    pub has_more: bool,
    /// Some between `after_seq` and these are gone.
    pub truncated: bool,
}

/// A channel of the kernel, or one that a server said it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channel {
    /// Its name, or a pattern that a server takes.
    pub channel: String,
    /// Whose it is; the kernel's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_id: Option<String>,
    /// What its events tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its events are in the audit log, and their cursors outlive the kernel.
    #[serde(default)]
    pub logged: bool,
}

/// The name of a channel, or a pattern: names are words of letters, digits, `_` and `-` with dots between,
/// and the last word of a pattern is `*`, which stands for one word or more.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelPattern(Arc<str>);

impl ChannelPattern {
    /// Longest name, in bytes: as many as fit beside an event in a log line.
    pub const MAX_LEN: usize = 128;
    /// The patterns of §13.5, which stand whether anybody has such a channel now or not.
    pub(crate) const STANDARD: [&'static str; 4] = ["model.*", "system.*", "tool.*", "security.*"];

    /// Reads a name or a pattern.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let letter = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
        let word = |word: &str| !word.is_empty() && word.bytes().all(letter);
        let words = text.strip_suffix('*').map_or(text, |before| match before {
            // `*` alone is every channel.
            "" => "any",
            before => before.strip_suffix('.').unwrap_or(""),
        });
        let good = text.len() <= Self::MAX_LEN && words.split('.').all(word);
        good.then(|| Self(text.into()))
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True when it may stand for several channels.
    #[must_use]
    pub fn is_wide(&self) -> bool {
        self.0.ends_with('*')
    }

    /// True for patterns that stand whether there is such a channel now or not.
    #[must_use]
    pub fn is_standard(&self) -> bool {
        matches!(&*self.0, "*" | "push.*") || Self::STANDARD.contains(&&*self.0)
    }

    /// Whether a channel is meant, or, of another pattern, each that it may stand for.
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
    fn names_and_patterns_are_read_and_nothing_else() {
        for good in [
            "model.token_usage",
            "zzz",
            "a-1.b_2.c",
            "*",
            "tool.*",
            "a.b.*",
        ] {
            assert!(ChannelPattern::parse(good).is_some(), "{good}");
        }
        let long = "x".repeat(ChannelPattern::MAX_LEN + 1);
        for bad in [
            "", ".", "a.", ".a", "a..b", "a*", "*.a", "a.*.b", "**", "a b", "ü", &long,
        ] {
            assert!(ChannelPattern::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_star_stands_for_one_word_or_more() {
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
    fn what_is_asked_for_is_read_and_nothing_is_read_over() {
        let read = |params: &str| mcp::parse_params::<Subscribe>(Some(params));
        let asked = read(
            r#"{"channels":["a"],"filter":{"min_severity":"critical"},"_mgp.cursor":"7","_meta":{}}"#,
        )
        .unwrap();
        let filter = asked.filter.unwrap();
        assert_eq!(filter.min_severity, Some(Severity::Critical));
        assert_eq!(asked.cursor.as_deref(), Some("7"));
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
