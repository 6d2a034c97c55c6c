//! Resource limits of a server's processes (MGP §11.4, reason `resource_limit`).

use std::collections::VecDeque;
use std::fmt::Display;
use std::time::Duration;

use crate::clock::MonotonicTime;

/// How often usage is sampled.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// CPU usage is averaged over this time: a short burst is allowed.
const CPU_WINDOW: Duration = Duration::from_secs(10);

/// Beyond this multiple of the limit, the server is terminated without a drain, because usage grows too fast.
const HARD_LIMIT_FACTOR: u64 = 2;

/// Total usage of all processes of one generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceUsage {
    /// Resident memory in bytes.
    pub memory: u64,
    /// CPU time so far.
    pub cpu: Duration,
    /// Open descriptors.
    pub descriptors: u64,
    /// Number of processes.
    pub processes: u64,
}

/// `[servers.limits]`: totals; `None` sets no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceLimits {
    /// Resident memory in bytes.
    pub memory: Option<u64>,
    /// Mean CPU time in percent of one core.
    pub cpu_percent: Option<u64>,
    /// Open descriptors.
    pub descriptors: Option<u64>,
    /// Processes.
    pub processes: Option<u64>,
}

impl ResourceLimits {
    /// True if nothing is limited.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The verdict on a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceVerdict {
    /// No limit is exceeded.
    WithinLimits,
    /// Drain the server, with a reason for people.
    Exceeded(String),
    /// Terminate the server at once.
    FarExceeded(String),
}

/// Checks the usage of one generation.
#[derive(Clone, Debug)]
pub struct UsageMonitor {
    limits: ResourceLimits,
    cpu: MeanCpu,
}

/// Mean CPU time of one generation over [`CPU_WINDOW`].
#[derive(Clone, Debug, Default)]
pub(crate) struct MeanCpu {
    /// CPU time at earlier samples, oldest first: those within [`CPU_WINDOW`], and one more.
    samples: VecDeque<(MonotonicTime, Duration)>,
}

impl UsageMonitor {
    /// A monitor before the first sample.
    #[must_use]
    pub fn new(limits: ResourceLimits) -> Self {
        Self {
            limits,
            cpu: MeanCpu::default(),
        }
    }

    /// Checks a sample.
    pub fn check_usage(&mut self, usage: ResourceUsage, now: MonotonicTime) -> ResourceVerdict {
        let percent = self.cpu.sample_percent(usage.cpu, now);
        let ResourceLimits {
            memory,
            cpu_percent,
            descriptors,
            processes,
        } = self.limits;
        let counted = [
            (memory, usage.memory, "bytes of memory", "memory_bytes"),
            (descriptors, usage.descriptors, "open files", "open_files"),
            (processes, usage.processes, "processes", "processes"),
        ];
        for (limit, used, what, key) in counted {
            let Some(limit) = limit.filter(|limit| used > *limit) else {
                continue;
            };
            let why = describe_excess(used, what, limit, key);
            return if used > limit.saturating_mul(HARD_LIMIT_FACTOR) {
                ResourceVerdict::FarExceeded(why)
            } else {
                ResourceVerdict::Exceeded(why)
            };
        }
        let exceeded = cpu_percent
            .zip(percent)
            .filter(|(limit, used)| used > limit);
        exceeded.map_or(ResourceVerdict::WithinLimits, |(limit, used)| {
            let secs = CPU_WINDOW.as_secs();
            let what = format!("% of a core for {secs} s");
            ResourceVerdict::Exceeded(describe_excess(used, &what, limit, "cpu_percent"))
        })
    }
}

impl MeanCpu {
    /// In percent of one core, including this sample; `None` until the samples span the window.
    pub(crate) fn sample_percent(&mut self, cpu: Duration, now: MonotonicTime) -> Option<u64> {
        self.samples.push_back((now, cpu));
        // Keeps only one sample older than the window.
        while self
            .samples
            .get(1)
            .is_some_and(|(at, _)| now.duration_since(*at) >= CPU_WINDOW)
        {
            self.samples.pop_front();
        }
        let (at, before) = self.samples.front()?;
        let elapsed = now.duration_since(*at);
        if elapsed < CPU_WINDOW {
            return None;
        }
        let used = cpu.saturating_sub(*before).as_millis() * 100;
        u64::try_from(used / elapsed.as_millis().max(1)).ok()
    }
}

