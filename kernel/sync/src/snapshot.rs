//! A load that begins after a store returned sees that store or a later one.
//!
//! So a change may be acknowledged as soon as `store` returns: no later call uses the old value.

use std::sync::Arc;

use crate::shim::{Mutex, RwLock};

/// An immutable value that is replaced as a whole: one owner publishes, every call reads.
pub struct Snapshot<T> {
    current: RwLock<Arc<T>>,
    /// Held from reading the old value to publishing the new one, so that no update is lost.
    writers: Mutex<()>,
}

impl<T> Snapshot<T> {
    /// Publishes the first value.
    #[must_use]
    pub fn new(first: T) -> Self {
        Self {
            current: RwLock::new(Arc::new(first)),
            writers: Mutex::new(()),
        }
    }

    /// The current value, which never changes while it is held.
    #[must_use]
    pub fn load(&self) -> Arc<T> {
        Arc::clone(&self.current.read())
    }

    /// Publishes a value.
    pub fn store(&self, next: Arc<T>) {
        let writing = self.writers.lock();
        let old = self.publish(next);
        drop(writing);
        drop(old);
    }

    /// Publishes and returns the result of `make` on the current value. Readers use the old value while `make` runs;
    /// other writers wait, so `make` must not write here itself.
    pub fn update(&self, make: impl FnOnce(&T) -> T) -> Arc<T> {
        let writing = self.writers.lock();
        let old = self.load();
        let next = Arc::new(make(&old));
        drop(self.publish(Arc::clone(&next)));
        drop(writing);
        drop(old);
        next
    }

    /// Returns the former value, to be dropped without a lock.
    fn publish(&self, next: Arc<T>) -> Arc<T> {
        std::mem::replace(&mut *self.current.write(), next)
    }
}

opaque_debug!(Snapshot<T>);

#[cfg(all(test, not(mgp_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_value_once_loaded_stays_as_it_was() {
        let table = Snapshot::new(1);
        let before = table.load();
        table.store(Arc::new(2));
        assert_eq!((*before, *table.load()), (1, 2));
    }

    #[test]
    fn readers_go_on_while_an_update_is_made() {
        let table = Snapshot::new(1);
        let next = table.update(|old| *table.load() + old);
        assert_eq!((*next, *table.load()), (2, 2));
    }

    #[test]
    fn an_update_that_panics_changes_nothing() {
        let table = Snapshot::new(1);
        let update = || table.update(|_| panic!("a broken writer"));
        let broken = std::panic::AssertUnwindSafe(update);
        assert!(std::panic::catch_unwind(broken).is_err());
        assert_eq!(*table.update(|old| old + 1), 2);
    }

    /// The drop of a former value may read the snapshot: no lock is held by then.
    #[test]
    fn a_former_value_is_dropped_without_a_lock() {
        struct Looks(Arc<Snapshot<Option<Looks>>>);
        impl Drop for Looks {
            fn drop(&mut self) {
                self.0.update(|_| None);
            }
        }
        let table = Arc::new(Snapshot::new(None));
        table.store(Arc::new(Some(Looks(Arc::clone(&table)))));
        table.store(Arc::new(None));
        table.store(Arc::new(Some(Looks(Arc::clone(&table)))));
        table.update(|_| None);
        assert_eq!(Arc::strong_count(&table), 1);
    }
}

#[cfg(all(test, mgp_loom))]
mod loom_tests {
    use super::*;
    use crate::shim::{AtomicUsize, Ordering};
    use loom::thread;

    /// Two readers that may know that a store has returned.
    #[test]
    fn a_load_after_a_store_sees_it_or_a_later_one() {
        loom::model(|| {
            let table = Arc::new(Snapshot::new(0));
            let stored = Arc::new(AtomicUsize::new(0));
            let reader = |table: &Arc<Snapshot<usize>>, stored: &Arc<AtomicUsize>| {
                let (table, stored) = (Arc::clone(table), Arc::clone(stored));
                thread::spawn(move || {
                    let promised = stored.load(Ordering::Acquire);
                    let first = *table.load();
                    assert!(promised <= first && first <= *table.load());
                })
            };
            let readers = [reader(&table, &stored), reader(&table, &stored)];
            for value in 1..=2 {
                table.store(Arc::new(value));
                stored.store(value, Ordering::Release);
            }
            readers.into_iter().for_each(|r| r.join().unwrap());
        });
    }

    /// A flag in the old value is set after the store: a reader that sees it loads a newer value.
    #[test]
    fn a_reader_of_the_replaced_flag_loads_a_newer_value() {
        loom::model(|| {
            let replaced = |value: usize| (value, AtomicUsize::new(0));
            let table = Arc::new(Snapshot::new(replaced(0)));
            let reads = {
                let table = Arc::clone(&table);
                thread::spawn(move || {
                    let held = table.load();
                    if held.1.load(Ordering::Acquire) == 1 {
                        assert!(table.load().0 > held.0);
                    }
                })
            };
            for value in 1..=2 {
                let before = table.load();
                table.store(Arc::new(replaced(value)));
                before.1.store(1, Ordering::Release);
            }
            reads.join().unwrap();
        });
    }

    /// Two updates at once: the later builds on the earlier.
    #[test]
    fn no_update_is_lost() {
        loom::model(|| {
            let table = Arc::new(Snapshot::new(0));
            let other = Arc::clone(&table);
            let update = thread::spawn(move || *other.update(|n| n + 1));
            let mine = *table.update(|n| n + 1);
            assert_eq!(mine + update.join().unwrap(), 1 + 2);
            assert_eq!(*table.load(), 2);
        });
    }

    /// A store during an update: the update builds on it, or it replaces the update.
    #[test]
    fn no_store_is_lost_to_an_update() {
        loom::model(|| {
            let table = Arc::new(Snapshot::new(0));
            let other = Arc::clone(&table);
            let update = thread::spawn(move || *other.update(|n| n + 1));
            table.store(Arc::new(10));
            let last = if update.join().unwrap() == 1 { 10 } else { 11 };
            assert_eq!(*table.load(), last);
        });
    }
}
