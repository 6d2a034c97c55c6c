//! The time, as it is passed to engines.

use std::ops::Add;
use std::time::Duration;

/// A point in time, as the time since the kernel's start. Never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonotonicTime(Duration);

impl MonotonicTime {
    /// The kernel's start.
    pub const START: Self = Self(Duration::ZERO);

    /// Later than any other.
    pub(crate) const LATEST: Self = Self(Duration::MAX);

    /// The point in time this long after the kernel's start.
    #[must_use]
    pub const fn new(after: Duration) -> Self {
        Self(after)
    }

    /// The time since the kernel's start.
    #[must_use]
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// The time since `earlier`; zero when that is later.
    #[must_use]
    pub const fn duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for MonotonicTime {
    type Output = Self;

    fn add(self, later: Duration) -> Self {
        Self(self.0.saturating_add(later))
    }
}

/// Whole microseconds, rounded up: a duration above a bound is never counted at it, and no positive duration becomes
/// 0. Saturates.
#[must_use]
pub fn to_micros_rounded_up(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_are_rounded_up() {
        let of = |nanos| to_micros_rounded_up(Duration::from_nanos(nanos));
        assert_eq!([0, 1, 1_000, 1_001].map(of), [0, 1, 1, 2]);
        assert_eq!(to_micros_rounded_up(Duration::MAX), u64::MAX);
    }

    #[test]
    fn time_neither_goes_back_nor_overflows() {
        let early = MonotonicTime::START + Duration::from_secs(1);
        let late = early + Duration::from_secs(2);
        assert_eq!(late.duration_since(early), Duration::from_secs(2));
        assert_eq!(early.duration_since(late), Duration::ZERO);
        assert_eq!((late + Duration::MAX).since_start(), Duration::MAX);
    }
}
