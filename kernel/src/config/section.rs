//! One table of a file: each key is asked for by name, so what is left over is unknown.

mod typed;

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::ledger::Ledger;
use super::nearest::{here_called, listed, nearest};
use super::problem::{Problem, Weight};

/// What happens to a key nobody asked for and that is like no known one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unknown {
    /// It is an error.
    Refuse,
    /// It may be meant for another program (MGP-219): a warning.
    Tolerate,
}

/// One table, or an absent one.
pub(super) struct Section<'l, 's, 't> {
    ledger: &'l mut Ledger<'s>,
    table: Option<&'t DeTable<'t>>,
    /// For people: `[http]`, ``server `x` ``.
    name: String,
    /// Prefix of its keys in [`Ledger::known`].
    path: &'static str,
    weight: Weight,
    unknown: Unknown,
    known: Vec<&'static str>,
}

impl<'l, 's, 't> Section<'l, 's, 't> {
    /// The file itself.
    pub(super) fn root(ledger: &'l mut Ledger<'s>, table: &'t DeTable<'t>) -> Self {
        Self::new(
            ledger,
            Some(table),
            ("the file".into(), ""),
            Weight::Fatal,
            Unknown::Tolerate,
        )
    }

    /// One entry of `[[servers]]`; `name` is for people.
    pub(super) fn entry(ledger: &'l mut Ledger<'s>, table: &'t DeTable<'t>, name: String) -> Self {
        let named = (name, "servers");
        Self::new(ledger, Some(table), named, Weight::Entry, Unknown::Tolerate)
    }

    fn new(
        ledger: &'l mut Ledger<'s>,
        table: Option<&'t DeTable<'t>>,
        (name, path): (String, &'static str),
        weight: Weight,
        unknown: Unknown,
    ) -> Self {
        Self {
            ledger,
            table,
            name,
            path,
            weight,
            unknown,
            known: Vec::new(),
        }
    }

    /// A table of the kernel's own: unknown keys in it are errors.
    pub(super) fn own(&mut self, key: &'static str) -> Section<'_, 's, 't> {
        let table = self.table(key);
        let named = (format!("[{key}]"), key);
        Section::new(self.ledger, table, named, Weight::Fatal, Unknown::Refuse)
    }

    /// `[servers.mgp]` of this entry.
    pub(super) fn inner(&mut self, key: &'static str, path: &'static str) -> Section<'_, 's, 't> {
        let table = self.table(key);
        let named = (format!("`{key}` of {}", self.name), path);
        Section::new(self.ledger, table, named, self.weight, self.unknown)
    }

    /// The tables below a key that stand under names of the user's choice; `path` is the prefix of
    /// their keys. Without any, `read` is given an absent one, so that its keys are known.
    pub(super) fn each(
        &mut self,
        key: &'static str,
        path: &'static str,
        mut read: impl FnMut(&str, &mut Section<'_, 's, 't>),
    ) {
        let tables = self.table(key);
        let (weight, unknown) = (self.weight, Unknown::Refuse);
        let mut one = |name: &str, table: Option<&'t DeTable<'t>>, ledger: &mut Ledger<'s>| {
            let named = (format!("{key}.{name:?} of {}", self.name), path);
            let mut section = Section::new(ledger, table, named, weight, unknown);
            read(name, &mut section);
            section.finish();
        };
        for (name, value) in tables.into_iter().flatten() {
            match value.get_ref().as_table() {
                Some(table) => one(name.get_ref(), Some(table), self.ledger),
                None => {
                    let wanted =
                        format!("`{key}.{}` in {} wants a table", name.get_ref(), self.name);
                    self.ledger.note(weight, value.span(), wanted);
                }
            }
        }
        if tables.is_none() {
            one("", None, self.ledger);
        }
    }

    /// The value of a key, whatever it is. Asking makes the key known.
    pub(super) fn take(&mut self, key: &'static str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.known.push(key);
        let path = match self.path {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        };
        self.ledger.known.insert(path);
        self.table?.get(key)
    }

    /// Where something that is not there would stand: the file's beginning.
    pub(super) fn whole(&self) -> Range<usize> {
        let first = self.table.and_then(|table| table.keys().next());
        first.map(Spanned::span).unwrap_or_default()
    }

    /// Where a key's value stands.
    pub(super) fn span(&self, key: &str) -> Option<Range<usize>> {
        self.table?.get(key).map(Spanned::span)
    }

    /// Notes that something about `span` makes the section useless.
    pub(super) fn refuse(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.ledger.note(self.weight, span, message);
    }

    /// Notes something worth knowing.
    pub(super) fn warn(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.ledger.note(Weight::Warning, span, message);
    }

    /// How to name this section in a message.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Judges the keys nobody asked for. A section is not read before this was called.
    pub(super) fn finish(self) {
        for key in self.table.into_iter().flat_map(|t| t.keys()) {
            let name = key.get_ref().as_ref();
            if !self.known.contains(&name) {
                let problem = self.judge(key.span(), name);
                self.ledger.problems.push(problem);
            }
        }
    }

    fn judge(&self, span: Range<usize>, key: &str) -> Problem {
        let near = nearest(key, self.known.iter().copied());
        let problem = |weight, message| self.ledger.source.problem(weight, span, message);
        let unknown = format!("unknown key `{key}` in {}", self.name);
        match (near, self.unknown) {
            (Some(near), _) => Problem {
                nearest: Some(near.to_owned()),
                ..problem(self.weight, unknown)
            },
            (None, Unknown::Refuse) => {
                let known = listed(&self.known);
                problem(self.weight, format!("{unknown}; known are {known}"))
            }
            (None, Unknown::Tolerate) => match here_called(key) {
                Some(own) => problem(
                    Weight::Warning,
                    format!("{unknown} is passed over; what is meant may be `{own}`"),
                ),
                None => problem(Weight::Warning, format!("{unknown} is passed over")),
            },
        }
    }
}
