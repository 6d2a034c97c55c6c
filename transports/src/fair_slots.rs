//! Places that several owners share: when all are taken, who holds most gives one back.
//!
//! Nobody has a fixed share, so that one owner alone may use all places; no owner can keep another one
//! with fewer places out.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// How many places of an owner are looked at before one of them goes: the look is bounded however many
/// are in use, and those that were passed over are looked at last the next time.
const LOOKS: usize = 64;

/// How a place is used when its owner has to give one back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// Not since the last look: it goes first.
    Idle,
    /// It was used since the last look.
    Recent,
    /// It is in use now: it goes only where an owner with fewer places needs one.
    Busy,
}

/// Whether there is a place for one more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotAdmission<K> {
    /// There is.
    Free,
    /// This one had to go for it, and is not in the table any more.
    Replaces(K),
    /// There is none.
    Full,
}

/// The places, by owner.
#[derive(Debug)]
pub struct FairSlots<O, K> {
    limit: usize,
    /// Of each owner, the place that was looked at longest ago first.
    owners: HashMap<O, BTreeMap<u64, K>>,
    slots: HashMap<K, (O, u64)>,
    sequence: u64,
}

impl<O: Clone + Eq + Hash, K: Clone + Eq + Hash> FairSlots<O, K> {
    /// So many places, all free.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            owners: HashMap::new(),
            slots: HashMap::new(),
            sequence: 0,
        }
    }

    /// Makes room for one more place of `owner`, which is then taken by [`Self::insert`].
    pub fn admit(&mut self, owner: &O, usage: impl FnMut(&K) -> Usage) -> SlotAdmission<K> {
        if self.slots.len() < self.limit {
            return SlotAdmission::Free;
        }
        let own = self.count(owner);
        let largest = self.owners.iter().max_by_key(|(_, places)| places.len());
        // A place changes hands only where that leaves who gave it no less than who got it.
        let gone = match largest.map(|(largest, places)| (largest.clone(), places.len())) {
            Some((largest, most)) if most > own + 1 => self.release_slot(&largest, true, usage),
            Some(_) | None => self.release_slot(owner, false, usage),
        };
        gone.map_or(SlotAdmission::Full, SlotAdmission::Replaces)
    }

    /// Takes a place.
    pub fn insert(&mut self, owner: &O, key: K) {
        self.remove(&key);
        self.sequence += 1;
        let places = self.owners.entry(owner.clone()).or_default();
        places.insert(self.sequence, key.clone());
        self.slots.insert(key, (owner.clone(), self.sequence));
    }

    /// Gives a place back; true when it was taken.
    pub fn remove(&mut self, key: &K) -> bool {
        let Some((owner, turn)) = self.slots.remove(key) else {
            return false;
        };
        if let Some(places) = self.owners.get_mut(&owner) {
            places.remove(&turn);
            if places.is_empty() {
                self.owners.remove(&owner);
            }
        }
        true
    }

    /// Takes away the oldest place of an owner, when all places are taken and it has one.
    pub(crate) fn release_oldest(&mut self, owner: &O) -> Option<K> {
        if self.slots.len() < self.limit {
            return None;
        }
        let key = self.owners.get(owner)?.values().next()?.clone();
        self.remove(&key);
        Some(key)
    }

    /// How many are taken.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// True when none is taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    fn count(&self, owner: &O) -> usize {
        self.owners.get(owner).map_or(0, BTreeMap::len)
    }

    /// Takes a place of this owner away: an idle one, else one that is not in use, else, with `busy`, the
    /// oldest of all.
    fn release_slot(
        &mut self,
        owner: &O,
        busy: bool,
        mut usage: impl FnMut(&K) -> Usage,
    ) -> Option<K> {
        let (mut recent, mut oldest) = (None, None);
        for _ in 0..self.count(owner).min(LOOKS) {
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
        let gone = recent.or_else(|| oldest.filter(|_| busy))?;
        self.remove(&gone);
        Some(gone)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn taken(limit: usize, of: &[(&'static str, u32)]) -> FairSlots<&'static str, u32> {
        let mut shares = FairSlots::new(limit);
        for (owner, key) in of {
            shares.insert(owner, *key);
        }
        shares
    }

    #[test]
    fn the_oldest_idle_place_of_who_holds_most_goes_first() {
        let mut shares = taken(4, &[("a", 1), ("b", 2), ("b", 3), ("b", 4)]);
        let usage = |key: &u32| match key {
            2 => Usage::Busy,
            _ => Usage::Idle,
        };
        assert_eq!(shares.admit(&"c", usage), SlotAdmission::Replaces(3));
        shares.insert(&"c", 5);
        assert_eq!(shares.admit(&"b", usage), SlotAdmission::Replaces(4));
        assert_eq!(shares.admit(&"b", usage), SlotAdmission::Free);
    }

    /// However busy one owner keeps its places, another one gets its own; the owner itself gets no more.
    #[test]
    fn places_in_use_go_only_to_owners_with_fewer() {
        let mut shares = taken(3, &[("b", 1), ("b", 2), ("b", 3)]);
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
    fn a_place_that_was_used_goes_after_those_that_were_not() {
        let mut shares = taken(3, &[("a", 1), ("a", 2), ("a", 3)]);
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
        /// No owner is refused while another one holds two places more, and the tables agree.
        #[test]
        fn who_is_refused_holds_about_as_much_as_anybody(
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
