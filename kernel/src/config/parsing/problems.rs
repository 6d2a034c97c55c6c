//! What is gathered while a file is read.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;

use mgp_protocol::ids::ServerId;
use mgp_transports::log::sanitize;

use super::problem::{Location, Problem, Severity};
use super::source_file::SourceFile;

/// The problems of one file, and the keys that were asked for.
pub(crate) struct Problems<'s> {
    pub(crate) file: SourceFile<'s>,
    pub(crate) all: Vec<Problem>,
    /// Every key that was asked for, with its section: `http.listen`.
    pub(crate) known_keys: BTreeSet<String>,
    /// The servers that others are started after, where they are named.
    pub(crate) start_orders: Vec<StartOrder>,
}

/// That a server is started after another one.
#[derive(Clone, Debug)]
pub(crate) struct StartOrder {
    /// Whose entry says so.
    pub(crate) server: ServerId,
    /// Who is to be connected before.
    pub(crate) predecessor: String,
    /// In which file.
    pub(crate) file: PathBuf,
    /// Where.
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
            location: Some(Box::new(self.file.locate(span))),
            // Names that stand in the file are in it: it stays one line.
            message: sanitize(message.into().as_bytes()),
            nearest: None,
        });
        self.all.last_mut().expect("one was pushed")
    }
}
