//! Parses the result of `mgp/kernel/metrics` for `mgp top`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use mgp_engine::calls::telemetry::latency::{BOUNDS_US, BUCKET_COUNT, LatencyHistogram};

/// Metrics of one moment. Counters start with the kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MetricsSnapshot {
    /// The calls of each server by id, with `~other` (tools beyond `[tuning.metrics] tools_max`) and `~none` (tools of no
    /// server).
    pub(super) calls: BTreeMap<String, CallTotals>,
    /// Unfinished calls.
    pub(super) in_flight: u64,
    /// Latencies of syncs of the audit log.
    pub(super) audit_syncs: LatencyHistogram,
    /// Calls and events that wait for the audit log.
    pub(super) audit_queue: u64,
    /// Latencies of syncs of the journals.
    pub(super) journal_syncs: LatencyHistogram,
}

/// Finished calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CallTotals {
    pub(super) finished: u64,
    /// Unsuccessful ones: failed, blocked, denied, timed out, cancelled.
    pub(super) errors: u64,
    /// Their durations.
    pub(super) durations: LatencyHistogram,
}

/// A line: name, labels as written, and value.
struct MetricLine<'t> {
    name: &'t str,
    labels: &'t str,
    value: &'t str,
}

impl MetricsSnapshot {
    /// Parses the Prometheus text format; ignores unknown lines.
    pub(super) fn parse(text: &str) -> Self {
        let mut figures = Self::default();
        for line in text.lines().filter_map(MetricLine::parse) {
            figures.add_line(&line);
        }
        let lasted = figures.calls.values_mut().map(|calls| &mut calls.durations);
        for counts in lasted.chain([&mut figures.audit_syncs, &mut figures.journal_syncs]) {
            decumulate(counts);
        }
        figures
    }

    fn add_line(&mut self, line: &MetricLine<'_>) {
        let whole = || line.value.parse::<u64>().unwrap_or_default();
        match line.name {
            "mgp_calls_total" => {
                let failed = line.label("outcome").is_none_or(|it| it != "success");
                if let Some(calls) = self.calls_of_server(line) {
                    calls.finished += whole();
                    calls.errors += if failed { whole() } else { 0 };
                }
            }
            "mgp_call_duration_seconds_bucket" => {
                if let Some(calls) = self.calls_of_server(line) {
                    line.add_bucket(&mut calls.durations);
                }
            }
            "mgp_calls_under_way" => self.in_flight = whole(),
            "mgp_audit_queue" => self.audit_queue += whole(),
            "mgp_audit_sync_seconds_bucket" => line.add_bucket(&mut self.audit_syncs),
            "mgp_journal_sync_seconds_bucket" => line.add_bucket(&mut self.journal_syncs),
            _ => {}
        }
    }

    fn calls_of_server(&mut self, line: &MetricLine<'_>) -> Option<&mut CallTotals> {
        let server = line.label("server")?;
        if !self.calls.contains_key(&*server) {
            self.calls.insert(server.to_string(), CallTotals::default());
        }
        self.calls.get_mut(&*server)
    }

    /// The sum of all calls.
    pub(super) fn total(&self) -> CallTotals {
        let mut all = CallTotals::default();
        for calls in self.calls.values() {
            all.finished += calls.finished;
            all.errors += calls.errors;
            let buckets = all
                .durations
                .buckets
                .iter_mut()
                .zip(calls.durations.buckets);
            buckets.for_each(|(sum, more)| *sum += more);
        }
        all
    }
}

/// Makes cumulative bucket counts separate. A bound that the kernel lacks (it may have another version) has no count.
fn decumulate(counts: &mut LatencyHistogram) {
    let mut below = 0;
    for count in &mut counts.buckets {
        let up_to = below.max(*count);
        *count = up_to - below;
        below = up_to;
    }
}

impl<'t> MetricLine<'t> {
    fn parse(line: &'t str) -> Option<Self> {
        if line.starts_with('#') {
            return None;
        }
        let (named, value) = line.rsplit_once(' ')?;
        let (name, labels) = match named.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}')?),
            None => (named, ""),
        };
        Some(Self {
            name,
            labels,
            value,
        })
    }

    /// The value of a label.
    fn label(&self, wanted: &str) -> Option<Cow<'t, str>> {
        let mut rest = self.labels;
        loop {
            let (name, value) = rest.split_once("=\"")?;
            let end = value_end(value)?;
            if name == wanted {
                return Some(unescape(&value[..end]));
            }
            rest = value[end + 1..].strip_prefix(',')?;
        }
    }

    /// Adds the count at or below a bound.
    fn add_bucket(&self, counts: &mut LatencyHistogram) {
        let bound = self.label("le");
        let at = bound.and_then(|bound| bucket_index(&bound));
        if let (Some(at), Ok(count)) = (at, self.value.parse::<u64>()) {
            counts.buckets[at] += count;
        }
    }
}

