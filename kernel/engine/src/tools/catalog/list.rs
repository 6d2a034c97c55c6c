//! One list for agents: each page is made when it is asked for first, and kept.

use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use mgp_protocol::dialect::Era;

use super::listed_item::ListedItem;
use super::{CatalogView, Form, ListKind, Readers};
use crate::tools::catalog::cursor::{BadCursor, Cursor, CursorKey};

/// A page ends once it has this many bytes, whatever the number of its entries: with one definition
/// more it still fits the frames that peers accept.
const PAGE_BYTES: usize = 4 << 20;

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
#[derive(Clone, Debug)]
pub(super) struct ListPair {
    pub(super) modern: Arc<PagedList>,
    pub(super) legacy: Arc<PagedList>,
    /// The same with the level of each tool, by era; made when the first client asks that is told, as
    /// most kernels have none.
    told: Arc<[OnceLock<Arc<PagedList>>; 2]>,
}

impl ListPair {
    /// The previous ones when they have the same entries, so that their pages and cursors live on.
    pub(super) fn make(
        kind: ListKind,
        edition: &Arc<Edition>,
        previous: Option<&Self>,
        entries: Vec<ListedItem>,
    ) -> Self {
        if let Some(previous) = previous.filter(|lists| *lists.modern.entries == *entries) {
            return previous.clone();
        }
        let differ = entries.iter().any(ListedItem::differs_for_legacy);
        let entries: Arc<[ListedItem]> = entries.into();
        let list = |readers| {
            Arc::new(PagedList {
                kind,
                readers,
                edition: Arc::clone(edition),
                entries: Arc::clone(&entries),
                pages: OnceLock::new(),
            })
        };
        let (modern, legacy) = match differ {
            true => (list(Readers::Modern), list(Readers::Legacy)),
            false => {
                let all = list(Readers::All);
                (Arc::clone(&all), all)
            }
        };
        Self {
            modern,
            legacy,
            told: Arc::default(),
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
    entries: Arc<[ListedItem]>,
    /// At least one; each begins where the one before ends. Found when the first one is asked for.
    pages: OnceLock<Box<[ListPage]>>,
}

#[derive(Debug)]
struct ListPage {
    start: usize,
    /// Made when it is asked for.
    body: OnceLock<Bytes>,
}

impl PagedList {
    /// The list for clients that are told the level of each tool.
    fn told(&self) -> Arc<Self> {
        let edition = Edition {
            view: self.edition.view.clone(),
            paging: self.edition.paging.clone(),
            generation: self.edition.generation,
            told: true,
        };
        Arc::new(self.of_entries(Arc::clone(&self.entries), edition))
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
        Arc::new(self.of_entries(kept.cloned().collect(), edition))
    }

    fn of_entries(&self, entries: Arc<[ListedItem]>, edition: Edition) -> Self {
        Self {
            kind: self.kind,
            readers: self.readers,
            edition: Arc::new(edition),
            entries,
            pages: OnceLock::new(),
        }
    }

    /// Bytes of itself and of all its pages together once they are made, nearly: names are others in them.
    pub(super) fn size(&self) -> usize {
        let texts = self.entries.iter().map(|entry| entry.raw.len());
        texts.sum::<usize>() + size_of_val(&*self.entries)
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
        let pages = self.pages.get_or_init(|| self.pages());
        match pages.binary_search_by_key(&start, |page| page.start) {
            Ok(at) => Ok(pages[at].body.get_or_init(|| self.cut(start)).clone()),
            // The list changed under the client, who goes on between our cuts.
            Err(_) => Ok(self.cut(start)),
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

    /// Where its pages begin.
    fn pages(&self) -> Box<[ListPage]> {
        let mut pages = Vec::new();
        let mut start = 0;
        while start < self.entries.len() || pages.is_empty() {
            pages.push(ListPage {
                start,
                body: OnceLock::new(),
            });
            start = self.end(start);
        }
        pages.into()
    }

    /// Where the page from `start` on ends.
    fn end(&self, start: usize) -> usize {
        let mut bytes = self.opening().len();
        let mut end = start;
        let size = self.edition.paging.size.get();
        for entry in self.entries.iter().skip(start).take(size) {
            bytes += self.len(entry) + usize::from(end > start);
            end += 1;
            if bytes >= PAGE_BYTES {
                break;
            }
        }
        end
    }

    fn opening(&self) -> String {
        format!("{{\"{}\":[", self.kind.member())
    }

    /// Bytes of an entry as its readers see it.
    fn len(&self, entry: &ListedItem) -> usize {
        entry.len(self.readers, self.edition.told)
    }

    /// The page from `start` on.
    fn cut(&self, start: usize) -> Bytes {
        let mut body = self.opening();
        let end = self.end(start);
        for (at, entry) in self.entries[start..end].iter().enumerate() {
            if at > 0 {
                body.push(',');
            }
            body.push_str(&entry.text(self.readers, self.edition.told));
        }
        body.push(']');
        if end < self.entries.len() {
            // A sealed cursor is base64 and needs no escapes.
            body.push_str(",\"nextCursor\":\"");
            body.push_str(&self.cursor(end));
            body.push('"');
        }
        body.push('}');
        body.into()
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
