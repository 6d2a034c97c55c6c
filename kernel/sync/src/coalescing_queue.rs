//! What is put in line is taken once, in its order, and a taker that waits is woken for it.
//!
//! An item may take the place of older ones that it makes needless: then these are not taken.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use crate::shim::Mutex;

/// Items that wait for one taker.
pub struct CoalescingQueue<T>(Mutex<QueueState<T>>);

struct QueueState<T> {
    items: VecDeque<T>,
    receiver: Option<Waker>,
}

impl<T> Default for CoalescingQueue<T> {
    fn default() -> Self {
        let (items, taker) = (VecDeque::new(), None);
        Self(Mutex::new(QueueState {
            items,
            receiver: taker,
        }))
    }
}

impl<T> CoalescingQueue<T> {
    /// Puts an item at the end, where fewer than `most` are in line; else it comes back. Those that it makes
    /// needless leave before, also where there is no room for it. `makes_needless(newer, older)` runs under the
    /// lock.
    ///
    /// # Errors
    /// The item, for which there is no room.
    pub fn push(
        &self,
        item: T,
        most: usize,
        makes_needless: impl Fn(&T, &T) -> bool,
    ) -> Result<(), T> {
        let mut line = self.0.lock();
        let mut needless = Vec::new();
        while let Some(at) = line.items.iter().position(|old| makes_needless(&item, old)) {
            needless.extend(line.items.remove(at));
        }
        let pushed = if line.items.len() < most {
            line.items.push_back(item);
            Ok(())
        } else {
            Err(item)
        };
        let taker = pushed.is_ok().then(|| line.receiver.take()).flatten();
        drop(line);
        drop(needless);
        if let Some(taker) = taker {
            taker.wake();
        }
        pushed
    }

    /// The next item; without one, the taker of this poll is woken for it, and no other one.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<T> {
        let mut line = self.0.lock();
        if let Some(item) = line.items.pop_front() {
            return Poll::Ready(item);
        }
        let before = line.receiver.replace(cx.waker().clone());
        drop(line);
        drop(before);
        Poll::Pending
    }

    /// The next item, once there is one. Nothing is taken when it is dropped before.
    pub async fn next(&self) -> T {
        poll_fn(|cx| self.poll_next(cx)).await
    }
}

opaque_debug!(CoalescingQueue<T>);

#[cfg(all(test, not(mgp_loom)))]
mod tests {
    use std::sync::Arc;
    use std::task::{Context, Poll};

    use super::*;
    use crate::shim::bell::Bell;

    #[test]
    fn an_item_takes_the_place_of_what_it_makes_needless_and_of_nothing_else() {
        let line = CoalescingQueue::default();
        let even = |newer: &u32, older: &u32| newer.is_multiple_of(2) && older.is_multiple_of(2);
        for item in [2, 1, 4, 3] {
            line.push(item, 3, even).unwrap();
        }
        assert_eq!(line.push(5, 3, even), Err(5));
        line.push(6, 3, even).unwrap();
        let bell = Arc::new(Bell::default());
        let waker = bell.waker();
        let mut cx = Context::from_waker(&waker);
        let taken: Vec<_> = (0..4).map(|_| line.poll_next(&mut cx)).collect();
        let ready = Poll::Ready;
        assert_eq!(taken, [ready(1), ready(3), ready(6), Poll::Pending]);
        assert_eq!(bell.rung(), 0);
        line.push(7, 3, even).unwrap();
        line.push(9, 3, even).unwrap();
        assert_eq!(bell.rung(), 1, "woken once for all that came meanwhile");
    }
}

#[cfg(all(test, mgp_loom))]
mod loom_tests {
    use std::sync::Arc;

    use loom::thread;

    use super::*;
    use crate::shim::model::block_on;

    /// A wake that is forgotten leaves the taker waiting for ever, which loom reports.
    #[test]
    fn what_two_put_in_line_is_taken_once_each_in_its_own_order() {
        loom::model(|| {
            let line = Arc::new(CoalescingQueue::default());
            let pushers = [[1, 2], [11, 12]].map(|items| {
                let line = Arc::clone(&line);
                thread::spawn(move || {
                    for item in items {
                        line.push(item, 4, |_, _| false).unwrap();
                    }
                })
            });
            let taken: Vec<u32> = (0..4).map(|_| block_on(|cx| line.poll_next(cx))).collect();
            for of in [[1, 2], [11, 12]] {
                let taken: Vec<_> = taken.iter().filter(|item| of.contains(item)).collect();
                assert_eq!(taken, [&of[0], &of[1]]);
            }
            for pusher in pushers {
                pusher.join().unwrap();
            }
        });
    }

    /// The newest word is read, whatever of the older ones is.
    #[test]
    fn the_newest_of_what_is_said_anew_is_taken_last() {
        loom::model(|| {
            let line = Arc::new(CoalescingQueue::default());
            let other = Arc::clone(&line);
            let pusher = thread::spawn(move || {
                for item in 1..=3 {
                    other.push(item, 1, |newer, older| newer > older).unwrap();
                }
            });
            let mut last = 0;
            while last < 3 {
                let next = block_on(|cx| line.poll_next(cx));
                assert!(next > last);
                last = next;
            }
            pusher.join().unwrap();
        });
    }
}
