//! How long the parts of a call took, for its record: a few additions for each call.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mgp_engine::clock::{MonotonicTime, micros};
use mgp_runtime::time::moment;

/// Calls that took less have no parts in their record: nobody looks for where half a millisecond went.
const SHORTEST: Duration = Duration::from_millis(1);

/// A part of a call that is measured while it is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallPart {
    /// The checks, with the wait for a person's yes.
    Checks,
    /// Where it went: the wait for a turn there, each try, and the waits between them.
    Server,
    /// What is checked and cut behind it.
    Answer,
}

/// Each part in the words of the record, and the microseconds it took.
pub(crate) type ToldTimes = [(&'static str, u64); 5];

/// The time of each part so far, in microseconds. A call that is made anew elsewhere adds to it.
#[derive(Debug, Default)]
pub(crate) struct CallTimes([AtomicU64; 3]);

impl CallTimes {
    /// This part has taken the time since `from`. Answers now.
    pub(crate) fn took(&self, part: CallPart, from: MonotonicTime) -> MonotonicTime {
        let now = moment();
        self.0[part as usize].fetch_add(micros(now.since(from)), Ordering::Relaxed);
        now
    }

    /// In the words of the record, in microseconds. The call was handled for `lasted` after `door`, and had to
    /// wait for its turn for `queue` of that.
    pub(crate) fn told(
        &self,
        lasted: Duration,
        door: Duration,
        queue: Duration,
    ) -> Option<ToldTimes> {
        if lasted < SHORTEST {
            return None;
        }
        let of = |part: CallPart| self.0[part as usize].load(Ordering::Relaxed);
        let queue = micros(queue);
        Some([
            ("door", micros(door)),
            ("checks", of(CallPart::Checks)),
            ("queue", queue),
            ("server", of(CallPart::Server).saturating_sub(queue)),
            ("answer", of(CallPart::Answer)),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decision 0067: the parts of a call stand in its record, each once, whatever it did twice.
    #[test]
    fn the_parts_of_a_call_are_told_apart() {
        let times = CallTimes::default();
        let add = |part, us| times.0[part as usize].fetch_add(us, Ordering::Relaxed);
        add(CallPart::Checks, 40);
        add(CallPart::Checks, 2);
        add(CallPart::Server, 5_000);
        let us = Duration::from_micros;
        let told = times.told(us(5_100), us(7), us(1_000)).unwrap();
        let parts = ["door", "checks", "queue", "server", "answer"];
        assert_eq!(told.map(|(part, _)| part), parts);
        assert_eq!(told.map(|(_, us)| us), [7, 42, 1_000, 4_000, 0]);
        assert_eq!(times.told(us(999), us(7), us(0)), None);
        let began = moment();
        assert!(times.took(CallPart::Answer, began) >= began);
    }
}
