//! What the last looks had counted: rates, times and processor shares come from the difference of two.

use std::collections::{BTreeMap, VecDeque};

use mgp_engine::calls::telemetry::latency::{BOUNDS_US, LatencyCounts};

use super::figures::TopCalls;
use super::look::TopLook;

/// Times of calls are those of the last minute: within one interval there may be none.
pub(super) const WINDOW_MS: u64 = 60_000;
/// Looks that are kept: a minute of the shortest interval, and one more where an answer made another look.
const MOST: usize = 128;
/// Two looks nearer to each other make no rate: one call between them would be hundreds a second.
const NEAREST_MS: u64 = 400;

/// The last looks at one kernel, the newest at the end.
#[derive(Debug, Default)]
pub(super) struct TopHistory(VecDeque<PastLook>);

/// What was counted at one moment.
#[derive(Debug)]
struct PastLook {
    at_ms: u64,
    /// The kernel's process, and how long it had run.
    kernel: (u32, u64),
    calls: BTreeMap<String, TopCalls>,
    total: TopCalls,
    /// Processor time of the kernel.
    own_seconds: Option<f64>,
    /// Processor time of each server, with the first of its processes.
    seconds: BTreeMap<String, (Option<u32>, f64)>,
}

/// What happened between looks; nothing where that is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct TopRates {
    /// Calls that ended, a second.
    pub(super) calls: Option<f64>,
    /// Calls that ended without success, a second.
    pub(super) errors: Option<f64>,
    /// Half of the calls of the last minute took at most so long, in microseconds.
    pub(super) p50_us: Option<u64>,
    /// 99 of 100 took at most so long.
    pub(super) p99_us: Option<u64>,
    /// Processor time a second: 1 is one processor all the time.
    pub(super) cpu: Option<f64>,
}

impl TopHistory {
    /// Takes a look in. Those at another kernel, or at this one before it was started again, are forgotten.
    pub(super) fn add(&mut self, look: &TopLook) {
        let status = &look.status;
        let kernel = (status.pid, status.uptime_secs);
        let goes_on = |last: &PastLook| {
            last.kernel.0 == kernel.0 && last.kernel.1 <= kernel.1 && last.at_ms <= look.at_ms
        };
        if !self.0.back().is_some_and(goes_on) {
            self.0.clear();
        }
        let used = status.servers.iter().filter_map(|server| {
            let used = server.uses?;
            Some((server.id.clone(), (server.pid, used.cpu_seconds)))
        });
        self.0.push_back(PastLook {
            at_ms: look.at_ms,
            kernel,
            calls: look.figures.calls.clone(),
            total: look.figures.total(),
            own_seconds: status.uses.map(|uses| uses.cpu_seconds),
            seconds: used.collect(),
        });
        let too_old = |past: &PastLook| past.at_ms + WINDOW_MS < look.at_ms;
        while self.0.len() > MOST || self.0.len() > 2 && self.0.front().is_some_and(too_old) {
            self.0.pop_front();
        }
    }

    /// Those of one server.
    pub(super) fn of(&self, server: &str) -> TopRates {
        let counted = |past: &PastLook| past.calls.get(server).copied().unwrap_or_default();
        self.rates(counted, |before, now| {
            let (before, now) = (before.seconds.get(server)?, now.seconds.get(server)?);
            // Another process counts from its own start on.
            (before.0 == now.0).then_some(now.1 - before.1)
        })
    }

    /// Those of all servers, and the kernel's own share of the processor.
    pub(super) fn of_all(&self) -> TopRates {
        let counted = |past: &PastLook| past.total;
        self.rates(counted, |before, now| {
            Some(now.own_seconds? - before.own_seconds?)
        })
    }

    fn rates(
        &self,
        counted: impl Fn(&PastLook) -> TopCalls,
        worked: impl Fn(&PastLook, &PastLook) -> Option<f64>,
    ) -> TopRates {
        let Some((before, now)) = self.pair() else {
            return TopRates::default();
        };
        let (was, is) = (counted(before), counted(now));
        let seconds = (now.at_ms - before.at_ms) as f64 / 1000.0;
        // What became less was counted anew.
        let rate = |was: u64, is: u64| Some(is.checked_sub(was)? as f64 / seconds);
        let lasted = self.0.front().and_then(|oldest| {
            let was = counted(oldest).lasted;
            grown(&was, &is.lasted)
        });
        let share = worked(before, now).filter(|worked| *worked >= 0.0);
        TopRates {
            calls: rate(was.ended, is.ended),
            errors: rate(was.errors, is.errors),
            p50_us: lasted.and_then(|lasted| within(&lasted, 0.5)),
            p99_us: lasted.and_then(|lasted| within(&lasted, 0.99)),
            cpu: share.map(|worked| worked / seconds),
        }
    }

    /// The newest look, and the one before that is not too near.
    fn pair(&self) -> Option<(&PastLook, &PastLook)> {
        let now = self.0.back()?;
        let far = |past: &&PastLook| now.at_ms - past.at_ms >= NEAREST_MS;
        Some((self.0.iter().rev().find(far)?, now))
    }
}

