//! A table of a file: each key is requested by name, so the remaining ones are unknown.

use std::ops::Range;

use mgp_protocol::ids::ServerId;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::Severity;
use super::problems::{Problems, StartOrder};
use super::suggestions::{equivalent_key, nearest, render_list};

/// A table, possibly absent.
pub(crate) struct Section<'p, 's, 't> {
    problems: &'p mut Problems<'s>,
    table: Option<&'t DeTable<'t>>,
    /// For display: `[http]`, ``server `x` ``.
    name: String,
    /// Prefix of its keys in [`Problems::known_keys`].
    path: &'static str,
    severity: Severity,
    /// A key unlike any known one may belong to another program (MGP-219).
    allows_foreign_keys: bool,
    known_keys: Vec<&'static str>,
}

impl<'p, 's, 't> Section<'p, 's, 't> {
    /// The file itself.
    pub(crate) fn root(problems: &'p mut Problems<'s>, table: &'t DeTable<'t>) -> Self {
        let named = ("the file".into(), "");
        Self::new(problems, Some(table), named, Severity::Fatal, true)
    }

    /// An entry of `[[servers]]`; `name` is for display.
    pub(crate) fn for_entry(
        problems: &'p mut Problems<'s>,
        table: &'t DeTable<'t>,
        name: String,
    ) -> Self {
        let named = (name, "servers");
        Self::new(problems, Some(table), named, Severity::Server, true)
    }

    fn new(
        problems: &'p mut Problems<'s>,
        table: Option<&'t DeTable<'t>>,
        (name, path): (String, &'static str),
        severity: Severity,
        allows_foreign_keys: bool,
    ) -> Self {
        Self {
            problems,
            table,
            name,
            path,
            severity,
            allows_foreign_keys,
            known_keys: Vec::new(),
        }
    }

    /// A table of the kernel: unknown keys in it are errors.
    pub(crate) fn kernel_section(&mut self, key: &'static str) -> Section<'_, 's, 't> {
        let (table, named) = (self.table(key), (format!("[{key}]"), key));
        Section::new(self.problems, table, named, Severity::Fatal, false)
    }

    /// A table inside this one, like `[servers.mgp]`; `path` is the prefix of its keys.
    pub(crate) fn subsection(
        &mut self,
        key: &'static str,
        path: &'static str,
    ) -> Section<'_, 's, 't> {
        let table = self.table(key);
        let named = (format!("`{key}` of {}", self.name), path);
        Section::new(
            self.problems,
            table,
            named,
            self.severity,
            self.allows_foreign_keys,
        )
    }

    /// The same table, in which every unknown key is an error.
    pub(crate) fn strict(mut self) -> Self {
        self.allows_foreign_keys = false;
        self
    }

    /// The tables under names of the user's choice; `path` is the prefix of their keys. Without any, `read` gets an
    /// absent table, so that its keys are known.
    pub(crate) fn for_each_table(
        &mut self,
        key: &'static str,
        path: &'static str,
        mut read: impl FnMut(&str, &mut Section<'_, 's, 't>),
    ) {
        let tables = self.table(key);
        let mut read_one = |name: &str, table, problems: &mut Problems<'s>| {
            let named = (format!("{key}.{name:?} of {}", self.name), path);
            let mut section = Section::new(problems, table, named, self.severity, false);
            read(name, &mut section);
            section.finish();
        };
        for (name, value) in tables.into_iter().flatten() {
            let (name, table) = (name.get_ref(), value.get_ref().as_table());
            if table.is_some() {
                read_one(name, table, self.problems);
                continue;
            }
            let message = format!("`{key}.{name}` in {} wants a table", self.name);
            self.problems.add(self.severity, value.span(), message);
        }
        if tables.is_none() {
            read_one("", None, self.problems);
        }
    }

    /// The value of a key, of any type. Requesting a key makes it known.
    pub(crate) fn value(&mut self, key: &'static str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.known_keys.push(key);
        let path = match self.path {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        };
        self.problems.known_keys.insert(path);
        self.table?.get(key)
    }

    /// The beginning of the section, as the location of missing keys.
    pub(crate) fn start_span(&self) -> Range<usize> {
        let first = self.table.and_then(|table| table.keys().next());
        first.map(Spanned::span).unwrap_or_default()
    }

    /// The location of a key's value.
    pub(crate) fn span(&self, key: &str) -> Option<Range<usize>> {
        self.table?.get(key).map(Spanned::span)
    }

    /// Reports an error at `span`, which makes the section invalid.
    pub(crate) fn reject(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.problems.add(self.severity, span, message);
    }

    /// [`Self::reject`] for a word, with the nearest of `known` as suggestion.
    pub(super) fn reject_with_suggestion(
        &mut self,
        word: &Spanned<&str>,
        known: &[&'static str],
        message: String,
    ) {
        let near = nearest(word.get_ref(), known.iter().copied()).map(str::to_owned);
        let problem = self.problems.add(self.severity, word.span(), message);
        problem.nearest = near;
    }

    /// Records a predecessor; it is resolved once all files are read.
    pub(crate) fn add_start_order(&mut self, server: &ServerId, before: &Spanned<&str>) {
        let problems = &mut *self.problems;
        problems.start_orders.push(StartOrder {
            server: server.clone(),
            predecessor: (*before.get_ref()).to_owned(),
            file: problems.file.path.to_owned(),
            location: problems.file.locate(before.span()),
        });
    }

    /// Reports a warning at `span`.
    pub(crate) fn warn(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.problems.add(Severity::Warning, span, message);
    }

    /// The section's name in messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Checks the keys that were not requested. A section is read only once this was called.
    pub(crate) fn finish(self) {
        for key in self.table.into_iter().flat_map(|table| table.keys()) {
            let (span, key) = (key.span(), key.get_ref().as_ref());
            if self.known_keys.contains(&key) {
                continue;
            }
            let near = nearest(key, self.known_keys.iter().copied());
            let unknown = format!("unknown key `{key}` in {}", self.name);
            let (severity, message) = match (near, self.allows_foreign_keys, equivalent_key(key)) {
                (Some(_), ..) => (self.severity, unknown),
                (None, false, _) => {
                    let known = render_list(&self.known_keys);
                    (self.severity, format!("{unknown}; known are {known}"))
                }
                (None, true, Some(own)) => (
                    Severity::Warning,
                    format!("{unknown} is passed over; what is meant may be `{own}`"),
                ),
                (None, true, None) => (Severity::Warning, format!("{unknown} is passed over")),
            };
            self.problems.add(severity, span, message).nearest = near.map(str::to_owned);
        }
    }
}
