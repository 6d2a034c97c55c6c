//! The counters of the last samples: rates, latencies and CPU shares are differences of two.

use std::collections::{BTreeMap, VecDeque};

use mgp_engine::calls::telemetry::latency::{BOUNDS_US, LatencyHistogram};

use super::metrics::CallTotals;
use super::sample::Sample;

/// Latencies cover the last minute: within one interval there may be no calls.
pub(super) const WINDOW_MS: u64 = 60_000;
/// Stored samples: a minute of the shortest interval, and one more after each decision.
const SAMPLES_MAX: usize = 128;
/// Samples closer than this give no rate: one call between them would be hundreds per second.
const SAMPLE_DISTANCE_MIN_MS: u64 = 400;

/// The last samples of one kernel, the newest at the end.
#[derive(Debug, Default)]
pub(super) struct History(VecDeque<HistoryEntry>);

/// The counters of one sample.
#[derive(Debug)]
struct HistoryEntry {
    taken_at_ms: u64,
    /// The kernel's process id, and its uptime.
    kernel_process: (u32, u64),
    calls: BTreeMap<String, CallTotals>,
    total: CallTotals,
    /// CPU time of the kernel.
    kernel_cpu_seconds: Option<f64>,
    /// CPU time of each server, with the first of its processes.
    server_cpu_seconds: BTreeMap<String, (Option<u32>, f64)>,
}

/// Rates between samples; `None` if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    /// Finished calls per second.
    pub(super) calls: Option<f64>,
    /// Failed calls per second.
    pub(super) errors: Option<f64>,
    /// The median latency of the last minute, in microseconds.
    pub(super) p50_us: Option<u64>,
    /// The 99th percentile.
    pub(super) p99_us: Option<u64>,
    /// CPU time per second: 1 is one full processor.
    pub(super) cpu: Option<f64>,
}

impl History {
    /// Adds a sample. Those of another kernel, or from before its restart, are dropped.
    pub(super) fn add(&mut self, sample: &Sample) {
        let status = &sample.status;
        let kernel = (status.pid, status.uptime_secs);
        let goes_on = |last: &HistoryEntry| {
            last.kernel_process.0 == kernel.0
                && last.kernel_process.1 <= kernel.1
                && last.taken_at_ms <= sample.taken_at_ms
        };
        if !self.0.back().is_some_and(goes_on) {
            self.0.clear();
        }
        let used = status.servers.iter().filter_map(|server| {
            let used = server.uses?;
            Some((server.id.clone(), (server.pid, used.cpu_seconds)))
        });
        self.0.push_back(HistoryEntry {
            taken_at_ms: sample.taken_at_ms,
            kernel_process: kernel,
            calls: sample.metrics.calls.clone(),
            total: sample.metrics.total(),
            kernel_cpu_seconds: status.uses.map(|uses| uses.cpu_seconds),
            server_cpu_seconds: used.collect(),
        });
        let too_old = |past: &HistoryEntry| past.taken_at_ms + WINDOW_MS < sample.taken_at_ms;
        while self.0.len() > SAMPLES_MAX || self.0.len() > 2 && self.0.front().is_some_and(too_old)
        {
            self.0.pop_front();
        }
    }

    pub(super) fn server_rates(&self, server: &str) -> Rates {
        let counted = |past: &HistoryEntry| past.calls.get(server).copied().unwrap_or_default();
        self.rates(counted, |before, now| {
            let (before, now) = (
                before.server_cpu_seconds.get(server)?,
                now.server_cpu_seconds.get(server)?,
            );
            // The CPU time of another process starts anew.
            (before.0 == now.0).then_some(now.1 - before.1)
        })
    }

    /// The rates of all servers, and the kernel's CPU share.
    pub(super) fn total_rates(&self) -> Rates {
        let counted = |past: &HistoryEntry| past.total;
        self.rates(counted, |before, now| {
            Some(now.kernel_cpu_seconds? - before.kernel_cpu_seconds?)
        })
    }

