//! Figures with their names and labels, before they are written in one form or another.

use std::borrow::Cow;

use super::latency::LatencyCounts;

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
    Latency,
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
    Whole(u64),
    /// Seconds, mostly.
    Real(f64),
    /// A histogram.
    Latency(LatencyCounts),
}

impl From<u64> for MetricValue {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<usize> for MetricValue {
    fn from(value: usize) -> Self {
        Self::Whole(value as u64)
    }
}

impl From<f64> for MetricValue {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl From<LatencyCounts> for MetricValue {
    fn from(value: LatencyCounts) -> Self {
        Self::Latency(value)
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
    pub const fn in_unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    /// With one more figure.
    #[must_use]
    pub fn with(mut self, labels: &[(&'static str, &str)], value: impl Into<MetricValue>) -> Self {
        self.add(labels, value);
        self
    }

    /// Takes in one more figure.
    pub fn add(&mut self, labels: &[(&'static str, &str)], value: impl Into<MetricValue>) {
        let labels = labels
            .iter()
            .map(|(name, value)| (*name, legible(value).into_owned()));
        self.points.push(MetricPoint {
            labels: labels.collect(),
            value: value.into(),
        });
    }
}

/// What a label says: text of others is cut, and shows what it has of signs that cannot be seen.
fn legible(text: &str) -> Cow<'_, str> {
    let plain = |c: char| {
        !c.is_control()
            && !matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if text.len() <= LABEL_MAX && text.chars().all(plain) {
        return Cow::Borrowed(text);
    }
    let shown = text.chars().take(LABEL_MAX);
    let shown = shown.map(|c| {
        if plain(c) {
            c
        } else {
            char::REPLACEMENT_CHARACTER
        }
    });
    Cow::Owned(shown.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decision 0066: what another program chose as a name is one line, and no longer than others.
    #[test]
    fn a_name_that_others_chose_is_cut_and_shown() {
        let family = MetricFamily::new("a", MetricKind::Gauge, "A.")
            .with(&[("tool", "a\u{202e}b\nc\u{7}")], 1_u64)
            .with(&[("tool", &"x".repeat(1000))], 2_u64);
        assert_eq!(family.points[0].labels[0].1, "a\u{fffd}b\u{fffd}c\u{fffd}");
        assert_eq!(family.points[1].labels[0].1.len(), LABEL_MAX);
    }
}
