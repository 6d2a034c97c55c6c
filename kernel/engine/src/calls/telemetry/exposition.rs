//! Metrics as text: the Prometheus text format 0.0.4, and OpenMetrics 1.0.

use std::fmt::Write;

use super::families::{MetricFamily, MetricKind, MetricPoint, MetricValue};
use super::latency::{BOUNDS_US, LatencyHistogram, micros_to_seconds};

/// The text format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TextFormat {
    /// Prometheus text format, version 0.0.4.
    #[default]
    Prometheus,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
}

impl TextFormat {
    /// Its `Content-Type`.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Renders all metrics; a family without points is left out.
#[must_use]
pub fn render(families: &[MetricFamily], form: TextFormat) -> String {
    let mut out = String::with_capacity(64 << 10);
    for family in families.iter().filter(|family| !family.points.is_empty()) {
        write_header(&mut out, family, form);
        for point in &family.points {
            write_point(&mut out, family, point);
        }
    }
    if form == TextFormat::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out
}

fn write_header(out: &mut String, family: &MetricFamily, form: TextFormat) {
    let kind = match family.kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
    };
    // Only OpenMetrics names a counter without its suffix.
    let suffix = match (family.kind, form) {
        (MetricKind::Counter, TextFormat::Prometheus) => "_total",
        (MetricKind::Counter | MetricKind::Gauge | MetricKind::Histogram, _) => "",
    };
    let name = family.name;
    let _ = writeln!(out, "# HELP {name}{suffix} {}", family.help);
    let _ = writeln!(out, "# TYPE {name}{suffix} {kind}");
    if form == TextFormat::OpenMetrics && !family.unit.is_empty() {
        let _ = writeln!(out, "# UNIT {name} {}", family.unit);
    }
}

fn write_point(out: &mut String, family: &MetricFamily, point: &MetricPoint) {
    let suffix = match family.kind {
        MetricKind::Counter => "_total",
        MetricKind::Gauge | MetricKind::Histogram => "",
    };
    match point.value {
        MetricValue::Integer(value) => write_line(out, family.name, suffix, point, None, &value),
        MetricValue::Float(value) => write_line(out, family.name, suffix, point, None, &value),
        MetricValue::Histogram(counts) => write_histogram(out, family.name, point, &counts),
    }
}

fn write_histogram(out: &mut String, name: &str, point: &MetricPoint, counts: &LatencyHistogram) {
    let mut so_far = 0;
    let bounds = BOUNDS_US.map(|bound| format!("{:?}", micros_to_seconds(bound)));
    let bounds = bounds.iter().map(String::as_str).chain(["+Inf"]);
    for (bound, count) in bounds.zip(counts.buckets) {
        so_far += count;
        write_line(out, name, "_bucket", point, Some(bound), &so_far);
    }
    write_line(
        out,
        name,
        "_sum",
        point,
        None,
        &micros_to_seconds(counts.sum_us),
    );
    write_line(out, name, "_count", point, None, &so_far);
}

fn write_line(
    out: &mut String,
    name: &str,
    suffix: &str,
    point: &MetricPoint,
    bound: Option<&str>,
    value: &dyn std::fmt::Display,
) {
    out.push_str(name);
    out.push_str(suffix);
    let labels = point
        .labels
        .iter()
        .map(|(name, value)| (*name, value.as_str()));
    let mut labels = labels.chain(bound.map(|bound| ("le", bound))).peekable();
    if labels.peek().is_some() {
        let mut before = '{';
        for (name, value) in labels {
            out.push(before);
            out.push_str(name);
            out.push_str("=\"");
            write_escaped(out, value);
            out.push('"');
            before = ',';
        }
        out.push('}');
    }
    let _ = writeln!(out, " {value}");
}

