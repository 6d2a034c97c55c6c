//! An entry of a list: what its text is made of, for each of its readers.
//!
//! Texts are not kept: a definition is in memory once, whatever it is called in however many views.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use mgp_json::{Splice, quote};
use mgp_protocol::mgp::discovery::security::{RiskLevel, with_effective_level};

use super::Readers;
use super::item::rename_member;

/// An entry: what it is known by in this view, and its definition.
#[derive(Clone, Debug)]
pub(super) struct ListedItem {
    /// What it is known by.
    pub(super) key: Arc<str>,
    /// Its definition.
    pub(super) raw: Arc<str>,
    /// Where the server's own name stands in the definition, for which readers see the key.
    pub(super) name_range: Option<Range<u32>>,
    /// The definition for legacy clients, where they could not read it as it is.
    pub(super) legacy: Option<Arc<str>>,
    /// Legacy clients are told that calls of it may be tasks.
    pub(super) offers_tasks: bool,
    /// Of a tool: the level that decisions on it rest on.
    pub(super) level: Option<RiskLevel>,
}

impl PartialEq for ListedItem {
    fn eq(&self, other: &Self) -> bool {
        // Most of what is compared is the very same.
        let same = |one: &Arc<str>, other: &Arc<str>| Arc::ptr_eq(one, other) || one == other;
        let legacy = match (&self.legacy, &other.legacy) {
            (Some(one), Some(other)) => same(one, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        let flags = |item: &Self| (item.name_range.clone(), item.offers_tasks, item.level);
        same(&self.key, &other.key)
            && same(&self.raw, &other.raw)
            && legacy
            && flags(self) == flags(other)
    }
}

impl ListedItem {
    /// An entry that all clients read alike, as its server wrote it.
    pub(super) fn new(key: &Arc<str>, raw: &Arc<str>) -> Self {
        Self {
            key: Arc::clone(key),
            raw: Arc::clone(raw),
            name_range: None,
            legacy: None,
            offers_tasks: false,
            level: None,
        }
    }

    /// The same under its key, which takes the place of what stands there.
    pub(super) fn with_name_range(self, at: &Range<u32>) -> Self {
        Self {
            name_range: Some(at.clone()),
            ..self
        }
    }

    /// True when clients of the two eras read different texts.
    pub(super) fn differs_for_legacy(&self) -> bool {
        self.legacy.is_some() || self.offers_tasks
    }

    /// As its readers see it; with its level, for those who are `told`.
    pub(super) fn render(&self, readers: Readers, told: bool) -> Cow<'_, str> {
        let text = match readers {
            Readers::Legacy if self.differs_for_legacy() => Cow::Owned(self.legacy_text()),
            Readers::All | Readers::Legacy | Readers::Modern => self.renamed_text(),
        };
        match self.level.filter(|_| told) {
            Some(level) => Cow::Owned(with_effective_level(&text, level).into()),
            None => text,
        }
    }

    /// Bytes of that text.
    pub(super) fn rendered_len(&self, readers: Readers, told: bool) -> usize {
        let made = told && self.level.is_some();
        match &self.name_range {
            _ if made || (readers == Readers::Legacy && self.differs_for_legacy()) => {
                self.render(readers, told).len()
            }
            None => self.raw.len(),
            Some(at) => self.raw.len() - at.len() + json_string_len(&self.key),
        }
    }

    fn renamed_text(&self) -> Cow<'_, str> {
        let Some(at) = &self.name_range else {
            return Cow::Borrowed(&self.raw);
        };
        let (before, after) = (&self.raw[..at.start as usize], &self.raw[at.end as usize..]);
        Cow::Owned([before, &quote(&self.key), after].concat())
    }

    /// The definition for legacy clients. Those of 2025-11-25 only ask for a task where the tool says that they
    /// may.
    fn legacy_text(&self) -> String {
        let own = self.legacy.as_ref().unwrap_or(&self.raw);
        let mut splice = Splice::new(own);
        if self.offers_tasks {
            splice.insert_member(own, "execution", r#"{"taskSupport":"optional"}"#);
        }
        let text = splice.finish().into_owned();
        match self.name_range {
            Some(_) => rename_member(&text, "name", &self.key).to_string(),
            None => text,
        }
    }
}

/// Bytes of a text as a JSON string.
fn json_string_len(text: &str) -> usize {
    let plain = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    if text.bytes().all(plain) {
        text.len() + 2
    } else {
        quote(text).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages are cut by these lengths before any text is made.
    #[test]
    fn the_rendered_length_is_exact() {
        let raw: Arc<str> = r#"{"name":"t\u0061g","inputSchema":{}}"#.into();
        for key in ["nas__demo__tag", "with \"quotes\" \\ and é\u{7}", ""] {
            for (legacy, offers_tasks) in [
                (None, false),
                (None, true),
                (Some("{\"name\":\"x\"}"), true),
            ] {
                let plain = ListedItem {
                    legacy: legacy.map(Arc::from),
                    offers_tasks,
                    level: Some(RiskLevel::Moderate),
                    ..ListedItem::new(&key.into(), &raw)
                };
                for item in [plain.clone(), plain.with_name_range(&(8..18))] {
                    for readers in [Readers::All, Readers::Legacy, Readers::Modern] {
                        for told in [false, true] {
                            let text = item.render(readers, told);
                            assert_eq!(item.rendered_len(readers, told), text.len(), "{text}");
                            let read: serde_json::Value = serde_json::from_str(&text).unwrap();
                            assert!(item.name_range.is_none() || read["name"] == key, "{text}");
                        }
                    }
                }
            }
        }
    }
}
