//! Limits that the members of a group share: calls a minute, calls a day and bytes a day. Each member has the limits of
//! an agent besides.
//!
//! Only configured groups are counted, each by one entry of fixed size. What is counted is in memory: a new window begins
//! with the first call after a start of the kernel.

use std::collections::BTreeMap;
use std::time::Duration;

use mgp_protocol::ids::AgentId;
use mgp_protocol::refusal::Denial;

use super::{DAY, MINUTE, Window, next_call, to_ms};
use crate::clock::MonotonicTime;

/// The limits of a group; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupLimits {
    /// Calls of tools a minute.
    pub calls_per_minute: u64,
    /// Calls of tools a day.
    pub calls_per_day: u64,
    /// Bytes of arguments and results a day.
    pub bytes_per_day: u64,
}

/// What the members of a group used in the current windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupUsage {
    /// Calls within the minute.
    pub calls_minute: u64,
    /// Calls within the day.
    pub calls_day: u64,
    /// Bytes within the day.
    pub bytes_day: u64,
}

/// A limit that is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLimitError {
    group: AgentId,
    kind: LimitKind,
    limit: u64,
    retry_after: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LimitKind {
    CallsPerMinute,
    CallsPerDay,
    BytesPerDay,
}

#[derive(Clone, Copy, Debug)]
struct GroupWindows {
    limits: GroupLimits,
    minute: Window,
    day: Window,
    /// Bytes of the window of a day.
    bytes: u64,
}

impl GroupWindows {
    /// Ends windows that are over. The next ones begin with the next call.
    fn advance(&mut self, now: MonotonicTime) {
        self.minute = self.minute.current_at(now, MINUTE);
        let day = self.day.current_at(now, DAY);
        if day.started != self.day.started {
            self.bytes = 0;
        }
        self.day = day;
    }

    /// Begins the windows that have not begun, or are over.
    fn begin(&mut self, now: MonotonicTime) {
        self.advance(now);
        if self.minute.calls == 0 {
            self.minute.started = now;
        }
        if self.day.calls == 0 && self.bytes == 0 {
            self.day.started = now;
        }
    }

    /// The first limit that is reached.
    fn reached(&self, now: MonotonicTime) -> Option<(LimitKind, u64, Duration)> {
        let limits = &self.limits;
        let is_reached = |used: u64, limit: u64| limit > 0 && used >= limit;
        let day = DAY.saturating_sub(now.duration_since(self.day.started));
        let minute = MINUTE.saturating_sub(now.duration_since(self.minute.started));
        if is_reached(self.day.calls, limits.calls_per_day) {
            Some((LimitKind::CallsPerDay, limits.calls_per_day, day))
        } else if is_reached(self.bytes, limits.bytes_per_day) {
            Some((LimitKind::BytesPerDay, limits.bytes_per_day, day))
        } else if is_reached(self.minute.calls, limits.calls_per_minute) {
            Some((LimitKind::CallsPerMinute, limits.calls_per_minute, minute))
        } else {
            None
        }
    }
}

/// The counted calls of all groups with limits.
#[derive(Debug, Default)]
pub struct GroupLimiter(BTreeMap<AgentId, GroupWindows>);

impl GroupLimiter {
    /// No calls yet.
    #[must_use]
    pub fn new(limits: impl IntoIterator<Item = (AgentId, GroupLimits)>) -> Self {
        let window = Window {
            started: MonotonicTime::new(Duration::ZERO),
            calls: 0,
        };
        let all = limits.into_iter().map(|(group, limits)| {
            let windows = GroupWindows {
                limits,
                minute: window,
                day: window,
                bytes: 0,
            };
            (group, windows)
        });
        Self(all.collect())
    }

    /// True when no group is limited.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a group has limits.
    #[must_use]
    pub fn has_limits(&self, group: &AgentId) -> bool {
        self.0.contains_key(group)
    }

