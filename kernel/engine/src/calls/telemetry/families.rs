//! Metrics with names and labels, independent of the format.

use std::borrow::Cow;

use super::latency::LatencyHistogram;

/// Longest label value, in characters: values chosen by servers are truncated.
const LABEL_MAX: usize = 128;

/// The metrics of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricFamily {
    /// The name, without the `_total` of a counter.
    pub name: &'static str,
    /// The help text, in one sentence.
    pub(crate) help: &'static str,
    /// Its unit, as Prometheus names units; empty for a plain number.
    pub(crate) unit: &'static str,
    /// The kind of its values.
    pub kind: MetricKind,
    /// One point for each set of labels.
    pub points: Vec<MetricPoint>,
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows, from the kernel's start on.
    Counter,
    /// The current value.
    Gauge,
    /// Durations, in buckets.
    Histogram,
}

/// One value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricPoint {
    /// Names and values.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: MetricValue,
}

/// The value of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricValue {
    /// An integer.
    Integer(u64),
    /// A real number, mostly seconds.
    Float(f64),
    /// A histogram.
    Histogram(LatencyHistogram),
}

impl From<u64> for MetricValue {
    fn from(value: u64) -> Self {
        Self::Integer(value)
    }
}

impl From<usize> for MetricValue {
    fn from(value: usize) -> Self {
        Self::Integer(value as u64)
    }
}

impl From<f64> for MetricValue {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<LatencyHistogram> for MetricValue {
    fn from(value: LatencyHistogram) -> Self {
        Self::Histogram(value)
    }
}

impl MetricFamily {
    /// A family without a unit and without points.
    #[must_use]
    pub const fn new(name: &'static str, kind: MetricKind, help: &'static str) -> Self {
        Self {
            name,
            help,
            unit: "",
            kind,
            points: Vec::new(),
        }
    }

    /// The same with this unit, which its name ends with.
    #[must_use]
    pub const fn with_unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    /// Returns the family with one more point.
    #[must_use]
    pub fn with_point(
        mut self,
        labels: &[(&'static str, &str)],
        value: impl Into<MetricValue>,
    ) -> Self {
        self.add_point(labels, value);
        self
    }

    /// Adds a point.
    pub fn add_point(&mut self, labels: &[(&'static str, &str)], value: impl Into<MetricValue>) {
        let labels = labels
            .iter()
            .map(|(name, value)| (*name, sanitize_label(value).into_owned()));
        self.points.push(MetricPoint {
            labels: labels.collect(),
            value: value.into(),
        });
    }
}

/// Whether a text can be a label value unchanged. Two texts that are changed may become equal, and no two points may
/// have the same labels.
#[must_use]
pub fn is_valid_label(text: &str) -> bool {
    text.chars().nth(LABEL_MAX).is_none() && text.chars().all(is_visible)
}

/// The label value for a text of others: truncated, with U+FFFD for invisible characters.
fn sanitize_label(text: &str) -> Cow<'_, str> {
    if is_valid_label(text) {
        return Cow::Borrowed(text);
    }
    let shown = text.chars().take(LABEL_MAX);
    let shown = shown.map(|c| {
        if is_visible(c) {
            c
        } else {
            char::REPLACEMENT_CHARACTER
        }
    });
    Cow::Owned(shown.collect())
}

/// Neither a control character nor one that only affects rendering.
fn is_visible(c: char) -> bool {
    !c.is_control()
        && !matches!(
            c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decision 0066: what another program chose as a name is one line, and no longer than others.
    #[test]
    fn a_foreign_name_is_truncated_and_sanitized() {
        let family = MetricFamily::new("a", MetricKind::Gauge, "A.")
            .with_point(&[("tool", "a\u{202e}b\nc\u{7}")], 1_u64)
            .with_point(&[("tool", &"x".repeat(1000))], 2_u64);
        assert_eq!(family.points[0].labels[0].1, "a\u{fffd}b\u{fffd}c\u{fffd}");
        assert_eq!(family.points[1].labels[0].1.len(), LABEL_MAX);
        for odd in [
            "a\u{202e}b",
            "a\nb",
            "a\u{200b}b",
            "\u{e0041}",
            &"x".repeat(129),
        ] {
            assert!(!is_valid_label(odd), "{odd:?}");
        }
        for plain in ["", "grüße 🦀", &"漢".repeat(LABEL_MAX)] {
            assert!(is_valid_label(plain), "{plain}");
        }
    }
}
