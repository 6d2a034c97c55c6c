//! One list for agents: pages made once, and the page of each cursor.

use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use mgp_protocol::dialect::Era;
use mgp_protocol::mgp::discovery::security::{RiskLevel, with_effective};

use super::{CatalogView, Form, ListKind, Readers};
use crate::tools::catalog::cursor::{BadCursor, Cursor, CursorKey};

/// A page ends once it has this many bytes, whatever the number of its entries: with one definition
/// more it still fits the frames that peers accept.
const PAGE_BYTES: usize = 4 << 20;

/// An entry: what it is known by in this view, and its definition as shown there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListedItem {
    pub(super) key: Arc<str>,
    pub(super) text: Arc<str>,
    /// The definition for legacy clients, where they could not read it as it is.
    pub(super) legacy: Option<Arc<str>>,
    /// Of a tool: the level that decisions on it rest on.
    pub(super) level: Option<RiskLevel>,
}

impl ListedItem {
    fn for_legacy(&self) -> Self {
        Self {
            key: Arc::clone(&self.key),
            text: Arc::clone(self.legacy.as_ref().unwrap_or(&self.text)),
            legacy: None,
            level: self.level,
        }
    }

    /// With its level, for those who are told.
    fn told(&self) -> Self {
        let text = match self.level {
            Some(level) => with_effective(&self.text, level).into(),
            None => Arc::clone(&self.text),
        };
        Self {
            text,
            ..self.clone()
        }
    }
}

/// How lists are cut into pages.
#[derive(Clone, Debug)]
pub struct Paging {
    /// Most entries of a page; a page of large definitions has fewer.
    pub size: NonZeroUsize,
    /// Seals the cursors.
    pub key: CursorKey,
}

impl Paging {
    /// Pages of 1000 entries.
    #[must_use]
    pub fn new(key: CursorKey) -> Self {
        Self {
            size: NonZeroUsize::new(1000).expect("1000 is not zero"),
            key,
        }
    }
}

/// What the lists made at the same time for the same view have in common.
#[derive(Debug)]
pub(super) struct Edition {
    pub(super) view: CatalogView,
    pub(super) paging: Paging,
    /// Tells a list from its earlier ones.
    pub(super) generation: u64,
    /// For clients that are told the level of each tool.
    pub(super) told: bool,
}

/// A list in the forms that the two eras read; one and the same where nothing differs.
#[derive(Debug)]
pub(super) struct ListPair {
    pub(super) modern: Arc<PagedList>,
    pub(super) legacy: Arc<PagedList>,
    /// The same with the level of each tool, by era; made when the first client asks that is told, as
    /// most kernels have none.
    told: Arc<[OnceLock<Arc<PagedList>>; 2]>,
}

impl ListPair {
    pub(super) fn make(
        kind: ListKind,
        edition: &Arc<Edition>,
        previous: Option<&Self>,
        entries: Vec<ListedItem>,
    ) -> Self {
        let differ = entries.iter().any(|entry| entry.legacy.is_some());
        let legacy = differ.then(|| {
            let entries = entries.iter().map(ListedItem::for_legacy).collect();
            let previous = previous.map(|lists| &lists.legacy);
            PagedList::make(kind, Readers::Legacy, edition, previous, entries)
        });
        let readers = if differ {
            Readers::Modern
        } else {
            Readers::All
        };
        let before = previous.map(|lists| &lists.modern);
        let modern = PagedList::make(kind, readers, edition, before, entries);
        let legacy = legacy.unwrap_or_else(|| Arc::clone(&modern));
        let same = |lists: &&Self| {
            Arc::ptr_eq(&lists.modern, &modern) && Arc::ptr_eq(&lists.legacy, &legacy)
        };
        let told = previous.filter(same).map(|lists| Arc::clone(&lists.told));
        Self {
            told: told.unwrap_or_default(),
            legacy,
            modern,
        }
    }

    pub(super) fn of(&self, form: Form) -> &Arc<PagedList> {
        let (plain, told) = match form.era {
            Era::Legacy => (&self.legacy, &self.told[0]),
            Era::Modern => (&self.modern, &self.told[1]),
        };
        match form.told && plain.kind == ListKind::Tools {
            true => told.get_or_init(|| plain.told()),
            false => plain,
        }
    }
}

/// A list, cut into pages.
#[derive(Debug)]
pub(super) struct PagedList {
    kind: ListKind,
    readers: Readers,
    edition: Arc<Edition>,
    entries: Vec<ListedItem>,
    /// At least one; each begins where the one before ends.
    pages: Vec<ListPage>,
}

