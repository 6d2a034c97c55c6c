//! What the processes of one life of a server may use of the machine, and when that is too much
//! (MGP §11.4, reason `resource_limit`).

use std::collections::VecDeque;
use std::fmt::Display;
use std::time::Duration;

use crate::clock::MonotonicTime;

/// How often what is limited is looked at.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// Processor time is judged by its mean over this long: a short burst is no fault.
const CPU_WINDOW: Duration = Duration::from_secs(10);

/// So many times the limit is too much for a drain: what grows that fast is ended at once.
const HARD_LIMIT_FACTOR: u64 = 2;

/// What all processes of one life use together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceUsage {
    /// Resident memory in bytes.
    pub memory: u64,
    /// Processor time so far.
    pub cpu: Duration,
    /// Open descriptors.
    pub descriptors: u64,
    /// How many processes there are.
    pub processes: u64,
}

/// `[servers.limits]`: what they may use together; nothing is limited where nothing is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceLimits {
    /// Resident memory in bytes.
    pub memory: Option<u64>,
    /// Mean processor time in percent of one core.
    pub cpu_percent: Option<u64>,
    /// Open descriptors.
    pub descriptors: Option<u64>,
    /// Processes.
    pub processes: Option<u64>,
}

impl ResourceLimits {
    /// True where there is nothing to look at.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What a look comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceVerdict {
    /// All is within the limits.
    WithinLimits,
    /// It is to end as it does on request; why, for people.
    Exceeded(String),
    /// It is to end at once.
    FarExceeded(String),
}

/// The looks at one life.
#[derive(Clone, Debug)]
pub struct UsageMonitor {
    limits: ResourceLimits,
    cpu: MeanCpu,
}

/// The processor time of one life, as its mean over the last while.
#[derive(Clone, Debug, Default)]
pub(crate) struct MeanCpu {
    /// Processor time at earlier looks, the oldest first: as many as there are within [`CPU_WINDOW`], and
    /// one more.
    samples: VecDeque<(MonotonicTime, Duration)>,
}

impl UsageMonitor {
    /// Before the first look.
    #[must_use]
    pub fn new(limits: ResourceLimits) -> Self {
        Self {
            limits,
            cpu: MeanCpu::default(),
        }
    }

    /// Judges a look.
    pub fn check_usage(&mut self, used: ResourceUsage, now: MonotonicTime) -> ResourceVerdict {
        let percent = self.cpu.sample_percent(used.cpu, now);
        let ResourceLimits {
            memory,
            cpu_percent,
            descriptors,
            processes,
        } = self.limits;
        let counted = [
            (memory, used.memory, "bytes of memory", "memory_bytes"),
            (descriptors, used.descriptors, "open files", "open_files"),
            (processes, used.processes, "processes", "processes"),
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
        let over = cpu_percent
            .zip(percent)
            .filter(|(limit, used)| used > limit);
        over.map_or(ResourceVerdict::WithinLimits, |(limit, used)| {
            let secs = CPU_WINDOW.as_secs();
            let what = format!("% of a core for {secs} s");
            ResourceVerdict::Exceeded(describe_excess(used, &what, limit, "cpu_percent"))
        })
    }
}

impl MeanCpu {
    /// In percent of one core, with this look; `None` before there were looks for long enough.
    pub(crate) fn sample_percent(&mut self, cpu: Duration, now: MonotonicTime) -> Option<u64> {
        self.samples.push_back((now, cpu));
        // The oldest that is kept is the youngest of those that are old enough.
        while self
            .samples
            .get(1)
            .is_some_and(|(at, _)| now.duration_since(*at) >= CPU_WINDOW)
        {
            self.samples.pop_front();
        }
        let (at, before) = self.samples.front()?;
        let passed = now.duration_since(*at);
        if passed < CPU_WINDOW {
            return None;
        }
        let used = cpu.saturating_sub(*before).as_millis() * 100;
        u64::try_from(used / passed.as_millis().max(1)).ok()
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

    /// MGP-140: each thing that is limited is told by its name; what is at its limit is within it.
    #[test]
    fn what_is_over_its_limit_is_told() {
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

    /// MGP-140: a burst is allowed; the same for ten seconds is too much.
    #[test]
    fn processor_time_is_judged_by_its_mean() {
        let mut watch = UsageMonitor::new(LIMITS);
        let mut verdicts = (0..=10).map(|second| {
            let cpu = Duration::from_secs(second);
            watch.check_usage(
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
        /// What is kept is bounded, and the mean is that of the last window, however far apart the looks.
        #[test]
        fn the_mean_is_that_of_the_window(steps in prop::collection::vec((200u64..3000, 0u64..3000), 1..80)) {
            let limits = ResourceLimits { cpu_percent: Some(50), ..ResourceLimits::default() };
            let (mut watch, mut all) = (UsageMonitor::new(limits), Vec::<(u64, u64)>::new());
            let (mut now, mut cpu) = (0, 0);
            for (gap, used) in steps {
                (now, cpu) = (now + gap, cpu + used);
                all.push((now, cpu));
                let time = MonotonicTime::START + Duration::from_millis(now);
                let used = ResourceUsage { cpu: Duration::from_millis(cpu), ..ResourceUsage::default() };
                let over = watch.check_usage(used, time) != ResourceVerdict::WithinLimits;
                let old = all.iter().rev().find(|(at, _)| now - at >= 10_000);
                let model = old.is_some_and(|(at, before)| (cpu - before) * 100 / (now - at) > 50);
                prop_assert_eq!(over, model);
                prop_assert!(watch.cpu.samples.len() <= 52);
            }
        }
    }
}
