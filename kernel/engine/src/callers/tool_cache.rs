//! The tools in the context of one session of an agent, within its budget (MGP §16.7, §16.8).
//!
//! Three things share the budget: pinned tools, which are never evicted; cached tools that were called or
//! loaded, of which the least recently used are evicted; and the results of one search, which are not
//! cached.

use std::sync::Arc;

use mgp_protocol::mgp::tools::Budget;

/// Most cached tools, whatever they cost, because the list is searched at each use.
pub(crate) const CACHED_MAX: usize = 256;
/// Most tools pinned for one agent, for the same reason.
pub(crate) const PINNED_MAX: usize = 128;

/// Why a budget is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBudget {
    /// The parts are more than the whole.
    #[error(
        "pinned_reserve, discovery_reserve and cache_limit come to {parts} tokens, and max_tokens is {max}: raise it, or lower one of them"
    )]
    TooSmall {
        /// The sum of the parts.
        parts: u64,
        /// The whole.
        max: u64,
    },
    /// No search could have a result.
    #[error(
        "discovery_reserve is 0: no search could answer anything; give it a few hundred tokens"
    )]
    NoDiscovery,
    /// More than any model's context.
    #[error("max_tokens is {0}, over the limit of {MAX_TOKENS}")]
    TooLarge(u64),
}

/// Largest budget in tokens: ten times the largest context of today, so that sums cannot overflow.
pub const MAX_TOKENS: u64 = 100_000_000;

/// Validates a budget.
///
/// # Errors
/// [`BadBudget`] names the setting to change. All parts but the search reserve may be zero.
pub fn validate_budget(budget: &Budget) -> Result<(), BadBudget> {
    if budget.max_tokens > MAX_TOKENS {
        return Err(BadBudget::TooLarge(budget.max_tokens));
    }
    let parts = [
        budget.pinned_reserve,
        budget.discovery_reserve,
        budget.cache_limit,
    ];
    let parts = parts.into_iter().fold(0, u64::saturating_add);
    if parts > budget.max_tokens {
        return Err(BadBudget::TooSmall {
            parts,
            max: budget.max_tokens,
        });
    }
    if budget.discovery_reserve == 0 {
        return Err(BadBudget::NoDiscovery);
    }
    Ok(())
}

/// A tool and the cost of its definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PricedTool {
    /// `server:tool`: a session stores tools, not names that may later resolve to other tools.
    pub tool: Arc<str>,
    /// See [`crate::callers::token_cost::estimate_definition`].
    pub tokens: u64,
}

/// The result of adding a tool to the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheInsertion {
    /// It is pinned.
    Pinned,
    /// It was cached before, and is the most recently used now.
    Touched,
    /// It was added.
    Added {
        /// These were evicted, the least recently used first.
        evicted: Vec<Arc<str>>,
    },
    /// It costs more than the cache may hold. It can still be called.
    TooLarge,
}

/// The result of removing a tool from the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// It was removed.
    Removed,
    /// It is pinned and stays (MGP-262).
    Pinned,
    /// It was not cached.
    Absent,
}

/// The tools in the context of one session.
#[derive(Clone, Debug)]
pub struct ToolCache {
    budget: Budget,
    pinned: Vec<PricedTool>,
    /// The most recently used last.
    cached: Vec<PricedTool>,
    cached_tokens: u64,
}

impl ToolCache {
    /// An empty cache for a new session of an agent, within a validated budget.
    #[must_use]
    pub fn new(budget: Budget, pinned: Vec<PricedTool>) -> Self {
        let mut cache = Self {
            budget,
            pinned: Vec::new(),
            cached: Vec::new(),
            cached_tokens: 0,
        };
        cache.set_pinned(pinned);
        cache
    }

    /// Replaces the pinned tools after the operator changed them or a server arrived or changed its definitions. A
    /// pinned tool is not cached as well. Pinned tools beyond their reserve reduce the capacity of the cache. Returns
    /// what was evicted.
    pub fn set_pinned(&mut self, mut pinned: Vec<PricedTool>) -> Vec<Arc<str>> {
        let mut seen = std::collections::BTreeSet::new();
        pinned.retain(|one| seen.insert(Arc::clone(&one.tool)));
        pinned.truncate(PINNED_MAX);
        self.pinned = pinned;
        for at in (0..self.cached.len()).rev() {
            if self.is_pinned(&self.cached[at].tool) {
                self.remove_at(at);
            }
        }
        self.evict_to_fit()
    }

