//! A table of a file: each key is requested by name, so the remaining ones are unknown.

use std::ops::Range;
use std::path::Path;

use mgp_protocol::ids::ServerId;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::SecretsConfig;
use super::context::{FileContext, StartOrder};
use super::problem::Severity;
use super::suggestions::{equivalent_key, nearest, render_list};
use super::tuning::{check_tuning, inner_table, is_constant, tuning_path};

/// A table, possibly absent.
pub(crate) struct Section<'p, 's, 't> {
    pub(super) context: &'p mut FileContext<'s>,
    table: Option<&'t DeTable<'t>>,
    /// Its table below `[tuning]`.
    tuning: Option<&'t DeTable<'t>>,
    /// For display: `[http]`, ``server `x` ``.
    name: String,
    /// Prefix of its keys in [`FileContext::known_keys`].
    path: String,
    severity: Severity,
    /// A key unlike any known one may belong to another program (MGP-219).
    allows_foreign_keys: bool,
    known_keys: Vec<&'static str>,
}

/// A section of the kernel.
pub(crate) trait ReadSection {
    /// Overrides values with those of the section.
    fn read(&mut self, section: &mut Section<'_, '_, '_>);
}

impl<'p, 's, 't> Section<'p, 's, 't> {
    /// Reads the file itself.
    pub(crate) fn read_root<T>(
        context: &'p mut FileContext<'s>,
        table: &'t DeTable<'t>,
        read: impl FnOnce(&mut Self) -> T,
    ) -> T {
        Self {
            context,
            table: Some(table),
            tuning: inner_table(table, "tuning"),
            name: "the file".into(),
            path: String::new(),
            severity: Severity::Fatal,
            allows_foreign_keys: true,
            known_keys: Vec::new(),
        }
        .read_whole(|root| {
            if let Some(tuning) = root.table("tuning") {
                check_tuning(root.context, tuning);
            }
            read(root)
        })
    }

    /// Reads an entry of `[[servers]]`; `name` is for display.
    pub(crate) fn read_entry<T>(
        context: &'p mut FileContext<'s>,
        table: &'t DeTable<'t>,
        name: String,
        read: impl FnOnce(&mut Self) -> T,
    ) -> T {
        Self {
            context,
            table: Some(table),
            tuning: None,
            name,
            path: "servers".into(),
            severity: Severity::Server,
            allows_foreign_keys: true,
            known_keys: Vec::new(),
        }
        .read_whole(read)
    }

    /// Reads a table inside this one. In tables of the kernel, unknown keys are errors.
    pub(crate) fn subsection<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut Section<'_, 's, 't>) -> T,
    ) -> T {
        let table = self.table(key);
        let tuning = self.tuning.and_then(|tuning| inner_table(tuning, key));
        let child = self.child(table, key, key);
        Section { tuning, ..child }.read_whole(read)
    }

    /// Reads the tables under names of the user's choice. Without any, `read` gets an absent table and an empty name,
    /// so that its keys are known.
    pub(crate) fn for_each_table(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&str, &mut Section<'_, 's, 't>),
    ) {
        let tables = self.table(key);
        let (starred, mut is_empty) = (format!("{key}.*"), true);
        for (name, value) in tables.into_iter().flatten() {
            is_empty = false;
            let (name, shown) = (
                name.get_ref(),
                format!("{key}.{}", table_key(name.get_ref())),
            );
            match value.get_ref().as_table() {
                Some(table) => {
                    let section = self.child(Some(table), &shown, &starred);
                    section.read_whole(|section| read(name, section));
                }
                None => {
                    let message = format!("`{key}.{name}` in {} wants a table", self.name);
                    self.reject(value.span(), message);
                }
            }
        }
        if is_empty {
            let section = self.child(None, key, &starred);
            section.read_whole(|section| read("", section));
        }
    }

