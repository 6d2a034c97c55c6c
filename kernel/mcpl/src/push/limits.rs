//! Rate limits and quiet hours of push events.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::timestamps::{parse_offset, render_offset};
use mgp_protocol::ids::ServerId;

use super::{PushPolicy, PushRule};

const MINUTE: Duration = Duration::from_secs(60);
/// Most sets counted at once; a server declares far fewer. Further sets are rejected until the next minute.
pub(crate) const COUNTED_MAX: usize = 4096;

/// Daily hours without events. A fixed offset from UTC, not a time zone: the meaning is the same all year and on
/// every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuietHours {
    /// Minutes of the day.
    from: u32,
    until: u32,
    /// Minutes east of UTC.
    offset: i32,
}

/// The text is not quiet hours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not of the form \"22:00-07:00 +01:00\" (from, until, and the offset from UTC, Z for none)"
)]
pub struct QuietHoursError(String);

impl QuietHours {
    /// Parses `22:00-07:00 +01:00`.
    ///
    /// # Errors
    /// For any other text, and for an empty interval.
    pub fn parse(text: &str) -> Result<Self, QuietHoursError> {
        let read = || {
            let (hours, offset) = text.trim().split_once(' ')?;
            let (from, until) = hours.split_once('-')?;
            let hours = Self {
                from: parse_minutes(from)?,
                until: parse_minutes(until)?,
                offset: parse_offset(offset.trim())?,
            };
            (hours.from != hours.until).then_some(hours)
        };
        read().ok_or_else(|| QuietHoursError(text.to_owned()))
    }

    /// Whether a time, in milliseconds since 1970, is within them.
    #[must_use]
    pub fn contains(self, unix_ms: u64) -> bool {
        let minute = i64::try_from(unix_ms / 60_000).unwrap_or(i64::MAX / 2);
        let minute = (minute + i64::from(self.offset)).rem_euclid(24 * 60);
        let (from, until) = (i64::from(self.from), i64::from(self.until));
        if from < until {
            (from..until).contains(&minute)
        } else {
            minute >= from || minute < until
        }
    }
}

impl fmt::Display for QuietHours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, until) = (self.from, self.until);
        let clock = |of: u32| format!("{:02}:{:02}", of / 60, of % 60);
        write!(
            f,
            "{}-{} {}",
            clock(from),
            clock(until),
            render_offset(self.offset)
        )
    }
}

/// Minutes of `22:00`.
fn parse_minutes(text: &str) -> Option<u32> {
    let (hour, minute) = text.split_once(':')?;
    let two = |text: &str, most: u32| {
        let digits = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
        let number: u32 = digits.then(|| text.parse().ok())??;
        (number <= most).then_some(number)
    };
    Some(two(hour, 23)? * 60 + two(minute, 59)?)
}

/// Event counts per minute. A window begins with its first event.
#[derive(Debug, Default)]
pub struct PushRates {
    sets: HashMap<(ServerId, String), PushWindow>,
    servers: HashMap<ServerId, PushWindow>,
}

#[derive(Clone, Copy, Debug)]
struct PushWindow {
    started_at: MonotonicTime,
    events: u32,
}

