//! The places of an endpoint's connections: who has one, and who gives it up when all are taken.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::fair_slots::{FairSlots, SlotAdmission, Usage};
use crate::unread::{ConnectionLoad, RequestGuard};

/// Whose a connection is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum SlotOwner {
    /// Nobody has shown yet who it is.
    Anonymous,
    /// A credential of this name was shown on it.
    Authenticated(Arc<str>),
}

/// All places of an endpoint.
#[derive(Debug)]
pub(in crate::http) struct ConnectionSlots {
    table: Mutex<SlotTable>,
}

#[derive(Debug)]
struct SlotTable {
    shares: FairSlots<SlotOwner, u64>,
    open: HashMap<u64, Arc<OpenConnection>>,
    next: u64,
}

/// What is known of a connection.
#[derive(Debug, Default)]
struct OpenConnection {
    load: Arc<ConnectionLoad>,
    used: AtomicBool,
    handshake_done: AtomicBool,
    authenticated: AtomicBool,
    evict: CancellationToken,
}

impl OpenConnection {
    fn usage(&self) -> Usage {
        match self.used.swap(false, Ordering::Relaxed) {
            _ if self.load.has_requests() => Usage::Busy,
            true => Usage::Recent,
            false => Usage::Idle,
        }
    }
}

impl ConnectionSlots {
    /// So many, all free.
    pub(in crate::http) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            table: Mutex::new(SlotTable {
                shares: FairSlots::new(limit),
                open: HashMap::new(),
                next: 0,
            }),
        })
    }

    /// A place for a new connection. When all are taken, the oldest connection on which nobody showed who it
    /// is goes for it; without any, one of whoever has most.
    pub(in crate::http) fn acquire(self: &Arc<Self>) -> Option<ConnectionSlot> {
        let mut table = self.lock();
        let unproven = table.shares.release_oldest(&SlotOwner::Anonymous);
        let gone = match unproven {
            Some(number) => Some(number),
            None => {
                let SlotTable { shares, open, .. } = &mut *table;
                let usage = |number: &u64| open.get(number).map_or(Usage::Idle, |v| v.usage());
                match shares.admit(&SlotOwner::Anonymous, usage) {
                    SlotAdmission::Free => None,
                    SlotAdmission::Replaces(number) => Some(number),
                    SlotAdmission::Full => return None,
                }
            }
        };
        let gone = gone.and_then(|number| table.open.remove(&number));
        table.next += 1;
        let (number, visit) = (table.next, Arc::new(OpenConnection::default()));
        table.shares.insert(&SlotOwner::Anonymous, number);
        table.open.insert(number, visit.clone());
        drop(table);
        if let Some(gone) = gone {
            gone.evict.cancel();
        }
        Some(ConnectionSlot(ConnectionAuth {
            connection: visit,
            number,
            slots: self.clone(),
        }))
    }

    /// No code panics while it holds the lock, so a poisoned table is a whole one.
    fn lock(&self) -> MutexGuard<'_, SlotTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one connection, given back when dropped.
#[derive(Debug)]
pub(in crate::http) struct ConnectionSlot(ConnectionAuth);

impl ConnectionSlot {
    /// For the handler of its requests.
    pub(super) fn auth(&self) -> ConnectionAuth {
        self.0.clone()
    }

    /// Resolves when the place is needed for another connection.
    pub(super) async fn wait_evicted(&self) {
        self.0.connection.evict.cancelled().await;
    }

    /// True once its client has greeted as the protocol wants it.
    pub(super) fn has_handshaken(&self) -> bool {
        self.0.connection.handshake_done.load(Ordering::Relaxed)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut table = self.0.slots.lock();
        table.shares.remove(&self.0.number);
        let _ = table.open.remove(&self.0.number);
    }
}

/// Where the handler of a request reports that its sender has shown who it is.
#[derive(Clone)]
pub struct ConnectionAuth {
    connection: Arc<OpenConnection>,
    number: u64,
    slots: Arc<ConnectionSlots>,
}

impl ConnectionAuth {
    /// A credential of `owner` was shown. The connection counts as that owner's from its first one on.
    pub fn mark_authenticated(&self, owner: &str) {
        if self.connection.authenticated.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut table = self.slots.lock();
        // Its place may be another one's already.
        if table.shares.remove(&self.number) {
            table
                .shares
                .insert(&SlotOwner::Authenticated(owner.into()), self.number);
        }
    }

    /// The greeting is whole: a first head, or the preface and settings of HTTP/2.
    pub(super) fn mark_handshaken(&self) {
        self.connection
            .handshake_done
            .store(true, Ordering::Relaxed);
    }

    /// What is being answered on the connection.
    pub(super) fn load(&self) -> &ConnectionLoad {
        &self.connection.load
    }

    /// A request has begun; it ends with what is returned.
    pub(super) fn begin_request(&self) -> RequestGuard {
        self.mark_handshaken();
        self.connection.used.store(true, Ordering::Relaxed);
        RequestGuard::new(&self.connection.load)
    }
}

impl fmt::Debug for ConnectionAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Proof").field(&self.number).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_left(place: &ConnectionSlot) -> bool {
        place.0.connection.evict.is_cancelled()
    }

    #[test]
    fn who_proved_nothing_goes_first_and_then_one_of_who_holds_most() {
        let places = ConnectionSlots::new(4);
        let [one, two, three, four] = [(); 4].map(|()| places.acquire().unwrap());
        for place in [&one, &three, &four] {
            place.auth().mark_authenticated("a");
        }
        let five = places.acquire().unwrap();
        assert!(has_left(&two) && ![&one, &three, &four].map(has_left).contains(&true));
        drop(two);
        five.auth().mark_authenticated("b");
        let _busy = one.auth().begin_request();
        let six = places.acquire().unwrap();
        assert!(has_left(&three) && ![&one, &four, &five].map(has_left).contains(&true));
        drop((three, six, four, five));
        assert!(!has_left(&places.acquire().unwrap()));
        assert_eq!(places.lock().open.len(), 1);
    }

    /// What is proven too late takes no place.
    #[test]
    fn a_place_that_was_lost_is_not_taken_back() {
        let places = ConnectionSlots::new(1);
        let one = places.acquire().unwrap();
        let two = places.acquire().unwrap();
        one.auth().mark_authenticated("a");
        assert_eq!(places.lock().shares.len(), 1);
        drop(one);
        assert_eq!(places.lock().shares.len(), 1);
        drop(two);
        assert!(places.lock().shares.is_empty() && places.lock().open.is_empty());
    }
}
