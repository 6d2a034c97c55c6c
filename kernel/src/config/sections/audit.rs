//! `[audit]`: what is recorded, when it is on disk, and its retention.

use std::time::Duration;

use mgp_engine::store::audit::commit::{CallAuditing, DEFAULT_WINDOW};
use mgp_engine::store::audit::redact::ArgumentRetention;
use mgp_engine::store::audit::segments::Retention;

use super::{DAY, section};
use crate::config::parsing::Section;

/// The fewest days in which one agent alone can fill the log.
const DAYS_TO_FILL: u64 = 8;
/// A file is read as a whole at the start and by verification.
const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=256 << 20;

const CALLS: [(&str, bool); 2] = [("window", false), ("before_reply", true)];
const ARGUMENTS: [(&str, ArgumentRetention); 2] = [
    ("digest", ArgumentRetention::Digest),
    ("whole", ArgumentRetention::Full),
];

section! {
    /// `[audit]`.
    AuditConfig {
        /// Whether there is an audit log.
        enabled: bool = true, flag("enabled");
        /// Whether the record of a call is on disk before the call is answered, or batched.
        before_reply: bool = false, choice("calls", &CALLS);
        /// What is recorded of a call's arguments.
        arguments: ArgumentRetention = ArgumentRetention::default(), choice("arguments", &ARGUMENTS);
        /// How much is retained.
        retention: Retention = Retention::default(), read_with(read_retention);
        /// Bytes per day for one agent, 0 for no limit; `None` for its share of the retention.
        agent_bytes: Option<u64> = None, read_with(|_, _| ());
        => Self::read_agent_bytes;
    }
}

impl AuditConfig {
    /// When the records of calls are on disk.
    #[must_use]
    pub(crate) fn call_auditing(&self) -> CallAuditing {
        if self.before_reply {
            CallAuditing::BeforeReply
        } else {
            CallAuditing::Window(DEFAULT_WINDOW)
        }
    }

    /// Bytes per day for one agent or one server; 0 for no limit.
    #[must_use]
    pub(crate) fn daily_agent_bytes(&self) -> u64 {
        let share = self.retention.max_bytes / DAYS_TO_FILL;
        self.agent_bytes.unwrap_or(share)
    }

    fn read_agent_bytes(&mut self, section: &mut Section<'_, '_, '_>) {
        let mut bytes = self.daily_agent_bytes();
        section.count("agent_bytes_per_day", 0..=1 << 40, &mut bytes);
        if bytes != self.daily_agent_bytes() {
            self.agent_bytes = Some(bytes);
        }
    }
}

fn read_retention(section: &mut Section<'_, '_, '_>, retention: &mut Retention) {
    let mut days = retention.max_age.map_or(0, |age| age.as_secs() / DAY);
    section.count("keep_days", 0..=36_500, &mut days);
    retention.max_age = (days > 0).then(|| Duration::from_secs(days * DAY));
    section.count("keep_bytes", 1 << 20..=1 << 40, &mut retention.max_bytes);
    section.count("file_bytes", SEGMENT_BYTES, &mut retention.segment_bytes);
}
