//! Push events: validated, delivered once, and answered alike on each retry (MCPL §9).

pub mod hosts;
pub mod limits;
pub mod memory;

use std::collections::BTreeMap;
use std::time::Duration;

use mgp_engine::timestamps::parse_rfc3339;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcpl::push::CHANNELS;
use mgp_protocol::mgp::events::ChannelPattern;

use self::limits::QuietHours;

/// Largest `push/event`, in bytes of its params: with its names it reaches the limit of a channel event. Larger
/// content belongs in a resource that the event names.
pub const BYTES_MAX: usize = 60 << 10;
/// Default events per minute of one set.
pub(crate) const PER_MINUTE: u32 = 60;
/// Default events per minute of one server.
pub(crate) const SERVER_PER_MINUTE: u32 = 240;
/// Default time for one agent to answer.
pub(crate) const AGENT_TIMEOUT: Duration = Duration::from_secs(5);

/// `[mcpl.push]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushPolicy {
    /// For sets without a rule of their own.
    pub default_rule: PushRule,
    /// By `SERVER.SET`, or by a prefix of it followed by `.*`.
    pub set_rules: BTreeMap<String, PushRule>,
    /// Events per minute of one server with all its sets; 0 sets no limit.
    pub server_per_minute: u32,
    /// Time for one agent to answer.
    pub agent: Duration,
}

/// Limits of the events of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushRule {
    /// Events per minute; 0 sets no limit.
    pub per_minute: u32,
    /// Hours in which events are rejected.
    pub quiet: Option<QuietHours>,
    /// Each event starts an inference of the kernel.
    pub inference: bool,
}

impl Default for PushRule {
    fn default() -> Self {
        Self {
            per_minute: PER_MINUTE,
            quiet: None,
            inference: false,
        }
    }
}

impl Default for PushPolicy {
    fn default() -> Self {
        Self {
            default_rule: PushRule::default(),
            set_rules: BTreeMap::new(),
            server_per_minute: SERVER_PER_MINUTE,
            agent: AGENT_TIMEOUT,
        }
    }
}

impl PushPolicy {
    /// The rule of a set, by its name for agents: the exact one, else the one with the longest prefix.
    #[must_use]
    pub fn rule(&self, set: &str) -> &PushRule {
        let mut rules = self.set_rules.iter().rev();
        let covering = || {
            let covers = |name: &str| {
                name.strip_suffix('*')
                    .is_some_and(|prefix| set.starts_with(prefix))
            };
            // In name order a longer prefix comes after a shorter one.
            rules.find_map(|(name, rule)| covers(name).then_some(rule))
        };
        let exact = self.set_rules.get(set);
        exact.or_else(covering).unwrap_or(&self.default_rule)
    }
}

/// Parses an ISO 8601 timestamp: a calendar date, with or without a time, in the extended form
/// (`2026-01-23T10:30:00Z`) or the basic one (`20260123T103000Z`); a time without a zone is UTC.
/// Returns milliseconds since 1970; `None` for everything else, and for earlier dates.
#[must_use]
pub fn parse_iso8601(text: &str) -> Option<u64> {
    if !text.is_ascii() || text.len() > 40 {
        return None;
    }
    let (day, time) = match text.find(['T', 't', ' ']) {
        Some(split) => (&text[..split], Some(&text[split + 1..])),
        None => (text, None),
    };
    let day = match day.len() {
        8 => format!("{}-{}-{}", &day[..4], &day[4..6], &day[6..]),
        _ => day.to_owned(),
    };
    let Some(time) = time else {
        return parse_rfc3339(&format!("{day}T00:00:00Z"));
    };
    let zone = time.find(['Z', 'z', '+', '-']).unwrap_or(time.len());
    let (clock, zone) = time.split_at(zone);
    let zone = match zone.len() {
        0 => "Z".to_owned(),
        3 => format!("{zone}:00"),
        5 => format!("{}:{}", &zone[..3], &zone[3..]),
        _ => zone.to_owned(),
    };
    let clock = clock.replace(',', ".");
    let (whole, fraction) = match clock.split_once('.') {
        Some((whole, fraction)) => (whole, format!(".{fraction}")),
        None => (&*clock, String::new()),
    };
    let whole = match (whole.len(), whole.contains(':')) {
        (5, true) if fraction.is_empty() => format!("{whole}:00"),
        (4, false) if fraction.is_empty() => format!("{}:{}:00", &whole[..2], &whole[2..]),
        (6, false) => format!("{}:{}:{}", &whole[..2], &whole[2..4], &whole[4..]),
        _ => whole.to_owned(),
    };
    parse_rfc3339(&format!("{day}T{whole}{fraction}{zone}"))
}

