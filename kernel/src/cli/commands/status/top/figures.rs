//! The kernel's figures, as `mgp/kernel/metrics` tells them, read for what `mgp top` shows.

use std::borrow::Cow;
use std::collections::BTreeMap;

use mgp_engine::calls::telemetry::latency::{BOUNDS_US, BUCKETS, LatencyCounts};

/// Figures of one moment. What is counted is counted from the kernel's start on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TopFigures {
    /// The calls of each server by its id, beside `~other` (tools beyond `tools_max` of `[metrics]`) and
    /// `~none` (tools of no server).
    pub(super) calls: BTreeMap<String, TopCalls>,
    /// Calls that have not ended.
    pub(super) under_way: u64,
    /// How long syncs of the audit log took.
    pub(super) audit_syncs: LatencyCounts,
    /// Calls and events that wait for the audit log.
    pub(super) audit_queue: u64,
    /// How long syncs of the journals took.
    pub(super) journal_syncs: LatencyCounts,
}

/// Calls that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TopCalls {
    /// All of them.
    pub(super) ended: u64,
    /// Those without success: failed, blocked, denied, late, cancelled.
    pub(super) errors: u64,
    /// How long they took.
    pub(super) lasted: LatencyCounts,
}

/// One line: a name, its labels as they are written, and its number.
struct FigureLine<'t> {
    name: &'t str,
    labels: &'t str,
    value: &'t str,
}

impl TopFigures {
    /// Reads the Prometheus text format; what it does not know is left out.
    pub(super) fn read(text: &str) -> Self {
        let mut figures = Self::default();
        for line in text.lines().filter_map(FigureLine::read) {
            figures.take(&line);
        }
        let lasted = figures.calls.values_mut().map(|calls| &mut calls.lasted);
        for counts in lasted.chain([&mut figures.audit_syncs, &mut figures.journal_syncs]) {
            apart(counts);
        }
        figures
    }

    fn take(&mut self, line: &FigureLine<'_>) {
        let whole = || line.value.parse::<u64>().unwrap_or_default();
        match line.name {
            "mgp_calls_total" => {
                let failed = line.label("outcome").is_none_or(|it| it != "success");
                if let Some(calls) = self.of(line) {
                    calls.ended += whole();
                    calls.errors += if failed { whole() } else { 0 };
                }
            }
            "mgp_call_duration_seconds_bucket" => {
                if let Some(calls) = self.of(line) {
                    line.count_into(&mut calls.lasted);
                }
            }
            "mgp_calls_under_way" => self.under_way = whole(),
            "mgp_audit_queue" => self.audit_queue += whole(),
            "mgp_audit_sync_seconds_bucket" => line.count_into(&mut self.audit_syncs),
            "mgp_journal_sync_seconds_bucket" => line.count_into(&mut self.journal_syncs),
            _ => {}
        }
    }

    fn of(&mut self, line: &FigureLine<'_>) -> Option<&mut TopCalls> {
        let server = line.label("server")?;
        if !self.calls.contains_key(&*server) {
            self.calls.insert(server.to_string(), TopCalls::default());
        }
        self.calls.get_mut(&*server)
    }

    /// All calls together.
    pub(super) fn total(&self) -> TopCalls {
        let mut all = TopCalls::default();
        for calls in self.calls.values() {
            all.ended += calls.ended;
            all.errors += calls.errors;
            let buckets = all.lasted.buckets.iter_mut().zip(calls.lasted.buckets);
            buckets.for_each(|(sum, more)| *sum += more);
        }
        all
    }
}

/// The counts of each bucket alone, where they held those below as well. A bound that the kernel does not
/// have (it may be of another version) has none of its own.
fn apart(counts: &mut LatencyCounts) {
    let mut below = 0;
    for count in &mut counts.buckets {
        let up_to = below.max(*count);
        *count = up_to - below;
        below = up_to;
    }
}

impl<'t> FigureLine<'t> {
    fn read(line: &'t str) -> Option<Self> {
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
            let end = end_of_value(value)?;
            if name == wanted {
                return Some(unescaped(&value[..end]));
            }
            rest = value[end + 1..].strip_prefix(',')?;
        }
    }

    /// Adds what is at or below its bound.
    fn count_into(&self, counts: &mut LatencyCounts) {
        let bound = self.label("le");
        let at = bound.and_then(|bound| bucket(&bound));
        if let (Some(at), Ok(count)) = (at, self.value.parse::<u64>()) {
            counts.buckets[at] += count;
        }
    }
}

