//! One list for agents: each page is made when it is asked for first, and kept.

use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use mgp_protocol::dialect::ProtocolFamily;

use super::listed_item::ListedItem;
use super::{CatalogView, ListForm, ListKind, Readers};
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
pub(super) struct ListContext {
    pub(super) view: CatalogView,
    pub(super) paging: Paging,
    /// Tells a list from its earlier ones.
    pub(super) generation: u64,
    /// For clients that are told the level of each tool.
    pub(super) with_levels: bool,
}

/// A list in the forms that the two eras read; one and the same where nothing differs.
#[derive(Clone, Debug)]
pub(super) struct ListPair {
    pub(super) stateless: Arc<PagedList>,
    pub(super) legacy: Arc<PagedList>,
    /// The same with the level of each tool, by era; made when the first client asks that is told, as
    /// most kernels have none.
    with_levels: Arc<[OnceLock<Arc<PagedList>>; 2]>,
}

impl ListPair {
    /// The previous ones when they have the same entries, so that their pages and cursors live on.
    pub(super) fn build(
        kind: ListKind,
        edition: &Arc<ListContext>,
        previous: Option<&Self>,
        entries: Vec<ListedItem>,
    ) -> Self {
        if let Some(previous) = previous.filter(|lists| *lists.stateless.entries == *entries) {
            return previous.clone();
        }
        let differ = entries.iter().any(ListedItem::differs_for_legacy);
        let entries: Arc<[ListedItem]> = entries.into();
        let list = |readers| {
            Arc::new(PagedList {
                kind,
                readers,
                context: Arc::clone(edition),
                entries: Arc::clone(&entries),
                pages: OnceLock::new(),
            })
        };
        let (modern, legacy) = if differ {
            (list(Readers::Modern), list(Readers::Legacy))
        } else {
            let all = list(Readers::All);
            (Arc::clone(&all), all)
        };
        Self {
            stateless: modern,
            legacy,
            with_levels: Arc::default(),
        }
    }

    pub(super) fn for_form(&self, form: ListForm) -> &Arc<PagedList> {
        let (plain, told) = match form.family {
            ProtocolFamily::Legacy => (&self.legacy, &self.with_levels[0]),
            ProtocolFamily::Stateless => (&self.stateless, &self.with_levels[1]),
        };
        if form.with_levels && plain.kind == ListKind::Tools {
            told.get_or_init(|| plain.with_levels())
        } else {
            plain
        }
    }
}

/// A list, cut into pages.
#[derive(Debug)]
pub(super) struct PagedList {
    kind: ListKind,
    readers: Readers,
    context: Arc<ListContext>,
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
    fn with_levels(&self) -> Arc<Self> {
        let edition = ListContext {
            view: self.context.view.clone(),
            paging: self.context.paging.clone(),
            generation: self.context.generation,
            with_levels: true,
        };
        Arc::new(self.with_entries(Arc::clone(&self.entries), edition))
    }

    /// The entries of it that somebody may see, as a list of its own: its cursors lead nowhere else.
    pub(super) fn filtered(&self, mark: u64, keep: impl Fn(&str) -> bool) -> Arc<Self> {
        let kept = self.entries.iter().filter(|entry| keep(&entry.key));
        let edition = ListContext {
            view: self.context.view.clone(),
            paging: self.context.paging.clone(),
            generation: mark,
            with_levels: self.context.with_levels,
        };
        Arc::new(self.with_entries(kept.cloned().collect(), edition))
    }

    fn with_entries(&self, entries: Arc<[ListedItem]>, edition: ListContext) -> Self {
        Self {
            kind: self.kind,
            readers: self.readers,
            context: Arc::new(edition),
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
        self.context.generation
    }

    pub(super) fn has_same_entries(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || self.entries == other.entries
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The page a cursor asks for, for a client of that era.
    pub(super) fn page(
        &self,
        cursor: Option<&str>,
        era: ProtocolFamily,
    ) -> Result<Bytes, BadCursor> {
        let start = match cursor {
            None => 0,
            Some(text) => self.position_after(text, era)?,
        };
        let pages = self.pages.get_or_init(|| self.split_pages());
        match pages.binary_search_by_key(&start, |page| page.start) {
            Ok(at) => Ok(pages[at]
                .body
                .get_or_init(|| self.render_page(start))
                .clone()),
            // The list changed under the client, who goes on between our cuts.
            Err(_) => Ok(self.render_page(start)),
        }
    }

    /// After the last entry the client has, wherever that stands now.
    fn position_after(&self, text: &str, era: ProtocolFamily) -> Result<usize, BadCursor> {
        let ListContext {
            view,
            paging,
            generation,
            with_levels: told,
        } = &*self.context;
        let cursor = Cursor::open(text, &paging.key)?;
        let own = cursor.kind == self.kind && cursor.view == *view && cursor.told == *told;
        if !own || !cursor.readers.includes(era) {
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
    fn split_pages(&self) -> Box<[ListPage]> {
        let mut pages = Vec::new();
        let mut start = 0;
        while start < self.entries.len() || pages.is_empty() {
            pages.push(ListPage {
                start,
                body: OnceLock::new(),
            });
            start = self.page_end(start);
        }
        pages.into()
    }

    /// Where the page from `start` on ends.
    fn page_end(&self, start: usize) -> usize {
        let mut bytes = self.page_prefix().len();
        let mut end = start;
        let size = self.context.paging.size.get();
        for entry in self.entries.iter().skip(start).take(size) {
            bytes += self.entry_len(entry) + usize::from(end > start);
            end += 1;
            if bytes >= PAGE_BYTES {
                break;
            }
        }
        end
    }

    fn page_prefix(&self) -> String {
        format!("{{\"{}\":[", self.kind.result_member())
    }

    /// Bytes of an entry as its readers see it.
    fn entry_len(&self, entry: &ListedItem) -> usize {
        entry.rendered_len(self.readers, self.context.with_levels)
    }

    /// The page from `start` on.
    fn render_page(&self, start: usize) -> Bytes {
        let mut body = self.page_prefix();
        let end = self.page_end(start);
        for (at, entry) in self.entries[start..end].iter().enumerate() {
            if at > 0 {
                body.push(',');
            }
            body.push_str(&entry.render(self.readers, self.context.with_levels));
        }
        body.push(']');
        if end < self.entries.len() {
            // A sealed cursor is base64 and needs no escapes.
            body.push_str(",\"nextCursor\":\"");
            body.push_str(&self.seal_cursor(end));
            body.push('"');
        }
        body.push('}');
        body.into()
    }

    fn seal_cursor(&self, offset: usize) -> String {
        let cursor = Cursor {
            kind: self.kind,
            view: self.context.view.clone(),
            readers: self.readers,
            told: self.context.with_levels,
            generation: self.context.generation,
            offset,
            last: self.entries[offset - 1].key.to_string(),
        };
        cursor.seal(&self.context.paging.key)
    }
}
