//! The only clock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mgp_engine::clock::MonotonicTime;
use mgp_platform::clock;
use tokio::sync::Notify;

static START: OnceLock<Instant> = OnceLock::new();
static BOOTTIME_START: OnceLock<Duration> = OnceLock::new();

/// Monotonic time since the kernel's clock was first read. Passed to the engines.
#[must_use]
pub fn monotonic_now() -> MonotonicTime {
    MonotonicTime::new(START.get_or_init(Instant::now).elapsed())
}

/// Time since its first call, by a clock that continues during suspend if the system has one: for deadlines of other nodes, which are not
/// suspended. Not comparable with [`monotonic_now`].
#[must_use]
pub fn boottime_now() -> MonotonicTime {
    let now = clock::boottime();
    let start = BOOTTIME_START.get_or_init(|| now);
    MonotonicTime::new(now.saturating_sub(*start))
}

/// A wakeup that is later than this was not delayed by other work: this process was suspended.
const SUSPEND_THRESHOLD: Duration = Duration::from_millis(500);
/// How long a resumed process may take to read pending input.
const CATCH_UP_TIME: Duration = Duration::from_secs(2);

/// Sleeps for `timeout` of a peer. If this process was suspended and wakes too late, pending input waits in pipes and
/// sockets: it gets time to be read before the deadline counts.
pub async fn sleep_with_grace(timeout: Duration) {
    let due = monotonic_now() + timeout;
    tokio::time::sleep(timeout).await;
    let late = monotonic_now().duration_since(due);
    if late > SUSPEND_THRESHOLD {
        tokio::time::sleep(late.min(CATCH_UP_TIME)).await;
    }
}

/// The answer, if it arrives within `timeout`; see [`sleep_with_grace`].
pub async fn timeout_with_grace<T>(
    timeout: Duration,
    answer: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        answer = answer => Some(answer),
        () = sleep_with_grace(timeout) => None,
    }
}

/// The time between two timers of [`keep_timer_near`]: less than the shortest timeout of a call.
const NEAR_TIMER: Duration = Duration::from_millis(20);

static CALLS_ARRIVE: AtomicBool = AtomicBool::new(false);
static CALL_ARRIVED: Notify = Notify::const_new();

/// Reports that a call begins; see [`keep_timer_near`].
pub fn report_call() {
    if !CALLS_ARRIVE.load(Ordering::Relaxed) && !CALLS_ARRIVE.swap(true, Ordering::Relaxed) {
        CALL_ARRIVED.notify_one();
    }
}

/// Keeps a timer due soon while calls arrive. A timer that is due before all others wakes the runtime's poller, which
/// costs two system calls; with this one the timeouts of calls are never the first.
pub async fn keep_timer_near() {
    loop {
        tokio::time::sleep(NEAR_TIMER).await;
        if !CALLS_ARRIVE.swap(false, Ordering::Relaxed) {
            CALL_ARRIVED.notified().await;
        }
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
