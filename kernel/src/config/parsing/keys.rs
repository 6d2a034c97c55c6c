//! The readers of keys, one for each form of a value. A key that is absent or wrong leaves the default.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use mgp_transports::http::is_safe_url;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::section::Section;
use super::suggestions::render_list;

impl<'t> Section<'_, '_, 't> {
    fn add_type_error(&mut self, key: &str, value: &Spanned<DeValue<'_>>, expected: &str) {
        let found = value.get_ref().type_str();
        let message = format!(
            "`{key}` in {} wants {expected}, this is {}",
            self.name_for(key),
            with_article(found)
        );
        self.reject(value.span(), message);
    }

    fn read_as<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        read: impl FnOnce(&'t DeValue<'t>) -> Option<T>,
    ) -> Option<Spanned<T>> {
        let value = self.value(key)?;
        let read = read(value.get_ref());
        if read.is_none() {
            self.add_type_error(key, value, expected);
        }
        read.map(|read| Spanned::new(value.span(), read))
    }

    pub(crate) fn flag(&mut self, key: &'static str, into: &mut bool) {
        if let Some(flag) = self.read_as(key, "true or false", DeValue::as_bool) {
            *into = flag.into_inner();
        }
    }

    pub(crate) fn text(&mut self, key: &'static str) -> Option<Spanned<&'t str>> {
        self.read_as(key, "a text", DeValue::as_str)
    }

    pub(crate) fn table(&mut self, key: &'static str) -> Option<&'t DeTable<'t>> {
        self.read_as(key, "a table", DeValue::as_table)
            .map(Spanned::into_inner)
    }

    /// A list of strings.
    pub(crate) fn texts(&mut self, key: &'static str) -> Option<Vec<Spanned<&'t str>>> {
        let list = self
            .read_as(key, "a list of texts", DeValue::as_array)?
            .into_inner();
        let mut texts = Vec::with_capacity(list.len());
        for value in list.iter() {
            match value.get_ref().as_str() {
                Some(text) => texts.push(Spanned::new(value.span(), text)),
                None => self.add_type_error(key, value, "a list of texts"),
            }
        }
        Some(texts)
    }

    /// A list of strings without their locations.
    pub(crate) fn strings(&mut self, key: &'static str, into: &mut impl FromIterator<String>) {
        if let Some(texts) = self.texts(key) {
            *into = texts.iter().map(|t| (*t.get_ref()).to_owned()).collect();
        }
    }

    /// Any text.
    pub(crate) fn string(&mut self, key: &'static str, into: &mut impl From<String>) {
        if let Some(text) = self.text(key) {
            *into = text.into_inner().to_owned().into();
        }
    }

    /// A text of a form; `parse` says what is wrong with another one.
    pub(crate) fn parse<T, E: Display>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
        into: &mut impl From<T>,
    ) {
        let Some(text) = self.text(key) else { return };
        match parse(text.get_ref()) {
            Ok(value) => *into = value.into(),
            Err(why) => self.reject_key(text.span(), key, &format!(": {why}")),
        }
    }

    /// A list of texts of a form; wrong ones are left out.
    pub(crate) fn parse_each<T, E: Display>(
        &mut self,
        key: &'static str,
        mut parse: impl FnMut(&str) -> Result<T, E>,
    ) -> Option<Vec<T>> {
        let mut values = Vec::new();
        for text in self.texts(key)? {
            match parse(text.get_ref()) {
                Ok(value) => values.push(value),
                Err(why) => self.reject_key(text.span(), key, &format!(": {why}")),
            }
        }
        Some(values)
    }

    /// A list as [`Self::parse_each`] reads it.
    pub(crate) fn parse_all<T, E: Display>(
        &mut self,
        key: &'static str,
        parse: impl FnMut(&str) -> Result<T, E>,
        into: &mut impl FromIterator<T>,
    ) {
        if let Some(values) = self.parse_each(key, parse) {
            *into = values.into_iter().collect();
        }
    }

    /// An address that [`is_safe_url`] accepts.
    pub(crate) fn safe_url(&mut self, key: &'static str, into: &mut impl From<String>) {
        let Some(text) = self.text(key) else { return };
        if !is_safe_url(text.get_ref()) {
            self.reject_key(
                text.span(),
                key,
                " wants https://, or http:// on this machine",
            );
        }
        *into = text.into_inner().to_owned().into();
    }

    /// A path; a relative one starts at the file.
    pub(crate) fn path(&mut self, key: &'static str, into: &mut impl From<PathBuf>) {
        match self.text(key) {
            Some(text) if text.get_ref().is_empty() => {
                self.reject_key(text.span(), key, " is empty");
            }
            Some(text) => *into = self.folder().join(text.get_ref()).into(),
            None => {}
        }
    }

    /// Several keys, or a table.
    pub(crate) fn read_with<T>(&mut self, read: impl FnOnce(&mut Self, &mut T), into: &mut T) {
        read(self, into);
    }

    /// The tables under names of the user's choice, each name of a form.
    pub(crate) fn named_tables<N, T, E: Display>(
        &mut self,
        key: &'static str,
        parse_name: impl Fn(&str) -> Result<N, E>,
        mut read: impl FnMut(&mut Section<'_, '_, 't>) -> T,
    ) -> Vec<(N, T)> {
        let (mut all, whole) = (Vec::new(), self.child_name(key));
        self.for_each_table(key, |name, section| {
            let value = read(section);
            match parse_name(name) {
                Ok(name) if section.is_present() => all.push((name, value)),
                Err(why) if section.is_present() => {
                    section.reject(section.start_span(), format!("{whole}: {why}"));
                }
                Ok(_) | Err(_) => {}
            }
        });
        all
    }

    /// A table of strings, under keys of the user's choice.
    pub(crate) fn text_map(&mut self, key: &'static str) -> BTreeMap<&'t str, Spanned<&'t str>> {
        let mut map = BTreeMap::new();
        for (name, value) in self.table(key).into_iter().flatten() {
            match value.get_ref().as_str() {
                Some(text) => {
                    map.insert(name.get_ref().as_ref(), Spanned::new(value.span(), text));
                }
                None => self.add_type_error(&format!("{key}.{}", name.get_ref()), value, "a text"),
            }
        }
        map
    }

    fn number(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<Spanned<u64>> {
        let number = self.read_as(key, "a whole number", |value| {
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
                self.reject_key(number.span(), key, &format!(" goes from {least} to {most}"));
                None
            }
        }
    }

    /// An integer within its bounds.
    pub(crate) fn count<T: TryFrom<u64>>(
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

    /// A duration in seconds.
    pub(crate) fn secs(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
        into: &mut Duration,
    ) {
        if let Some(secs) = self.number(key, range) {
            *into = Duration::from_secs(secs.into_inner());
        }
    }

    /// A duration in milliseconds.
    pub(crate) fn millis(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
        into: &mut Duration,
    ) {
        if let Some(millis) = self.number(key, range) {
            *into = Duration::from_millis(millis.into_inner());
        }
    }

    /// One of the known words.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&'static str, T)],
        into: &mut impl From<T>,
    ) {
        let Some(text) = self.text(key) else { return };
        match choices.iter().find(|(word, _)| word == text.get_ref()) {
            Some((_, chosen)) => *into = (*chosen).into(),
            None => {
                let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
                let message = format!(
                    "`{key}` in {} is one of {}",
                    self.name(),
                    render_list(&words)
                );
                self.reject_with_suggestion(&text, &words, message);
            }
        }
    }
}

fn with_article(noun: &str) -> String {
    if noun.starts_with(['a', 'i']) {
        format!("an {noun}")
    } else {
        format!("a {noun}")
    }
}
