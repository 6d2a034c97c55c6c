//! What is gathered while a file is read.

use std::collections::BTreeSet;
use std::ops::Range;

use super::problem::{Problem, Weight};
use super::source::Source;

/// What is gathered while a file is read.
pub(super) struct Ledger<'s> {
    pub(super) source: Source<'s>,
    pub(super) problems: Vec<Problem>,
    /// Every key that was asked for, with its section: `http.listen`.
    pub(super) known: BTreeSet<String>,
}

impl<'s> Ledger<'s> {
    pub(super) fn new(source: Source<'s>) -> Self {
        Self {
            source,
            problems: Vec::new(),
            known: BTreeSet::new(),
        }
    }

    /// Writes a problem down.
    pub(super) fn note(
        &mut self,
        weight: Weight,
        span: Range<usize>,
        message: impl Into<String>,
    ) -> &mut Problem {
        self.problems
            .push(self.source.problem(weight, span, message));
        self.problems.last_mut().expect("one was pushed")
    }
}
