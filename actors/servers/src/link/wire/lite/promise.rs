//! The promise that a call holds, and how often it is asked whether it is kept (LITE-017).

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

/// The first wait: a result that is almost there is not kept waiting.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(250);

/// The longest wait: a promise of an hour costs its server some 360 requests, and its caller at most this long.
const POLL_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// Redemptions in a row that may get no answer, which with these waits is about 40 s: as long as a server may
/// take to start again.
const MISSES_MAX: u32 = 8;

/// How long a server may take to hear that nobody waits any more.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// How long until the next redemption.
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
    /// The time to wait now; each is twice the last.
    pub(super) fn next_delay(&mut self) -> Duration {
        let now = self.next;
        self.next = (now * 2).min(POLL_INTERVAL_MAX);
        now
    }

    /// A redemption got no answer. False when that were too many in a row.
    pub(super) fn record_miss(&mut self) -> bool {
        self.missed += 1;
        self.missed < MISSES_MAX
    }

    pub(super) fn reset(&mut self) {
        self.missed = 0;
    }
}

/// A promise that a call waits for. When its caller goes before it is kept, the server is told so (A-36).
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

    /// The newest token stands for the result.
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

    /// It came to its end, and there is nothing to be taken back.
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
            let told = wire.binding.call(&link, request, &mut partials);
            // A server that does not know the word says once more how the promise stands, which nobody reads.
            let _ = tokio::time::timeout(CANCEL_TIMEOUT, told).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LITE-017: the waits grow to their bound, and there is an end to what is not answered.
    #[test]
    fn the_waits_between_redemptions_grow_and_end() {
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
