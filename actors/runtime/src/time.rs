//! The only clock.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mgp_engine::clock::MonotonicTime;
use rustix::time::{ClockId, clock_gettime};

static START: OnceLock<Instant> = OnceLock::new();
static AWAKE_OR_NOT: OnceLock<Duration> = OnceLock::new();

/// Monotonic time since the kernel's clock was first read. Passed to the engines.
#[must_use]
pub fn monotonic_now() -> MonotonicTime {
    MonotonicTime::new(START.get_or_init(Instant::now).elapsed())
}

/// Time since its first call, by a clock that continues while the machine sleeps: for deadlines of other nodes, which
/// do not sleep with it. Not comparable with [`monotonic_now`].
#[must_use]
pub fn boottime_now() -> MonotonicTime {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    let now = Duration::from_secs(seconds) + Duration::from_nanos(nanos);
    let start = AWAKE_OR_NOT.get_or_init(|| now);
    MonotonicTime::new(now.saturating_sub(*start))
}

/// A wake that is later than this was not due to other work: this process did not run.
const SUSPEND_THRESHOLD: Duration = Duration::from_millis(500);
/// How long a process that did not run may take to read what came meanwhile.
const CATCH_UP: Duration = Duration::from_secs(2);

/// Sleeps until somebody has had this much time. Where this process was stopped and wakes too late, what came
/// meanwhile waits unread in pipes and sockets: it is given time to be read before the deadline counts.
pub async fn sleep_with_grace(patience: Duration) {
    let due = monotonic_now() + patience;
    tokio::time::sleep(patience).await;
    let late = monotonic_now().duration_since(due);
    if late > SUSPEND_THRESHOLD {
        tokio::time::sleep(late.min(CATCH_UP)).await;
    }
}

/// The answer, if it comes in this much time; see [`sleep_with_grace`].
pub async fn timeout_with_grace<T>(
    patience: Duration,
    answer: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        answer = answer => Some(answer),
        () = sleep_with_grace(patience) => None,
    }
}

/// Milliseconds since 1970, for people and logs.
#[must_use]
pub fn unix_ms() -> u64 {
    to_unix_ms(SystemTime::now())
}

/// The time of a file in milliseconds since 1970; 0 for earlier times.
#[must_use]
pub fn to_unix_ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}

/// Nanoseconds since 1970, for telemetry.
#[must_use]
pub fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}
