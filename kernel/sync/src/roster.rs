//! After a change of the allowed keys returns, no forbidden entry is left but those it returned for termination.
//!
//! Entering first adds the entry and then checks permission: either it sees the change, or the change sees it.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use crate::shim::Mutex;
use crate::snapshot::Snapshot;

/// The allowed keys, and the entries.
pub struct Roster<K, V> {
    allowed: Snapshot<HashSet<K>>,
    state: Mutex<RosterEntries<K, V>>,
}

struct RosterEntries<K, V> {
    entries: Vec<(u64, K, V)>,
    last_id: u64,
}

/// Why an entry was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnterError {
    /// Too many entries of the same key.
    Full,
    /// The key is not allowed, or no longer.
    Denied,
}

/// Dropping it removes the entry.
#[must_use = "who drops it is out"]
pub struct RosterGuard<K: Clone + Eq + Hash, V: Clone> {
    roster: Arc<Roster<K, V>>,
    entry_id: u64,
}

impl<K: Clone + Eq + Hash, V: Clone> Default for Roster<K, V> {
    fn default() -> Self {
        let entries = RosterEntries {
            entries: Vec::new(),
            last_id: 0,
        };
        Self {
            allowed: Snapshot::new(HashSet::new()),
            state: Mutex::new(entries),
        }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Roster<K, V> {
    /// Whether this key is allowed now.
    pub fn is_allowed(&self, key: &K) -> bool {
        self.allowed.load().contains(key)
    }

    /// Replaces the allowed keys. Once this returns, no other key enters; returns the forbidden entries, which the caller
    /// must end.
    #[must_use = "a forbidden entry has to be ended"]
    pub fn replace_allowed(&self, allowed: HashSet<K>) -> Vec<V> {
        self.allowed.store(Arc::new(allowed));
        // A later change may be in force already; the last one counts.
        let allowed = self.allowed.load();
        let live = self.state.lock();
        let forbidden = live
            .entries
            .iter()
            .filter(|(_, key, _)| !allowed.contains(key));
        forbidden.map(|(_, _, value)| value.clone()).collect()
    }

    /// Adds an entry, if its key is allowed and the check accepts the other entries of that key; the check runs under
    /// the lock.
    ///
    /// # Errors
    /// [`EnterError`].
    pub fn enter(
        self: &Arc<Self>,
        key: K,
        value: V,
        has_room: impl FnOnce(&mut dyn Iterator<Item = &V>) -> bool,
    ) -> Result<RosterGuard<K, V>, EnterError> {
        let mut live = self.state.lock();
        let same = live.entries.iter().filter(|(_, other, _)| *other == key);
        if !has_room(&mut same.map(|(_, _, value)| value)) {
            return Err(EnterError::Full);
        }
        live.last_id += 1;
        let number = live.last_id;
        live.entries.push((number, key.clone(), value));
        drop(live);
        let guard = RosterGuard {
            roster: Arc::clone(self),
            entry_id: number,
        };
        if self.is_allowed(&key) {
            Ok(guard)
        } else {
            Err(EnterError::Denied)
        }
    }

    /// Number of entries.
    pub fn count(&self) -> usize {
        self.state.lock().entries.len()
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Drop for RosterGuard<K, V> {
    fn drop(&mut self) {
        let mut live = self.roster.state.lock();
        let mut entries = live.entries.iter();
        let index = entries.position(|(number, ..)| *number == self.entry_id);
        let removed = index.map(|index| live.entries.swap_remove(index));
        drop(live);
        drop(removed);
    }
}

impl<K, V> std::fmt::Debug for Roster<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Roster").finish_non_exhaustive()
    }
}

impl<K: Clone + Eq + Hash, V: Clone> std::fmt::Debug for RosterGuard<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut guard = f.debug_struct("RosterGuard");
        guard
            .field("number", &self.entry_id)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(mgp_loom)))]
mod tests {
    use super::*;

    #[test]
    fn forbidden_entries_are_returned_and_dropping_a_guard_removes_its_entry() {
        let roster = Arc::new(Roster::default());
        let has_capacity = |those: &mut dyn Iterator<Item = &&str>| those.count() < 2;
        let none = roster.enter(1, "a", has_capacity);
        assert_eq!(none.err(), Some(EnterError::Denied));
        assert!(roster.replace_allowed(HashSet::from([1, 2])).is_empty());
        let a = roster.enter(1, "a", has_capacity).unwrap();
        let b = roster.enter(1, "b", has_capacity).unwrap();
        let _c = roster.enter(2, "c", has_capacity).unwrap();
        assert_eq!(
            roster.enter(1, "d", has_capacity).err(),
            Some(EnterError::Full)
        );
        assert_eq!(roster.count(), 3);
        drop(a);
        assert_eq!(roster.replace_allowed(HashSet::from([2])), ["b"]);
        assert!(!roster.is_allowed(&1));
        drop(b);
        assert_eq!(roster.count(), 1);
    }
}

#[cfg(all(test, mgp_loom))]
mod loom_tests {
    use loom::thread;

    use super::*;
    use crate::shim::{AtomicUsize, Ordering};

    /// An entry races with its prohibition: in no order does it stay.
    #[test]
    fn no_forbidden_entry_stays() {
        loom::model(|| {
            let roster = Arc::new(Roster::default());
            assert!(roster.replace_allowed(HashSet::from([1])).is_empty());
            let ended = Arc::new(AtomicUsize::new(0));
            let enters = {
                let (roster, ended) = (Arc::clone(&roster), Arc::clone(&ended));
                thread::spawn(move || roster.enter(1, ended, |_| true).ok())
            };
            for value in roster.replace_allowed(HashSet::new()) {
                value.store(1, Ordering::SeqCst);
            }
            // The change is acknowledged from here on.
            let guard = enters.join().unwrap();
            assert!(guard.is_none() || ended.load(Ordering::SeqCst) == 1);
            drop(guard);
            assert_eq!(roster.count(), 0);
        });
    }

    /// Two changes at once: one of them returns what the last one forbids.
    #[test]
    fn the_last_of_two_changes_holds() {
        loom::model(|| {
            let roster = Arc::new(Roster::default());
            assert!(roster.replace_allowed(HashSet::from([1])).is_empty());
            let ended = Arc::new(AtomicUsize::new(0));
            let _place = roster.enter(1, Arc::clone(&ended), |_| true).unwrap();
            let end = |values: Vec<Arc<AtomicUsize>>| {
                for value in values {
                    value.store(1, Ordering::SeqCst);
                }
            };
            let other = {
                let roster = Arc::clone(&roster);
                thread::spawn(move || end(roster.replace_allowed(HashSet::from([1]))))
            };
            end(roster.replace_allowed(HashSet::new()));
            other.join().unwrap();
            assert!(roster.is_allowed(&1) || ended.load(Ordering::SeqCst) == 1);
        });
    }
}
