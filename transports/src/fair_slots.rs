//! Slots that several owners share: when all are taken, the owner with the most slots gives one back.
//!
//! Nobody has a fixed share, so that a single owner may use all slots; no owner can starve another one with fewer
//! slots.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// How many slots of an owner are examined before one is released: the search is bounded however many are in use, and
/// the examined ones come last the next time.
const EXAMINED_MAX: usize = 64;

/// The use of a slot whose owner has to give one back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// Unused since the last check: it is released first.
    Idle,
    /// Used since the last check.
    Recent,
    /// In use: it is released only for an owner with fewer slots.
    Busy,
}

/// Whether a further slot can be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotAdmission<K> {
    /// A slot is free.
    Free,
    /// This slot was released and removed from the table.
    Replaces(K),
    /// No slot is available.
    Full,
}

/// The slots by owner.
#[derive(Debug)]
pub struct FairSlots<O, K> {
    limit: usize,
    /// The slots of each owner, those examined longest ago first.
    owners: HashMap<O, BTreeMap<u64, K>>,
    slots: HashMap<K, (O, u64)>,
    sequence: u64,
}

impl<O: Clone + Eq + Hash, K: Clone + Eq + Hash> FairSlots<O, K> {
    /// A table with this many free slots.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            owners: HashMap::new(),
            slots: HashMap::new(),
            sequence: 0,
        }
    }

    /// Makes a slot available for `owner`, to be taken by [`Self::insert`].
    pub fn admit(&mut self, owner: &O, usage: impl FnMut(&K) -> Usage) -> SlotAdmission<K> {
        if self.slots.len() < self.limit {
            return SlotAdmission::Free;
        }
        let count = self.count(owner);
        let largest = self.owners.iter().max_by_key(|(_, slots)| slots.len());
        // Released only if the largest owner then still has at least as many slots as `owner`.
        let released = match largest.map(|(largest, slots)| (largest.clone(), slots.len())) {
            Some((largest, most)) if most > count + 1 => self.release_slot(&largest, true, usage),
            Some(_) | None => self.release_slot(owner, false, usage),
        };
        released.map_or(SlotAdmission::Full, SlotAdmission::Replaces)
    }

    /// Takes a slot.
    pub fn insert(&mut self, owner: &O, key: K) {
        self.remove(&key);
        self.sequence += 1;
        let slots = self.owners.entry(owner.clone()).or_default();
        slots.insert(self.sequence, key.clone());
        self.slots.insert(key, (owner.clone(), self.sequence));
    }

    /// Releases a slot; true if it was taken.
    pub fn remove(&mut self, key: &K) -> bool {
        let Some((owner, sequence)) = self.slots.remove(key) else {
            return false;
        };
        if let Some(slots) = self.owners.get_mut(&owner) {
            slots.remove(&sequence);
            if slots.is_empty() {
                self.owners.remove(&owner);
            }
        }
        true
    }

    /// Releases the oldest slot of an owner, if all slots are taken and it has one.
    pub(crate) fn release_oldest(&mut self, owner: &O) -> Option<K> {
        if self.slots.len() < self.limit {
            return None;
        }
        let key = self.owners.get(owner)?.values().next()?.clone();
        self.remove(&key);
        Some(key)
    }

    /// The number of taken slots.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether no slot is taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    fn count(&self, owner: &O) -> usize {
        self.owners.get(owner).map_or(0, BTreeMap::len)
    }

    /// Releases a slot of this owner: an idle one, otherwise one that is not in use, otherwise, with `busy`, the oldest.
    fn release_slot(
        &mut self,
        owner: &O,
        busy: bool,
        mut usage: impl FnMut(&K) -> Usage,
    ) -> Option<K> {
        let (mut recent, mut oldest) = (None, None);
        for _ in 0..self.count(owner).min(EXAMINED_MAX) {
            let key = self.owners.get(owner)?.values().next()?.clone();
            match usage(&key) {
                Usage::Idle => {
                    self.remove(&key);
                    return Some(key);
                }
                Usage::Recent => recent = recent.or_else(|| Some(key.clone())),
                Usage::Busy => oldest = oldest.or_else(|| Some(key.clone())),
            }
            self.insert(owner, key);
        }
        let released = recent.or_else(|| oldest.filter(|_| busy))?;
        self.remove(&released);
        Some(released)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn filled(limit: usize, of: &[(&'static str, u32)]) -> FairSlots<&'static str, u32> {
        let mut shares = FairSlots::new(limit);
        for (owner, key) in of {
            shares.insert(owner, *key);
        }
        shares
    }

    #[test]
    fn the_oldest_idle_slot_of_the_largest_owner_is_released_first() {
        let mut shares = filled(4, &[("a", 1), ("b", 2), ("b", 3), ("b", 4)]);
        let usage = |key: &u32| match key {
            2 => Usage::Busy,
            _ => Usage::Idle,
        };
        assert_eq!(shares.admit(&"c", usage), SlotAdmission::Replaces(3));
        shares.insert(&"c", 5);
        assert_eq!(shares.admit(&"b", usage), SlotAdmission::Replaces(4));
        assert_eq!(shares.admit(&"b", usage), SlotAdmission::Free);
    }

    /// However busy one owner keeps its slots, another one gets its own; the owner itself gets no more.
    #[test]
    fn slots_in_use_are_released_only_for_owners_with_fewer() {
        let mut shares = filled(3, &[("b", 1), ("b", 2), ("b", 3)]);
        assert_eq!(shares.admit(&"b", |_| Usage::Busy), SlotAdmission::Full);
        assert_eq!(
            shares.admit(&"a", |_| Usage::Busy),
            SlotAdmission::Replaces(1)
        );
        shares.insert(&"a", 4);
        assert_eq!(shares.admit(&"a", |_| Usage::Busy), SlotAdmission::Full);
        assert_eq!(
            shares.admit(&"c", |_| Usage::Busy),
            SlotAdmission::Replaces(2)
        );
        shares.insert(&"c", 5);
        assert_eq!(shares.admit(&"d", |_| Usage::Idle), SlotAdmission::Full);
    }

    #[test]
    fn a_used_slot_is_released_after_unused_ones() {
        let mut shares = filled(3, &[("a", 1), ("a", 2), ("a", 3)]);
        let mut used = HashSet::from([1, 2]);
        let mut usage = |key: &u32| {
            if used.remove(key) {
                Usage::Recent
            } else {
                Usage::Idle
            }
        };
        assert_eq!(shares.admit(&"a", &mut usage), SlotAdmission::Replaces(3));
        shares.insert(&"a", 4);
        assert_eq!(shares.admit(&"a", &mut usage), SlotAdmission::Replaces(1));
    }

    proptest! {
        /// No owner is rejected while another one has two slots more, and the tables agree.
        #[test]
        fn a_rejected_owner_has_about_as_many_slots_as_any_other(
            steps in prop::collection::vec((0_u8..4, 0_u8..3, any::<bool>()), 1..300),
        ) {
            let mut shares = FairSlots::new(8);
            for (key, (owner, usage, leaves)) in steps.into_iter().enumerate() {
                if leaves {
                    shares.remove(&(key / 2));
                }
                let usage = [Usage::Idle, Usage::Recent, Usage::Busy][usize::from(usage)];
                let most = shares.owners.values().map(BTreeMap::len).max().unwrap_or(0);
                match shares.admit(&owner, |_| usage) {
                    SlotAdmission::Full => prop_assert!(most <= shares.count(&owner) + 1),
                    SlotAdmission::Free | SlotAdmission::Replaces(_) => shares.insert(&owner, key),
                }
                prop_assert!(shares.len() <= 8);
                let held: usize = shares.owners.values().map(BTreeMap::len).sum();
                prop_assert_eq!(held, shares.len());
            }
        }
    }
}