fn describe_excess(used: impl Display, what: &str, limit: impl Display, key: &str) -> String {
    format!(
        "resource_limit: it uses {used} {what}, more than {limit} (`{key}` in [servers.limits])"
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: ResourceLimits = ResourceLimits {
        memory: Some(100),
        cpu_percent: Some(50),
        descriptors: Some(10),
        processes: Some(3),
    };

    fn at(secs: u64) -> MonotonicTime {
        MonotonicTime::START + Duration::from_secs(secs)
    }

    fn over(used: ResourceUsage) -> String {
        let verdict = UsageMonitor::new(LIMITS).check_usage(used, at(0));
        let ResourceVerdict::Exceeded(why) = verdict else {
            panic!("{verdict:?}");
        };
        why
    }

    /// MGP-140: the reason names the limit; usage at the limit is allowed.
    #[test]
    fn an_exceeded_limit_is_named() {
        let most = ResourceUsage {
            memory: 100,
            cpu: Duration::ZERO,
            descriptors: 10,
            processes: 3,
        };
        let verdict = UsageMonitor::new(LIMITS).check_usage(most, at(0));
        assert_eq!(verdict, ResourceVerdict::WithinLimits);
        let why = over(ResourceUsage {
            memory: 101,
            ..most
        });
        assert!(
            why.starts_with("resource_limit: it uses 101 bytes of memory"),
            "{why}"
        );
        assert!(
            over(ResourceUsage {
                descriptors: 11,
                ..most
            })
            .contains("open_files")
        );
        assert!(
            over(ResourceUsage {
                processes: 4,
                ..most
            })
            .contains("`processes`")
        );
        let far = ResourceUsage {
            memory: 201,
            ..most
        };
        let verdict = UsageMonitor::new(LIMITS).check_usage(far, at(0));
        assert!(matches!(verdict, ResourceVerdict::FarExceeded(_)));
    }

    /// MGP-140: a burst is allowed; ten seconds of it are not.
    #[test]
    fn cpu_usage_is_averaged_over_the_window() {
        let mut monitor = UsageMonitor::new(LIMITS);
        let mut verdicts = (0..=10).map(|second| {
            let cpu = Duration::from_secs(second);
            monitor.check_usage(
                ResourceUsage {
                    cpu,
                    ..ResourceUsage::default()
                },
                at(second),
            )
        });
        assert!(
            verdicts
                .by_ref()
                .take(10)
                .all(|v| v == ResourceVerdict::WithinLimits)
        );
        let Some(ResourceVerdict::Exceeded(why)) = verdicts.next() else {
            panic!("a whole core for ten seconds");
        };
        assert!(
            why.contains("100 % of a core for 10 s, more than 50"),
            "{why}"
        );
    }

    proptest! {
        /// The samples are bounded, and the mean is that of the last window for any gaps between samples.
        #[test]
        fn the_mean_is_that_of_the_window(steps in prop::collection::vec((200u64..3000, 0u64..3000), 1..80)) {
            let limits = ResourceLimits { cpu_percent: Some(50), ..ResourceLimits::default() };
            let (mut monitor, mut all) = (UsageMonitor::new(limits), Vec::<(u64, u64)>::new());
            let (mut now, mut cpu) = (0, 0);
            for (gap, used) in steps {
                (now, cpu) = (now + gap, cpu + used);
                all.push((now, cpu));
                let time = MonotonicTime::START + Duration::from_millis(now);
                let used = ResourceUsage { cpu: Duration::from_millis(cpu), ..ResourceUsage::default() };
                let over = monitor.check_usage(used, time) != ResourceVerdict::WithinLimits;
                let old = all.iter().rev().find(|(at, _)| now - at >= 10_000);
                let model = old.is_some_and(|(at, before)| (cpu - before) * 100 / (now - at) > 50);
                prop_assert_eq!(over, model);
                prop_assert!(monitor.cpu.samples.len() <= 52);
            }
        }
    }
}