/// Escapes a label value for both formats.
fn write_escaped(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::telemetry::latency::BUCKET_COUNT;

    fn told() -> Vec<MetricFamily> {
        let mut buckets = [0; BUCKET_COUNT];
        (buckets[0], buckets[BUCKET_COUNT - 1]) = (2, 1);
        let counts = LatencyHistogram {
            buckets,
            sum_us: 61_000_500,
        };
        vec![
            MetricFamily::new("mgp_calls", MetricKind::Counter, "Calls.")
                .with_point(&[("server", "a"), ("tool", "x\"\\y")], 3_u64),
            MetricFamily::new("mgp_nothing", MetricKind::Gauge, "None."),
            MetricFamily::new("mgp_up_seconds", MetricKind::Gauge, "Up.")
                .with_unit("seconds")
                .with_point(&[], 1.5),
            MetricFamily::new("mgp_call_seconds", MetricKind::Histogram, "Times.")
                .with_unit("seconds")
                .with_point(&[("server", "a")], counts),
        ]
    }

    /// Decision 0066: both texts, letter by letter.
    #[test]
    fn metrics_are_rendered_in_both_formats() {
        let plain = render(&told(), TextFormat::Prometheus);
        assert!(plain.starts_with(
            "# HELP mgp_calls_total Calls.\n# TYPE mgp_calls_total counter\n\
             mgp_calls_total{server=\"a\",tool=\"x\\\"\\\\y\"} 3\n# HELP mgp_up_seconds Up.\n"
        ));
        assert!(!plain.contains("mgp_nothing") && !plain.contains("# EOF"));
        let open = render(&told(), TextFormat::OpenMetrics);
        assert!(
            open.starts_with("# HELP mgp_calls Calls.\n# TYPE mgp_calls counter\nmgp_calls_total{")
        );
        assert!(open.contains("# UNIT mgp_up_seconds seconds\nmgp_up_seconds 1.5\n"));
        assert!(open.contains("mgp_call_seconds_bucket{server=\"a\",le=\"0.00025\"} 2\n"));
        assert!(open.contains("mgp_call_seconds_bucket{server=\"a\",le=\"1.0\"} 2\n"));
        assert!(open.contains("mgp_call_seconds_bucket{server=\"a\",le=\"+Inf\"} 3\n"));
        assert!(open.ends_with(
            "mgp_call_seconds_sum{server=\"a\"} 61.0005\nmgp_call_seconds_count{server=\"a\"} 3\n# EOF\n"
        ));
    }

    /// Decision 0066: whatever is in a label, a figure is one line, and the label is read back as it was.
    #[test]
    fn a_label_value_is_escaped() {
        let hostile = [
            "a\"} 1\nmgp_calls_total{tool=\"b",
            "\\",
            "\\n",
            "\"",
            "\r\n# EOF",
            "grüße 🦀",
            "\u{2028}{}=,",
        ];
        for form in [TextFormat::Prometheus, TextFormat::OpenMetrics] {
            for name in hostile {
                let family = MetricFamily::new("a", MetricKind::Gauge, "A.")
                    .with_point(&[("tool", name), ("z", "end")], 1_u64);
                let shown = family.points[0].labels[0].1.clone();
                let text = render(&[family], form);
                let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
                assert_eq!(lines.len(), 1, "{text}");
                let inside = lines[0].strip_prefix("a{tool=\"").unwrap();
                let (value, rest) = unescaped(inside);
                assert_eq!((&*value, rest), (&*shown, ",z=\"end\"} 1"), "{text}");
            }
        }
    }

    /// The text up to the quote that ends it, as a scraper reads it, and what comes then.
    fn unescaped(text: &str) -> (String, &str) {
        let (mut value, mut chars) = (String::new(), text.char_indices());
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => return (value, &text[at + 1..]),
                '\\' => value.push(match chars.next().unwrap().1 {
                    'n' => '\n',
                    other => other,
                }),
                c => value.push(c),
            }
        }
        panic!("it does not end: {text}");
    }
}
