//! Health of a server that is pinged at intervals (MGP §11.3, A-35).

use std::time::Duration;

use mgp_protocol::mgp::health::Health;

/// MGP §11.3.
pub const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// When a server is pinged and when it has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthCheckConfig {
    /// Time between two pings; zero for none.
    pub interval: Duration,
    /// The server has failed after this many missing answers in a row.
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

/// The outcome of a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PingOutcome {
    /// Answered; an error is an answer, too.
    Answered(Health),
    /// No answer in time.
    TimedOut,
    /// No answer in time from a server that did not negotiate health and works on calls. The timeouts of the calls
    /// detect a hang.
    Busy,
}

/// The verdict on an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthVerdict {
    /// The server keeps running, with this health.
    Alive(Health),
    /// The server has failed; the reason, for people.
    Failed(String),
}

/// Health of one generation of a server.
#[derive(Clone, Debug)]
pub struct HealthMonitor {
    failure_threshold: u32,
    missed: u32,
    last_health: Health,
}

impl HealthMonitor {
    /// A monitor before the first ping.
    #[must_use]
    pub fn new(config: HealthCheckConfig) -> Self {
        Self {
            failure_threshold: config.failure_threshold.max(1),
            missed: 0,
            last_health: Health::Healthy,
        }
    }

    /// Records the outcome of a ping.
    pub fn record(&mut self, outcome: PingOutcome) -> HealthVerdict {
        match outcome {
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
        let checks = match self.missed {
            1 => "a health check".to_owned(),
            count => format!("{count} health checks in a row"),
        };
        let seconds = PING_TIMEOUT.as_secs();
        HealthVerdict::Failed(format!("it did not answer {checks} within {seconds} s"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use HealthVerdict::{Alive, Failed};
    use PingOutcome::{Answered, Busy, TimedOut};

    fn monitor() -> HealthMonitor {
        HealthMonitor::new(HealthCheckConfig::default())
    }

    /// MGP-132: a missing answer makes a server unhealthy at once, the third in a row failed. An answer resets the count.
    #[test]
    fn three_missing_answers_in_a_row_are_a_failure() {
        let mut monitor = monitor();
        for _ in 0..10 {
            assert_eq!(monitor.record(TimedOut), Alive(Health::Unhealthy));
            assert_eq!(monitor.record(TimedOut), Alive(Health::Unhealthy));
            assert_eq!(
                monitor.record(Answered(Health::Healthy)),
                Alive(Health::Healthy)
            );
        }
        monitor.record(TimedOut);
        monitor.record(TimedOut);
        let reason = "it did not answer 3 health checks in a row within 5 s";
        assert_eq!(monitor.record(TimedOut), Failed(reason.into()));
    }

    /// MGP-134: the reported health counts, and reporting `unhealthy` is an answer.
    #[test]
    fn a_server_that_reports_unhealthy_has_answered() {
        let mut monitor = monitor();
        for health in Health::ALL.into_iter().cycle().take(30) {
            assert_eq!(monitor.record(Answered(health)), Alive(health));
        }
    }

    /// MGP-137: a missing answer of a busy server that did not negotiate health neither counts nor resets the count.
    #[test]
    fn a_busy_server_keeps_its_health() {
        let mut monitor = monitor();
        assert_eq!(monitor.record(Busy), Alive(Health::Healthy));
        monitor.record(TimedOut);
        monitor.record(TimedOut);
        for _ in 0..10 {
            assert_eq!(monitor.record(Busy), Alive(Health::Unhealthy));
        }
        assert!(matches!(monitor.record(TimedOut), Failed(_)));
    }

    #[test]
    fn a_threshold_of_zero_counts_as_one() {
        let config = HealthCheckConfig {
            failure_threshold: 0,
            ..HealthCheckConfig::default()
        };
        let reason = "it did not answer a health check within 5 s";
        assert_eq!(
            HealthMonitor::new(config).record(TimedOut),
            Failed(reason.into())
        );
    }
}
