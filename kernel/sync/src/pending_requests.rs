//! Each request is settled exactly once: whoever takes it out of the table owns its waiter.
//!
//! Answer, cancel, timeout and the end of the connection race for a request. None checks first and acts later: only
//! one of them takes the waiter.

use crate::admission_error::AdmissionError;
use crate::number_map::NumberMap;
use crate::shim::Mutex;

/// Open requests, each with its waiter.
pub struct PendingRequests<W> {
    table: Mutex<PendingTable<W>>,
    capacity: usize,
}

struct PendingTable<W> {
    waiters: NumberMap<W>,
    newest_id: u64,
    closed: bool,
}

impl<W> PendingRequests<W> {
    /// A table of at most `capacity` requests. Allocates on demand.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let table = Mutex::new(PendingTable {
            waiters: NumberMap::default(),
            newest_id: 0,
            closed: false,
        });
        Self { table, capacity }
    }

    /// Registers a request and returns its id: 1, 2, 3, …, never reused.
    ///
    /// # Errors
    /// [`AdmissionError::Accept`] while `capacity` requests are open, [`AdmissionError::Closed`] ever after
    /// [`close`](Self::close).
    pub fn insert(&self, waiter: W) -> Result<u64, AdmissionError<W>> {
        let mut table = self.table.lock();
        if table.closed {
            return Err(AdmissionError::Closed(waiter));
        }
        if table.waiters.len() >= self.capacity {
            return Err(AdmissionError::Full(waiter));
        }
        table.newest_id += 1;
        let id = table.newest_id;
        table.waiters.insert(id, waiter);
        Ok(id)
    }

    /// Settles a request; `None` if it is settled or unknown.
    pub fn take(&self, id: u64) -> Option<W> {
        self.table.lock().waiters.remove(&id)
    }

    /// The last id assigned; 0 before the first.
    pub fn newest_id(&self) -> u64 {
        self.table.lock().newest_id
    }

    /// Passes the waiter of an open request to `read`, which runs under the table's lock: it must be short and must
    /// not use this table.
    pub fn inspect<R>(&self, id: u64, read: impl FnOnce(&W) -> R) -> Option<R> {
        self.table.lock().waiters.get(&id).map(read)
    }

    /// Visits every open request, in no order, under the same rule as [`inspect`](Self::inspect).
    pub fn for_each(&self, mut read: impl FnMut(u64, &W)) {
        let table = self.table.lock();
        table
            .waiters
            .iter()
            .for_each(|(&id, waiter)| read(id, waiter));
    }

    /// Settles all open requests, oldest first, and rejects every later one. A second close returns nothing.
    pub fn close(&self) -> Vec<(u64, W)> {
        let mut table = self.table.lock();
        table.closed = true;
        let waiters = std::mem::take(&mut table.waiters);
        drop(table);
        let mut waiters: Vec<_> = waiters.into_iter().collect();
        waiters.sort_unstable_by_key(|&(id, _)| id);
        waiters
    }

    /// Number of open requests.
    pub fn len(&self) -> usize {
        self.table.lock().waiters.len()
    }

    /// True when no request is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

opaque_debug!(PendingRequests<W>);

#[cfg(all(test, not(mgp_loom)))]
mod tests {
    use super::*;

    #[test]
    fn ids_count_up_and_are_never_used_again() {
        let pending = PendingRequests::new(2);
        assert_eq!(pending.newest_id(), 0);
        assert_eq!(pending.insert('a').unwrap(), 1);
        assert_eq!(pending.newest_id(), 1);
        assert_eq!(pending.take(1), Some('a'));
        assert_eq!(pending.take(1), None);
        assert_eq!(pending.insert('b').unwrap(), 2);
        assert_eq!(pending.inspect(2, |&w| w), Some('b'));
        assert_eq!(pending.inspect(1, |&w| w), None);
    }

    #[test]
    fn a_full_table_gives_the_waiter_back_until_one_is_settled() {
        let pending = PendingRequests::new(1);
        pending.insert('a').unwrap();
        assert!(matches!(
            pending.insert('b'),
            Err(AdmissionError::Full('b'))
        ));
        pending.take(1);
        assert_eq!(pending.insert('b').unwrap(), 2);
        assert_eq!(pending.len(), 1);
    }

    #[test]
    fn for_each_visits_all_open_requests() {
        let pending = PendingRequests::new(100);
        for n in 1..=100 {
            pending.insert(n).unwrap();
        }
        pending.take(100);
        let mut sum = 0;
        pending.for_each(|id, _| sum += id);
        assert_eq!(sum, 99 * 50);
    }

    #[test]
    fn closing_settles_all_and_rejects_later_ones() {
        let pending = PendingRequests::new(9);
        pending.insert('a').unwrap();
        pending.insert('b').unwrap();
        assert_eq!(pending.close(), vec![(1, 'a'), (2, 'b')]);
        assert_eq!(pending.close(), vec![]);
        assert!(pending.is_empty());
        assert!(matches!(
            pending.insert('c'),
            Err(AdmissionError::Closed('c'))
        ));
    }

    #[test]
    fn a_caller_that_panics_leaves_the_table_whole() {
        let pending = PendingRequests::new(9);
        pending.insert('a').unwrap();
        let read = |_, _: &char| panic!("a broken caller");
        let broken = std::panic::AssertUnwindSafe(|| pending.for_each(read));
        assert!(std::panic::catch_unwind(broken).is_err());
        assert_eq!(pending.take(1), Some('a'));
    }
}

#[cfg(all(test, mgp_loom))]
mod loom_tests {
    use super::*;
    use loom::thread;
    use std::sync::Arc;

    /// CMCP-069, PRJ-010: answer, cancel and the end of the connection race for one request.
    #[test]
    fn each_request_is_settled_exactly_once() {
        loom::model(|| {
            let pending = Arc::new(PendingRequests::new(2));
            let id = pending.insert(()).unwrap();
            let (a, b) = (Arc::clone(&pending), Arc::clone(&pending));
            let answer = thread::spawn(move || a.take(id).is_some());
            let cancel = thread::spawn(move || usize::from(b.take(id).is_some()));
            let ended = pending.close().len();
            let answered = usize::from(answer.join().unwrap());
            assert_eq!(answered + cancel.join().unwrap() + ended, 1);
            assert!(pending.is_empty());
        });
    }

    /// A request that races with the end of the connection is rejected or settled, never stranded.
    #[test]
    fn no_request_is_stranded_by_close() {
        loom::model(|| {
            let pending = Arc::new(PendingRequests::new(2));
            let table = Arc::clone(&pending);
            let caller = thread::spawn(move || table.insert(()).is_err());
            let ended = pending.close().len();
            let refused = usize::from(caller.join().unwrap());
            assert_eq!(refused + ended, 1);
        });
    }

    /// Two callers at once get two ids, and the bound holds against both.
    #[test]
    fn no_id_is_reused_and_the_bound_holds() {
        loom::model(|| {
            let pending = Arc::new(PendingRequests::new(2));
            let first = pending.insert(()).unwrap();
            let table = Arc::clone(&pending);
            let other = thread::spawn(move || table.insert(()).ok());
            let mine = pending.insert(()).ok();
            let other = other.join().unwrap();
            assert!(mine.is_some() != other.is_some(), "one place was left");
            assert_ne!(mine.or(other), Some(first));
            assert_eq!(pending.len(), 2);
        });
    }
}
