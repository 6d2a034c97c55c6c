//! Which tools an agent's list shows (MGP §16.3): all of them, or only the tools for finding others.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use mgp_engine::policy::access::Audience;
use mgp_engine::tool_names::{canonical_name, visible_name};
use mgp_engine::tools::catalog::{CatalogView, ListKind};
use mgp_engine::tools::exposure::{self, Exposure, ExposureInputs};
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::mgp::tools::Budget;
use mgp_protocol::mgp::tools::meta::MetaTool;

use super::is_missing_servers;
use crate::Context;
use mgp_callers::request::Caller;
use mgp_runtime::time::unix_ms;
use mgp_tools::PublishedCatalog;

/// Cached counts; above this number the cache is cleared.
const COUNTED_MAX: usize = 1024;

/// The operator's settings.
#[derive(Debug)]
pub struct ExposureSettings {
    /// For agents that are not named below.
    pub general: AgentExposure,
    /// For these agents.
    pub agents: BTreeMap<AgentId, AgentExposure>,
    /// For the views of these servers; any other view of one server lists all of it.
    pub views: BTreeMap<ServerId, Option<Exposure>>,
    /// Whether searches answer tools in short.
    pub brief_answers: bool,
    /// What tool definitions may cost in a session.
    pub budget: Budget,
    /// Cached numbers of tools.
    pub counts: ToolCounts,
}

/// What is listed for one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentExposure {
    /// What its list shows; `None` where that depends on the number of tools.
    pub exposure: Option<Exposure>,
    /// Tools that are always listed, if they may be called: as `server:tool` or by the name shown.
    pub pinned: BTreeSet<String>,
}

impl AgentExposure {
    /// Whether a tool that the agent may call is in the list.
    pub(crate) fn is_listed(&self, exposure: Exposure, server: &ServerId, tool: &str) -> bool {
        let is = |name: String| self.pinned.contains(&name);
        let pinned = || {
            !self.pinned.is_empty()
                && (is(canonical_name(server, tool)) || is(visible_name(server, tool)))
        };
        exposure == Exposure::All || exposure.includes(pinned(), false)
    }
}

impl ExposureSettings {
    /// What is listed for this agent.
    pub(crate) fn for_agent(&self, agent: &AgentId) -> &AgentExposure {
        self.agents.get(agent).unwrap_or(&self.general)
    }

    /// What is set for this caller; `None` where it depends on the number of tools. The operator's lists are
    /// complete, those for other nodes, which choose what their agents are shown, and so is a view of one server that was asked for by its name.
    pub(crate) fn configured_exposure(&self, caller: &Caller) -> Option<Exposure> {
        match &caller.view {
            _ if caller.operator || caller.agent.is_remote() => Some(Exposure::All),
            CatalogView::All | CatalogView::Set(_) => self.for_agent(&caller.agent).exposure,
            CatalogView::One(server) => *self.views.get(server).unwrap_or(&Some(Exposure::All)),
        }
    }
}

/// Cached numbers of tools, one for all callers with the same rights.
#[derive(Debug, Default)]
pub struct ToolCounts(Mutex<HashMap<(u64, CatalogView, Audience), usize>>);

impl ToolCounts {
    fn get_or_count(
        &self,
        place: (u64, CatalogView, Audience),
        count: impl FnOnce() -> usize,
    ) -> usize {
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
pub(crate) fn exposure(
    cx: &Context,
    shown: &PublishedCatalog,
    caller: &Caller,
    kind: ListKind,
) -> Exposure {
    if kind != ListKind::Tools {
        return Exposure::All;
    }
    let set = cx.exposure.configured_exposure(caller);
    exposure::choose_exposure(ExposureInputs {
        configured: set,
        negotiated: caller.mgp.features().contains(Features::TOOL_DISCOVERY),
        tools: set.map_or_else(|| count_callable(cx, shown, caller), |_| 0),
        all_max: None,
    })
}

/// How many tools the caller may call.
fn count_callable(cx: &Context, shown: &PublishedCatalog, caller: &Caller) -> usize {
    let (table, who) = (cx.policies.access.table(), caller.identity());
    let catalog = &shown.catalog;
    let place = (
        catalog.generation(),
        caller.view.clone(),
        table.audience(&who),
    );
    cx.exposure.counts.get_or_count(place, || {
        let now = unix_ms();
        let offers = catalog.offers();
        let offers = offers.filter(|offer| caller.view.includes(offer.server()));
        let tools = offers.flat_map(|offer| offer.tools());
        // Tools that are only for apps take no place in a model's context.
        let tools = tools.filter(|t| !t.is_app_only());
        let tools = tools.filter(|t| !caller.view.is_merged() || catalog.is_listed(t));
        let open = tools.filter(|t| table.is_allowed(&who, &t.server, Some(&t.own_name), now));
        open.count()
    })
}

/// The first page of a list, the kernel's own tools first. `security` adds members for those that
/// negotiated it.
pub(crate) fn add_kernel_tools(
    cx: &Context,
    page: Bytes,
    caller: &Caller,
    exposure: Exposure,
    security: bool,
) -> Bytes {
    let described = |tool: &MetaTool| match (tool, exposure) {
        (MetaTool::Discover, Exposure::Categories) => {
            let kinds = cx.search.kinds(&caller.identity(), &caller.view);
            tool.definition_with(security, &exposure::describe_categories(&kinds))
        }
        _ => tool.definition(security),
    };
    let own = with_companions(cx, exposure.meta_tools());
    let own: Vec<String> = own.iter().map(described).collect();
    prepend_tools(page, &own)
}

/// These finding tools, and those beside them: for calls of tools whose effect was confirmed, if there are any, and for
/// whole definitions where searches answer in short.
fn with_companions(cx: &Context, finding: &[MetaTool]) -> Vec<MetaTool> {
    let mut all = finding.to_vec();
    if !all.is_empty() && cx.policies.pins.has_effects() {
        all.extend([MetaTool::CallRead, MetaTool::CallWrite]);
    }
    if !all.is_empty() && cx.exposure.brief_answers {
        all.push(MetaTool::Describe);
    }
    all
}

/// The tools that find others, in a list of all tools that lacks servers which are still starting: a client that
/// reads it once and never again has a way to them. Not where the operator chose what is listed.
pub(crate) fn describe_search_tools(
    cx: &Context,
    shown: &PublishedCatalog,
    caller: &Caller,
) -> Vec<String> {
    let is_all = || exposure(cx, shown, caller, ListKind::Tools) == Exposure::All;
    if cx.exposure.configured_exposure(caller).is_some()
        || !is_missing_servers(cx, caller)
        || !is_all()
    {
        return Vec::new();
    }
    let security = caller.mgp.features().contains(Features::TOOL_SECURITY);
    let finding = with_companions(cx, &MetaTool::DISCOVERY_TOOLS);
    finding
        .iter()
        .map(|tool| tool.definition(security))
        .collect()
}

/// The first page of a list of tools, with these put first.
pub(crate) fn prepend_tools(page: Bytes, own: &[String]) -> Bytes {
    const TOOLS_START: &[u8] = br#"{"tools":["#;
    let (false, Some(servers)) = (own.is_empty(), page.strip_prefix(TOOLS_START)) else {
        return page;
    };
    let comma: &[u8] = if servers.starts_with(b"]") { b"" } else { b"," };
    [TOOLS_START, own.join(",").as_bytes(), comma, servers]
        .concat()
        .into()
}