    fn rates(
        &self,
        counted: impl Fn(&HistoryEntry) -> CallTotals,
        worked: impl Fn(&HistoryEntry, &HistoryEntry) -> Option<f64>,
    ) -> Rates {
        let Some((before, now)) = self.comparable_samples() else {
            return Rates::default();
        };
        let (was, is) = (counted(before), counted(now));
        let seconds = (now.taken_at_ms - before.taken_at_ms) as f64 / 1000.0;
        // A decreased counter was reset.
        let rate = |was: u64, is: u64| Some(is.checked_sub(was)? as f64 / seconds);
        let lasted = self.0.front().and_then(|oldest| {
            let was = counted(oldest).durations;
            bucket_growth(&was, &is.durations)
        });
        let share = worked(before, now).filter(|worked| *worked >= 0.0);
        Rates {
            calls: rate(was.finished, is.finished),
            errors: rate(was.errors, is.errors),
            p50_us: lasted.and_then(|lasted| percentile(&lasted, 0.5)),
            p99_us: lasted.and_then(|lasted| percentile(&lasted, 0.99)),
            cpu: share.map(|worked| worked / seconds),
        }
    }

    /// The newest sample, and the latest one that is not too close.
    fn comparable_samples(&self) -> Option<(&HistoryEntry, &HistoryEntry)> {
        let now = self.0.back()?;
        let far =
            |past: &&HistoryEntry| now.taken_at_ms - past.taken_at_ms >= SAMPLE_DISTANCE_MIN_MS;
        Some((self.0.iter().rev().find(far)?, now))
    }
}

/// The increase of each bucket; `None` if one decreased.
fn bucket_growth(was: &LatencyHistogram, is: &LatencyHistogram) -> Option<LatencyHistogram> {
    let mut more = LatencyHistogram::default();
    for (at, count) in more.buckets.iter_mut().enumerate() {
        *count = is.buckets[at].checked_sub(was.buckets[at])?;
    }
    Some(more)
}

/// The latency of this percentile in microseconds, interpolated within a bucket like Prometheus' `histogram_quantile`.
/// Values above all bounds count as the last bound.
pub(super) fn percentile(counts: &LatencyHistogram, share: f64) -> Option<u64> {
    let all = counts.count();
    let rank = share * all as f64;
    let (mut below, mut lower) = (0, 0);
    for (at, count) in counts.buckets.into_iter().enumerate() {
        let upper = BOUNDS_US.get(at).copied().unwrap_or(lower);
        if count > 0 && (below + count) as f64 >= rank {
            let part = (rank - below as f64) / count as f64;
            return Some(lower + ((upper - lower) as f64 * part) as u64);
        }
        below += count;
        lower = upper;
    }
    None
}

#[cfg(test)]
mod tests {
    use mgp_protocol::mgp::health::ResourcesInUse;
    use mgp_protocol::mgp::kernel::KernelStatus;
    use mgp_protocol::mgp::servers::Server;

    use super::super::metrics::MetricsSnapshot;
    use super::*;

    /// A sample of one server `it` with so many calls of up to 2.5 ms, and this CPU time.
    fn sample_at(at_ms: u64, uptime_secs: u64, ended: u64, cpu_seconds: f64) -> Sample {
        let uses = Some(ResourcesInUse {
            cpu_seconds,
            ..ResourcesInUse::default()
        });
        let server = Server {
            id: "it".into(),
            pid: Some(7),
            uses,
            ..Server::default()
        };
        let mut calls = CallTotals {
            finished: ended,
            errors: ended / 4,
            ..CallTotals::default()
        };
        calls.durations.buckets[3] = ended;
        let figures = MetricsSnapshot {
            calls: [("it".to_owned(), calls)].into(),
            ..MetricsSnapshot::default()
        };
        Sample {
            taken_at_ms: at_ms,
            status: KernelStatus {
                pid: 99,
                uptime_secs,
                uses,
                servers: vec![server],
                ..KernelStatus::default()
            },
            metrics: figures,
            ..Sample::default()
        }
    }