#[derive(Debug)]
struct ListPage {
    start: usize,
    body: Bytes,
}

impl PagedList {
    /// The previous list when it has the same entries, so that its pages and cursors live on.
    fn make(
        kind: ListKind,
        readers: Readers,
        edition: &Arc<Edition>,
        previous: Option<&Arc<Self>>,
        entries: Vec<ListedItem>,
    ) -> Arc<Self> {
        let same = |list: &&Arc<Self>| list.readers == readers && list.entries == entries;
        if let Some(previous) = previous.filter(same) {
            return Arc::clone(previous);
        }
        let mut list = Self {
            kind,
            readers,
            edition: Arc::clone(edition),
            entries,
            pages: Vec::new(),
        };
        let mut start = 0;
        while start < list.entries.len() || list.pages.is_empty() {
            let (body, end) = list.cut(start);
            list.pages.push(ListPage { start, body });
            start = end;
        }
        Arc::new(list)
    }

    /// The list for clients that are told the level of each tool.
    fn told(&self) -> Arc<Self> {
        let edition = Edition {
            view: self.edition.view.clone(),
            paging: self.edition.paging.clone(),
            generation: self.edition.generation,
            told: true,
        };
        let entries = self.entries.iter().map(ListedItem::told).collect();
        Self::make(self.kind, self.readers, &Arc::new(edition), None, entries)
    }

    /// The entries of it that somebody may see, as a list of its own: its cursors lead nowhere else.
    pub(super) fn sifted(&self, mark: u64, keep: impl Fn(&str) -> bool) -> Arc<Self> {
        let kept = self.entries.iter().filter(|entry| keep(&entry.key));
        let edition = Edition {
            view: self.edition.view.clone(),
            paging: self.edition.paging.clone(),
            generation: mark,
            told: self.edition.told,
        };
        let entries = kept.cloned().collect();
        Self::make(self.kind, self.readers, &Arc::new(edition), None, entries)
    }

    /// Bytes of all its pages together.
    pub(super) fn size(&self) -> usize {
        self.pages.iter().map(|page| page.body.len()).sum()
    }

    pub(super) fn generation(&self) -> u64 {
        self.edition.generation
    }

    pub(super) fn same_as(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || self.entries == other.entries
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The page a cursor asks for, for a client of that era.
    pub(super) fn page(&self, cursor: Option<&str>, era: Era) -> Result<Bytes, BadCursor> {
        let start = match cursor {
            None => 0,
            Some(text) => self.place(text, era)?,
        };
        match self.pages.binary_search_by_key(&start, |page| page.start) {
            Ok(at) => Ok(self.pages[at].body.clone()),
            // The list changed under the client, who goes on between our cuts.
            Err(_) => Ok(self.cut(start).0),
        }
    }

    /// After the last entry the client has, wherever that stands now.
    fn place(&self, text: &str, era: Era) -> Result<usize, BadCursor> {
        let Edition {
            view,
            paging,
            generation,
            told,
        } = &*self.edition;
        let cursor = Cursor::open(text, &paging.key)?;
        let own = cursor.kind == self.kind && cursor.view == *view && cursor.told == *told;
        if !own || !cursor.readers.include(era) {
            return Err(BadCursor);
        }
        if cursor.generation == *generation {
            return Ok(cursor.offset);
        }
        let is_last = |entry: &ListedItem| *entry.key == *cursor.last;
        let at = self.entries.iter().position(is_last).ok_or(BadCursor)?;
        Ok(at + 1)
    }

    /// The page from `start` on, and where it ends.
    fn cut(&self, start: usize) -> (Bytes, usize) {
        let mut body = format!("{{\"{}\":[", self.kind.member());
        let mut end = start;
        let size = self.edition.paging.size.get();
        for entry in self.entries.iter().skip(start).take(size) {
            if end > start {
                body.push(',');
            }
            body.push_str(&entry.text);
            end += 1;
            if body.len() >= PAGE_BYTES {
                break;
            }
        }
        body.push(']');
        if end < self.entries.len() {
            // A sealed cursor is base64 and needs no escapes.
            body.push_str(",\"nextCursor\":\"");
            body.push_str(&self.cursor(end));
            body.push('"');
        }
        body.push('}');
        (body.into(), end)
    }

    fn cursor(&self, offset: usize) -> String {
        let cursor = Cursor {
            kind: self.kind,
            view: self.edition.view.clone(),
            readers: self.readers,
            told: self.edition.told,
            generation: self.edition.generation,
            offset,
            last: self.entries[offset - 1].key.to_string(),
        };
        cursor.seal(&self.edition.paging.key)
    }
}
