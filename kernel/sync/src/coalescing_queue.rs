//! Each item is taken once, in order, and a waiting receiver is woken for it.
//!
//! An item may supersede older ones, which are then never taken.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use crate::shim::Mutex;

/// Items for a single receiver.
pub struct CoalescingQueue<T>(Mutex<QueueState<T>>);

struct QueueState<T> {
    items: VecDeque<T>,
    receiver: Option<Waker>,
}

impl<T> Default for CoalescingQueue<T> {
    fn default() -> Self {
        let (items, receiver) = (VecDeque::new(), None);
        Self(Mutex::new(QueueState { items, receiver }))
    }
}

impl<T> CoalescingQueue<T> {
    /// Appends an item if fewer than `most` are queued. Items that it supersedes are removed first, even if it does
    /// not fit. `supersedes(newer, older)` runs under the lock.
    ///
    /// # Errors
    /// The item, if the queue is full.
    pub fn push(&self, item: T, most: usize, supersedes: impl Fn(&T, &T) -> bool) -> Result<(), T> {
        let mut queue = self.0.lock();
        let mut superseded = Vec::new();
        while let Some(index) = queue.items.iter().position(|old| supersedes(&item, old)) {
            superseded.extend(queue.items.remove(index));
        }
        let pushed = if queue.items.len() < most {
            queue.items.push_back(item);
            Ok(())
        } else {
            Err(item)
        };
        let receiver = pushed.is_ok().then(|| queue.receiver.take()).flatten();
        drop(queue);
        drop(superseded);
        if let Some(receiver) = receiver {
            receiver.wake();
        }
        pushed
    }

    /// The next item; if none is queued, only the task of the latest poll is woken for it.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<T> {
        let mut queue = self.0.lock();
        if let Some(item) = queue.items.pop_front() {
            return Poll::Ready(item);
        }
        let before = queue.receiver.replace(cx.waker().clone());
        drop(queue);
        drop(before);
        Poll::Pending
    }

    /// Waits for the next item. Cancel safe: dropping the future takes nothing.
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
    fn an_item_removes_only_the_items_it_supersedes() {
        let queue = CoalescingQueue::default();
        let even = |newer: &u32, older: &u32| newer.is_multiple_of(2) && older.is_multiple_of(2);
        for item in [2, 1, 4, 3] {
            queue.push(item, 3, even).unwrap();
        }
        assert_eq!(queue.push(5, 3, even), Err(5));
        queue.push(6, 3, even).unwrap();
        let bell = Arc::new(Bell::default());
        let waker = bell.waker();
        let mut cx = Context::from_waker(&waker);
        let taken: Vec<_> = (0..4).map(|_| queue.poll_next(&mut cx)).collect();
        let ready = Poll::Ready;
        assert_eq!(taken, [ready(1), ready(3), ready(6), Poll::Pending]);
        assert_eq!(bell.rung(), 0);
        queue.push(7, 3, even).unwrap();
        queue.push(9, 3, even).unwrap();
        assert_eq!(bell.rung(), 1, "woken once for all that came meanwhile");
    }
}

#[cfg(all(test, mgp_loom))]
mod loom_tests {
    use std::sync::Arc;

    use loom::thread;

    use super::*;
    use crate::shim::model::block_on;

    /// A lost wakeup leaves the receiver waiting for ever, which loom reports.
    #[test]
    fn items_of_two_senders_are_taken_once_each_in_order() {
        loom::model(|| {
            let queue = Arc::new(CoalescingQueue::default());
            let pushers = [[1, 2], [11, 12]].map(|items| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || {
                    for item in items {
                        queue.push(item, 4, |_, _| false).unwrap();
                    }
                })
            });
            let taken: Vec<u32> = (0..4).map(|_| block_on(|cx| queue.poll_next(cx))).collect();
            for of in [[1, 2], [11, 12]] {
                let taken: Vec<_> = taken.iter().filter(|item| of.contains(item)).collect();
                assert_eq!(taken, [&of[0], &of[1]]);
            }
            for pusher in pushers {
                pusher.join().unwrap();
            }
        });
    }

    /// The newest item is read, whether or not older ones are.
    #[test]
    fn the_newest_of_superseding_items_is_taken_last() {
        loom::model(|| {
            let queue = Arc::new(CoalescingQueue::default());
            let other = Arc::clone(&queue);
            let pusher = thread::spawn(move || {
                for item in 1..=3 {
                    other.push(item, 1, |newer, older| newer > older).unwrap();
                }
            });
            let mut last = 0;
            while last < 3 {
                let next = block_on(|cx| queue.poll_next(cx));
                assert!(next > last);
                last = next;
            }
            pusher.join().unwrap();
        });
    }
}
