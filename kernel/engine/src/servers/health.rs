//! Whether a server that is asked at intervals is healthy (MGP §11.3, A-35).

use std::time::Duration;

use mgp_protocol::mgp::health::Health;

/// How long an answer may take (MGP §11.3).
pub const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// How often servers are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthCheckConfig {
    /// Time between two questions; zero for none.
    pub interval: Duration,
    /// How many answers in a row may be missing; with the last of them the server has failed.
    pub failure_threshold: u32,
}

impl Default for HealthCheckConfig {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(30),
            failure_threshold: 3,
        }
    }
}

/// The outcome of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PingOutcome {
    /// This health, or an error, which is an answer too.
    Answered(Health),
    /// No answer in time.
    TimedOut,
    /// No answer in time from a server that did not negotiate health while it works on calls: the limits of
    /// the calls tell whether it hangs.
    Busy,
}

/// What follows from an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthVerdict {
    /// The server goes on, with this health.
    Alive(Health),
    /// The server has failed; the reason, for people.
    Failed(String),
}

/// The health of one life of a server.
#[derive(Clone, Debug)]
pub struct HealthMonitor {
    failure_threshold: u32,
    missed: u32,
    last_health: Health,
}

impl HealthMonitor {
    /// Nothing was asked yet.
    #[must_use]
    pub fn new(rules: HealthCheckConfig) -> Self {
        Self {
            failure_threshold: rules.failure_threshold.max(1),
            missed: 0,
            last_health: Health::Healthy,
        }
    }

    /// Takes the outcome of a question.
    pub fn record(&mut self, answer: PingOutcome) -> HealthVerdict {
        match answer {
            PingOutcome::Answered(health) => {
                self.missed = 0;
                self.last_health = health;
            }
            PingOutcome::Busy => {}
            PingOutcome::TimedOut => {
                self.missed += 1;
                self.last_health = Health::Unhealthy;
            }
        }
        if self.missed < self.failure_threshold {
            return HealthVerdict::Alive(self.last_health);
        }
        let times = match self.missed {
            1 => "a health check".to_owned(),
            times => format!("{times} health checks in a row"),
        };
        let seconds = PING_TIMEOUT.as_secs();
        HealthVerdict::Failed(format!("it did not answer {times} within {seconds} s"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use HealthVerdict::{Alive, Failed};
    use PingOutcome::{Answered, Busy, TimedOut};

    fn checkups() -> HealthMonitor {
        HealthMonitor::new(HealthCheckConfig::default())
    }

    /// MGP-132: silence makes a server unhealthy at once and failed after the third time in a row; an
    /// answer in between begins the count anew.
    #[test]
    fn silence_is_a_failure_after_the_third_time_in_a_row() {
        let mut it = checkups();
        for _ in 0..10 {
            assert_eq!(it.record(TimedOut), Alive(Health::Unhealthy));
            assert_eq!(it.record(TimedOut), Alive(Health::Unhealthy));
            assert_eq!(it.record(Answered(Health::Healthy)), Alive(Health::Healthy));
        }
        it.record(TimedOut);
        it.record(TimedOut);
        let reason = "it did not answer 3 health checks in a row within 5 s";
        assert_eq!(it.record(TimedOut), Failed(reason.into()));
    }

    /// MGP-134: what a server says of itself is how it is; that it is unhealthy is no silence.
    #[test]
    fn a_server_that_says_it_is_unhealthy_answers() {
        let mut it = checkups();
        for health in Health::ALL.into_iter().cycle().take(30) {
            assert_eq!(it.record(Answered(health)), Alive(health));
        }
    }

    /// MGP-137: who has promised nothing and works is not counted out, nor taken for well again.
    #[test]
    fn a_busy_server_stays_as_it_was() {
        let mut it = checkups();
        assert_eq!(it.record(Busy), Alive(Health::Healthy));
        it.record(TimedOut);
        it.record(TimedOut);
        for _ in 0..10 {
            assert_eq!(it.record(Busy), Alive(Health::Unhealthy));
        }
        assert!(matches!(it.record(TimedOut), Failed(_)));
    }

    /// A count of none would never be reached.
    #[test]
    fn one_silence_is_the_least() {
        let rules = HealthCheckConfig {
            failure_threshold: 0,
            ..HealthCheckConfig::default()
        };
        let reason = "it did not answer a health check within 5 s";
        assert_eq!(
            HealthMonitor::new(rules).record(TimedOut),
            Failed(reason.into())
        );
    }
}
