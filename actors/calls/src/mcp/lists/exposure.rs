//! Which tools an agent's list shows (MGP §16.3): all of them, or only the tools for finding others.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use mgp_engine::policy::access::Audience;
use mgp_engine::tool_names::{canonical, shown};
use mgp_engine::tools::catalog::{CatalogView, ListKind};
use mgp_engine::tools::exposure::{self, Exposure, ExposureTerms};
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::mgp::tools::Budget;
use mgp_protocol::mgp::tools::meta::MetaTool;

use super::lacks_some;
use crate::Context;
use mgp_callers::request::Caller;
use mgp_runtime::time::unix_ms;
use mgp_tools::catalog::Shown;

/// Cached counts; above this number the cache is cleared.
const COUNTED_MAX: usize = 1024;

/// The operator's settings.
#[derive(Debug)]
pub struct Exposing {
    /// For agents that are not named below.
    pub general: Showing,
    /// For these agents.
    pub agents: BTreeMap<AgentId, Showing>,
    /// For the views of these servers; any other view of one server lists all of it.
    pub doors: BTreeMap<ServerId, Option<Exposure>>,
    /// What tool definitions may cost in a session.
    pub budget: Budget,
    /// Cached numbers of tools.
    pub counted: ToolCounts,
}

/// What is listed for one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Showing {
    /// What its list shows; `None` where that depends on the number of tools.
    pub exposure: Option<Exposure>,
    /// Tools that are always listed, if they may be called: as `server:tool` or by the name shown.
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

    /// What is set for this caller; `None` where it depends on the number of tools. The operator's lists are
    /// complete, those for other nodes, which choose what their agents are shown, and so is a view of one server that was asked for by its name.
    pub(crate) fn set(&self, caller: &Caller) -> Option<Exposure> {
        match &caller.view {
            _ if caller.operator || caller.agent.is_foreign() => Some(Exposure::All),
            CatalogView::All | CatalogView::Set(_) => self.of(&caller.agent).exposure,
            CatalogView::One(server) => *self.doors.get(server).unwrap_or(&Some(Exposure::All)),
        }
    }
}

/// Cached numbers of tools, one for all callers with the same rights.
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

/// What the list shows for this caller.
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
        let tools = tools.filter(|t| !caller.view.is_merged() || catalog.lists(t));
        let open = tools.filter(|t| table.admits(&who, &t.server, Some(&t.own_name), now));
        open.count()
    })
}

/// The first page of a list, the kernel's own tools first. `security` adds members for those that
/// negotiated it.
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

/// The tools that find others, in a list of all tools that lacks servers which are still starting: a client that
/// reads it once and never again has a way to them. Not where the operator chose what is listed.
pub(crate) fn describe_finding_tools(cx: &Context, shown: &Shown, caller: &Caller) -> Vec<String> {
    let is_all = || exposure(cx, shown, caller, ListKind::Tools) == Exposure::All;
    if cx.exposing.set(caller).is_some() || !lacks_some(cx, caller) || !is_all() {
        return Vec::new();
    }
    let security = caller.mgp.features().contains(Features::TOOL_SECURITY);
    let finding = MetaTool::FINDING.iter();
    finding.map(|tool| tool.definition(security)).collect()
}

/// The first page of a list of tools, with these put first.
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
