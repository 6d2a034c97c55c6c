//! The promise of a call, and the schedule of its redemptions (LITE-017).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::header::HeaderMap;
use mgp_json::quote;
use mgp_protocol::lite::REDEEM;
use mgp_runtime::task;

use super::partials::PartialReporter;
use super::{LiteCall, LiteWire};
use crate::link::Link;

/// The first delay: short, for results that are almost ready.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(250);

/// The longest delay: a promise of an hour costs its server some 360 requests, and its caller at most this
/// delay.
const POLL_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// Consecutive redemptions that may stay without an answer: with these delays about 40 s, the time a server may
/// need to restart.
const MISSES_MAX: u32 = 8;

/// How long a server may take to accept a cancellation.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// The delays between redemptions.
#[derive(Debug)]
pub(super) struct RedeemBackoff {
    next: Duration,
    missed: u32,
}

impl Default for RedeemBackoff {
    fn default() -> Self {
        Self {
            next: POLL_INTERVAL_MIN,
            missed: 0,
        }
    }
}

impl RedeemBackoff {
    /// The next delay; each is twice the last.
    pub(super) fn next_delay(&mut self) -> Duration {
        let now = self.next;
        self.next = (now * 2).min(POLL_INTERVAL_MAX);
        now
    }

    /// Counts a redemption without an answer; false after too many in a row.
    pub(super) fn record_miss(&mut self) -> bool {
        self.missed += 1;
        self.missed < MISSES_MAX
    }

    pub(super) fn reset(&mut self) {
        self.missed = 0;
    }
}

/// A promise that a call waits for. If its caller leaves before it is redeemed, it is cancelled at the server
/// (A-36).
pub(super) struct PendingPromise {
    wire: Arc<LiteWire>,
    link: Arc<Link>,
    headers: HeaderMap,
    token: Option<String>,
}

impl PendingPromise {
    pub(super) fn new(
        wire: &Arc<LiteWire>,
        link: &Arc<Link>,
        headers: &HeaderMap,
        token: String,
    ) -> Self {
        wire.waiting_promises.fetch_add(1, Ordering::Relaxed);
        Self {
            wire: wire.clone(),
            link: link.clone(),
            headers: headers.clone(),
            token: Some(token),
        }
    }

    /// Replaces the token; only the newest is valid.
    pub(super) fn set_token(&mut self, token: String) {
        self.token = Some(token);
    }

    /// The arguments of `redeem`.
    pub(super) fn redeem_arguments(&self) -> String {
        let token = self.token.as_deref().unwrap_or_default();
        format!(r#"{{"promise":{}}}"#, quote(token))
    }

    pub(super) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Marks the promise as done, so that it is not cancelled.
    pub(super) fn mark_settled(&mut self) {
        self.token = None;
    }
}

impl Drop for PendingPromise {
    fn drop(&mut self) {
        self.wire.waiting_promises.fetch_sub(1, Ordering::Relaxed);
        let Some(token) = self.token.take() else {
            return;
        };
        let (wire, link) = (self.wire.clone(), self.link.clone());
        let headers = std::mem::take(&mut self.headers);
        task::spawn_detached("link.cancel", async move {
            let arguments = format!(r#"{{"promise":{},"action":"cancel"}}"#, quote(&token));
            let request = LiteCall {
                name: REDEEM,
                arguments: &arguments,
                headers: &headers,
                continuation: None,
            };
            let mut partials = PartialReporter::discard();
            let cancelled = wire.binding.call(&link, request, &mut partials);
            // A server without cancellation answers with the promise's state, which is ignored.
            let _ = tokio::time::timeout(CANCEL_TIMEOUT, cancelled).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LITE-017: the delays grow to their limit, and unanswered redemptions end.
    #[test]
    fn redemption_delays_grow_and_end() {
        let mut back_off = RedeemBackoff::default();
        let waits: Vec<u128> = (0..8).map(|_| back_off.next_delay().as_millis()).collect();
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
        for _ in 1..MISSES_MAX {
            assert!(back_off.record_miss());
        }
        back_off.reset();
        assert!(back_off.record_miss());
        let ended = (1..MISSES_MAX).map(|_| back_off.record_miss()).last();
        assert_eq!(ended, Some(false));
    }
}
