//! Waiting on conditions instead of on the clock.

use std::time::{Duration, Instant};

/// How long anything may take before a test calls it broken: generous, because two cores may be
/// shared by a compiler, several Node processes and the kernel.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(2);

/// Waits until `condition` holds.
///
/// # Panics
/// When it does not hold by `deadline`; `what` says what was waited for.
pub async fn wait_until(what: &str, deadline: Duration, mut condition: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !condition().await {
        assert!(
            start.elapsed() < deadline,
            "not within {deadline:?}: {what}"
        );
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits for `future`.
///
/// # Panics
/// When it does not end by `deadline`; `what` says what was waited for.
pub async fn within<T>(what: &str, deadline: Duration, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(deadline, future).await {
        Ok(value) => value,
        Err(_) => panic!("not within {deadline:?}: {what}"),
    }
}