    /// Checks whether the members of all these groups may make one more call. Nothing is counted.
    ///
    /// # Errors
    /// The limit that lasts longest.
    pub fn check(&mut self, groups: &[AgentId], now: MonotonicTime) -> Result<(), GroupLimitError> {
        let reached = groups.iter().filter_map(|group| {
            let windows = self.0.get_mut(group)?;
            windows.advance(now);
            let (kind, limit, retry_after) = windows.reached(now)?;
            Some(GroupLimitError {
                group: group.clone(),
                kind,
                limit,
                retry_after,
            })
        });
        match reached.max_by_key(|it| it.retry_after) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Counts a call for all these groups, each once.
    pub fn count_call(&mut self, groups: &[AgentId], now: MonotonicTime) {
        for group in groups {
            if let Some(windows) = self.0.get_mut(group) {
                windows.begin(now);
                windows.minute.calls = windows.minute.calls.saturating_add(1);
                windows.day.calls = windows.day.calls.saturating_add(1);
            }
        }
    }

    /// Counts bytes of a call for all these groups, each once.
    pub fn count_bytes(&mut self, groups: &[AgentId], bytes: u64, now: MonotonicTime) {
        for group in groups {
            if let Some(windows) = self.0.get_mut(group) {
                windows.begin(now);
                windows.bytes = windows.bytes.saturating_add(bytes);
            }
        }
    }

    /// What a group used, and its limits; `None` for one without limits.
    #[must_use]
    pub fn usage(&self, group: &AgentId, now: MonotonicTime) -> Option<(GroupLimits, GroupUsage)> {
        let mut windows = *self.0.get(group)?;
        windows.advance(now);
        let used = GroupUsage {
            calls_minute: windows.minute.calls,
            calls_day: windows.day.calls,
            bytes_day: windows.bytes,
        };
        Some((windows.limits, used))
    }
}

impl GroupLimitError {
    /// The denial for the agent. `now_ms` is in milliseconds since 1970.
    #[must_use]
    pub fn to_denial(&self, now_ms: u64) -> Denial {
        let (key, what) = match self.kind {
            LimitKind::CallsPerMinute => ("calls_per_minute", "calls"),
            LimitKind::CallsPerDay => ("calls_per_day", "calls of this group a day"),
            LimitKind::BytesPerDay => ("bytes_per_day", "bytes of this group a day"),
        };
        let next = Some(next_call(Some(&self.group), key, self.retry_after, now_ms));
        match self.kind {
            LimitKind::CallsPerMinute => Denial::RateLimited {
                limit: self.limit,
                window_secs: MINUTE.as_secs(),
                current: self.limit.saturating_add(1),
                retry_after_ms: to_ms(self.retry_after),
                next,
            },
            LimitKind::CallsPerDay | LimitKind::BytesPerDay => Denial::OverQuota {
                what: what.into(),
                limit: self.limit,
                next,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> MonotonicTime {
        MonotonicTime::new(Duration::from_secs(secs))
    }

    fn limiter(all: &[(&str, GroupLimits)]) -> GroupLimiter {
        GroupLimiter::new(
            all.iter()
                .map(|(group, limits)| (AgentId::new(*group), *limits)),
        )
    }

    fn call(
        limiter: &mut GroupLimiter,
        groups: &[AgentId],
        secs: u64,
    ) -> Result<(), GroupLimitError> {
        limiter.check(groups, at(secs))?;
        limiter.count_call(groups, at(secs));
        Ok(())
    }

    /// EXT-217: the members of a group share its limits, and the time of the next call is true: at it a call is possible,
    /// and a moment before it is not.
    #[test]
    fn the_time_of_the_next_call_is_true() {
        let limits = GroupLimits {
            calls_per_minute: 2,
            calls_per_day: 3,
            bytes_per_day: 0,
        };
        let readers = [AgentId::new("group.readers")];
        let mut group = limiter(&[("group.readers", limits)]);
        assert!(call(&mut group, &readers, 100).is_ok() && call(&mut group, &readers, 130).is_ok());
        let minute = call(&mut group, &readers, 131).unwrap_err();
        assert_eq!(
            (minute.kind, minute.retry_after),
            (LimitKind::CallsPerMinute, Duration::from_secs(29))
        );
        assert!(call(&mut group, &readers, 159).is_err());
        assert_eq!(call(&mut group, &readers, 160), Ok(()));
        let day = call(&mut group, &readers, 161).unwrap_err();
        assert_eq!(
            (day.kind, day.retry_after),
            (LimitKind::CallsPerDay, Duration::from_secs(86_400 - 61))
        );
        let Denial::OverQuota {
            next: Some(next), ..
        } = day.to_denial(0)
        else {
            panic!("{day:?}");
        };
        assert_eq!(
            (next.at.as_str(), next.limit),
            ("1970-01-01T23:58:59.000Z", "calls_per_day")
        );
        assert_eq!(next.group.as_deref(), Some("group.readers"));
        // Over midnight nothing begins anew: the day is 24 h from the first call.
        assert!(call(&mut group, &readers, 86_499).is_err());
        assert_eq!(call(&mut group, &readers, 86_500), Ok(()));
        let (_, used) = group.usage(&readers[0], at(86_500)).unwrap();
        assert_eq!((used.calls_minute, used.calls_day), (1, 1));
    }

    /// EXT-218: a refused call counts in none of the groups, and the limit that lasts longest is reported.
    #[test]
    fn a_caller_of_two_groups_has_the_limits_of_both() {
        let minute = GroupLimits {
            calls_per_minute: 1,
            ..GroupLimits::default()
        };
        let bytes = GroupLimits {
            bytes_per_day: 10,
            ..GroupLimits::default()
        };
        let both = [AgentId::new("group.a"), AgentId::new("group.b")];
        let mut all = limiter(&[("group.a", minute), ("group.b", bytes)]);
        assert_eq!(call(&mut all, &both, 1), Ok(()));
        all.count_bytes(&both, 10, at(2));
        let refused = call(&mut all, &both, 3).unwrap_err();
        assert_eq!(
            (refused.kind, refused.retry_after.as_secs()),
            (LimitKind::BytesPerDay, 86_398)
        );
        assert!(
            call(&mut all, &both[..1], 3).is_err(),
            "one that is in the first only"
        );
        let used = |all: &GroupLimiter, n: usize| all.usage(&both[n], at(3)).unwrap().1;
        assert_eq!(
            (used(&all, 0).calls_minute, used(&all, 1).calls_day),
            (1, 1)
        );
        let unlimited = [AgentId::new("group.c")];
        assert!((0..9).all(|_| call(&mut all, &unlimited, 3).is_ok()));
        assert!(all.usage(&unlimited[0], at(3)).is_none());
        assert_eq!(used(&all, 1).bytes_day, 10);
    }
}
