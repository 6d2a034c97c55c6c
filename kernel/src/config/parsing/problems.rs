//! Collects problems and keys while a file is read.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;

use mgp_protocol::ids::ServerId;
use mgp_transports::log::sanitize;

use super::problem::{Location, Problem, Severity};
use super::source_file::SourceFile;

/// The problems of one file, and the requested keys.
pub(crate) struct Problems<'s> {
    pub(crate) file: SourceFile<'s>,
    pub(crate) all: Vec<Problem>,
    /// The requested keys, with their sections: `http.listen`.
    pub(crate) known_keys: BTreeSet<String>,
    /// The predecessors in the start order, with their locations.
    pub(crate) start_orders: Vec<StartOrder>,
}

/// A server that starts after another one.
#[derive(Clone, Debug)]
pub(crate) struct StartOrder {
    /// The server of the entry.
    pub(crate) server: ServerId,
    /// The server that must be connected before.
    pub(crate) predecessor: String,
    /// The file of the entry.
    pub(crate) file: PathBuf,
    /// Its location in the file.
    pub(crate) location: Location,
}

impl<'s> Problems<'s> {
    pub(crate) fn new(file: SourceFile<'s>) -> Self {
        Self {
            file,
            all: Vec::new(),
            known_keys: BTreeSet::new(),
            start_orders: Vec::new(),
        }
    }

    /// Adds a problem at `span`.
    pub(crate) fn add(
        &mut self,
        severity: Severity,
        span: Range<usize>,
        message: impl Into<String>,
    ) -> &mut Problem {
        self.all.push(Problem {
            severity,
            file: self.file.path.to_owned(),
            location: Some(Box::new(self.file.locate(span))),
            // Messages contain names of the file: they stay on one line.
            message: sanitize(message.into().as_bytes()),
            nearest: None,
        });
        self.all.last_mut().expect("one was pushed")
    }
}
