//! Once a change of who may be in is back, nobody is in who may not, but whom it gave back to be ended.
//!
//! Who enters is entered first and looks afterwards whether it may: so either it sees the change, or the change
//! sees it.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use crate::shim::Mutex;
use crate::snapshot::Snapshot;

/// Who may be in, and who is.
pub struct Roster<K, V> {
    allowed: Snapshot<HashSet<K>>,
    state: Mutex<RosterEntries<K, V>>,
}

struct RosterEntries<K, V> {
    entries: Vec<(u64, K, V)>,
    /// The number of the last one.
    last_id: u64,
}

/// Why somebody was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnterError {
    /// There is no room beside those of the same key.
    Full,
    /// It may not, or no longer.
    Denied,
}

/// A place on the roster; goes with it.
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
    /// Whether this one may be in, at this moment.
    pub fn is_allowed(&self, key: &K) -> bool {
        self.allowed.load().contains(key)
    }

    /// From when this is back nobody else comes in; those who are in and may not come out, to be ended.
    #[must_use = "who may not be in has to be ended"]
    pub fn replace_allowed(&self, may: HashSet<K>) -> Vec<V> {
        self.allowed.store(Arc::new(may));
        // A later change may have come meanwhile: what holds is the last one.
        let may = self.allowed.load();
        let live = self.state.lock();
        let gone = live.entries.iter().filter(|(_, key, _)| !may.contains(key));
        gone.map(|(_, _, value)| value.clone()).collect()
    }

    /// Enters somebody, if it may and there is room beside `those` that have the same key; this runs under the
    /// lock.
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
        let place = RosterGuard {
            roster: Arc::clone(self),
            entry_id: number,
        };
        if self.is_allowed(&key) {
            Ok(place)
        } else {
            Err(EnterError::Denied)
        }
    }

    /// How many are in.
    pub fn count(&self) -> usize {
        self.state.lock().entries.len()
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Drop for RosterGuard<K, V> {
    fn drop(&mut self) {
        let mut live = self.roster.state.lock();
        let mut entries = live.entries.iter();
        let at = entries.position(|(number, ..)| *number == self.entry_id);
        let taken = at.map(|at| live.entries.swap_remove(at));
        drop(live);
        drop(taken);
    }
}

impl<K, V> std::fmt::Debug for Roster<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Roster").finish_non_exhaustive()
    }
}

impl<K: Clone + Eq + Hash, V: Clone> std::fmt::Debug for RosterGuard<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut place = f.debug_struct("RosterGuard");
        place
            .field("number", &self.entry_id)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(mgp_loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_may_no_longer_comes_out_and_a_place_goes_with_who_has_it() {
        let roster = Arc::new(Roster::default());
        let room = |those: &mut dyn Iterator<Item = &&str>| those.count() < 2;
        let none = roster.enter(1, "a", room);
        assert_eq!(none.err(), Some(EnterError::Denied));
        assert!(roster.replace_allowed(HashSet::from([1, 2])).is_empty());
        let a = roster.enter(1, "a", room).unwrap();
        let b = roster.enter(1, "b", room).unwrap();
        let _c = roster.enter(2, "c", room).unwrap();
        assert_eq!(roster.enter(1, "d", room).err(), Some(EnterError::Full));
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

    /// Somebody enters while it is taken out: in no order is it in and goes on.
    #[test]
    fn nobody_is_left_in_who_may_not() {
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
            // From here on the change is acknowledged.
            let place = enters.join().unwrap();
            assert!(place.is_none() || ended.load(Ordering::SeqCst) == 1);
            drop(place);
            assert_eq!(roster.count(), 0);
        });
    }

    /// Two changes at once: whatever the last one forbids was given back by one of them.
    #[test]
    fn of_two_changes_the_last_one_holds() {
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