    #[test]
    fn rates_are_differences_of_two_samples() {
        let mut history = History::default();
        history.add(&sample_at(1000, 1, 100, 1.0));
        assert_eq!(
            history.server_rates("it"),
            Rates::default(),
            "one look is no difference"
        );
        history.add(&sample_at(3000, 3, 120, 1.5));
        let rates = history.server_rates("it");
        assert_eq!((rates.calls, rates.errors), (Some(10.0), Some(2.5)));
        assert_eq!(rates.cpu, Some(0.25));
        assert_eq!(rates.p50_us, Some(1750), "halfway from 1 ms to 2.5 ms");
        assert_eq!(history.total_rates(), rates);
        let none = history.server_rates("other");
        assert_eq!((none.calls, none.p50_us, none.cpu), (Some(0.0), None, None));
        // A decision triggers another sample at once, which gives no rate.
        history.add(&sample_at(3010, 3, 121, 1.5));
        assert_eq!(history.server_rates("it").calls, Some(21.0 / 2.01));
    }

    /// Latencies cover the last minute; older samples are dropped, so that memory is bounded.
    #[test]
    fn times_are_those_of_the_last_minute() {
        let mut history = History::default();
        for second in 0..500 {
            let calls = if second < 10 { second } else { 10 };
            history.add(&sample_at(second * 1000, second, calls, 0.0));
        }
        assert_eq!(history.0.len(), 61);
        assert_eq!(
            history.server_rates("it").p99_us,
            None,
            "no call within a minute"
        );
        for step in 0..1000 {
            history.add(&sample_at(500_000 + step, 500, 10, 0.0));
        }
        assert_eq!(history.0.len(), SAMPLES_MAX);
    }

    /// The counters of a restarted kernel start at 0: rates are neither negative nor huge.
    #[test]
    fn a_restarted_kernel_has_no_rates_of_the_previous_one() {
        let mut history = History::default();
        history.add(&sample_at(1000, 500, 1000, 9.0));
        history.add(&sample_at(3000, 1, 3, 0.1));
        assert_eq!(history.server_rates("it"), Rates::default());
        history.add(&sample_at(5000, 3, 5, 0.1));
        assert_eq!(history.server_rates("it").calls, Some(1.0));
        // The same process with a longer uptime, but lower counters.
        history.add(&sample_at(7000, 5, 1, 0.1));
        let odd = history.server_rates("it");
        assert_eq!((odd.calls, odd.errors, odd.p50_us), (None, None, None));
        let mut other = sample_at(9000, 7, 900, 0.1);
        other.status.pid = 100;
        history.add(&other);
        assert_eq!(history.server_rates("it"), Rates::default());
    }

    /// The CPU time of a restarted server is that of another process.
    #[test]
    fn a_new_process_has_no_cpu_share_yet() {
        let mut history = History::default();
        history.add(&sample_at(1000, 1, 0, 1.0));
        let mut again = sample_at(3000, 3, 0, 5.0);
        again.status.servers[0].pid = Some(8);
        history.add(&again);
        assert_eq!(history.server_rates("it").cpu, None);
        history.add(&sample_at(5000, 5, 0, 4.0));
        assert_eq!(history.server_rates("it").cpu, None);
        history.add(&sample_at(7000, 7, 0, 3.0));
        assert_eq!(history.server_rates("it").cpu, None, "it ran backwards");
    }

    #[test]
    fn percentiles_are_interpolated() {
        let mut counts = LatencyHistogram::default();
        assert_eq!(percentile(&counts, 0.5), None);
        counts.buckets[0] = 99;
        counts.buckets[14] = 1;
        assert_eq!(percentile(&counts, 0.5), Some(126));
        assert_eq!(percentile(&counts, 0.99), Some(250));
        assert_eq!(percentile(&counts, 1.0), Some(60_000_000));
    }
}
