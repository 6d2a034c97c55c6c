//! Reads keys as values of their types. A value of another type is reported, and leaves the default.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::section::Section;
use super::suggestions::render_list;

impl<'t> Section<'_, '_, 't> {
    fn add_type_error(&mut self, key: &str, value: &Spanned<DeValue<'_>>, expected: &str) {
        let found = value.get_ref().type_str();
        let message = format!(
            "`{key}` in {} wants {expected}, this is {}",
            self.name(),
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
    pub(crate) fn strings(&mut self, key: &'static str, into: &mut Vec<String>) {
        if let Some(texts) = self.texts(key) {
            *into = texts
                .into_iter()
                .map(|t| t.into_inner().to_owned())
                .collect();
        }
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
                let message = format!("`{key}` in {} goes from {least} to {most}", self.name());
                self.reject(number.span(), message);
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
        into: &mut T,
    ) {
        let Some(text) = self.text(key) else { return };
        match choices.iter().find(|(word, _)| word == text.get_ref()) {
            Some((_, chosen)) => *into = *chosen,
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
