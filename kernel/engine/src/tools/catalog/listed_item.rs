//! An entry of a list, and its rendering for each kind of client.
//!
//! Rendered texts are not stored: a definition is in memory once for all views.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use mgp_json::{Splice, quote};
use mgp_protocol::mgp::discovery::security::{RiskLevel, with_effective_level};

use super::Readers;
use super::item::rename_member;

/// An entry: its key in the view, and its definition.
#[derive(Clone, Debug)]
pub(super) struct ListedItem {
    /// Its name or URI in the view.
    pub(super) key: Arc<str>,
    /// Its definition.
    pub(super) raw: Arc<str>,
    /// The range of the own name in the definition, which rendering replaces by the key.
    pub(super) name_range: Option<Range<u32>>,
    /// The definition for legacy clients, if they cannot read `raw`.
    pub(super) legacy: Option<Arc<str>>,
    /// Legacy clients see that its calls may be tasks.
    pub(super) offers_tasks: bool,
    /// For a tool: the risk level that decisions use.
    pub(super) level: Option<RiskLevel>,
}

impl PartialEq for ListedItem {
    fn eq(&self, other: &Self) -> bool {
        // Most compared texts are the same allocation.
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
    /// An entry that is equal for all clients.
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

    /// Sets the range that rendering replaces by the key.
    pub(super) fn with_name_range(self, range: &Range<u32>) -> Self {
        Self {
            name_range: Some(range.clone()),
            ..self
        }
    }

    /// True if the text differs for legacy clients.
    pub(super) fn differs_for_legacy(&self) -> bool {
        self.legacy.is_some() || self.offers_tasks
    }

    /// Renders the entry for these clients.
    pub(super) fn render(&self, readers: Readers, with_level: bool) -> Cow<'_, str> {
        let text = match readers {
            Readers::Legacy if self.differs_for_legacy() => Cow::Owned(self.legacy_text()),
            Readers::All | Readers::Legacy | Readers::Modern => self.renamed_text(),
        };
        match self.level.filter(|_| with_level) {
            Some(level) => Cow::Owned(with_effective_level(&text, level).into()),
            None => text,
        }
    }

    /// The length of [`Self::render`] in bytes.
    pub(super) fn rendered_len(&self, readers: Readers, with_level: bool) -> usize {
        let has_level = with_level && self.level.is_some();
        match &self.name_range {
            _ if has_level || (readers == Readers::Legacy && self.differs_for_legacy()) => {
                self.render(readers, with_level).len()
            }
            None => self.raw.len(),
            Some(range) => self.raw.len() - range.len() + json_string_len(&self.key),
        }
    }

    fn renamed_text(&self) -> Cow<'_, str> {
        let Some(range) = &self.name_range else {
            return Cow::Borrowed(&self.raw);
        };
        let (before, after) = (
            &self.raw[..range.start as usize],
            &self.raw[range.end as usize..],
        );
        Cow::Owned([before, &quote(&self.key), after].concat())
    }

    /// The definition for legacy clients. Those of 2025-11-25 request a task only if the tool declares support.
    fn legacy_text(&self) -> String {
        let definition = self.legacy.as_ref().unwrap_or(&self.raw);
        let mut splice = Splice::new(definition);
        if self.offers_tasks {
            splice.insert_member(definition, "execution", r#"{"taskSupport":"optional"}"#);
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

    /// Pages are split by these lengths before rendering.
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
                        for with_level in [false, true] {
                            let text = item.render(readers, with_level);
                            assert_eq!(
                                item.rendered_len(readers, with_level),
                                text.len(),
                                "{text}"
                            );
                            let read: serde_json::Value = serde_json::from_str(&text).unwrap();
                            assert!(item.name_range.is_none() || read["name"] == key, "{text}");
                        }
                    }
                }
            }
        }
    }
}
