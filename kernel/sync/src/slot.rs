//! An occupant is removed only with its own token.
//!
//! The end of an old instance may be noticed when the next one is already in place. So emptying the slot takes the
//! number under which it was filled.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::number_map::NumberMap;
use crate::shim::Mutex;

/// The current instance of something that restarts: handles hold the slot, the supervisor refills it.
pub struct Slot<T>(Mutex<SlotState<T>>);

struct SlotState<T> {
    occupant: Option<Arc<T>>,
    fill_number: u64,
    /// Empty while the slot is filled. Each waiter is a future that removes itself when dropped, so callers bound the
    /// map.
    waiters: NumberMap<Waker>,
    last_ticket: u64,
}

/// Allows to vacate the slot until it is filled again.
#[derive(Debug)]
pub struct FillToken(u64);

/// See [`Slot::wait_until_filled`].
#[must_use = "a future does nothing until it is polled"]
pub struct UntilFilled<'a, T> {
    slot: &'a Slot<T>,
    ticket: Option<u64>,
}

impl<T> Slot<T> {
    /// An empty slot.
    #[must_use]
    pub fn new() -> Self {
        Self(Mutex::new(SlotState {
            occupant: None,
            fill_number: 0,
            waiters: NumberMap::default(),
            last_ticket: 0,
        }))
    }

    /// Replaces the occupant and wakes all waiters. The token is valid for this slot only.
    pub fn fill(&self, occupant: Arc<T>) -> FillToken {
        let mut state = self.0.lock();
        state.fill_number += 1;
        let token = FillToken(state.fill_number);
        let former = state.occupant.replace(occupant);
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        waiters.into_values().for_each(Waker::wake);
        drop(former);
        token
    }

    /// Removes the occupant of this token; false if a newer one has replaced it.
    pub fn vacate(&self, FillToken(number): FillToken) -> bool {
        let mut state = self.0.lock();
        let mine = state.fill_number == number;
        let former = if mine { state.occupant.take() } else { None };
        drop(state);
        former.is_some()
    }

    /// The current occupant.
    pub fn get(&self) -> Option<Arc<T>> {
        self.0.lock().occupant.clone()
    }

    /// Waits without a deadline until the slot is filled; drop the future to give up. May miss an occupant that was
    /// removed before the next poll.
    pub fn wait_until_filled(&self) -> UntilFilled<'_, T> {
        UntilFilled {
            slot: self,
            ticket: None,
        }
    }
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Future for UntilFilled<'_, T> {
    type Output = Arc<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Arc<T>> {
        let mut state = self.slot.0.lock();
        if let Some(occupant) = &state.occupant {
            return Poll::Ready(Arc::clone(occupant));
        }
        let ticket = *self.ticket.get_or_insert_with(|| {
            state.last_ticket += 1;
            state.last_ticket
        });
        let former = state.waiters.insert(ticket, cx.waker().clone());
        drop(state);
        drop(former);
        Poll::Pending
    }
}

impl<T> Drop for UntilFilled<'_, T> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let waker = self.slot.0.lock().waiters.remove(&ticket);
            drop(waker);
        }
    }
}

opaque_debug!(Slot<T>);

#[cfg(all(test, not(mgp_loom)))]
mod tests {
    use super::*;
    use crate::shim::bell::Bell;
    use std::pin::pin;

    #[test]
    fn a_late_vacate_keeps_a_newer_occupant() {
        let slot = Slot::new();
        let old = slot.fill(Arc::new("old"));
        let new = slot.fill(Arc::new("new"));
        assert!(!slot.vacate(old));
        assert_eq!(slot.get().as_deref(), Some(&"new"));
        assert!(slot.vacate(new));
        assert_eq!(slot.get(), None);
    }

    #[test]
    fn a_fill_wakes_all_waiters() {
        let slot = Slot::new();
        let bell = Arc::new(Bell::default());
        let (waker, mut a, mut b) = (
            bell.waker(),
            pin!(slot.wait_until_filled()),
            pin!(slot.wait_until_filled()),
        );
        let mut cx = Context::from_waker(&waker);
        assert!(a.as_mut().poll(&mut cx).is_pending() && b.as_mut().poll(&mut cx).is_pending());
        let first = slot.fill(Arc::new(1));
        assert_eq!(bell.rung(), 2);
        assert_eq!(a.poll(&mut cx), Poll::Ready(Arc::new(1)));
        slot.vacate(first);
        assert!(b.as_mut().poll(&mut cx).is_pending());
        let _second = slot.fill(Arc::new(2));
        assert_eq!(b.poll(&mut cx), Poll::Ready(Arc::new(2)));
    }

    #[test]
    fn a_waiter_registers_one_waker_and_removes_it() {
        let slot = Slot::<()>::new();
        let bell = Arc::new(Bell::default());
        let waker = bell.waker();
        let mut cx = Context::from_waker(&waker);
        {
            let mut filled = pin!(slot.wait_until_filled());
            assert!(filled.as_mut().poll(&mut cx).is_pending());
            assert!(filled.as_mut().poll(&mut cx).is_pending());
            assert_eq!(slot.0.lock().waiters.len(), 1);
        }
        assert!(slot.0.lock().waiters.is_empty());
        drop(waker);
        assert_eq!(Arc::strong_count(&bell), 1);
    }
}

#[cfg(all(test, mgp_loom))]
mod loom_tests {
    use super::*;
    use crate::shim::model::block_on;
    use loom::thread;
    use std::pin::pin;

    /// The late end of the old instance races with the start of the new one.
    #[test]
    fn an_occupant_is_removed_only_with_its_own_token() {
        loom::model(|| {
            let slot = Arc::new(Slot::new());
            let old = slot.fill(Arc::new(1));
            let (dying, looking) = (Arc::clone(&slot), Arc::clone(&slot));
            let late = thread::spawn(move || dying.vacate(old));
            let look = thread::spawn(move || looking.get());
            let new = slot.fill(Arc::new(2));
            late.join().unwrap();
            look.join().unwrap();
            assert_eq!(slot.get().as_deref(), Some(&2));
            assert!(slot.vacate(new));
        });
    }

    /// One waits, one gives up, one fills: no wakeup is lost.
    #[test]
    fn every_waiter_is_woken_by_a_fill() {
        loom::model(|| {
            let slot = Arc::new(Slot::new());
            let (waiting, leaving) = (Arc::clone(&slot), Arc::clone(&slot));
            let waiter = thread::spawn(move || {
                let mut filled = pin!(waiting.wait_until_filled());
                *block_on(|cx| filled.as_mut().poll(cx))
            });
            let leaver = thread::spawn(move || {
                let mut filled = pin!(leaving.wait_until_filled());
                let _ = filled
                    .as_mut()
                    .poll(&mut Context::from_waker(Waker::noop()));
            });
            let _tenancy = slot.fill(Arc::new(7));
            assert_eq!(waiter.join().unwrap(), 7);
            leaver.join().unwrap();
            assert!(slot.0.lock().waiters.is_empty());
        });
    }
}
