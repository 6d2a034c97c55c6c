//! Resource usage of servers as events (`system.resources`, MGP §13.5): which samples are reported.
//!
//! The first sample of a generation is reported. So is one that reaches 80 % or 100 % of a limit, or falls under 70 % of
//! all; and, at most once per [`EVENT_INTERVAL`], one that differs by a fifth from the last report.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::MonotonicTime;
use crate::servers::resources::{MeanCpu, ResourceLimits, ResourceUsage};

/// Shortest time between events of one generation, except for those about limits.
pub(crate) const EVENT_INTERVAL: Duration = Duration::from_secs(30);
/// Percent of a limit at which the level becomes near, and below which it clears: the hysteresis prevents a stream of
/// events around one of them.
const NEAR_PERCENT: u64 = 80;
const CLEAR_PERCENT: u64 = 70;
/// Smaller differences are not reported: memory in bytes, numbers of descriptors and processes, CPU time in percent of a
/// core.
const MEMORY_STEP: u64 = 8 << 20;
const COUNT_STEP: u64 = 8;
const CPU_STEP: u64 = 20;
/// A fifth of the last report.
const CHANGE_DIVISOR: u64 = 5;

/// How close a generation is to its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResourceLevel {
    /// Not close, or without limits.
    #[default]
    Clear,
    /// At 80 % of one of them.
    Near,
    /// At or above one of them.
    Reached,
}

impl ResourceLevel {
    /// The word in events.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Clear => "clear",
            Self::Near => "near",
            Self::Reached => "reached",
        }
    }
}

/// A reported sample of one generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceEvent {
    /// How close it is to its limits.
    pub level: ResourceLevel,
    /// Mean CPU time in percent of a core; `None` in the first seconds.
    pub cpu_percent: Option<u64>,
}

/// The last report of each generation. `K` identifies a generation.
#[derive(Clone, Debug)]
pub struct ResourceReporter<K> {
    generations: BTreeMap<K, ReportedGeneration>,
}

#[derive(Clone, Debug)]
struct ReportedGeneration {
    cpu: MeanCpu,
    last_report: Option<(MonotonicTime, ResourceUsage, u64)>,
    level: ResourceLevel,
}

