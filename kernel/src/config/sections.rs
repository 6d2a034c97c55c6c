//! The kernel's own sections: those of a few plain keys here, each larger one in its file.

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
pub enum LogFormat {
    /// For people.
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
        pub struct $name {
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
        /// Events kept for each stream, to resume it from: memory is this times the size of an event, for
        /// each stream.
        replay_events: usize = 256, count("replay_events", 0..=65_536);
        /// A call without answer for this long gets an event stream, which can be resumed.
        stream_after: Duration = Duration::from_millis(50), millis("stream_after_ms", 1..=DAY * 1000);
        /// The stream of a call is let go after this long, for the client to come back for the answer;
        /// zero keeps it open.
        poll_after: Duration = Duration::ZERO, millis("poll_after_ms", 0..=DAY * 1000);
    }
}

section! {
    /// `[questions]`.
    QuestionsConfig {
        /// How long a stateless client may take to come back with what a server asked; then its call is
        /// taken back.
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
        /// What holds where nothing was granted or denied.
        default_policy: DefaultPolicy = DefaultPolicy::OptOut, choice("default_policy", &POLICIES);
        /// Whether an agent that agreed to `access_control` is told that a tool is denied to it.
        reveal: bool = true, flag("reveal");
    }
}

section! {
    /// `[log]`.
    LogConfig {
        /// The least severe level written.
        level: LevelFilter = LevelFilter::INFO, choice("level", &LEVELS);
        /// How its lines are written.
        format: LogFormat = LogFormat::Text, choice("format", &FORMATS);
    }
}

section! {
    /// `[metrics]`.
    MetricsConfig {
        /// Whether the HTTP door shows them at `/metrics`.
        enabled: bool = true, flag("enabled");
        /// Whether programs of this machine need no token for that.
        loopback: bool = false, flag("loopback");
        /// Tools that have figures of their own: each takes a kilobyte here and some lines of each scrape. Calls of
        /// further ones are counted together.
        tools_max: usize = 500, count("tools_max", 1..=10_000);
    }
}

section! {
    /// `[confirmation]`, but for `enabled`, which is a rule for tools.
    ConfirmationConfig {
        /// Moderate tools, too, need a yes where nobody granted them.
        moderate: bool = false, flag("moderate");
        /// A question is open this long.
        timeout: Duration = Duration::from_secs(300), secs("timeout_secs", 1..=DAY);
        /// Where the caller cannot be asked, the operator is.
        operator_queue: bool = true, flag("operator_queue");
    }
}
