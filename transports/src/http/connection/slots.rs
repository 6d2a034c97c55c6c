//! The slots of a listener's connections: who has one, and whose connection is evicted when all are taken.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::fair_slots::{FairSlots, SlotAdmission, Usage};
use crate::unread::{ConnectionLoad, RequestGuard};

/// The owner of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum SlotOwner {
    /// Not authenticated yet.
    Anonymous,
    /// Authenticated with a credential of this name.
    Authenticated(Arc<str>),
}

/// All slots of a listener.
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

/// The state of a connection.
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
    /// A table with this many free slots.
    pub(in crate::http) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            table: Mutex::new(SlotTable {
                shares: FairSlots::new(limit),
                open: HashMap::new(),
                next: 0,
            }),
        })
    }

    /// A slot for a new connection. When all are taken, it evicts the oldest unauthenticated connection; without any, one of
    /// the owner with the most.
    pub(in crate::http) fn acquire(self: &Arc<Self>) -> Option<ConnectionSlot> {
        let mut table = self.lock();
        let unauthenticated = table.shares.release_oldest(&SlotOwner::Anonymous);
        let evicted = match unauthenticated {
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
        let evicted = evicted.and_then(|number| table.open.remove(&number));
        table.next += 1;
        let (number, connection) = (table.next, Arc::new(OpenConnection::default()));
        table.shares.insert(&SlotOwner::Anonymous, number);
        table.open.insert(number, connection.clone());
        drop(table);
        if let Some(evicted) = evicted {
            evicted.evict.cancel();
        }
        Some(ConnectionSlot(ConnectionAuth {
            connection,
            number,
            slots: self.clone(),
        }))
    }

    /// No code panics while it holds the lock, so a poisoned table is consistent.
    fn lock(&self) -> MutexGuard<'_, SlotTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slot of one connection, released when dropped.
#[derive(Debug)]
pub(in crate::http) struct ConnectionSlot(ConnectionAuth);

impl ConnectionSlot {
    /// For the handler of its requests.
    pub(super) fn auth(&self) -> ConnectionAuth {
        self.0.clone()
    }

    /// Resolves when the connection is evicted.
    pub(super) async fn wait_evicted(&self) {
        self.0.connection.evict.cancelled().await;
    }

    /// Whether the protocol handshake is complete.
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

/// Receives the handler's report that the client is authenticated.
#[derive(Clone)]
pub struct ConnectionAuth {
    connection: Arc<OpenConnection>,
    number: u64,
    slots: Arc<ConnectionSlots>,
}

impl ConnectionAuth {
    /// A credential of `owner` was verified. The connection belongs to the owner of its first credential.
    pub fn mark_authenticated(&self, owner: &str) {
        if self.connection.authenticated.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut table = self.slots.lock();
        // Its slot may have been given to another connection.
        if table.shares.remove(&self.number) {
            table
                .shares
                .insert(&SlotOwner::Authenticated(owner.into()), self.number);
        }
    }

    /// The handshake is complete: a first head, or the preface and settings of HTTP/2.
    pub(super) fn mark_handshaken(&self) {
        self.connection
            .handshake_done
            .store(true, Ordering::Relaxed);
    }

    /// The unfinished answers of the connection.
    pub(super) fn load(&self) -> &ConnectionLoad {
        &self.connection.load
    }

    /// Starts a request, which ends with the guard.
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

    fn has_left(slot: &ConnectionSlot) -> bool {
        slot.0.connection.evict.is_cancelled()
    }

    #[test]
    fn unauthenticated_connections_are_evicted_first_and_then_one_of_the_largest_owner() {
        let slots = ConnectionSlots::new(4);
        let [one, two, three, four] = [(); 4].map(|()| slots.acquire().unwrap());
        for slot in [&one, &three, &four] {
            slot.auth().mark_authenticated("a");
        }
        let five = slots.acquire().unwrap();
        assert!(has_left(&two) && ![&one, &three, &four].map(has_left).contains(&true));
        drop(two);
        five.auth().mark_authenticated("b");
        let _busy = one.auth().begin_request();
        let six = slots.acquire().unwrap();
        assert!(has_left(&three) && ![&one, &four, &five].map(has_left).contains(&true));
        drop((three, six, four, five));
        assert!(!has_left(&slots.acquire().unwrap()));
        assert_eq!(slots.lock().open.len(), 1);
    }

    /// Authentication after the eviction has no effect.
    #[test]
    fn an_evicted_slot_is_not_taken_back() {
        let slots = ConnectionSlots::new(1);
        let one = slots.acquire().unwrap();
        let two = slots.acquire().unwrap();
        one.auth().mark_authenticated("a");
        assert_eq!(slots.lock().shares.len(), 1);
        drop(one);
        assert_eq!(slots.lock().shares.len(), 1);
        drop(two);
        assert!(slots.lock().shares.is_empty() && slots.lock().open.is_empty());
    }
}
