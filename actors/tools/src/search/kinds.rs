//! How many tools of each kind a caller may call. Counted once for all callers that see the same tools,
//! until the index changes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use mgp_engine::policy::access::{Audience, Principal};
use mgp_engine::tools::catalog::CatalogView;
use mgp_engine::tools::exposure;
use mgp_engine::tools::index::{Index, IndexedTool};

use super::SearchHandle;
use mgp_runtime::time::unix_ms;

/// How many tools there are of each kind.
type Counts = BTreeMap<String, usize>;

/// Counts that are kept; when there are more, all are counted again.
const KEPT_MAX: usize = 256;

/// The counts, and the index they were made from.
#[derive(Debug, Default)]
pub(super) struct Kinds(Mutex<CachedKinds>);

#[derive(Debug, Default)]
struct CachedKinds {
    index: Arc<Index>,
    counts: HashMap<(CatalogView, Audience), Arc<Counts>>,
}

impl SearchHandle {
    /// How many tools of each kind this caller may call.
    #[must_use]
    pub fn kinds(&self, who: &Principal, view: &CatalogView) -> Arc<Counts> {
        let (index, table) = (self.parts.index.load(), self.parts.table.load());
        let place = (view.clone(), table.audience(who));
        {
            let kept = self.parts.kinds.0.lock();
            let kept = kept.unwrap_or_else(PoisonError::into_inner);
            if let Some(counts) = kept
                .counts
                .get(&place)
                .filter(|_| Arc::ptr_eq(&kept.index, &index))
            {
                return counts.clone();
            }
        }
        let now = unix_ms();
        let open = |entry: &&IndexedTool| {
            view.includes(&entry.server)
                && table.is_allowed(who, &entry.server, Some(&entry.name), now)
        };
        let entries = index.servers().flat_map(|shelf| shelf.entries());
        let counts = Arc::new(exposure::count_categories(entries.filter(open)));
        let mut kept = self
            .parts
            .kinds
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&kept.index, &index) || kept.counts.len() >= KEPT_MAX {
            kept.counts.clear();
            kept.index = index;
        }
        kept.counts.insert(place, counts.clone());
        counts
    }
}
