//! Charges never exceed the limit, and every charge comes back exactly once.
//!
//! An unbounded mailbox gets its bound this way: who sends takes a charge along, who has handled
//! the message drops it, and who gets none says so instead of queueing.

use std::sync::Arc;

use crate::shim::{AtomicU64, Ordering};

/// So much may be under way at once; the unit is the caller's: messages, bytes, requests.
pub struct Credit {
    in_use: AtomicU64,
    limit: u64,
}

/// A part of the credit; dropping it gives it back. May travel to any thread.
#[must_use = "dropping the charge gives it back at once"]
pub struct Charge {
    credit: Arc<Credit>,
    amount: u64,
}

impl Credit {
    /// A credit of `limit`, nothing taken yet.
    #[must_use]
    pub fn new(limit: u64) -> Arc<Self> {
        let taken = AtomicU64::new(0);
        Arc::new(Self {
            in_use: taken,
            limit,
        })
    }

    /// Takes `amount` whole, or `None` when less is left. Nobody waits: a large charge can be
    /// passed by small ones for as long as they come.
    pub fn try_take(self: &Arc<Self>, amount: u64) -> Option<Charge> {
        let raise = |taken: u64| taken.checked_add(amount).filter(|&sum| sum <= self.limit);
        // Who gets a place that came back sees what was done while it was taken.
        let (taken, refused) = (Ordering::Acquire, Ordering::Relaxed);
        self.in_use.fetch_update(taken, refused, raise).ok()?;
        let credit = Arc::clone(self);
        Some(Charge { credit, amount })
    }

    /// Takes `amount` of both, or of none.
    pub fn try_take_both(both: [&Arc<Self>; 2], amount: u64) -> Option<[Charge; 2]> {
        let first = both[0].try_take(amount)?;
        let second = both[1].try_take(amount)?;
        Some([first, second])
    }

    /// What is left at this moment.
    #[must_use]
    pub fn available(&self) -> u64 {
        self.limit - self.in_use_amount()
    }

    /// What is taken at this moment.
    #[must_use]
    pub fn in_use_amount(&self) -> u64 {
        self.in_use.load(Ordering::Relaxed)
    }
}

impl Charge {
    /// How much was taken.
    #[must_use]
    pub fn amount(&self) -> u64 {
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
    fn a_charge_beyond_all_numbers_is_refused() {
        let credit = Credit::new(u64::MAX);
        let _one = credit.try_take(1).unwrap();
        assert!(credit.try_take(u64::MAX).is_none());
    }
}

#[cfg(all(test, mgp_loom))]
mod loom_tests {
    use super::*;
    use loom::thread;

    /// Three charges of 1, 1 and 2 against a limit of 2, counted by somebody else.
    #[test]
    fn charges_never_exceed_the_limit_and_all_come_back() {
        loom::model(|| {
            let credit = Credit::new(2);
            let held = Arc::new(AtomicU64::new(0));
            let charge = |amount: u64| {
                let (credit, held) = (Arc::clone(&credit), Arc::clone(&held));
                move || {
                    let Some(charge) = credit.try_take(amount) else {
                        return;
                    };
                    assert!(held.fetch_add(amount, Ordering::SeqCst) + amount <= 2);
                    held.fetch_sub(amount, Ordering::SeqCst);
                    drop(charge);
                }
            };
            let (one, two) = (thread::spawn(charge(1)), thread::spawn(charge(2)));
            charge(1)();
            one.join().unwrap();
            two.join().unwrap();
            assert_eq!(credit.in_use_amount(), 0);
            assert_eq!(credit.try_take(2).map(|whole| whole.amount()), Some(2));
        });
    }

    /// Two peers take of their own and of what all share: nobody keeps a part of one without the other.
    #[test]
    fn of_two_credits_both_are_taken_or_none() {
        loom::model(|| {
            let all = Credit::new(1);
            let own = [Credit::new(1), Credit::new(1)];
            let peers = own.clone().map(|own| {
                let all = Arc::clone(&all);
                thread::spawn(move || {
                    let taken = Credit::try_take_both([&own, &all], 1);
                    let (of_own, of_all) = (own.in_use_amount(), all.in_use_amount());
                    assert!(taken.is_none() || (of_own, of_all) == (1, 1));
                })
            });
            for peer in peers {
                peer.join().unwrap();
            }
            assert_eq!(
                (all.in_use_amount(), own.map(|own| own.in_use_amount())),
                (0, [0, 0])
            );
        });
    }

    /// Who gets a place that was given back sees what was done while it was taken.
    #[test]
    fn a_charge_given_back_hands_over_what_was_done() {
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
