//! The number of tools of each kind that a caller may call. Counted once for all callers with the same visible tools,
//! until the index changes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use mgp_engine::policy::access::{Audience, Principal};
use mgp_engine::tools::catalog::CatalogView;
use mgp_engine::tools::exposure;
use mgp_engine::tools::index::{Index, IndexedTool};

use super::SearchHandle;
use mgp_runtime::time::unix_ms;

/// The number of tools of each kind.
type Counts = BTreeMap<String, usize>;

/// Cached counts; beyond this the cache is cleared.
const CACHED_MAX: usize = 256;

/// The cached counts of one index.
#[derive(Debug, Default)]
pub(super) struct Kinds(Mutex<CachedKinds>);

#[derive(Debug, Default)]
struct CachedKinds {
    index: Arc<Index>,
    counts: HashMap<(CatalogView, Audience), Arc<Counts>>,
}

impl SearchHandle {
    /// The number of tools of each kind that this caller may call.
    #[must_use]
    pub fn kinds(&self, caller: &Principal, view: &CatalogView) -> Arc<Counts> {
        let (index, table) = (self.parts.index.load(), self.parts.table.load());
        let key = (view.clone(), table.audience(caller));
        {
            let cached = self.parts.kinds.0.lock();
            let cached = cached.unwrap_or_else(PoisonError::into_inner);
            if let Some(counts) = cached
                .counts
                .get(&key)
                .filter(|_| Arc::ptr_eq(&cached.index, &index))
            {
                return counts.clone();
            }
        }
        let now = unix_ms();
        let is_allowed = |entry: &&IndexedTool| {
            view.includes(&entry.server)
                && table.is_allowed(caller, &entry.server, Some(&entry.name), now)
        };
        let entries = index.servers().flat_map(|server| server.entries());
        let counts = Arc::new(exposure::count_categories(entries.filter(is_allowed)));
        let mut cached = self
            .parts
            .kinds
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&cached.index, &index) || cached.counts.len() >= CACHED_MAX {
            cached.counts.clear();
            cached.index = index;
        }
        cached.counts.insert(key, counts.clone());
        counts
    }
}
