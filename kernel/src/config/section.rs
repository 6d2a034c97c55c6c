//! Reads the keys of one table: each key is asked for by name, so what is left over is unknown.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

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

    fn wrong(&mut self, key: &str, value: &Spanned<DeValue<'_>>, wanted: &str) {
        let found = value.get_ref().type_str();
        let message = format!(
            "`{key}` in {} wants {wanted}, this is {}",
            self.name,
            a(found)
        );
        self.refuse(value.span(), message);
    }

    fn read<T>(
        &mut self,
        key: &'static str,
        wanted: &str,
        read: impl FnOnce(&'t DeValue<'t>) -> Option<T>,
    ) -> Option<Spanned<T>> {
        let value = self.take(key)?;
        let read = read(value.get_ref());
        if read.is_none() {
            self.wrong(key, value, wanted);
        }
        read.map(|read| Spanned::new(value.span(), read))
    }

    pub(super) fn flag(&mut self, key: &'static str, into: &mut bool) {
        if let Some(flag) = self.read(key, "true or false", DeValue::as_bool) {
            *into = flag.into_inner();
        }
    }

    pub(super) fn text(&mut self, key: &'static str) -> Option<Spanned<&'t str>> {
        self.read(key, "a text", DeValue::as_str)
    }

    pub(super) fn table(&mut self, key: &'static str) -> Option<&'t DeTable<'t>> {
        self.read(key, "a table", DeValue::as_table)
            .map(Spanned::into_inner)
    }

    /// A list of texts.
    pub(super) fn texts(&mut self, key: &'static str) -> Option<Vec<Spanned<&'t str>>> {
        let list = self
            .read(key, "a list of texts", DeValue::as_array)?
            .into_inner();
        let mut texts = Vec::with_capacity(list.len());
        for value in list.iter() {
            match value.get_ref().as_str() {
                Some(text) => texts.push(Spanned::new(value.span(), text)),
                None => self.wrong(key, value, "a list of texts"),
            }
        }
        Some(texts)
    }

    /// A list of texts whose places do not matter later.
    pub(super) fn strings(&mut self, key: &'static str, into: &mut Vec<String>) {
        if let Some(texts) = self.texts(key) {
            *into = texts
                .into_iter()
                .map(|t| t.into_inner().to_owned())
                .collect();
        }
    }

    /// A table of texts, under keys of the user's choice.
    pub(super) fn text_map(&mut self, key: &'static str) -> BTreeMap<&'t str, Spanned<&'t str>> {
        let mut map = BTreeMap::new();
        for (name, value) in self.table(key).into_iter().flatten() {
            match value.get_ref().as_str() {
                Some(text) => {
                    map.insert(name.get_ref().as_ref(), Spanned::new(value.span(), text));
                }
                None => self.wrong(&format!("{key}.{}", name.get_ref()), value, "a text"),
            }
        }
        map
    }

    fn number(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<Spanned<u64>> {
        let number = self.read(key, "a whole number", |value| {
            let integer = value.as_integer()?;
            i128::from_str_radix(integer.as_str(), integer.radix()).ok()
        })?;
        match u64::try_from(*number.get_ref())
            .ok()
            .filter(|n| range.contains(n))
        {
            Some(fits) => Some(Spanned::new(number.span(), fits)),
            None => {
                let (least, most) = range.into_inner();
                let message = format!("`{key}` in {} goes from {least} to {most}", self.name);
                self.refuse(number.span(), message);
                None
            }
        }
    }

    /// A whole number within its bounds.
    pub(super) fn count<T: TryFrom<u64>>(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
        into: &mut T,
    ) {
        let number = self.number(key, range).map(Spanned::into_inner);
        if let Some(fits) = number.and_then(|n| T::try_from(n).ok()) {
            *into = fits;
        }
    }

    /// Like [`count`](Self::count), but more than `most` is taken as `most`, with a warning.
    pub(super) fn clamped(&mut self, key: &'static str, most: usize, into: &mut usize) {
        if let Some(number) = self.number(key, 0..=u64::MAX) {
            *into = usize::try_from(*number.get_ref()).unwrap_or(most).min(most);
            if *number.get_ref() > most as u64 {
                let message = format!("`{key}` in {} is at most {most}; taken as that", self.name);
                self.warn(number.span(), message);
            }
        }
    }

    /// A time in seconds.
    pub(super) fn secs(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
        into: &mut Duration,
    ) {
        if let Some(secs) = self.number(key, range) {
            *into = Duration::from_secs(secs.into_inner());
        }
    }

    /// A time in milliseconds.
    pub(super) fn millis(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
        into: &mut Duration,
    ) {
        if let Some(millis) = self.number(key, range) {
            *into = Duration::from_millis(millis.into_inner());
        }
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&'static str, T)],
        into: &mut T,
    ) {
        let Some(text) = self.text(key) else { return };
        match choices.iter().find(|(word, _)| word == text.get_ref()) {
            Some((_, chosen)) => *into = *chosen,
            None => {
                let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
                let message = format!("`{key}` in {} is one of {}", self.name, listed(&words));
                let nearest = nearest(text.get_ref(), &words).map(str::to_owned);
                self.ledger.note(self.weight, text.span(), message).nearest = nearest;
            }
        }
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
        let near = nearest(key, &self.known);
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

/// The known word that was probably meant. Two slips are forgiven in a long word; in a short one,
/// where two slips turn `tags` into `args`, only one is.
fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let near = |k: &&&str| {
        let slips = strsim::osa_distance(word, k);
        slips <= if k.len() <= 4 { 1 } else { 2 }
    };
    known
        .iter()
        .filter(near)
        .min_by_key(|k| strsim::osa_distance(word, k))
        .copied()
}

/// What other programs' files say, in the words of this one.
fn here_called(key: &str) -> Option<&'static str> {
    match key {
        "disabled" | "enabled" => Some("autostart"),
        "type" => Some("transport"),
        "timeout" => Some("call_timeout_secs"),
        _ => None,
    }
}

fn listed(words: &[&str]) -> String {
    words
        .iter()
        .map(|w| format!("`{w}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn a(noun: &str) -> String {
    match noun.starts_with(['a', 'i']) {
        true => format!("an {noun}"),
        false => format!("a {noun}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_words_forgive_one_slip_and_long_ones_two() {
        let known = ["command", "args", "env", "url"];
        assert_eq!(nearest("comand", &known), Some("command"));
        assert_eq!(nearest("commnda", &known), Some("command"));
        assert_eq!(nearest("agrs", &known), Some("args"));
        assert_eq!(nearest("evn", &known), Some("env"));
        assert_eq!(nearest("tags", &known), None);
        assert_eq!(nearest("type", &known), None);
    }
}
