//! Responses that are buffered until their clients read them: counted in bytes, for all agents together and for each.
//!
//! A response is admitted once, when it arrives from its server. Afterwards it is counted without another admission
//! until its last byte was sent: the count decides whether the next one is admitted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::Notify;

/// Shorter responses are not counted, in bytes: their stream or connection costs as much.
const SMALL: usize = 1 << 10;

/// A call is made only while this fraction of the share is free, so that one of the longest responses fits.
const MIN_FREE_FRACTION: u64 = 8;

/// A count of bytes, of all agents or of one.
#[derive(Debug)]
pub struct UnreadBytes {
    limit: u64,
    used: AtomicU64,
    freed: Arc<Notify>,
}

impl UnreadBytes {
    /// A count for all agents together.
    #[must_use]
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self {
            limit,
            used: AtomicU64::new(0),
            freed: Arc::default(),
        })
    }

    /// A count for one agent. A waiter is woken by free bytes of any share.
    #[must_use]
    pub fn share(&self, limit: u64) -> Arc<Self> {
        Arc::new(Self {
            limit,
            used: AtomicU64::new(0),
            freed: self.freed.clone(),
        })
    }

    /// The counted bytes.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// The budget of one agent's responses.
#[derive(Clone, Debug)]
pub struct ResponseBudget {
    total: Arc<UnreadBytes>,
    share: Arc<UnreadBytes>,
}

impl ResponseBudget {
    /// Counts in both the total and the agent's share.
    #[must_use]
    pub fn new(total: Arc<UnreadBytes>, share: Arc<UnreadBytes>) -> Self {
        Self { total, share }
    }

    /// The maximum of this agent's share.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.share.limit
    }

    /// Whether no further call should be made for this agent, since its response may not fit.
    #[must_use]
    pub fn is_full(&self) -> bool {
        !self.has_capacity(self.min_free() as u64)
    }

    /// The bytes that must be free for a further call.
    #[must_use]
    pub fn min_free(&self) -> usize {
        usize::try_from(self.share.limit / MIN_FREE_FRACTION).unwrap_or(usize::MAX)
    }

    /// Admits a response that has arrived. One that is longer than a share is admitted while its agent has no other.
    #[must_use]
    pub fn admit(&self, bytes: usize) -> Option<UnreadResponse> {
        (bytes < SMALL || self.has_capacity(bytes as u64)).then(|| self.count(bytes))
    }

    /// Admits a response as soon as it fits.
    pub async fn admit_when_free(&self, bytes: usize) -> UnreadResponse {
        loop {
            let mut freed = std::pin::pin!(self.share.freed.notified());
            freed.as_mut().enable();
            if let Some(admitted) = self.admit(bytes) {
                return admitted;
            }
            freed.await;
        }
    }

    /// Counts bytes that were admitted before in another form.
    #[must_use]
    pub fn count(&self, bytes: usize) -> UnreadResponse {
        let bytes = match bytes {
            0..SMALL => 0,
            _ => bytes as u64,
        };
        if bytes > 0 {
            self.total.used.fetch_add(bytes, Ordering::Relaxed);
            self.share.used.fetch_add(bytes, Ordering::Relaxed);
        }
        UnreadResponse {
            budget: self.clone(),
            bytes,
        }
    }

    /// The same bytes, counted until their last part is dropped.
    #[must_use]
    pub fn attach_to(&self, bytes: Bytes) -> Bytes {
        match bytes.len() {
            0..SMALL => bytes,
            len => self.count(len).attach_to(bytes),
        }
    }

    fn has_capacity(&self, bytes: u64) -> bool {
        let (all, share) = (self.total.used(), self.share.used());
        let fits = all + bytes <= self.total.limit && share + bytes <= self.share.limit;
        fits || (share == 0 && all < self.total.limit)
    }
}

/// A response that is counted until this is dropped.
#[derive(Debug)]
pub struct UnreadResponse {
    budget: ResponseBudget,
    bytes: u64,
}

impl UnreadResponse {
    /// The counted bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Whether no bytes are counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Splits off a part of this many bytes; bytes that were not counted before are counted from now on.
    #[must_use]
    pub fn split_off(&mut self, bytes: usize) -> Self {
        let part = self.bytes.min(bytes as u64);
        let mut more = self
            .budget
            .count(bytes - usize::try_from(part).unwrap_or(bytes));
        self.bytes -= part;
        more.bytes += part;
        more
    }

    /// The bytes, counted until their last part is dropped.
    #[must_use]
    pub(crate) fn attach_to(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(GuardedBytes {
            bytes,
            _guard: self,
        })
    }
}

impl Drop for UnreadResponse {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let UnreadBytes { used, freed, .. } = &*self.budget.share;
            used.fetch_sub(self.bytes, Ordering::Relaxed);
            self.budget
                .total
                .used
                .fetch_sub(self.bytes, Ordering::Relaxed);
            freed.notify_waiters();
        }
    }
}