impl PushRates {
    /// Counts an event, unless it is rejected now. Only new events count: a retry that is answered from memory is free.
    ///
    /// # Errors
    /// The reason, for the server. The same event may be accepted later.
    pub fn try_take(
        &mut self,
        (server, set): (&ServerId, &str),
        (policy, rule): (&PushPolicy, &PushRule),
        (now, unix_ms): (MonotonicTime, u64),
    ) -> Result<(), String> {
        if let Some(quiet) = rule.quiet.filter(|quiet| quiet.contains(unix_ms)) {
            return Err(format!(
                "quiet hours of this feature set ({quiet}): send it again when they are over"
            ));
        }
        let key = (server.clone(), set.to_owned());
        let left =
            |window: &PushWindow| MINUTE.saturating_sub(now.duration_since(window.started_at));
        if !self.sets.contains_key(&key) && self.sets.len() >= COUNTED_MAX {
            self.sets.retain(|_, window| !left(window).is_zero());
            self.servers.retain(|_, window| !left(window).is_zero());
            if self.sets.len() >= COUNTED_MAX {
                return Err("too many feature sets push at once: send it again in a minute".into());
            }
        }
        let new = PushWindow {
            started_at: now,
            events: 0,
        };
        let set_window = self.sets.entry(key).or_insert(new);
        let server_window = self.servers.entry(server.clone()).or_insert(new);
        for window in [&mut *set_window, &mut *server_window] {
            if left(window).is_zero() {
                *window = new;
            }
        }
        let check = |window: &PushWindow, most: u32, owner: &str| {
            let over = most > 0 && window.events >= most;
            over.then(|| {
                let seconds = left(window).as_millis().div_ceil(1000);
                format!("{owner} may push {most} events a minute: send it again in {seconds} s")
            })
        };
        let refused = check(set_window, rule.per_minute, "this feature set")
            .or_else(|| check(server_window, policy.server_per_minute, "this server"));
        if let Some(reason) = refused {
            return Err(reason);
        }
        set_window.events += 1;
        server_window.events += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: u64 = 3_600_000;

    #[test]
    fn quiet_hours_are_read_with_their_offset_and_shown_as_they_were_written() {
        let read = QuietHours::parse("22:00-07:00 +01:00").unwrap();
        assert_eq!(read.to_string(), "22:00-07:00 +01:00");
        assert_eq!(
            QuietHours::parse("09:30-12:00 Z").unwrap().to_string(),
            "09:30-12:00 Z"
        );
        for bad in [
            "",
            "22:00-07:00",
            "22-7 Z",
            "22:00-24:00 Z",
            "22:00-22:00 Z",
            "22:60-07:00 Z",
            "22:00-07:00 CET",
            "22:00 07:00 Z",
            "2:00-3:00 Z",
        ] {
            assert!(QuietHours::parse(bad).is_err(), "{bad}");
        }
    }

    /// They may span midnight, in the clock of their offset.
    #[test]
    fn quiet_hours_cover_the_hours_of_their_own_clock() {
        let night = QuietHours::parse("22:00-07:00 +01:00").unwrap();
        for (utc, quiet) in [
            (20, false),
            (21, true),
            (23, true),
            (0, true),
            (5, true),
            (6, false),
            (12, false),
        ] {
            assert_eq!(night.contains(utc * HOUR_MS), quiet, "{utc}");
        }
        let noon = QuietHours::parse("12:00-13:00 -02:00").unwrap();
        assert!(
            noon.contains(14 * HOUR_MS)
                && !noon.contains(12 * HOUR_MS)
                && !noon.contains(15 * HOUR_MS)
        );
    }

    #[test]
    fn a_set_and_its_server_have_each_their_limit_a_minute() {
        let policy = PushPolicy {
            server_per_minute: 3,
            ..PushPolicy::default()
        };
        let rule = PushRule {
            per_minute: 2,
            ..PushRule::default()
        };
        let mut rates = PushRates::default();
        let (git, other) = (ServerId::new("git"), ServerId::new("other"));
        let time = |seconds| (MonotonicTime::new(Duration::from_secs(seconds)), 0);
        let mut take =
            |server, set, seconds| rates.try_take((server, set), (&policy, &rule), time(seconds));
        assert!(take(&git, "a", 0).is_ok() && take(&git, "a", 1).is_ok());
        let why = take(&git, "a", 10).unwrap_err();
        assert!(
            why.contains("this feature set may push 2") && why.contains("in 50 s"),
            "{why}"
        );
        assert!(take(&git, "b", 10).is_ok());
        let why = take(&git, "b", 10).unwrap_err();
        assert!(why.contains("this server may push 3"), "{why}");
        assert!(take(&other, "a", 10).is_ok());
        assert!(take(&git, "a", 60).is_ok());
    }

    /// The number of counted sets is bounded, and further ones get the reason.
    #[test]
    fn counted_sets_are_bounded() {
        let (policy, rule) = (
            PushPolicy {
                server_per_minute: 0,
                ..PushPolicy::default()
            },
            PushRule::default(),
        );
        let mut rates = PushRates::default();
        let server = ServerId::new("s");
        let time = |seconds| (MonotonicTime::new(Duration::from_secs(seconds)), 0);
        for set in 0..COUNTED_MAX {
            rates
                .try_take((&server, &set.to_string()), (&policy, &rule), time(1))
                .unwrap();
        }
        assert!(
            rates
                .try_take((&server, "more"), (&policy, &rule), time(2))
                .is_err()
        );
        assert!(
            rates
                .try_take((&server, "more"), (&policy, &rule), time(70))
                .is_ok()
        );
        assert!(rates.sets.len() <= COUNTED_MAX);
    }
}
