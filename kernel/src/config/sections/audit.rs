//! `[audit]`: what is recorded, when it is on disk, and its retention.

use std::time::Duration;

use mgp_engine::store::audit::commit::{CallAuditing, DEFAULT_WINDOW};
use mgp_engine::store::audit::redact::ArgumentRetention;
use mgp_engine::store::audit::segments::Retention;

use crate::config::parsing::Section;

/// `[audit]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditConfig {
    /// Whether there is an audit log.
    pub(crate) enabled: bool,
    /// Whether the record of a call is on disk before the call is answered, or batched.
    pub(crate) before_reply: bool,
    /// The time to collect a batch.
    pub(crate) window: Duration,
    /// What is recorded of a call's arguments.
    pub(crate) arguments: ArgumentRetention,
    pub(crate) retention: Retention,
    /// Bytes per day for one agent, 0 for no limit; `None` for its share of the retention.
    pub(crate) agent_bytes: Option<u64>,
}

const DAY: u64 = 86_400;
/// The fewest days in which one agent alone can fill the log.
const DAYS_TO_FILL: u64 = 8;
/// A file is read as a whole at the start and by verification.
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

    /// Bytes per day for one agent or one server; 0 for no limit.
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
