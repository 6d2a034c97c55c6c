//! Expires approvals that have an end.

use std::sync::Weak;
use std::time::Duration;

use super::SharedGates;
use mgp_runtime::time::unix_ms;

/// Longest time between two looks at the clock, so that a clock set forward is noticed.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Expires approvals as long as there are gates. Calls check the time themselves, so nothing is valid longer
/// because this runs late.
pub(super) async fn run_expiry(shared: Weak<SharedGates>) {
    let Some(mut turned) = shared.upgrade().map(|shared| shared.changes.subscribe()) else {
        return;
    };
    loop {
        let Some(next) = shared.upgrade().map(|shared| shared.expire_due()) else {
            return;
        };
        let left = next.map(|end| Duration::from_millis(end.saturating_sub(unix_ms())));
        tokio::select! {
            () = tokio::time::sleep(left.unwrap_or(CLOCK_CHECK_INTERVAL).min(CLOCK_CHECK_INTERVAL)) => {}
            changed = turned.changed() => if changed.is_err() { return },
        }
    }
}

impl SharedGates {
    /// Expires approvals; returns the time of the next one.
    fn expire_due(&self) -> Option<u64> {
        let now = unix_ms();
        let mut ended = Vec::new();
        let next = {
            let mut posts = self.lock_gates();
            for (server, post) in posts.iter_mut() {
                let effects = post.gate.expire(now);
                if !effects.is_empty() {
                    ended.push((server.clone(), effects));
                }
            }
            posts
                .values()
                .filter_map(|post| post.gate.next_expiry_ms())
                .min()
        };
        for (server, effects) in ended {
            self.publish(&server);
            self.record_effects(&server, effects, None);
        }
        next
    }
}