/// The bucket of an upper bound in seconds.
fn bucket_index(bound: &str) -> Option<usize> {
    if bound == "+Inf" {
        return Some(BUCKET_COUNT - 1);
    }
    let micros = bound.parse::<f64>().ok()? * 1e6;
    // Negative and invalid numbers are 0, which is no bound.
    BOUNDS_US.binary_search(&(micros.round() as u64)).ok()
}

/// The offset of the quote that ends a label's value.
fn value_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}

fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        plain.push(match (c, chars.as_str().chars().next()) {
            ('\\', Some('n')) => '\n',
            ('\\', Some(other)) => other,
            (other, _) => {
                plain.push(other);
                continue;
            }
        });
        chars.next();
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use mgp_engine::calls::telemetry::exposition::{TextFormat, render};
    use mgp_engine::calls::telemetry::families::{MetricFamily, MetricKind};

    use super::*;

    fn lasted(buckets: &[(usize, u64)]) -> LatencyHistogram {
        let mut counts = LatencyHistogram::default();
        for (at, count) in buckets {
            counts.buckets[*at] = *count;
        }
        counts
    }

    /// Decision 0066: the kernel's output is parsed.
    #[test]
    fn the_kernels_output_is_parsed_by_server() {
        let odd = "a\"b\\c,}{ =d\n";
        let calls = MetricFamily::new("mgp_calls", MetricKind::Counter, "Calls {x=\"y\"} 7")
            .with_point(
                &[("server", "it"), ("tool", "a"), ("outcome", "success")],
                3_u64,
            )
            .with_point(
                &[("server", "it"), ("tool", "a"), ("outcome", "denied")],
                1_u64,
            )
            .with_point(
                &[("server", "it"), ("tool", odd), ("outcome", "success")],
                5_u64,
            )
            .with_point(
                &[
                    ("server", "~none"),
                    ("tool", "~none"),
                    ("outcome", "blocked"),
                ],
                2_u64,
            );
        let times = MetricFamily::new("mgp_call_duration_seconds", MetricKind::Histogram, "Times.")
            .with_point(
                &[("server", "it"), ("tool", "a")],
                lasted(&[(0, 3), (14, 1)]),
            )
            .with_point(
                &[("server", "it"), ("tool", odd)],
                lasted(&[(0, 1), (4, 4)]),
            );
        let syncs = MetricFamily::new("mgp_audit_sync_seconds", MetricKind::Histogram, "Syncs.")
            .with_point(&[], lasted(&[(3, 9)]));
        let queue = MetricFamily::new("mgp_audit_queue", MetricKind::Gauge, "Queue.")
            .with_point(&[("of", "calls")], 2_u64)
            .with_point(&[("of", "events")], 5_u64);
        let gauge =
            MetricFamily::new("mgp_calls_under_way", MetricKind::Gauge, "x").with_point(&[], 4_u64);
        let written = render(&[calls, times, syncs, queue, gauge], TextFormat::Prometheus);
        let figures = MetricsSnapshot::parse(&written);
        let it = figures.calls["it"];
        assert_eq!((it.finished, it.errors), (9, 1), "{written}");
        assert_eq!(it.durations, lasted(&[(0, 4), (4, 4), (14, 1)]));
        assert_eq!(figures.calls["~none"].errors, 2);
        assert_eq!(figures.calls.len(), 2);
        assert_eq!(figures.audit_syncs, lasted(&[(3, 9)]));
        assert_eq!((figures.audit_queue, figures.in_flight), (7, 4));
        assert_eq!(figures.total().finished, 11);
        assert_eq!(figures.total().durations, it.durations);
    }

    #[test]
    fn unknown_lines_are_ignored() {
        let strange = "mgp_calls_total{server=\"it\",outcome=\"success\"} 1\n\
                       mgp_calls_total{server=\"it\n\
                       mgp_calls_total{server=\"it\",outcome=\"success\"} NaN\n\
                       mgp_calls_total 9\n\
                       mgp_call_duration_seconds_bucket{server=\"it\",le=\"0.001\"} 4\n\
                       mgp_call_duration_seconds_bucket{server=\"it\",le=\"0.0017\"} 5\n\
                       mgp_call_duration_seconds_bucket{server=\"it\",le=\"-1\"} 5\n\
                       mgp_call_duration_seconds_bucket{server=\"it\",le=\"+Inf\"} 6\n\
                       mgp_new_thing{a=\"b\"} 1e9\n\n}{ 3\n";
        let figures = MetricsSnapshot::parse(strange);
        assert_eq!(figures.calls["it"].finished, 1);
        assert_eq!(figures.calls["it"].durations, lasted(&[(2, 4), (14, 2)]));
        assert_eq!(figures.calls.len(), 1);
        assert_eq!(MetricsSnapshot::parse(""), MetricsSnapshot::default());
    }
}
