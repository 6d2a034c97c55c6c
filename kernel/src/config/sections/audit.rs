//! `[audit]`: what is written down, when it is on disk, and how long it is kept.

use std::time::Duration;

use mgp_engine::store::audit::commit::{CallAuditing, DEFAULT_WINDOW};
use mgp_engine::store::audit::redact::ArgumentRetention;
use mgp_engine::store::audit::segments::Retention;

use crate::config::parsing::Section;

/// `[audit]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditConfig {
    /// Whether a log is kept at all.
    pub(crate) enabled: bool,
    /// Whether the record of a call is on disk before the call is answered, or together with others.
    pub(crate) before_reply: bool,
    /// How long records wait for others.
    pub(crate) window: Duration,
    /// What is kept of a call's arguments.
    pub(crate) arguments: ArgumentRetention,
    /// How much is kept.
    pub(crate) retention: Retention,
    /// Bytes one agent may fill in a day, 0 for any number; `None` for its share of what is kept.
    pub(crate) agent_bytes: Option<u64>,
}

const DAY: u64 = 86_400;
/// One agent alone fills the whole log in so many days at the earliest.
const DAYS_TO_FILL: u64 = 8;
/// A file is read whole at the start and by who verifies.
const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=256 << 20;

impl Default for AuditConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            before_reply: false,
            window: DEFAULT_WINDOW,
            arguments: ArgumentRetention::default(),
            retention: Retention::default(),
            agent_bytes: None,
        }
    }
}

impl AuditConfig {
    /// When the records of calls are on disk.
    #[must_use]
    pub(crate) fn call_auditing(&self) -> CallAuditing {
        if self.before_reply {
            CallAuditing::BeforeReply
        } else {
            CallAuditing::Window(self.window)
        }
    }

    /// Bytes one agent, or one server, may fill in a day; 0 for any number.
    #[must_use]
    pub(crate) fn daily_agent_bytes(&self) -> u64 {
        let share = self.retention.max_bytes / DAYS_TO_FILL;
        self.agent_bytes.unwrap_or(share)
    }

    pub(crate) fn read(&mut self, mut section: Section<'_, '_, '_>) {
        section.flag("enabled", &mut self.enabled);
        let calls = [("window", false), ("before_reply", true)];
        section.choice("calls", &calls, &mut self.before_reply);
        section.millis("window_ms", 1..=10_000, &mut self.window);
        let arguments = [
            ("digest", ArgumentRetention::Digest),
            ("whole", ArgumentRetention::Full),
        ];
        section.choice("arguments", &arguments, &mut self.arguments);
        let Retention {
            max_age,
            max_bytes,
            segment_bytes,
        } = &mut self.retention;
        let mut days = max_age.map_or(0, |age| age.as_secs() / DAY);
        section.count("keep_days", 0..=36_500, &mut days);
        *max_age = (days > 0).then(|| Duration::from_secs(days * DAY));
        section.count("keep_bytes", 1 << 20..=1 << 40, max_bytes);
        section.count("file_bytes", SEGMENT_BYTES, segment_bytes);
        let mut bytes = self.daily_agent_bytes();
        section.count("agent_bytes_per_day", 0..=1 << 40, &mut bytes);
        if bytes != self.daily_agent_bytes() {
            self.agent_bytes = Some(bytes);
        }
        section.finish();
    }
}