/// The bus channel of a set's events: `push.SERVER.SET`. Characters that a channel name cannot have become
/// `-`, followed by eight digits of the hash, so that names stay unique.
#[must_use]
pub fn channel_name(server: &ServerId, set: &str) -> String {
    let server = channel_word(server.as_str(), false);
    let max_len = ChannelPattern::MAX_LEN - CHANNELS.len() - server.len() - 1;
    let set = match channel_word(set, true) {
        long if long.len() > max_len => format!("{}-{}", &long[..max_len - 9], short_hash(set)),
        short => short,
    };
    format!("{CHANNELS}{server}.{set}")
}

/// Longest server part of a channel name: longer than any server id of this node.
const SERVER_MAX: usize = 64;

fn channel_word(text: &str, dots: bool) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-') || (dots && c == '.');
    let words = || text.split('.').all(|word| !word.is_empty());
    if text.chars().all(fits) && words() && (dots || text.len() <= SERVER_MAX) {
        return text.to_owned();
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let replaced = text.chars().map(|c| if fits(c) { c } else { '-' });
    let prefix: String = replaced.take(SERVER_MAX - 9).collect();
    format!("{prefix}-{}", short_hash(text))
}

fn short_hash(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..8].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MCPL-078: timestamps are validated, not only required.
    #[test]
    fn moments_are_what_iso_8601_says_and_nothing_else() {
        let at = parse_iso8601("2026-01-23T10:30:00Z");
        assert_eq!(at, Some(1_769_164_200_000));
        for same in [
            "2026-01-23T10:30:00.000Z",
            "2026-01-23T10:30:00",
            "2026-01-23T10:30",
            "2026-01-23T10:30Z",
            "2026-01-23T11:30:00+01:00",
            "2026-01-23T11:30:00+0100",
            "2026-01-23T08:30-02",
            "20260123T103000Z",
            "20260123T1030",
            "2026-01-23 10:30:00Z",
            "2026-01-23T10:30:00,000Z",
        ] {
            assert_eq!(parse_iso8601(same), at, "{same}");
        }
        assert!(parse_iso8601("2026-01-23").is_some());
        for bad in [
            "",
            "now",
            "1769164200",
            "2026",
            "2026-01",
            "2026-13-01T00:00:00Z",
            "2026-02-30",
            "2026-01-23T25:00:00Z",
            "2026-01-23T10:61:00Z",
            "2026-01-23T10:30:00Q",
            "2026-01-23T",
            "T10:30:00Z",
            "2026-01-23T10:30:00Z ",
            " 2026-01-23T10:30:00Z",
            "2026-01-23T10:30:00+25:00",
            "２０２６-01-23T10:30:00Z",
            "23.01.2026",
            "2026-1-2",
        ] {
            assert_eq!(parse_iso8601(bad), None, "{bad}");
        }
    }

    /// each set of each server has a channel of its own, which subscriptions can name.
    #[test]
    fn no_two_sets_have_one_channel() {
        let long = format!("{}.x", "s".repeat(300));
        let longer = format!("{}.y", "s".repeat(300));
        let mut all: Vec<String> = Vec::new();
        for server in [
            "git",
            "a.b",
            "a-b",
            "nas/git",
            "git~1",
            &"z".repeat(48),
            &format!("{}/{}", "n".repeat(48), "z".repeat(48)),
        ] {
            for set in [
                "gitlab.notifications",
                "a b",
                "a-b",
                "a..b",
                ".",
                "ü",
                "",
                &long,
                &longer,
            ] {
                all.push(channel_name(&ServerId::new(server), set));
            }
        }
        for name in &all {
            assert!(
                ChannelPattern::parse(name).is_some_and(|pattern| !pattern.is_wide()),
                "{name}"
            );
        }
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
        let plain = channel_name(&ServerId::new("git"), "gitlab.notifications");
        assert_eq!(plain, "push.git.gitlab.notifications");
    }

    #[test]
    fn what_is_said_of_a_set_goes_before_what_is_said_of_many() {
        let rule = |per_minute| PushRule {
            per_minute,
            ..PushRule::default()
        };
        let set_rules = [("git.*", 1), ("git.ci.*", 2), ("git.ci.failed", 3)];
        let set_rules = set_rules.map(|(name, n)| (name.to_owned(), rule(n)));
        let policy = PushPolicy {
            set_rules: set_rules.into(),
            ..PushPolicy::default()
        };
        let per_minute = |set| policy.rule(set).per_minute;
        assert_eq!(
            (
                per_minute("git.a"),
                per_minute("git.ci.a"),
                per_minute("git.ci.failed")
            ),
            (1, 2, 3)
        );
        assert_eq!(
            (per_minute("gitx.a"), per_minute("git")),
            (PER_MINUTE, PER_MINUTE)
        );
    }
}
