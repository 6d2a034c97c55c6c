//! The kernel's own sections: small ones here, each larger one in its own file.

pub(crate) mod agents;
pub(crate) mod audit;
pub(crate) mod cluster;
pub(crate) mod discovery;
pub(crate) mod groups;
pub(crate) mod http;
pub(crate) mod limits;
pub(crate) mod mcpl;
pub(crate) mod network;
pub(crate) mod notify;
pub(crate) mod permissions;
pub(crate) mod results;
pub(crate) mod sandbox;
pub(crate) mod sets;
pub(crate) mod tools;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use mgp_engine::policy::access::{DefaultPolicies, EntryEffect};
use mgp_engine::servers::health::HealthCheckConfig;
use mgp_protocol::ids::{AgentId, GroupName};
use mgp_protocol::mgp::access::DefaultPolicy;
use mgp_transports::http::is_safe_url;
use tracing::level_filters::LevelFilter;

use super::parsing::{NAME_PLACEHOLDER, ReadSection, SecretsConfig, Section};

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

/// A section: each field with its default and with the reader of its key, a method of [`Section`]; then a check of
/// several fields, if there is one.
macro_rules! section {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$about:meta])* $field:ident: $type:ty = $default:expr, $read:ident($($key:expr),+);)+
        $(=> $check:path;)?
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(unreachable_pub, reason = "some sections are part of the interface")]
        pub struct $name {
            $($(#[$about])* pub $field: $type,)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl $crate::config::parsing::ReadSection for $name {
            fn read(&mut self, section: &mut Section<'_, '_, '_>) {
                $(section.$read($($key,)+ &mut self.$field);)+
                $($check(self, section);)?
            }
        }
    };
}
pub(crate) use section;

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
        /// The group of agents that no entry and no token puts into one.
        default_group: Option<GroupName> = None, parse("default_group", GroupName::parse);
        /// Whether an agent that negotiated `access_control` learns that a tool is denied to it.
        reveal: bool = true, flag("reveal");
    }
}

impl AccessConfig {
    /// What decides where there is no entry, without the policies of servers.
    pub(crate) fn to_policies(&self) -> DefaultPolicies {
        let group = self.default_group.as_ref();
        DefaultPolicies {
            kernel: self.default_policy,
            servers: HashMap::new(),
            group: group.map(|group| (group.id(), EntryEffect::Whole)),
        }
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
        /// are counted together.
        tools_max: usize = 500, count("tools_max", 1..=10_000);
    }
}

section! {
    /// `[confirmation]`.
    ConfirmationConfig {
        /// Whether dangerous calls need confirmation: the default of all servers.
        enabled: bool = true, flag("enabled");
        /// Whether moderate tools need confirmation, too, unless granted.
        moderate: bool = false, flag("moderate");
        /// How long a confirmation is pending.
        timeout: Duration = Duration::from_secs(300), secs("timeout_secs", 1..=DAY);
        /// Whether the operator is asked if the caller cannot be.
        operator_queue: bool = true, flag("operator_queue");
    }
}

section! {
    /// `[socket]`.
    SocketConfig {
        /// The path of the socket; `None` for the runtime folder.
        path: Option<PathBuf> = None, path("path");
        /// Other users of this machine, by name or uid, and their agents.
        users: BTreeMap<String, AgentId> = BTreeMap::new(), read_with(read_users);
    }
}

fn read_users(section: &mut Section<'_, '_, '_>, users: &mut BTreeMap<String, AgentId>) {
    for (user, agent) in section.text_map("users") {
        match AgentId::parse(agent.get_ref()) {
            Ok(id) => drop(users.insert(user.to_owned(), id)),
            Err(why) => {
                section.reject_key(agent.span(), &format!("users.{user}"), &format!(": {why}"))
            }
        }
    }
}

section! {
    /// `[data]`.
    DataConfig {
        /// The folder for persistent state; `None` for the user's data folder.
        dir: Option<PathBuf> = None, path("dir");
    }
}

section! {
    /// `[registry]`: the registry of `mgp servers search`.
    RegistryConfig {
        /// The URL without the version of the API.
        url: String = "https://registry.modelcontextprotocol.io".to_owned(), read_with(read_source_url);
    }
}

section! {
    /// `[updates]`: where `mgp version --check` asks.
    UpdatesConfig {
        /// The address of a release index; empty without one.
        url: String = String::new(), read_with(read_source_url);
    }
}

fn read_source_url(section: &mut Section<'_, '_, '_>, into: &mut String) {
    let Some(url) = section.text("url") else {
        return;
    };
    let plain = url.get_ref().trim_end_matches('/');
    if is_safe_url(plain) {
        *into = plain.to_owned();
    } else {
        let why = " wants https://, or http:// and this machine: what comes from there is run";
        section.reject_key(url.span(), "url", why);
    }
}

impl ReadSection for SecretsConfig {
    fn read(&mut self, section: &mut Section<'_, '_, '_>) {
        let (mut on, is_set) = (true, section.span("keyring").is_some());
        section.flag("keyring", &mut on);
        if is_set {
            self.keyring = Some(on);
        }
        section.strings("command", &mut self.command);
        let (program, arguments) = self.command.split_first().unzip();
        let is_named = arguments.is_some_and(|words: &[String]| {
            words.iter().any(|word| word.contains(NAME_PLACEHOLDER))
        });
        if let (Some(program), Some(span)) = (program, section.span("command"))
            && (!is_named || program.is_empty())
        {
            let why =
                " wants a program and its arguments, with {name} where the name of the secret goes";
            section.reject_key(span, "command", why);
        }
        section.set_secrets(self);
    }
}

impl ReadSection for HealthCheckConfig {
    fn read(&mut self, section: &mut Section<'_, '_, '_>) {
        section.secs("interval_secs", 0..=DAY, &mut self.interval);
        section.count("misses", 1..=100, &mut self.failure_threshold);
    }
}
