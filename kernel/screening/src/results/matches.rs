//! The matches in a unit of text.

use std::ops::Range;

use super::findings::FindingKind;

/// Ranges that will be masked. They may overlap.
#[derive(Debug, Default)]
pub(super) struct Matches(Vec<(Range<usize>, FindingKind)>);

impl Matches {
    pub(super) fn add(&mut self, range: Range<usize>, kind: FindingKind) {
        if !range.is_empty() {
            self.0.push((range, kind));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranges in order. Of those that overlap one is made, of the earliest kind.
    pub(super) fn merged(mut self) -> Vec<(Range<usize>, FindingKind)> {
        self.0.sort_by_key(|(range, _)| range.start);
        let mut out: Vec<(Range<usize>, FindingKind)> = Vec::new();
        for (range, kind) in self.0 {
            match out.last_mut() {
                Some((last, first)) if range.start < last.end => {
                    last.end = last.end.max(range.end);
                    *first = kind.min(*first);
                }
                Some(_) | None => out.push((range, kind)),
            }
        }
        out
    }
}
