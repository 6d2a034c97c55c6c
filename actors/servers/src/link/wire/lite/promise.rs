//! The promise that a call holds, and how often it is asked whether it is kept (LITE-017).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::header::HeaderMap;
use mgp_protocol::lite::REDEEM;
use mgp_protocol::splice::quoted;
use mgp_runtime::task;

use super::partials::LitePartials;
use super::{ForeignCall, LiteWire};
use crate::link::Link;

/// The first wait: a result that is almost there is not kept waiting.
const FIRST: Duration = Duration::from_millis(250);

/// The longest wait: a promise of an hour costs its server some 360 requests, and its caller at most this long.
const LONGEST: Duration = Duration::from_secs(10);

/// Redemptions in a row that may get no answer, which with these waits is about 40 s: as long as a server may
/// take to start again.
const MISSES: u32 = 8;

/// How long a server may take to hear that nobody waits any more.
const PARTING: Duration = Duration::from_secs(5);

/// How long until the next redemption.
#[derive(Debug)]
pub(super) struct BackOff {
    next: Duration,
    missed: u32,
}

impl Default for BackOff {
    fn default() -> Self {
        Self {
            next: FIRST,
            missed: 0,
        }
    }
}

impl BackOff {
    /// The time to wait now; each is twice the last.
    pub(super) fn wait(&mut self) -> Duration {
        let now = self.next;
        self.next = (now * 2).min(LONGEST);
        now
    }

    /// A redemption got no answer. False when that were too many in a row.
    pub(super) fn missed(&mut self) -> bool {
        self.missed += 1;
        self.missed < MISSES
    }

    pub(super) fn answered(&mut self) {
        self.missed = 0;
    }
}

/// A promise that a call waits for. When its caller goes before it is kept, the server is told so (A-36).
pub(super) struct HeldPromise {
    wire: Arc<LiteWire>,
    link: Arc<Link>,
    headers: HeaderMap,
    token: Option<String>,
}

impl HeldPromise {
    pub(super) fn new(
        wire: &Arc<LiteWire>,
        link: &Arc<Link>,
        headers: &HeaderMap,
        token: String,
    ) -> Self {
        wire.promises.fetch_add(1, Ordering::Relaxed);
        Self {
            wire: wire.clone(),
            link: link.clone(),
            headers: headers.clone(),
            token: Some(token),
        }
    }

    /// The newest token stands for the result.
    pub(super) fn renewed(&mut self, token: String) {
        self.token = Some(token);
    }

    /// The arguments of `redeem`.
    pub(super) fn arguments(&self) -> String {
        let token = self.token.as_deref().unwrap_or_default();
        format!(r#"{{"promise":{}}}"#, quoted(token))
    }

    pub(super) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// It came to its end, and there is nothing to be taken back.
    pub(super) fn settled(&mut self) {
        self.token = None;
    }
}

impl Drop for HeldPromise {
    fn drop(&mut self) {
        self.wire.promises.fetch_sub(1, Ordering::Relaxed);
        let Some(token) = self.token.take() else {
            return;
        };
        let (wire, link) = (self.wire.clone(), self.link.clone());
        let headers = std::mem::take(&mut self.headers);
        task::detached("link.cancel", async move {
            let arguments = format!(r#"{{"promise":{},"action":"cancel"}}"#, quoted(&token));
            let request = ForeignCall {
                name: REDEEM,
                arguments: &arguments,
                headers: &headers,
                continuation: None,
            };
            let mut partials = LitePartials::nobody();
            let told = wire.binding.call(&link, request, &mut partials);
            // A server that does not know the word says once more how the promise stands, which nobody reads.
            let _ = tokio::time::timeout(PARTING, told).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LITE-017: the waits grow to their bound, and there is an end to what is not answered.
    #[test]
    fn the_waits_between_redemptions_grow_and_end() {
        let mut back_off = BackOff::default();
        let waits: Vec<u128> = (0..8).map(|_| back_off.wait().as_millis()).collect();
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
        for _ in 1..MISSES {
            assert!(back_off.missed());
        }
        back_off.answered();
        assert!(back_off.missed());
        let ended = (1..MISSES).map(|_| back_off.missed()).last();
        assert_eq!(ended, Some(false));
    }
}
