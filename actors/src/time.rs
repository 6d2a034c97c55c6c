//! The only clock.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use mgp_engine::clock::MonotonicTime;

static START: OnceLock<Instant> = OnceLock::new();

/// Time since the kernel's clock was first read: what engines are told. Never goes back.
#[must_use]
pub fn moment() -> MonotonicTime {
    MonotonicTime::new(START.get_or_init(Instant::now).elapsed())
}

/// Milliseconds since 1970, for people and logs.
#[must_use]
pub fn unix_ms() -> u64 {
    unix_ms_of(SystemTime::now())
}

/// Milliseconds since 1970 of a file's time; 0 for one before.
#[must_use]
pub fn unix_ms_of(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}
