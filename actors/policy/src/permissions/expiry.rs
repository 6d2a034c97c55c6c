//! Expires approvals at their end.

use std::sync::Weak;
use std::time::Duration;

use super::SharedGates;
use mgp_runtime::time::unix_ms;

/// Longest time between two checks of the clock, so that a clock that was set forward is noticed.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Runs as long as there are gates. Calls check the time themselves, so a late run extends no approval.
pub(super) async fn run_expiry(shared: Weak<SharedGates>) {
    let Some(mut changes) = shared.upgrade().map(|shared| shared.changes.subscribe()) else {
        return;
    };
    loop {
        let Some(next) = shared.upgrade().map(|shared| shared.expire_due()) else {
            return;
        };
        let delay = next.map(|end| Duration::from_millis(end.saturating_sub(unix_ms())));
        tokio::select! {
            () = tokio::time::sleep(delay.unwrap_or(CLOCK_CHECK_INTERVAL).min(CLOCK_CHECK_INTERVAL)) => {}
            changed = changes.changed() => if changed.is_err() { return },
        }
    }
}

impl SharedGates {
    /// Expires approvals; returns the time of the next one.
    fn expire_due(&self) -> Option<u64> {
        let now = unix_ms();
        let mut expired = Vec::new();
        let next = {
            let mut gates = self.lock_gates();
            for (server, open_gate) in gates.iter_mut() {
                let effects = open_gate.gate.expire(now);
                if !effects.is_empty() {
                    expired.push((server.clone(), effects));
                }
            }
            gates
                .values()
                .filter_map(|open_gate| open_gate.gate.next_expiry_ms())
                .min()
        };
        for (server, effects) in expired {
            self.publish(&server);
            self.record_effects(&server, effects, None);
        }
        next
    }
}
