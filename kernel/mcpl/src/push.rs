//! Push events: checked, told once, and answered the same each time (MCPL §9).

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

/// Largest `push/event`, in bytes of its params: with its names it is as large as an event of a channel may be. What
/// is larger belongs into a resource that the event names.
pub const BYTES_MAX: usize = 60 << 10;
/// Events a minute of one set, by default.
pub(crate) const PER_MINUTE: u32 = 60;
/// Events a minute of one server, by default.
pub(crate) const SERVER_PER_MINUTE: u32 = 240;
/// How long one agent may take to answer, by default.
pub(crate) const AGENT_TIMEOUT: Duration = Duration::from_secs(5);

/// What the operator says of push events: `[mcpl.push]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushPolicy {
    /// For sets of which nothing else is said.
    pub default_rule: PushRule,
    /// By `SERVER.SET`, or a beginning of it with `.*` behind.
    pub set_rules: BTreeMap<String, PushRule>,
    /// Events a minute of one server with all its sets; 0 sets no limit.
    pub server_per_minute: u32,
    /// How long one agent may take to answer.
    pub agent: Duration,
}

/// What holds for the events of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushRule {
    /// Events a minute; 0 sets no limit.
    pub per_minute: u32,
    /// When none is taken.
    pub quiet: Option<QuietHours>,
    /// Whether each leads to an inference of the kernel's own.
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
    /// What holds for a set, by its name for agents: what is said of it alone, else the longest beginning.
    #[must_use]
    pub fn rule(&self, set: &str) -> &PushRule {
        let mut beginnings = self.set_rules.iter().rev();
        let covering = || {
            let covers = |name: &str| name.strip_suffix('*').is_some_and(|of| set.starts_with(of));
            // In the order of names a longer beginning comes after a shorter one.
            beginnings.find_map(|(name, rule)| covers(name).then_some(rule))
        };
        let exact = self.set_rules.get(set);
        exact.or_else(covering).unwrap_or(&self.default_rule)
    }
}

/// Reads an ISO 8601 moment: a day of the calendar, with or without a time, in the extended form
/// (`2026-01-23T10:30:00Z`) or the basic one (`20260123T103000Z`); a time without a zone is one of UTC.
/// Answers milliseconds since 1970. `None` for everything else, and for what lies before.
#[must_use]
pub fn parse_iso8601(text: &str) -> Option<u64> {
    if !text.is_ascii() || text.len() > 40 {
        return None;
    }
    let (day, time) = match text.find(['T', 't', ' ']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
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

/// The channel that the events of a set have on the bus: `push.SERVER.SET`. What cannot stand in the
/// name of a channel is `-` there, with eight digits of its hash behind, so that no other has the same name.
#[must_use]
pub fn channel_name(server: &ServerId, set: &str) -> String {
    let server = channel_word(server.as_str(), false);
    let room = ChannelPattern::MAX_LEN - CHANNELS.len() - server.len() - 1;
    let set = match channel_word(set, true) {
        long if long.len() > room => format!("{}-{}", &long[..room - 9], short_hash(set)),
        short => short,
    };
    format!("{CHANNELS}{server}.{set}")
}

/// Longest that stands for a server: longer than any id of a server of this node.
const SERVER_MAX: usize = 64;

fn channel_word(text: &str, dots: bool) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-') || (dots && c == '.');
    let words = || text.split('.').all(|word| !word.is_empty());
    if text.chars().all(fits) && words() && (dots || text.len() <= SERVER_MAX) {
        return text.to_owned();
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let kept = text.chars().map(|c| if fits(c) { c } else { '-' });
    let kept: String = kept.take(SERVER_MAX - 9).collect();
    format!("{kept}-{}", short_hash(text))
}

fn short_hash(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..8].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MCPL-078: a timestamp is read, not only looked for.
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
                ChannelPattern::parse(name).is_some_and(|it| !it.is_wide()),
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
        let of_sets = [("git.*", 1), ("git.ci.*", 2), ("git.ci.failed", 3)];
        let of_sets = of_sets.map(|(name, n)| (name.to_owned(), rule(n)));
        let policy = PushPolicy {
            set_rules: of_sets.into(),
            ..PushPolicy::default()
        };
        let of = |set| policy.rule(set).per_minute;
        assert_eq!(
            (of("git.a"), of("git.ci.a"), of("git.ci.failed")),
            (1, 2, 3)
        );
        assert_eq!((of("gitx.a"), of("git")), (PER_MINUTE, PER_MINUTE));
    }
}
