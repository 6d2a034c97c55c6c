//! The places of an endpoint's connections: who has one, and who gives it up when all are taken.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::shares::{PlaceAdmission, Shares, Usage};
use crate::unread::{ConnectionLoad, RequestUse};

/// Whose a connection is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Owner {
    /// Nobody has shown yet who it is.
    Unproven,
    /// A credential of this name was shown on it.
    Proven(Arc<str>),
}

/// All places of an endpoint.
#[derive(Debug)]
pub(in crate::http) struct Places {
    table: Mutex<PlaceTable>,
}

#[derive(Debug)]
struct PlaceTable {
    shares: Shares<Owner, u64>,
    open: HashMap<u64, Arc<OpenConnection>>,
    next: u64,
}

/// What is known of a connection.
#[derive(Debug, Default)]
struct OpenConnection {
    load: Arc<ConnectionLoad>,
    used: AtomicBool,
    greeted: AtomicBool,
    proven: AtomicBool,
    leave: CancellationToken,
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

impl Places {
    /// So many, all free.
    pub(in crate::http) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            table: Mutex::new(PlaceTable {
                shares: Shares::new(limit),
                open: HashMap::new(),
                next: 0,
            }),
        })
    }

    /// A place for a new connection. When all are taken, the oldest connection on which nobody showed who it
    /// is goes for it; without any, one of whoever has most.
    pub(in crate::http) fn enter(self: &Arc<Self>) -> Option<ConnectionPlace> {
        let mut table = self.lock();
        let unproven = table.shares.release_oldest(&Owner::Unproven);
        let gone = match unproven {
            Some(number) => Some(number),
            None => {
                let PlaceTable { shares, open, .. } = &mut *table;
                let usage = |number: &u64| open.get(number).map_or(Usage::Idle, |v| v.usage());
                match shares.admit(&Owner::Unproven, usage) {
                    PlaceAdmission::Free => None,
                    PlaceAdmission::Replaces(number) => Some(number),
                    PlaceAdmission::Full => return None,
                }
            }
        };
        let gone = gone.and_then(|number| table.open.remove(&number));
        table.next += 1;
        let (number, visit) = (table.next, Arc::new(OpenConnection::default()));
        table.shares.insert(&Owner::Unproven, number);
        table.open.insert(number, visit.clone());
        drop(table);
        if let Some(gone) = gone {
            gone.leave.cancel();
        }
        Some(ConnectionPlace(Proof {
            visit,
            number,
            places: self.clone(),
        }))
    }

    /// No code panics while it holds the lock, so a poisoned table is a whole one.
    fn lock(&self) -> MutexGuard<'_, PlaceTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one connection, given back when dropped.
#[derive(Debug)]
pub(in crate::http) struct ConnectionPlace(Proof);

impl ConnectionPlace {
    /// For the handler of its requests.
    pub(super) fn proof(&self) -> Proof {
        self.0.clone()
    }

    /// Resolves when the place is needed for another connection.
    pub(super) async fn revoked(&self) {
        self.0.visit.leave.cancelled().await;
    }

    /// True once its client has greeted as the protocol wants it.
    pub(super) fn has_greeted(&self) -> bool {
        self.0.visit.greeted.load(Ordering::Relaxed)
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let mut table = self.0.places.lock();
        table.shares.remove(&self.0.number);
        let _ = table.open.remove(&self.0.number);
    }
}

/// Where the handler of a request reports that its sender has shown who it is.
#[derive(Clone)]
pub struct Proof {
    visit: Arc<OpenConnection>,
    number: u64,
    places: Arc<Places>,
}

impl Proof {
    /// A credential of `owner` was shown. The connection counts as that owner's from its first one on.
    pub fn accept(&self, owner: &str) {
        if self.visit.proven.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut table = self.places.lock();
        // Its place may be another one's already.
        if table.shares.remove(&self.number) {
            table
                .shares
                .insert(&Owner::Proven(owner.into()), self.number);
        }
    }

    /// The greeting is whole: a first head, or the preface and settings of HTTP/2.
    pub(super) fn greet(&self) {
        self.visit.greeted.store(true, Ordering::Relaxed);
    }

    /// What is being answered on the connection.
    pub(super) fn load(&self) -> &ConnectionLoad {
        &self.visit.load
    }

    /// A request has begun; it ends with what is returned.
    pub(super) fn begin_request(&self) -> RequestUse {
        self.greet();
        self.visit.used.store(true, Ordering::Relaxed);
        RequestUse::begin(&self.visit.load)
    }
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Proof").field(&self.number).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_left(place: &ConnectionPlace) -> bool {
        place.0.visit.leave.is_cancelled()
    }

    #[test]
    fn who_proved_nothing_goes_first_and_then_one_of_who_holds_most() {
        let places = Places::new(4);
        let [one, two, three, four] = [(); 4].map(|()| places.enter().unwrap());
        for place in [&one, &three, &four] {
            place.proof().accept("a");
        }
        let five = places.enter().unwrap();
        assert!(has_left(&two) && ![&one, &three, &four].map(has_left).contains(&true));
        drop(two);
        five.proof().accept("b");
        let _busy = one.proof().begin_request();
        let six = places.enter().unwrap();
        assert!(has_left(&three) && ![&one, &four, &five].map(has_left).contains(&true));
        drop((three, six, four, five));
        assert!(!has_left(&places.enter().unwrap()));
        assert_eq!(places.lock().open.len(), 1);
    }

    /// What is proven too late takes no place.
    #[test]
    fn a_place_that_was_lost_is_not_taken_back() {
        let places = Places::new(1);
        let one = places.enter().unwrap();
        let two = places.enter().unwrap();
        one.proof().accept("a");
        assert_eq!(places.lock().shares.len(), 1);
        drop(one);
        assert_eq!(places.lock().shares.len(), 1);
        drop(two);
        assert!(places.lock().shares.is_empty() && places.lock().open.is_empty());
    }
}
