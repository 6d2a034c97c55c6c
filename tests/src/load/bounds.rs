//! How much load at most.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// A run ends with the first of the two.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Calls in all.
    pub calls: u64,
    /// Time in all.
    pub time: Duration,
}

impl Bounds {
    /// A tenth of it: enough to warm up.
    #[must_use]
    pub fn warm_up(self) -> Self {
        Self {
            calls: (self.calls / 10).max(1),
            time: self.time / 4,
        }
    }

    /// Starts the clock.
    #[must_use]
    pub fn allowance(self) -> Allowance {
        Allowance {
            left: Cell::new(self.calls),
            end: Instant::now() + self.time,
        }
    }
}

/// What is left of the bounds of a run: shared by its clients, which are on one thread.
#[derive(Debug)]
pub struct Allowance {
    left: Cell<u64>,
    end: Instant,
}

impl Allowance {
    /// Takes one call; false when none is left.
    pub fn take(&self, now: Instant) -> bool {
        let left = self.left.get();
        let some = left > 0 && now < self.end;
        self.left.set(left - u64::from(some));
        some
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_calls_than_allowed_and_none_after_the_time() {
        let bounds = Bounds {
            calls: 2,
            time: Duration::from_secs(9),
        };
        let (allowance, now) = (bounds.allowance(), Instant::now());
        assert!(allowance.take(now) && allowance.take(now));
        assert!(!allowance.take(now));
        assert!(!bounds.allowance().take(now + Duration::from_secs(10)));
    }
}