    fn child(
        &mut self,
        table: Option<&'t DeTable<'t>>,
        key: &str,
        path: &str,
    ) -> Section<'_, 's, 't> {
        Section {
            table,
            tuning: None,
            name: self.child_name(key),
            path: self.key_path(path),
            severity: self.severity,
            allows_foreign_keys: self.allows_foreign_keys && self.severity == Severity::Server,
            known_keys: Vec::new(),
            context: self.context,
        }
    }

    /// The name of a table inside this one, for display: `[http.tls]`, `` `mgp` of server `x` ``.
    pub(super) fn child_name(&self, key: &str) -> String {
        match self.name.strip_suffix(']') {
            _ if self.path.is_empty() => format!("[{key}]"),
            Some(head) => format!("{head}.{key}]"),
            None => format!("`{key}` of {}", self.name),
        }
    }

    fn key_path(&self, key: &str) -> String {
        match self.path.as_str() {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        }
    }

    /// Makes every unknown key an error.
    pub(crate) fn reject_foreign_keys(&mut self) {
        self.allows_foreign_keys = false;
    }

    /// The value of a key, of any type. Requesting a key makes it known.
    pub(crate) fn value(&mut self, key: &'static str) -> Option<&'t Spanned<DeValue<'t>>> {
        let is_new = !self.known_keys.contains(&key);
        if is_new {
            self.known_keys.push(key);
        }
        let path = self.key_path(key);
        let value = self.table.and_then(|table| table.get(key));
        let Some(moved) = tuning_path(&path) else {
            self.context.known_keys.insert(path);
            return value;
        };
        self.context.known_keys.insert(moved);
        if let (Some(value), true) = (value, is_new) {
            let message = format!(
                "`{key}` in {} has moved to {}; it still works here",
                self.name,
                self.tuning_name()
            );
            self.warn(value.span(), message);
        }
        self.tuning_value(key).or(value)
    }

    fn tuning_value(&self, key: &str) -> Option<&'t Spanned<DeValue<'t>>> {
        tuning_path(&self.key_path(key))?;
        self.tuning?.get(key)
    }

    /// The section's table below `[tuning]`, for display.
    fn tuning_name(&self) -> String {
        format!("[tuning.{}", self.name.trim_start_matches('['))
    }

    /// The name of the table that has a key.
    pub(super) fn name_for(&self, key: &str) -> String {
        match self.tuning_value(key) {
            Some(_) => self.tuning_name(),
            None => self.name.clone(),
        }
    }

    /// Whether the file has this table.
    pub(crate) fn is_present(&self) -> bool {
        self.table.is_some()
    }

    /// The beginning of the section, as the location of missing keys.
    pub(crate) fn start_span(&self) -> Range<usize> {
        let table = self.table.or(self.tuning);
        let first = table.and_then(|table| table.keys().next());
        first.map(Spanned::span).unwrap_or_default()
    }

    /// The location of a key's value.
    pub(crate) fn span(&self, key: &str) -> Option<Range<usize>> {
        let value = self.tuning_value(key).or_else(|| self.table?.get(key));
        value.map(Spanned::span)
    }

    /// The folder of the file, where relative paths start.
    pub(crate) fn folder(&self) -> &'s Path {
        self.context.folder()
    }

    /// Sets where named secrets of this file are stored.
    pub(crate) fn set_secrets(&mut self, secrets: &SecretsConfig) {
        self.context.secrets = secrets.clone();
    }

    /// Masks a value in logs and records.
    pub(crate) fn mask(&mut self, value: impl Into<String>) {
        self.context.masked.push(value.into());
    }

    /// Reports an error at `span`, which makes the section invalid.
    pub(crate) fn reject(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.context.add(self.severity, span, message);
    }

    /// Reports an error of a key: `` `key` in [section] `` and why.
    pub(crate) fn reject_key(&mut self, span: Range<usize>, key: &str, why: &str) {
        let message = format!("`{key}` in {}{why}", self.name_for(key));
        self.reject(span, message);
    }

    /// Reports a key that does not fit the rest of the section, if the file has it: the section's name and why.
    pub(crate) fn reject_use(&mut self, key: &str, why: &str) {
        if let Some(span) = self.span(key) {
            self.reject(span, format!("{} {why}", self.name));
        }
    }

    /// [`Self::reject`] for a word, with the nearest of `known` as suggestion.
    pub(super) fn reject_with_suggestion(
        &mut self,
        word: &Spanned<&str>,
        known: &[&'static str],
        message: String,
    ) {
        let near = nearest(word.get_ref(), known.iter().copied()).map(str::to_owned);
        let problem = self.context.add(self.severity, word.span(), message);
        problem.nearest = near;
    }

    /// Records a predecessor; it is resolved once all files are read.
    pub(crate) fn add_start_order(&mut self, server: &ServerId, before: &Spanned<&str>) {
        let context = &mut *self.context;
        context.start_orders.push(StartOrder {
            server: server.clone(),
            predecessor: (*before.get_ref()).to_owned(),
            file: context.file.path.to_owned(),
            location: context.file.locate(before.span()),
        });
    }

    /// Reports a warning at `span`.
    pub(crate) fn warn(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.context.add(Severity::Warning, span, message);
    }

    /// The section's name in messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Reads the section, then checks the keys that were not requested.
    fn read_whole<T>(mut self, read: impl FnOnce(&mut Self) -> T) -> T {
        let result = read(&mut self);
        for key in self.table.into_iter().flat_map(|table| table.keys()) {
            let (span, key) = (key.span(), key.get_ref().as_ref());
            if self.known_keys.contains(&key) {
                continue;
            }
            if is_constant(&self.key_path(key)) {
                let message = format!(
                    "`{key}` in {} is no setting any more and is ignored",
                    self.name
                );
                self.warn(span, message);
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
            self.context.add(severity, span, message).nearest = near.map(str::to_owned);
        }
        result
    }
}

/// A key, quoted as in the head of a table.
pub(crate) fn table_key(key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if !key.is_empty() && key.chars().all(bare) {
        key.to_owned()
    } else {
        format!("{key:?}")
    }
}
