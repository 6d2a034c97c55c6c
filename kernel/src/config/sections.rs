//! The kernel's own sections: small ones here, each larger one in its own file.

pub(crate) mod agents;
pub(crate) mod audit;
pub(crate) mod cluster;
pub(crate) mod discovery;
pub(crate) mod http;
pub(crate) mod limits;
pub(crate) mod mcpl;
pub(crate) mod network;
pub(crate) mod permissions;
pub(crate) mod registry;
pub(crate) mod sandbox;
pub(crate) mod secrets;
pub(crate) mod sets;
pub(crate) mod socket;
pub(crate) mod tools;

use std::time::Duration;

use mgp_protocol::mgp::access::DefaultPolicy;
use tracing::level_filters::LevelFilter;

use super::parsing::Section;

const DAY: u64 = 86_400;

/// `default_policy`, in `[access]` and in a server's entry.
pub(super) const POLICIES: [(&str, DefaultPolicy); 2] = [
    ("opt-out", DefaultPolicy::OptOut),
    ("opt-in", DefaultPolicy::OptIn),
];

const LEVELS: [(&str, LevelFilter); 6] = [
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

/// `[log] format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For display.
    Text,
    /// A JSON object on each line.
    Json,
}

const FORMATS: [(&str, LogFormat); 2] = [("text", LogFormat::Text), ("json", LogFormat::Json)];

/// A section of plain keys: each field with its default and with the method of [`Section`] that reads its key.
macro_rules! section {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$about:meta])* $field:ident: $type:ty = $default:expr, $read:ident($($key:expr),+);)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub(crate) struct $name {
            $($(#[$about])* pub $field: $type,)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl $name {
            pub(super) fn read(&mut self, mut section: Section<'_, '_, '_>) {
                $(section.$read($($key,)+ &mut self.$field);)+
                section.finish();
            }
        }
    };
}

section! {
    /// `[streams]`.
    StreamsConfig {
        /// Events stored for each stream, to resume it: memory is this times the size of an event, for each stream.
        replay_events: usize = 256, count("replay_events", 0..=65_536);
        /// A call without an answer for this long gets an event stream, which can be resumed.
        stream_after: Duration = Duration::from_millis(50), millis("stream_after_ms", 1..=DAY * 1000);
        /// The stream of a call is closed after this long, for the client to poll for the answer; zero keeps it open.
        poll_after: Duration = Duration::ZERO, millis("poll_after_ms", 0..=DAY * 1000);
    }
}

section! {
    /// `[questions]`.
    QuestionsConfig {
        /// How long a stateless client may take to answer a callback; then its call is cancelled.
        answer_timeout: Duration = Duration::from_secs(600), secs("answer_timeout_secs", 1..=DAY);
    }
}

section! {
    /// `[lists]`.
    ListsConfig {
        /// Entries on one page of a list.
        page_size: usize = 1000, count("page_size", 1..=10_000);
    }
}

section! {
    /// `[access]`.
    AccessConfig {
        /// The default for what was neither granted nor denied.
        default_policy: DefaultPolicy = DefaultPolicy::OptOut, choice("default_policy", &POLICIES);
        /// Whether an agent that negotiated `access_control` learns that a tool is denied to it.
        reveal: bool = true, flag("reveal");
    }
}

section! {
    /// `[log]`.
    LogConfig {
        /// The least severe level that is logged.
        level: LevelFilter = LevelFilter::INFO, choice("level", &LEVELS);
        /// The format of lines.
        format: LogFormat = LogFormat::Text, choice("format", &FORMATS);
    }
}

section! {
    /// `[metrics]`.
    MetricsConfig {
        /// Whether the HTTP listener serves `/metrics`.
        enabled: bool = true, flag("enabled");
        /// Whether programs on this machine need no token for that.
        loopback: bool = false, flag("loopback");
        /// Tools with separate metrics: each takes a kilobyte here and some lines of each scrape. Calls of further ones
    /// are
        /// counted together.
        tools_max: usize = 500, count("tools_max", 1..=10_000);
    }
}

section! {
    /// `[confirmation]`, except `enabled`, which is a rule for tools.
    ConfirmationConfig {
        /// Whether moderate tools need confirmation, too, unless granted.
        moderate: bool = false, flag("moderate");
        /// How long a confirmation is pending.
        timeout: Duration = Duration::from_secs(300), secs("timeout_secs", 1..=DAY);
        /// Whether the operator is asked if the caller cannot be.
        operator_queue: bool = true, flag("operator_queue");
    }
}
