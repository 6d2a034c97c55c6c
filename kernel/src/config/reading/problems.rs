//! What is gathered while a file is read.

use std::collections::BTreeSet;
use std::ops::Range;

use super::problem::{Problem, Severity};
use super::source_file::SourceFile;

/// The problems of one file, and the keys that were asked for.
pub(crate) struct Problems<'s> {
    pub(crate) file: SourceFile<'s>,
    pub(crate) all: Vec<Problem>,
    /// Every key that was asked for, with its section: `http.listen`.
    pub(crate) known: BTreeSet<String>,
}

impl<'s> Problems<'s> {
    pub(crate) fn new(file: SourceFile<'s>) -> Self {
        Self {
            file,
            all: Vec::new(),
            known: BTreeSet::new(),
        }
    }

    /// Adds a problem with what stands at `span`.
    pub(crate) fn add(
        &mut self,
        severity: Severity,
        span: Range<usize>,
        message: impl Into<String>,
    ) -> &mut Problem {
        self.all.push(Problem {
            severity,
            file: self.file.path.to_owned(),
            location: Some(Box::new(self.file.location(span))),
            message: message.into(),
            nearest: None,
        });
        self.all.last_mut().expect("one was pushed")
    }
}