/// The bucket of an upper bound in seconds.
fn bucket(bound: &str) -> Option<usize> {
    if bound == "+Inf" {
        return Some(BUCKETS - 1);
    }
    let micros = bound.parse::<f64>().ok()? * 1e6;
    // Numbers below zero and those that are none are 0, which is no bound.
    BOUNDS_US.binary_search(&(micros.round() as u64)).ok()
}

/// Where the quote stands that ends the value of a label.
fn end_of_value(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}

fn unescaped(text: &str) -> Cow<'_, str> {
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
    use mgp_engine::calls::telemetry::exposition::{TextForm, text};
    use mgp_engine::calls::telemetry::families::{MetricFamily, MetricKind};

    use super::*;

    fn lasted(buckets: &[(usize, u64)]) -> LatencyCounts {
        let mut counts = LatencyCounts::default();
        for (at, count) in buckets {
            counts.buckets[*at] = *count;
        }
        counts
    }

    /// Decision 0066: what the kernel writes is what is read.
    #[test]
    fn what_the_kernel_writes_is_read_by_server() {
        let odd = "a\"b\\c,}{ =d\n";
        let calls = MetricFamily::new("mgp_calls", MetricKind::Counter, "Calls {x=\"y\"} 7")
            .with(
                &[("server", "it"), ("tool", "a"), ("outcome", "success")],
                3_u64,
            )
            .with(
                &[("server", "it"), ("tool", "a"), ("outcome", "denied")],
                1_u64,
            )
            .with(
                &[("server", "it"), ("tool", odd), ("outcome", "success")],
                5_u64,
            )
            .with(
                &[
                    ("server", "~none"),
                    ("tool", "~none"),
                    ("outcome", "blocked"),
                ],
                2_u64,
            );
        let times = MetricFamily::new("mgp_call_duration_seconds", MetricKind::Latency, "Times.")
            .with(
                &[("server", "it"), ("tool", "a")],
                lasted(&[(0, 3), (14, 1)]),
            )
            .with(
                &[("server", "it"), ("tool", odd)],
                lasted(&[(0, 1), (4, 4)]),
            );
        let syncs = MetricFamily::new("mgp_audit_sync_seconds", MetricKind::Latency, "Syncs.")
            .with(&[], lasted(&[(3, 9)]));
        let queue = MetricFamily::new("mgp_audit_queue", MetricKind::Gauge, "Queue.")
            .with(&[("of", "calls")], 2_u64)
            .with(&[("of", "events")], 5_u64);
        let gauge =
            MetricFamily::new("mgp_calls_under_way", MetricKind::Gauge, "x").with(&[], 4_u64);
        let written = text(&[calls, times, syncs, queue, gauge], TextForm::Prometheus);
        let figures = TopFigures::read(&written);
        let it = figures.calls["it"];
        assert_eq!((it.ended, it.errors), (9, 1), "{written}");
        assert_eq!(it.lasted, lasted(&[(0, 4), (4, 4), (14, 1)]));
        assert_eq!(figures.calls["~none"].errors, 2);
        assert_eq!(figures.calls.len(), 2);
        assert_eq!(figures.audit_syncs, lasted(&[(3, 9)]));
        assert_eq!((figures.audit_queue, figures.under_way), (7, 4));
        assert_eq!(figures.total().ended, 11);
        assert_eq!(figures.total().lasted, it.lasted);
    }

    #[test]
    fn what_it_does_not_know_is_left_out() {
        let strange = "mgp_calls_total{server=\"it\",outcome=\"success\"} 1\n\
                       mgp_calls_total{server=\"it\n\
                       mgp_calls_total{server=\"it\",outcome=\"success\"} NaN\n\
                       mgp_calls_total 9\n\
                       mgp_call_duration_seconds_bucket{server=\"it\",le=\"0.001\"} 4\n\
                       mgp_call_duration_seconds_bucket{server=\"it\",le=\"0.0017\"} 5\n\
                       mgp_call_duration_seconds_bucket{server=\"it\",le=\"-1\"} 5\n\
                       mgp_call_duration_seconds_bucket{server=\"it\",le=\"+Inf\"} 6\n\
                       mgp_new_thing{a=\"b\"} 1e9\n\n}{ 3\n";
        let figures = TopFigures::read(strange);
        assert_eq!(figures.calls["it"].ended, 1);
        assert_eq!(figures.calls["it"].lasted, lasted(&[(2, 4), (14, 2)]));
        assert_eq!(figures.calls.len(), 1);
        assert_eq!(TopFigures::read(""), TopFigures::default());
    }
}
