//! What servers use of the machine, as events (`system.resources`, MGP §13.5): which of many looks are news.
//!
//! The first look at a life is. Then it is when a life comes to 80 % or 100 % of one of its limits, or back
//! under 70 % of all; and, at most once in [`EVENT_INTERVAL`], when it uses a fifth more or less of something than was
//! told last.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::MonotonicTime;
use crate::servers::resources::{MeanCpu, ResourceLimits, ResourceUsage};

/// How far apart events of one life are, but for those about its limits.
pub(crate) const EVENT_INTERVAL: Duration = Duration::from_secs(30);
/// Percent of a limit that is near it, and that is no more near it: between them nothing changes, so that
/// what goes up and down around one of them is no stream of events.
const NEAR_PERCENT: u64 = 80;
const CLEAR_PERCENT: u64 = 70;
/// Differences below these are no news, however large a part they are: of memory in bytes, of descriptors
/// and processes, and of processor time in percent of a core.
const MEMORY_STEP: u64 = 8 << 20;
const COUNT_STEP: u64 = 8;
const CPU_STEP: u64 = 20;
/// A fifth of what was told last.
const CHANGE_DIVISOR: u64 = 5;

/// How near a life is to its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResourceLevel {
    /// Far enough, or without limits.
    #[default]
    Clear,
    /// At 80 % of one of them.
    Near,
    /// At one of them, or above it.
    Reached,
}

impl ResourceLevel {
    /// As events say it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Clear => "clear",
            Self::Near => "near",
            Self::Reached => "reached",
        }
    }
}

/// What is told of one life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceEvent {
    /// How near it is to its limits.
    pub level: ResourceLevel,
    /// Mean processor time in percent of a core; `None` in the first seconds.
    pub cpu_percent: Option<u64>,
}

/// What was told of each life. `K` is what tells lives apart.
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
    /// These lives are gone when they are not among those that were seen.
    pub fn retain(&mut self, seen: impl Fn(&K) -> bool) {
        self.generations.retain(|life, _| seen(life));
    }

    /// A look at a life; comes with what there is to tell.
    pub fn observe(
        &mut self,
        life: &K,
        (used, limits): (ResourceUsage, ResourceLimits),
        now: MonotonicTime,
    ) -> Option<ResourceEvent> {
        let life = self
            .generations
            .entry(life.clone())
            .or_insert_with(|| ReportedGeneration {
                cpu: MeanCpu::default(),
                last_report: None,
                level: ResourceLevel::Clear,
            });
        let cpu_percent = life.cpu.sample_percent(used.cpu, now);
        let cpu = cpu_percent.unwrap_or(0);
        let level = level(life.level, used, cpu, limits);
        let news = match life.last_report {
            None => true,
            Some(_) if level != life.level => true,
            Some((at, before, cpu_before)) => {
                now.duration_since(at) >= EVENT_INTERVAL
                    && (has_changed(before, used) || cpu.abs_diff(cpu_before) >= CPU_STEP)
            }
        };
        if !news {
            return None;
        }
        (life.last_report, life.level) = (Some((now, used, cpu)), level);
        Some(ResourceEvent { level, cpu_percent })
    }
}

fn has_changed(before: ResourceUsage, used: ResourceUsage) -> bool {
    let by = |before: u64, used: u64, step: u64| {
        let step = step.max(before / CHANGE_DIVISOR);
        used.abs_diff(before) >= step
    };
    by(before.memory, used.memory, MEMORY_STEP)
        || by(before.descriptors, used.descriptors, COUNT_STEP)
        || by(before.processes, used.processes, COUNT_STEP)
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

    /// What was told at each second, for these MiB.
    fn told(mib: &[u64]) -> Vec<(usize, ResourceLevel)> {
        let mut teller = ResourceReporter::default();
        let looks = mib.iter().enumerate();
        looks
            .filter_map(|(second, mib)| {
                let look = (memory(*mib), LIMITS);
                let news = teller.observe(&"it", look, at(second as u64))?;
                Some((second, news.level))
            })
            .collect()
    }

    /// MGP-184: what comes near a limit, reaches it or leaves it is told at once, each once.
    #[test]
    fn limits_are_told_when_they_are_crossed() {
        use ResourceLevel::{Clear, Near, Reached};
        let seen = told(&[
            100, 799, 800, 999, 1_000, 1_100, 999, 750, 801, 790, 699, 750,
        ]);
        assert_eq!(
            seen,
            [(0, Clear), (2, Near), (4, Reached), (6, Near), (10, Clear)]
        );
    }

    #[test]
    fn a_change_is_told_when_it_is_notable_and_not_too_often() {
        let mut looks = vec![100; 100];
        looks[1..40].fill(300);
        looks[40..].fill(301);
        let seconds: Vec<_> = told(&looks).into_iter().map(|(second, _)| second).collect();
        assert_eq!(
            seconds,
            [0, 30],
            "once, half a minute later; one MiB more is nothing"
        );
    }

    #[test]
    fn processor_time_is_told_by_its_mean() {
        let mut teller = ResourceReporter::default();
        let mut told = Vec::new();
        for second in 0..40 {
            let used = ResourceUsage {
                cpu: Duration::from_millis(450 * second),
                ..ResourceUsage::default()
            };
            let news = teller.observe(&1, (used, LIMITS), at(second));
            told.extend(news.map(|news| (second, news.cpu_percent, news.level)));
        }
        let near = ResourceLevel::Near;
        assert_eq!(
            told,
            [(0, None, ResourceLevel::Clear), (10, Some(45), near)]
        );
    }

    #[test]
    fn lives_that_are_gone_are_forgotten() {
        let mut teller = ResourceReporter::default();
        assert!(teller.observe(&1, (memory(1), LIMITS), at(0)).is_some());
        teller.retain(|_| false);
        assert!(teller.generations.is_empty());
    }

    proptest! {
        /// Beside what is told of limits there is one event in half a minute, whatever the life does.
        #[test]
        fn events_are_apart(looks in prop::collection::vec((1u64..20, 0u64..5_000), 1..80)) {
            let (mut teller, mut now) = (ResourceReporter::default(), 0);
            let (mut last, mut level) = (None::<u64>, ResourceLevel::Clear);
            for (gap, mib) in looks {
                now += gap;
                if let Some(news) = teller.observe(&(), (memory(mib), LIMITS), at(now)) {
                    prop_assert!(news.level != level || last.is_none_or(|last| now - last >= 30));
                    (last, level) = (Some(now), news.level);
                }
            }
        }
    }
}
