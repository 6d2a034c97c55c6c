//! Figures with their names and labels, before they are written in one form or another.

use std::borrow::Cow;

use super::latency::LatencyHistogram;

/// Longest value of a label, in characters: what servers choose themselves is cut there.
const LABEL_MAX: usize = 128;

/// Figures of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricFamily {
    /// The name, without the `_total` of a counter.
    pub name: &'static str,
    /// What it says, in one sentence.
    pub help: &'static str,
    /// Its unit, as Prometheus names units; empty for a plain number.
    pub unit: &'static str,
    /// What kind of numbers they are.
    pub kind: MetricKind,
    /// One for each set of labels.
    pub points: Vec<MetricPoint>,
}

/// The kind of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows, from the kernel's start on.
    Counter,
    /// What is now.
    Gauge,
    /// Times, in buckets.
    Histogram,
}

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricPoint {
    /// Names and values.
    pub labels: Vec<(&'static str, String)>,
    /// The number.
    pub value: MetricValue,
}

/// The number of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricValue {
    /// A whole one.
    Integer(u64),
    /// Seconds, mostly.
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
    /// A family without a unit and without a figure.
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

    /// The same, in this unit, which its name ends with.
    #[must_use]
    pub const fn with_unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    /// With one more figure.
    #[must_use]
    pub fn with_point(
        mut self,
        labels: &[(&'static str, &str)],
        value: impl Into<MetricValue>,
    ) -> Self {
        self.add_point(labels, value);
        self
    }

    /// Takes in one more figure.
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

/// Whether a label shows this text as it is. Two that are not shown so may look the same there, and no two figures may
/// have the same labels.
#[must_use]
pub fn is_valid_label(text: &str) -> bool {
    text.chars().nth(LABEL_MAX).is_none() && text.chars().all(is_visible)
}

/// What a label says: text of others is cut, and shows what it has of signs that cannot be seen.
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

/// Neither a control character nor one that is only an instruction to who draws the text.
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
    fn a_name_that_others_chose_is_cut_and_shown() {
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
