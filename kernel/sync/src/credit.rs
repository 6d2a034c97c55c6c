//! Charges never exceed the limit, and every charge comes back exactly once.
//!
//! This bounds an unbounded mailbox: a sender attaches a charge to its message, the receiver drops it when it has
//! handled the message, and a sender without a charge fails instead of queueing.

use std::sync::Arc;

use crate::shim::{AtomicU64, Ordering};

/// A limit on what is in flight at once, in units of the caller: messages, bytes, requests.
pub struct Credit {
    in_use: AtomicU64,
    limit: u64,
}

/// A part of the credit; dropping it returns it, from any thread.
#[must_use = "dropping the charge gives it back at once"]
pub struct Charge {
    credit: Arc<Credit>,
    amount: u64,
}

impl Credit {
    /// A credit of `limit`, all of it available.
    #[must_use]
    pub fn new(limit: u64) -> Arc<Self> {
        let taken = AtomicU64::new(0);
        Arc::new(Self {
            in_use: taken,
            limit,
        })
    }

    /// Takes the whole `amount`, or `None` when less is left. Nobody waits, so a steady flow of small charges can starve
    /// a large one.
    pub fn try_take(self: &Arc<Self>, amount: u64) -> Option<Charge> {
        let raise = |taken: u64| taken.checked_add(amount).filter(|&sum| sum <= self.limit);
        // Taking a returned charge synchronizes with its return.
        let (taken, refused) = (Ordering::Acquire, Ordering::Relaxed);
        self.in_use.fetch_update(taken, refused, raise).ok()?;
        let credit = Arc::clone(self);
        Some(Charge { credit, amount })
    }

    /// Takes `amount` of both or of neither.
    pub fn try_take_both(both: [&Arc<Self>; 2], amount: u64) -> Option<[Charge; 2]> {
        let first = both[0].try_take(amount)?;
        let second = both[1].try_take(amount)?;
        Some([first, second])
    }

    /// The amount left.
    #[must_use]
    pub fn available(&self) -> u64 {
        self.limit - self.in_use_amount()
    }

    /// The amount taken.
    #[must_use]
    pub fn in_use_amount(&self) -> u64 {
        self.in_use.load(Ordering::Relaxed)
    }
}

impl Charge {
    /// The amount of this charge.
    #[cfg(test)]
    fn amount(&self) -> u64 {
        self.amount
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.credit.in_use.fetch_sub(self.amount, Ordering::Release);
    }
}

opaque_debug!(Credit);
opaque_debug!(Charge);

#[cfg(all(test, not(mgp_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_charge_is_whole_or_none_and_comes_back_when_dropped() {
        let credit = Credit::new(10);
        let seven = credit.try_take(7).unwrap();
        assert!(credit.try_take(4).is_none());
        let three = credit.try_take(3).unwrap();
        assert_eq!((credit.in_use_amount(), credit.available()), (10, 0));
        assert_eq!(three.amount(), 3);
        std::thread::spawn(|| drop(seven)).join().unwrap();
        assert_eq!((credit.in_use_amount(), credit.available()), (3, 7));
    }

    #[test]
    fn a_charge_that_overflows_is_rejected() {
        let credit = Credit::new(u64::MAX);
        let _one = credit.try_take(1).unwrap();
        assert!(credit.try_take(u64::MAX).is_none());
    }
}

#[cfg(all(test, mgp_loom))]
mod loom_tests {
    use super::*;
    use loom::thread;

    /// Three charges of 1, 1 and 2 against a limit of 2, with an independent count.
    #[test]
    fn charges_never_exceed_the_limit_and_all_come_back() {
        loom::model(|| {
            let credit = Credit::new(2);
            let in_use = Arc::new(AtomicU64::new(0));
            let charge = |amount: u64| {
                let (credit, in_use) = (Arc::clone(&credit), Arc::clone(&in_use));
                move || {
                    let Some(charge) = credit.try_take(amount) else {
                        return;
                    };
                    assert!(in_use.fetch_add(amount, Ordering::SeqCst) + amount <= 2);
                    in_use.fetch_sub(amount, Ordering::SeqCst);
                    drop(charge);
                }
            };
            let (first, second) = (thread::spawn(charge(1)), thread::spawn(charge(2)));
            charge(1)();
            first.join().unwrap();
            second.join().unwrap();
            assert_eq!(credit.in_use_amount(), 0);
            assert_eq!(credit.try_take(2).map(|whole| whole.amount()), Some(2));
        });
    }

    /// Two peers take of their own and of a shared credit: nobody holds one without the other.
    #[test]
    fn of_two_credits_both_are_taken_or_none() {
        loom::model(|| {
            let all = Credit::new(1);
            let per_peer = [Credit::new(1), Credit::new(1)];
            let peers = per_peer.clone().map(|per_peer| {
                let all = Arc::clone(&all);
                thread::spawn(move || {
                    let taken = Credit::try_take_both([&per_peer, &all], 1);
                    let (used_per_peer, used_of_all) =
                        (per_peer.in_use_amount(), all.in_use_amount());
                    assert!(taken.is_none() || (used_per_peer, used_of_all) == (1, 1));
                })
            });
            for peer in peers {
                peer.join().unwrap();
            }
            assert_eq!(
                (
                    all.in_use_amount(),
                    per_peer.map(|per_peer| per_peer.in_use_amount())
                ),
                (0, [0, 0])
            );
        });
    }

    #[test]
    fn taking_a_returned_charge_synchronizes_with_its_return() {
        loom::model(|| {
            let credit = Credit::new(1);
            let work = Arc::new(AtomicU64::new(0));
            let (charge, done) = (credit.try_take(1).unwrap(), Arc::clone(&work));
            let worker = thread::spawn(move || {
                done.store(1, Ordering::Relaxed);
                drop(charge);
            });
            if credit.try_take(1).is_some() {
                assert_eq!(work.load(Ordering::Relaxed), 1);
            }
            worker.join().unwrap();
        });
    }
}