    /// Caches a tool that was called or explicitly loaded, as the most recently used.
    pub fn insert(&mut self, tool: &PricedTool) -> CacheInsertion {
        if self.is_pinned(&tool.tool) {
            return CacheInsertion::Pinned;
        }
        let index = self
            .cached
            .iter()
            .position(|cached| cached.tool == tool.tool);
        if let Some(index) = index {
            self.remove_at(index);
        }
        if tool.tokens > self.cache_capacity() {
            return CacheInsertion::TooLarge;
        }
        self.cached.push(tool.clone());
        self.cached_tokens += tool.tokens;
        let evicted = self.evict_to_fit();
        match index {
            Some(_) if evicted.is_empty() => CacheInsertion::Touched,
            _ => CacheInsertion::Added { evicted },
        }
    }

    /// Removes a tool.
    pub fn evict(&mut self, tool: &str) -> Eviction {
        if self.is_pinned(tool) {
            return Eviction::Pinned;
        }
        match self.cached.iter().position(|one| *one.tool == *tool) {
            Some(at) => {
                self.remove_at(at);
                Eviction::Removed
            }
            None => Eviction::Absent,
        }
    }

    /// Removes all tools that no longer exist for the agent: their server is gone, or the agent lost access.
    pub fn retain(&mut self, mut there: impl FnMut(&str) -> bool) {
        self.pinned.retain(|one| there(&one.tool));
        self.cached.retain(|one| there(&one.tool));
        self.cached_tokens = total_tokens_of(&self.cached);
    }

    /// The pinned tools, in the operator's order.
    #[must_use]
    pub fn pinned(&self) -> &[PricedTool] {
        &self.pinned
    }

    /// The cached tools, the most recently used first.
    pub fn cached(&self) -> impl Iterator<Item = &PricedTool> {
        self.cached.iter().rev()
    }

    /// Whether a tool is in the session's context.
    #[cfg(test)]
    pub(crate) fn holds(&self, tool: &str) -> bool {
        self.is_pinned(tool) || self.cached.iter().any(|one| *one.tool == *tool)
    }

    /// The number of its tools.
    #[must_use]
    pub fn count(&self) -> usize {
        self.pinned.len() + self.cached.len()
    }

    /// The cost of all its tools.
    #[must_use]
    pub fn total_tokens(&self) -> u64 {
        total_tokens_of(&self.pinned) + self.cached_tokens
    }

    /// The budget.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// How many results of a search are returned, best first: as many as fit into the reserve (§16.8), and at least
    /// one, so that every search has a result.
    #[must_use]
    #[cfg(test)]
    pub(crate) fn count_fitting(&self, results: &[u64]) -> usize {
        count_fitting_results(&self.budget, results)
    }

    fn is_pinned(&self, tool: &str) -> bool {
        self.pinned.iter().any(|one| *one.tool == *tool)
    }

    /// The capacity for cached tools: the limit, less what pinned tools took from it.
    fn cache_capacity(&self) -> u64 {
        let others = total_tokens_of(&self.pinned).max(self.budget.pinned_reserve);
        let left = self.budget.max_tokens;
        let left = left.saturating_sub(others + self.budget.discovery_reserve);
        left.min(self.budget.cache_limit)
    }

    fn evict_to_fit(&mut self) -> Vec<Arc<str>> {
        let capacity = self.cache_capacity();
        let mut evicted = Vec::new();
        while self.cached_tokens > capacity || self.cached.len() > CACHED_MAX {
            evicted.push(self.remove_at(0).tool);
        }
        evicted
    }

    fn remove_at(&mut self, index: usize) -> PricedTool {
        let removed = self.cached.remove(index);
        self.cached_tokens -= removed.tokens;
        removed
    }
}

/// See [`ToolCache::count_fitting`]; for a caller without a session.
#[must_use]
pub fn count_fitting_results(budget: &Budget, results: &[u64]) -> usize {
    let mut left = budget.discovery_reserve;
    let fit = results.iter().take_while(|tokens| {
        let fits = **tokens <= left;
        left = left.saturating_sub(**tokens);
        fits
    });
    fit.count().max(results.len().min(1))
}

fn total_tokens_of(tools: &[PricedTool]) -> u64 {
    tools.iter().map(|one| one.tokens).sum()
}

#[cfg(test)]
mod tests;
