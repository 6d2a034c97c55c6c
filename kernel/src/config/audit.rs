//! `[audit]`: what is written down, when it is on disk, and how long it is kept.

use std::time::Duration;

use mgp_engine::store::audit::commit::{CallAuditing, WINDOW};
use mgp_engine::store::audit::redact::ArgumentsKept;
use mgp_engine::store::audit::segments::Retention;

use super::section::Section;

/// `[audit]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Whether a log is kept at all.
    pub enabled: bool,
    /// When the records of calls are on disk.
    pub calls: CallsWord,
    /// The window of `calls = "window"`.
    pub window: Duration,
    /// What is kept of a call's arguments.
    pub arguments: ArgumentsKept,
    /// How much is kept.
    pub retention: Retention,
    /// Bytes one agent may fill in a day, 0 for any number; `None` for its share of what is kept.
    pub agent_bytes: Option<u64>,
}

/// `[audit] calls`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallsWord {
    /// Together with others, within the window.
    Window,
    /// Before the call is answered.
    BeforeReply,
}

const DAY: u64 = 86_400;
/// One agent alone fills the whole log in so many days at the earliest.
const DAYS_TO_FILL: u64 = 8;
/// A file is read whole at the start and by who verifies.
const SEGMENT: std::ops::RangeInclusive<u64> = 64 << 10..=256 << 20;

impl Default for Audit {
    fn default() -> Self {
        Self {
            enabled: true,
            calls: CallsWord::Window,
            window: WINDOW,
            arguments: ArgumentsKept::default(),
            retention: Retention::default(),
            agent_bytes: None,
        }
    }
}

impl Audit {
    /// When the records of calls are on disk.
    #[must_use]
    pub fn schedule(&self) -> CallAuditing {
        match self.calls {
            CallsWord::Window => CallAuditing::Window(self.window),
            CallsWord::BeforeReply => CallAuditing::BeforeReply,
        }
    }

    /// Bytes one agent, or one server, may fill in a day; 0 for any number.
    #[must_use]
    pub fn per_day(&self) -> u64 {
        let share = self.retention.max_bytes / DAYS_TO_FILL;
        self.agent_bytes.unwrap_or(share)
    }

    pub(super) fn read(&mut self, mut section: Section<'_, '_, '_>) {
        section.flag("enabled", &mut self.enabled);
        let calls = [
            ("window", CallsWord::Window),
            ("before_reply", CallsWord::BeforeReply),
        ];
        section.choice("calls", &calls, &mut self.calls);
        section.millis("window_ms", 1..=10_000, &mut self.window);
        let arguments = [
            ("digest", ArgumentsKept::Digest),
            ("whole", ArgumentsKept::Whole),
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
        section.count("file_bytes", SEGMENT, segment_bytes);
        let mut bytes = self.per_day();
        section.count("agent_bytes_per_day", 0..=1 << 40, &mut bytes);
        if bytes != self.per_day() {
            self.agent_bytes = Some(bytes);
        }
        section.finish();
    }
}
