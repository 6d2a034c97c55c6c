//! A clock that continues while the machine sleeps.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time since the machine's start, with the time it was suspended.
#[must_use]
pub fn boottime() -> Duration {
    crate::to_duration(clock_gettime(ClockId::Boottime))
}
