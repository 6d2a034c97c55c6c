//! One list for agents: each page is rendered at its first request, and cached.

use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use mgp_protocol::dialect::ProtocolFamily;

use super::listed_item::ListedItem;
use super::{CatalogView, ListForm, ListKind, Readers};
use crate::tools::catalog::cursor::{BadCursor, Cursor, CursorKey};

/// A page ends once it has this many bytes: with one more definition it still fits the frames that peers accept.
const PAGE_BYTES: usize = 4 << 20;

/// How lists are split into pages.
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

/// The shared data of lists built at the same time for the same view.
#[derive(Debug)]
pub(super) struct ListContext {
    pub(super) view: CatalogView,
    pub(super) paging: Paging,
    /// Distinguishes a list from earlier ones.
    pub(super) generation: u64,
    /// For clients that get the risk level of each tool.
    pub(super) with_levels: bool,
}

/// A list in the forms of both protocol families, which share it if nothing differs.
#[derive(Clone, Debug)]
pub(super) struct ListPair {
    pub(super) stateless: Arc<PagedList>,
    pub(super) legacy: Arc<PagedList>,
    /// With the risk level of each tool, by protocol family; built at the first request, because few clients negotiate
    /// levels.
    with_levels: Arc<[OnceLock<Arc<PagedList>>; 2]>,
}

impl ListPair {
    /// Reuses the previous lists if the entries are the same, so that their pages and cursors stay valid.
    pub(super) fn build(
        kind: ListKind,
        context: &Arc<ListContext>,
        previous: Option<&Self>,
        entries: Vec<ListedItem>,
    ) -> Self {
        if let Some(previous) = previous.filter(|lists| *lists.stateless.entries == *entries) {
            return previous.clone();
        }
        let has_legacy_form = entries.iter().any(ListedItem::differs_for_legacy);
        let entries: Arc<[ListedItem]> = entries.into();
        let list = |readers| {
            Arc::new(PagedList {
                kind,
                readers,
                context: Arc::clone(context),
                entries: Arc::clone(&entries),
                pages: OnceLock::new(),
            })
        };
        let (modern, legacy) = if has_legacy_form {
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
        let (plain, with_levels) = match form.family {
            ProtocolFamily::Legacy => (&self.legacy, &self.with_levels[0]),
            ProtocolFamily::Stateless => (&self.stateless, &self.with_levels[1]),
        };
        if form.with_levels && plain.kind == ListKind::Tools {
            with_levels.get_or_init(|| plain.with_levels())
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
    /// At least one; each begins where the previous one ends. Computed at the first request.
    pages: OnceLock<Box<[ListPage]>>,
}

#[derive(Debug)]
struct ListPage {
    start: usize,
    /// Rendered at the first request.
    body: OnceLock<Bytes>,
}

impl PagedList {
    /// The list for clients that get the risk level of each tool.
    fn with_levels(&self) -> Arc<Self> {
        let context = ListContext {
            view: self.context.view.clone(),
            paging: self.context.paging.clone(),
            generation: self.context.generation,
            with_levels: true,
        };
        Arc::new(self.with_entries(Arc::clone(&self.entries), context))
    }

    /// The visible entries as a separate list, whose cursors are valid only for it.
    pub(super) fn filtered(&self, generation: u64, keep: impl Fn(&str) -> bool) -> Arc<Self> {
        let visible = self.entries.iter().filter(|entry| keep(&entry.key));
        let context = ListContext {
            view: self.context.view.clone(),
            paging: self.context.paging.clone(),
            generation,
            with_levels: self.context.with_levels,
        };
        Arc::new(self.with_entries(visible.cloned().collect(), context))
    }

    fn with_entries(&self, entries: Arc<[ListedItem]>, context: ListContext) -> Self {
        Self {
            kind: self.kind,
            readers: self.readers,
            context: Arc::new(context),
            entries,
            pages: OnceLock::new(),
        }
    }

    /// Approximate bytes of the list and all rendered pages; names differ in the pages.
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

    /// The page of a cursor, for a client of that protocol family.
    pub(super) fn page(
        &self,
        cursor: Option<&str>,
        family: ProtocolFamily,
    ) -> Result<Bytes, BadCursor> {
        let start = match cursor {
            None => 0,
            Some(text) => self.position_after(text, family)?,
        };
        let pages = self.pages.get_or_init(|| self.split_pages());
        match pages.binary_search_by_key(&start, |page| page.start) {
            Ok(index) => Ok(pages[index]
                .body
                .get_or_init(|| self.render_page(start))
                .clone()),
            // The list changed, and the client continues between page boundaries.
            Err(_) => Ok(self.render_page(start)),
        }
    }

    /// The position after the client's last entry, wherever that is now.
    fn position_after(&self, text: &str, family: ProtocolFamily) -> Result<usize, BadCursor> {
        let ListContext {
            view,
            paging,
            generation,
            with_levels,
        } = &*self.context;
        let cursor = Cursor::open(text, &paging.key)?;
        let is_for_this_list =
            cursor.kind == self.kind && cursor.view == *view && cursor.told == *with_levels;
        if !is_for_this_list || !cursor.readers.includes(family) {
            return Err(BadCursor);
        }
        if cursor.generation == *generation {
            return Ok(cursor.offset);
        }
        let is_last = |entry: &ListedItem| *entry.key == *cursor.last;
        let index = self.entries.iter().position(is_last).ok_or(BadCursor)?;
        Ok(index + 1)
    }

    /// Finds the page boundaries.
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

    /// The end of the page that begins at `start`.
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

    /// Rendered bytes of an entry.
    fn entry_len(&self, entry: &ListedItem) -> usize {
        entry.rendered_len(self.readers, self.context.with_levels)
    }

    /// Renders the page that begins at `start`.
    fn render_page(&self, start: usize) -> Bytes {
        let mut body = self.page_prefix();
        let end = self.page_end(start);
        for (index, entry) in self.entries[start..end].iter().enumerate() {
            if index > 0 {
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
