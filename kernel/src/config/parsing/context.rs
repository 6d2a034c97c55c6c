//! What readers of one file share: its text, the lookup of references, and what they found.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use mgp_protocol::ids::ServerId;
use mgp_transports::log::sanitize;

use super::problem::{Location, Problem, Severity};
use super::source_file::SourceFile;
use super::{Env, SecretsConfig};

/// One file while it is read.
pub(crate) struct FileContext<'s> {
    pub(crate) file: SourceFile<'s>,
    /// Resolves references in values.
    pub(super) env: &'s Env<'s>,
    /// `[secrets]`, once it is read.
    pub(crate) secrets: SecretsConfig,
    pub(crate) problems: Vec<Problem>,
    /// The requested keys, with their sections: `http.listen`.
    pub(crate) known_keys: BTreeSet<String>,
    /// The predecessors in the start order, with their locations.
    pub(crate) start_orders: Vec<StartOrder>,
    /// Values that may be secrets, to be masked.
    pub(crate) masked: Vec<String>,
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

impl<'s> FileContext<'s> {
    pub(crate) fn new(file: SourceFile<'s>, env: &'s Env<'s>) -> Self {
        Self {
            file,
            env,
            secrets: SecretsConfig::default(),
            problems: Vec::new(),
            known_keys: BTreeSet::new(),
            start_orders: Vec::new(),
            masked: Vec::new(),
        }
    }

    /// The folder of the file, where relative paths start.
    pub(crate) fn folder(&self) -> &'s Path {
        self.file.path.parent().unwrap_or(Path::new(""))
    }

    /// Adds a problem at `span`.
    pub(crate) fn add(
        &mut self,
        severity: Severity,
        span: Range<usize>,
        message: impl Into<String>,
    ) -> &mut Problem {
        self.problems.push(Problem {
            severity,
            file: self.file.path.to_owned(),
            location: Some(Box::new(self.file.locate(span))),
            // Messages contain names of the file: they stay on one line.
            message: sanitize(message.into().as_bytes()),
            nearest: None,
        });
        self.problems.last_mut().expect("one was pushed")
    }
}