impl<K: Ord> Default for ResourceReporter<K> {
    fn default() -> Self {
        Self {
            generations: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone> ResourceReporter<K> {
    /// Drops the generations that have ended.
    pub fn retain(&mut self, is_running: impl Fn(&K) -> bool) {
        self.generations
            .retain(|generation, _| is_running(generation));
    }

    /// Handles a sample; returns the event to report, if any.
    pub fn observe(
        &mut self,
        generation: &K,
        (used, limits): (ResourceUsage, ResourceLimits),
        now: MonotonicTime,
    ) -> Option<ResourceEvent> {
        let generation = self
            .generations
            .entry(generation.clone())
            .or_insert_with(|| ReportedGeneration {
                cpu: MeanCpu::default(),
                last_report: None,
                level: ResourceLevel::Clear,
            });
        let cpu_percent = generation.cpu.sample_percent(used.cpu, now);
        let cpu = cpu_percent.unwrap_or(0);
        let level = level(generation.level, used, cpu, limits);
        let should_report = match generation.last_report {
            None => true,
            Some(_) if level != generation.level => true,
            Some((reported_at, before, cpu_before)) => {
                now.duration_since(reported_at) >= EVENT_INTERVAL
                    && (has_changed(before, used) || cpu.abs_diff(cpu_before) >= CPU_STEP)
            }
        };
        if !should_report {
            return None;
        }
        (generation.last_report, generation.level) = (Some((now, used, cpu)), level);
        Some(ResourceEvent { level, cpu_percent })
    }
}

fn has_changed(before: ResourceUsage, used: ResourceUsage) -> bool {
    let differs = |before: u64, used: u64, step: u64| {
        let step = step.max(before / CHANGE_DIVISOR);
        used.abs_diff(before) >= step
    };
    differs(before.memory, used.memory, MEMORY_STEP)
        || differs(before.descriptors, used.descriptors, COUNT_STEP)
        || differs(before.processes, used.processes, COUNT_STEP)
}

fn level(
    before: ResourceLevel,
    used: ResourceUsage,
    cpu: u64,
    limits: ResourceLimits,
) -> ResourceLevel {
    let parts = [
        (limits.memory, used.memory),
        (limits.descriptors, used.descriptors),
        (limits.processes, used.processes),
        (limits.cpu_percent, cpu),
    ];
    let percent = |(limit, used): (Option<u64>, u64)| {
        let percent = u128::from(used) * 100 / u128::from(limit?.max(1));
        Some(u64::try_from(percent).unwrap_or(u64::MAX))
    };
    match parts.into_iter().filter_map(percent).max().unwrap_or(0) {
        100.. => ResourceLevel::Reached,
        NEAR_PERCENT.. => ResourceLevel::Near,
        CLEAR_PERCENT.. => before.min(ResourceLevel::Near),
        _ => ResourceLevel::Clear,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: ResourceLimits = ResourceLimits {
        memory: Some(1_000 << 20),
        cpu_percent: Some(50),
        descriptors: None,
        processes: None,
    };

    fn at(secs: u64) -> MonotonicTime {
        MonotonicTime::START + Duration::from_secs(secs)
    }

    fn memory(mib: u64) -> ResourceUsage {
        ResourceUsage {
            memory: mib << 20,
            ..ResourceUsage::default()
        }
    }

    /// The reported level at each second, for these MiB.
    fn report(mib: &[u64]) -> Vec<(usize, ResourceLevel)> {
        let mut reporter = ResourceReporter::default();
        let samples = mib.iter().enumerate();
        samples
            .filter_map(|(second, mib)| {
                let sample = (memory(*mib), LIMITS);
                let event = reporter.observe(&"it", sample, at(second as u64))?;
                Some((second, event.level))
            })
            .collect()
    }

    /// MGP-184
    #[test]
    fn crossing_a_limit_is_reported_once() {
        use ResourceLevel::{Clear, Near, Reached};
        let seen = report(&[
            100, 799, 800, 999, 1_000, 1_100, 999, 750, 801, 790, 699, 750,
        ]);
        assert_eq!(
            seen,
            [(0, Clear), (2, Near), (4, Reached), (6, Near), (10, Clear)]
        );
    }

    #[test]
    fn notable_changes_are_reported_at_most_every_30_seconds() {
        let mut samples = vec![100; 100];
        samples[1..40].fill(300);
        samples[40..].fill(301);
        let seconds: Vec<_> = report(&samples)
            .into_iter()
            .map(|(second, _)| second)
            .collect();
        assert_eq!(
            seconds,
            [0, 30],
            "once, half a minute later; one MiB more is nothing"
        );
    }

    #[test]
    fn cpu_usage_is_reported_as_a_mean() {
        let mut reporter = ResourceReporter::default();
        let mut reported = Vec::new();
        for second in 0..40 {
            let used = ResourceUsage {
                cpu: Duration::from_millis(450 * second),
                ..ResourceUsage::default()
            };
            let event = reporter.observe(&1, (used, LIMITS), at(second));
            reported.extend(event.map(|event| (second, event.cpu_percent, event.level)));
        }
        let near = ResourceLevel::Near;
        assert_eq!(
            reported,
            [(0, None, ResourceLevel::Clear), (10, Some(45), near)]
        );
    }

    #[test]
    fn ended_generations_are_dropped() {
        let mut reporter = ResourceReporter::default();
        assert!(reporter.observe(&1, (memory(1), LIMITS), at(0)).is_some());
        reporter.retain(|_| false);
        assert!(reporter.generations.is_empty());
    }

    proptest! {
        /// Except for limits, one event per 30 seconds.
        #[test]
        fn events_are_rate_limited(samples in prop::collection::vec((1u64..20, 0u64..5_000), 1..80)) {
            let (mut reporter, mut now) = (ResourceReporter::default(), 0);
            let (mut last, mut level) = (None::<u64>, ResourceLevel::Clear);
            for (gap, mib) in samples {
                now += gap;
                if let Some(event) = reporter.observe(&(), (memory(mib), LIMITS), at(now)) {
                    prop_assert!(event.level != level || last.is_none_or(|last| now - last >= 30));
                    (last, level) = (Some(now), event.level);
                }
            }
        }
    }
}