/// What was added to each bucket; nothing where one became less.
fn grown(was: &LatencyCounts, is: &LatencyCounts) -> Option<LatencyCounts> {
    let mut more = LatencyCounts::default();
    for (at, count) in more.buckets.iter_mut().enumerate() {
        *count = is.buckets[at].checked_sub(was.buckets[at])?;
    }
    Some(more)
}

/// The time within which this share of the calls was, in microseconds: between the bounds of a bucket, as
/// Prometheus' `histogram_quantile` has it. What is above all bounds is at the last one.
pub(super) fn within(counts: &LatencyCounts, share: f64) -> Option<u64> {
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

    use super::super::figures::TopFigures;
    use super::*;

    /// One server `it` with so many calls that took up to 2.5 ms, and so much processor time.
    fn look(at_ms: u64, uptime_secs: u64, ended: u64, cpu_seconds: f64) -> TopLook {
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
        let mut calls = TopCalls {
            ended,
            errors: ended / 4,
            ..TopCalls::default()
        };
        calls.lasted.buckets[3] = ended;
        let figures = TopFigures {
            calls: [("it".to_owned(), calls)].into(),
            ..TopFigures::default()
        };
        TopLook {
            at_ms,
            status: KernelStatus {
                pid: 99,
                uptime_secs,
                uses,
                servers: vec![server],
                ..KernelStatus::default()
            },
            figures,
            ..TopLook::default()
        }
    }

    #[test]
    fn rates_are_the_difference_of_two_looks() {
        let mut history = TopHistory::default();
        history.add(&look(1000, 1, 100, 1.0));
        assert_eq!(
            history.of("it"),
            TopRates::default(),
            "one look is no difference"
        );
        history.add(&look(3000, 3, 120, 1.5));
        let rates = history.of("it");
        assert_eq!((rates.calls, rates.errors), (Some(10.0), Some(2.5)));
        assert_eq!(rates.cpu, Some(0.25));
        assert_eq!(rates.p50_us, Some(1750), "halfway from 1 ms to 2.5 ms");
        assert_eq!(history.of_all(), rates);
        let none = history.of("other");
        assert_eq!((none.calls, none.p50_us, none.cpu), (Some(0.0), None, None));
        // An answer makes another look at once: that is no rate of its own.
        history.add(&look(3010, 3, 121, 1.5));
        assert_eq!(history.of("it").calls, Some(21.0 / 2.01));
    }

    /// Times are those of the last minute; older looks are forgotten, and so is memory for them.
    #[test]
    fn times_are_those_of_the_last_minute() {
        let mut history = TopHistory::default();
        for second in 0..500 {
            let calls = if second < 10 { second } else { 10 };
            history.add(&look(second * 1000, second, calls, 0.0));
        }
        assert_eq!(history.0.len(), 61);
        assert_eq!(history.of("it").p99_us, None, "no call within a minute");
        for step in 0..1000 {
            history.add(&look(500_000 + step, 500, 10, 0.0));
        }
        assert_eq!(history.0.len(), MOST);
    }

    /// A kernel that was started again counts from 0: nothing is less than nothing, and nothing is a billion a
    /// second.
    #[test]
    fn a_kernel_that_was_started_again_has_no_rates_of_the_other() {
        let mut history = TopHistory::default();
        history.add(&look(1000, 500, 1000, 9.0));
        history.add(&look(3000, 1, 3, 0.1));
        assert_eq!(history.of("it"), TopRates::default());
        history.add(&look(5000, 3, 5, 0.1));
        assert_eq!(history.of("it").calls, Some(1.0));
        // The same process and no shorter a time, and less was counted all the same.
        history.add(&look(7000, 5, 1, 0.1));
        let odd = history.of("it");
        assert_eq!((odd.calls, odd.errors, odd.p50_us), (None, None, None));
        let mut other = look(9000, 7, 900, 0.1);
        other.status.pid = 100;
        history.add(&other);
        assert_eq!(history.of("it"), TopRates::default());
    }

    /// Processor time of a server that was started again is that of another process.
    #[test]
    fn another_process_has_no_share_yet() {
        let mut history = TopHistory::default();
        history.add(&look(1000, 1, 0, 1.0));
        let mut again = look(3000, 3, 0, 5.0);
        again.status.servers[0].pid = Some(8);
        history.add(&again);
        assert_eq!(history.of("it").cpu, None);
        history.add(&look(5000, 5, 0, 4.0));
        assert_eq!(history.of("it").cpu, None);
        history.add(&look(7000, 7, 0, 3.0));
        assert_eq!(history.of("it").cpu, None, "it ran backwards");
    }

    #[test]
    fn a_share_of_the_calls_was_within_a_time() {
        let mut counts = LatencyCounts::default();
        assert_eq!(within(&counts, 0.5), None);
        counts.buckets[0] = 99;
        counts.buckets[14] = 1;
        assert_eq!(within(&counts, 0.5), Some(126));
        assert_eq!(within(&counts, 0.99), Some(250));
        assert_eq!(within(&counts, 1.0), Some(60_000_000));
    }
}
