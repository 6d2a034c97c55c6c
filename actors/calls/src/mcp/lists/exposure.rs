//! What of all tools stands in an agent's list (MGP §16.3): all, or what it takes to find them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use mgp_engine::names::{canonical, shown};
use mgp_engine::policy::access::Audience;
use mgp_engine::tools::catalog::{CatalogView, ListKind};
use mgp_engine::tools::exposure::{self, Exposure, ExposureTerms};
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::mgp::tools::Budget;
use mgp_protocol::mgp::tools::meta::MetaTool;

use crate::Context;
use mgp_callers::request::Caller;
use mgp_runtime::time::unix_ms;
use mgp_tools::catalog::Shown;

/// Numbers kept of how much there is to see; above that all are counted again.
const COUNTED_MAX: usize = 1024;

/// What the operator wants listed.
#[derive(Debug)]
pub struct Exposing {
    /// For every agent that is not named.
    pub general: Showing,
    /// For these.
    pub agents: BTreeMap<AgentId, Showing>,
    /// At the doors of these servers; any other shows its server whole.
    pub doors: BTreeMap<ServerId, Option<Exposure>>,
    /// What their definitions may cost in a session.
    pub budget: Budget,
    /// How much there is to see.
    pub counted: ToolCounts,
}

/// What is listed for an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Showing {
    /// How its list is cut; `None` where that depends on how long it is.
    pub exposure: Option<Exposure>,
    /// Always listed, where it may be called: tools, as `server:tool` or as they are shown.
    pub pinned: BTreeSet<String>,
}

impl Showing {
    /// Whether a tool that the agent may call is in the list.
    pub(crate) fn lists(&self, exposure: Exposure, server: &ServerId, tool: &str) -> bool {
        let is = |name: String| self.pinned.contains(&name);
        let pinned =
            || !self.pinned.is_empty() && (is(canonical(server, tool)) || is(shown(server, tool)));
        exposure == Exposure::All || exposure.lists(pinned(), false)
    }
}

impl Exposing {
    /// What is listed for this agent.
    pub(crate) fn of(&self, agent: &AgentId) -> &Showing {
        self.agents.get(agent).unwrap_or(&self.general)
    }

    /// What is set for this caller; `None` where it depends on how long its list is. The operator's
    /// lists are whole, and so is that of a server that somebody asked for by its name.
    pub(crate) fn set(&self, caller: &Caller) -> Option<Exposure> {
        match &caller.view {
            _ if caller.operator => Some(Exposure::All),
            CatalogView::All => self.of(&caller.agent).exposure,
            CatalogView::One(server) => *self.doors.get(server).unwrap_or(&Some(Exposure::All)),
        }
    }
}

/// How many tools there are for those who see the same.
#[derive(Debug, Default)]
pub struct ToolCounts(Mutex<HashMap<(u64, CatalogView, Audience), usize>>);

impl ToolCounts {
    fn of(&self, place: (u64, CatalogView, Audience), count: impl FnOnce() -> usize) -> usize {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(&place) {
            return *known;
        }
        drop(known);
        let counted = count();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= COUNTED_MAX {
            known.clear();
        }
        known.insert(place, counted);
        counted
    }
}

/// How a list is cut for this caller.
pub(crate) fn exposure(cx: &Context, shown: &Shown, caller: &Caller, kind: ListKind) -> Exposure {
    if kind != ListKind::Tools {
        return Exposure::All;
    }
    let set = cx.exposing.set(caller);
    exposure::choose(ExposureTerms {
        set,
        negotiated: caller.mgp.features().contains(Features::TOOL_DISCOVERY),
        tools: set.map_or_else(|| callable(cx, shown, caller), |_| 0),
        all_max: None,
    })
}

/// How many tools the caller may call.
fn callable(cx: &Context, shown: &Shown, caller: &Caller) -> usize {
    let (table, who) = (cx.policies.access.table(), caller.identity());
    let catalog = &shown.catalog;
    let place = (
        catalog.generation(),
        caller.view.clone(),
        table.audience(&who),
    );
    cx.exposing.counted.of(place, || {
        let now = unix_ms();
        let offers = catalog.offers();
        let offers = offers.filter(|offer| caller.view.shows(offer.server()));
        let tools = offers.flat_map(|offer| offer.tools());
        let open = tools.filter(|t| table.admits(&who, &t.server, Some(&t.own_name), now));
        open.count()
    })
}

/// The first page of a list, with the kernel's own tools before the servers'. `security` is for who
/// knows the word.
pub(crate) fn with_meta(
    cx: &Context,
    page: Bytes,
    caller: &Caller,
    exposure: Exposure,
    security: bool,
) -> Bytes {
    let described = |tool: &MetaTool| match (tool, exposure) {
        (MetaTool::Discover, Exposure::Categories) => {
            let kinds = cx.search.kinds(&caller.identity(), &caller.view);
            tool.described(security, &exposure::with_categories(&kinds))
        }
        _ => tool.definition(security),
    };
    let own: Vec<String> = exposure.meta().iter().map(described).collect();
    before(page, &own)
}

/// The first page of a list of tools, with these before it.
pub(crate) fn before(page: Bytes, own: &[String]) -> Bytes {
    const OPEN: &[u8] = br#"{"tools":["#;
    let (false, Some(servers)) = (own.is_empty(), page.strip_prefix(OPEN)) else {
        return page;
    };
    let comma: &[u8] = match servers.starts_with(b"]") {
        true => b"",
        false => b",",
    };
    [OPEN, own.join(",").as_bytes(), comma, servers]
        .concat()
        .into()
}