/// The unfinished answers of one connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectionLoad {
    requests: AtomicUsize,
    /// Bytes of answers that were queued, and those of them that were sent or dropped.
    queued: AtomicU64,
    sent: AtomicU64,
}

impl ConnectionLoad {
    /// Whether the last byte of some answer is unsent.
    pub(crate) fn has_requests(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }

    /// The value of `sent` at which all queued bytes are sent; `None` when none are queued.
    pub(crate) fn unsent(&self) -> Option<u64> {
        let queued = self.queued.load(Ordering::Relaxed);
        (!self.has_sent(queued)).then_some(queued)
    }

    /// Whether this many bytes were sent.
    pub(crate) fn has_sent(&self, bytes: u64) -> bool {
        self.sent.load(Ordering::Relaxed) >= bytes
    }
}

/// A request of a connection until it is answered.
#[derive(Debug)]
pub(crate) struct RequestGuard(Arc<ConnectionLoad>);

impl RequestGuard {
    pub(crate) fn new(connection: &Arc<ConnectionLoad>) -> Self {
        connection.requests.fetch_add(1, Ordering::Relaxed);
        Self(connection.clone())
    }

    /// Counts these bytes of the answer as unsent until their last part is dropped.
    pub(crate) fn attach_to(
        self: Arc<Self>,
        bytes: Bytes,
        unread: Option<UnreadResponse>,
    ) -> Bytes {
        let unsent = bytes.len() as u64;
        self.0.queued.fetch_add(unsent, Ordering::Relaxed);
        let guard = UnsentBytes {
            request: self,
            unsent,
            _unread: unread,
        };
        Bytes::from_owner(GuardedBytes {
            bytes,
            _guard: guard,
        })
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A part of an answer that is being sent.
struct UnsentBytes {
    request: Arc<RequestGuard>,
    unsent: u64,
    _unread: Option<UnreadResponse>,
}

impl Drop for UnsentBytes {
    fn drop(&mut self) {
        let sent = &self.request.0.sent;
        sent.fetch_add(self.unsent, Ordering::Relaxed);
    }
}

/// Bytes with a guard that is dropped with their last part.
struct GuardedBytes<H> {
    bytes: Bytes,
    _guard: H,
}

impl<H> AsRef<[u8]> for GuardedBytes<H> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const KIB: usize = 1 << 10;

    #[test]
    fn unread_bytes_are_bounded_for_each_agent_and_in_total() {
        let all = UnreadBytes::new(100 * KIB as u64);
        let [a, b, c] = [(); 3].map(|()| {
            let share = all.share(60 * KIB as u64);
            ResponseBudget::new(all.clone(), share)
        });
        let guard = a.admit(55 * KIB).unwrap();
        assert!(a.admit(6 * KIB).is_none() && !b.is_full());
        assert!(a.is_full(), "less than an eighth of its share is left");
        let other = b.admit(45 * KIB).unwrap();
        assert!(c.admit(KIB).is_none() && c.is_full());
        assert!(
            c.admit(100).is_some(),
            "small responses are always admitted"
        );
        drop(guard);
        // One that is longer than the share, while its agent has no other.
        let long = c.admit(80 * KIB).unwrap();
        assert!(c.admit(KIB).is_none());
        drop((other, long));
        assert_eq!((all.used(), c.share.used()), (0, 0));
    }

    #[test]
    fn bytes_are_counted_until_their_last_part_is_dropped() {
        let all = UnreadBytes::new(1 << 20);
        let budget = ResponseBudget::new(all.clone(), all.share(1 << 20));
        let mut admitted = budget.admit(10 * KIB).unwrap();
        let part = admitted
            .split_off(4 * KIB)
            .attach_to(Bytes::from(vec![b'x'; 4 * KIB]));
        drop(admitted);
        let rest = part.slice(1..2);
        drop(part);
        assert_eq!(all.used(), 4 * KIB as u64);
        drop(rest);
        assert_eq!(all.used(), 0);
        let mut none = budget.count(0);
        assert_eq!(none.split_off(2 * KIB).len(), 2 * KIB as u64);
        assert_eq!(all.used(), 0);
    }

    #[tokio::test]
    async fn a_response_waits_until_its_agents_share_has_capacity() {
        let all = UnreadBytes::new(1 << 20);
        let budget = ResponseBudget::new(all.clone(), all.share(10 * KIB as u64));
        let first = budget.admit(8 * KIB).unwrap();
        let waiting = budget.admit_when_free(8 * KIB);
        tokio::pin!(waiting);
        let early = tokio::time::timeout(Duration::from_millis(20), &mut waiting).await;
        assert!(early.is_err());
        drop(first);
        assert_eq!(waiting.await.len(), 8 * KIB as u64);
    }
}
