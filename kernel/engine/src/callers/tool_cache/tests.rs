use super::*;
use proptest::prelude::*;

fn priced(tool: &str, tokens: u64) -> PricedTool {
    PricedTool {
        tool: tool.into(),
        tokens,
    }
}

fn cache(pinned: &[(&str, u64)]) -> ToolCache {
    let pinned = pinned.iter().map(|(tool, tokens)| priced(tool, *tokens));
    ToolCache::new(Budget::default(), pinned.collect())
}

fn cached(cache: &ToolCache) -> Vec<&str> {
    cache.cached().map(|one| &*one.tool).collect()
}

/// MGP-263: the document's numbers are valid; errors name the setting to change.
#[test]
fn a_budget_is_validated() {
    assert_eq!(validate_budget(&Budget::default()), Ok(()));
    let of = |max_tokens, pinned_reserve, discovery_reserve, cache_limit| Budget {
        max_tokens,
        pinned_reserve,
        discovery_reserve,
        cache_limit,
    };
    assert_eq!(validate_budget(&of(500, 0, 500, 0)), Ok(()));
    for (bad, expected) in [
        (of(7999, 2000, 3000, 3000), "8000"),
        (of(1000, u64::MAX, 1, u64::MAX), "max_tokens is 1000"),
        (of(1000, 500, 0, 500), "discovery_reserve"),
        (of(MAX_TOKENS + 1, 0, 1, 0), "over the limit"),
    ] {
        let error = validate_budget(&bad).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// MGP-258, MGP-264.
#[test]
fn the_least_recently_used_tool_is_evicted_first() {
    let mut cache = cache(&[]);
    for tool in ["a", "b", "c"] {
        let added = CacheInsertion::Added { evicted: vec![] };
        assert_eq!(cache.insert(&priced(tool, 1000)), added);
    }
    assert_eq!(cached(&cache), ["c", "b", "a"]);
    assert_eq!(cache.insert(&priced("a", 1000)), CacheInsertion::Touched);
    let evicted = vec!["b".into(), "c".into()];
    assert_eq!(
        cache.insert(&priced("d", 1500)),
        CacheInsertion::Added { evicted }
    );
    assert_eq!(cached(&cache), ["d", "a"]);
    assert_eq!((cache.total_tokens(), cache.count()), (2500, 2));
}

/// MGP-257, MGP-262, MGP-266: nor removed by a full cache.
#[test]
fn a_pinned_tool_is_never_evicted() {
    let mut cache = cache(&[("think", 900), ("store", 900), ("think", 900)]);
    assert_eq!(cache.count(), 2);
    assert_eq!(cache.evict("think"), Eviction::Pinned);
    assert_eq!(cache.insert(&priced("think", 900)), CacheInsertion::Pinned);
    for n in 0..20 {
        cache.insert(&priced(&format!("t{n}"), 2_900));
    }
    assert!(cache.holds("think") && cache.holds("store"));
    assert_eq!(cached(&cache), ["t19"]);
    assert_eq!(cache.evict("t19"), Eviction::Removed);
    assert_eq!(cache.evict("t19"), Eviction::Absent);
    assert_eq!(cache.total_tokens(), 1800);
}

/// MGP-266: down to zero.
#[test]
fn pinned_tools_beyond_their_reserve_reduce_the_cache() {
    let mut cache = cache(&[]);
    cache.insert(&priced("a", 1500));
    cache.insert(&priced("b", 1500));
    let gone = cache.set_pinned(vec![priced("b", 1500), priced("p", 2000)]);
    assert_eq!(gone, [], "b is pinned now and not cached beside that");
    assert_eq!(cached(&cache), ["a"]);
    let gone = cache.set_pinned(vec![priced("p", 5000)]);
    assert_eq!(gone, ["a".into()]);
    assert_eq!(cache.insert(&priced("c", 1)), CacheInsertion::TooLarge);
    assert_eq!(cache.total_tokens(), 5000);
}

/// MGP-264: and is not cached.
#[test]
fn a_tool_larger_than_the_cache_evicts_nothing() {
    let mut cache = cache(&[]);
    cache.insert(&priced("a", 100));
    assert_eq!(
        cache.insert(&priced("huge", 3001)),
        CacheInsertion::TooLarge
    );
    assert_eq!(cached(&cache), ["a"]);
    // A tool that grew beyond the cache since it was kept is not held at its old price.
    assert_eq!(cache.insert(&priced("a", 3001)), CacheInsertion::TooLarge);
    assert_eq!((cached(&cache).len(), cache.total_tokens()), (0, 0));
}

/// MGP-258, MGP-246.
#[test]
fn removed_tools_are_not_cached() {
    let mut cache = cache(&[("gone:p", 100), ("p", 100)]);
    cache.insert(&priced("gone:a", 100));
    cache.insert(&priced("a", 100));
    cache.retain(|tool| !tool.starts_with("gone:"));
    assert_eq!((cache.count(), cache.total_tokens()), (2, 200));
    assert!(!cache.holds("gone:p") && !cache.holds("gone:a"));
}

/// MGP-259, MGP-265: the best result is always returned, and none is cached.
#[test]
fn results_beyond_the_reserve_are_omitted() {
    let cache = cache(&[]);
    assert_eq!(cache.count_fitting(&[1000, 1000, 1000, 1]), 3);
    assert_eq!(cache.count_fitting(&[2999, 2, 1]), 1);
    assert_eq!(
        cache.count_fitting(&[9000, 1]),
        1,
        "else it would have no answer"
    );
    assert_eq!(cache.count_fitting(&[]), 0);
    assert_eq!(cache.count(), 0);
}

#[derive(Clone, Debug)]
enum Act {
    Keep(u8, u64),
    Evict(u8),
    Pin(Vec<(u8, u64)>),
    Retain(u8),
}

fn act() -> impl Strategy<Value = Act> {
    let tool = 0u8..12;
    prop_oneof![
        8 => (tool.clone(), 0u64..1_500).prop_map(|(t, n)| Act::Keep(t, n)),
        2 => tool.clone().prop_map(Act::Evict),
        1 => proptest::collection::vec((tool.clone(), 0u64..900), 0..4).prop_map(Act::Pin),
        1 => tool.prop_map(Act::Retain),
    ]
}

/// The model: a list by last use, with sums computed each time.
#[derive(Default)]
struct Model {
    pinned: Vec<(u8, u64)>,
    cached: Vec<(u8, u64)>,
}

impl Model {
    fn room(&self) -> u64 {
        let pinned: u64 = self.pinned.iter().map(|p| p.1).sum();
        3000.min(8000u64.saturating_sub(pinned.max(2000) + 3000))
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Keep(tool, _) if self.pinned.iter().any(|p| p.0 == *tool) => {}
            Act::Keep(tool, tokens) => {
                self.cached.retain(|c| c.0 != *tool);
                if *tokens <= self.room() {
                    self.cached.push((*tool, *tokens));
                }
            }
            Act::Evict(tool) => self.cached.retain(|c| c.0 != *tool),
            Act::Pin(tools) => {
                self.pinned.clear();
                for one in tools {
                    if self.pinned.iter().all(|p| p.0 != one.0) {
                        self.pinned.push(*one);
                    }
                }
                self.cached
                    .retain(|c| tools.iter().all(|(tool, _)| *tool != c.0));
            }
            Act::Retain(tool) => {
                self.pinned.retain(|p| p.0 != *tool);
                self.cached.retain(|c| c.0 != *tool);
            }
        }
        while self.cached.iter().map(|c| c.1).sum::<u64>() > self.room() {
            self.cached.remove(0);
        }
    }
}

proptest! {
    /// MGP-264, MGP-266, MGP-267: within its limit, and in total within the budget unless pinned tools alone exceed it.
    #[test]
    fn the_cache_behaves_like_a_simple_model(acts in proptest::collection::vec(act(), 0..60)) {
        let (mut cache, mut model) = (cache(&[]), Model::default());
        let name = |tool: u8| format!("t{tool}");
        for act in acts {
            model.act(&act);
            match act {
                Act::Keep(tool, tokens) => drop(cache.insert(&priced(&name(tool), tokens))),
                Act::Evict(tool) => drop(cache.evict(&name(tool))),
                Act::Pin(tools) => drop(cache.set_pinned(
                    tools.iter().map(|(tool, n)| priced(&name(*tool), *n)).collect()
                )),
                Act::Retain(tool) => cache.retain(|held| *held != *name(tool)),
            }
            let expected: Vec<PricedTool> =
                model.cached.iter().rev().map(|(t, n)| priced(&name(*t), *n)).collect();
            prop_assert_eq!(cache.cached().cloned().collect::<Vec<_>>(), expected);
            let pinned: u64 = model.pinned.iter().map(|p| p.1).sum();
            let tokens: u64 = model.cached.iter().map(|c| c.1).sum();
            prop_assert_eq!(cache.total_tokens(), pinned + tokens);
            prop_assert!(tokens <= 3000);
            prop_assert!(pinned > 5000 || pinned.max(2000) + 3000 + tokens <= 8000);
        }
    }

    /// MGP-265: and one more would not.
    #[test]
    fn as_many_results_as_fit(results in proptest::collection::vec(0u64..2_000, 0..20)) {
        let fit = count_fitting_results(&Budget::default(), &results);
        let cost: u64 = results[..fit].iter().sum();
        prop_assert!(cost <= 3000);
        prop_assert!(fit == results.len() || cost + results[fit] > 3000);
    }
}
