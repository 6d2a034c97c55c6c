//! A clock that continues while the machine sleeps, if the system's monotonic clock does.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time since an unspecified moment. Systems differ in whether it includes the time of a suspension.
#[must_use]
pub fn boottime() -> Duration {
    crate::to_duration(clock_gettime(ClockId::Monotonic))
}
