//! The only clock.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use mgp_engine::clock::MonotonicTime;

static START: OnceLock<Instant> = OnceLock::new();

/// Monotonic time since the kernel's clock was first read. Passed to the engines.
#[must_use]
pub fn moment() -> MonotonicTime {
    MonotonicTime::new(START.get_or_init(Instant::now).elapsed())
}

/// Milliseconds since 1970, for people and logs.
#[must_use]
pub fn unix_ms() -> u64 {
    unix_ms_of(SystemTime::now())
}

/// The time of a file in milliseconds since 1970; 0 for earlier times.
#[must_use]
pub fn unix_ms_of(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}
