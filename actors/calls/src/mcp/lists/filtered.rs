//! Lists for callers that may not see everything: what is hidden from them is left out.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use mgp_engine::policy::access::{Audience, GrantTable, Principal};
use mgp_engine::tool_names::canonical_name;
use mgp_engine::tools::apps::ToolUi;
use mgp_engine::tools::catalog::cursor::BadCursor;
use mgp_engine::tools::catalog::{CatalogView, FilteredList, ListForm, ListKind};
use mgp_engine::tools::exposure::Exposure;
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::negotiation::Features;

use crate::Context;
use crate::checks::access;
use crate::mcp::lists::exposure;
use crate::mgp::tools::session;
use mgp_callers::request::Caller;
use mgp_callers::tool_cache::Names;
use mgp_runtime::time::unix_ms;
use mgp_tools::PublishedCatalog;

/// Cached lists for those who do not see everything.
const LISTS_MAX: usize = 1024;

/// Their size in bytes. At either limit the oldest list is dropped; it is made again when asked for.
const BYTES_MAX: usize = 64 << 20;

/// A page of a list, as this caller may see it.
pub(crate) fn page(
    cx: &Context,
    shown: &PublishedCatalog,
    caller: &Caller,
    kind: ListKind,
    cursor: Option<&str>,
) -> Result<Bytes, BadCursor> {
    let exposure = exposure::exposure(cx, shown, caller, kind);
    page_with_exposure(cx, shown, caller, kind, (exposure, cursor))
}

/// The same with this much of it shown.
pub(crate) fn page_with_exposure(
    cx: &Context,
    shown: &PublishedCatalog,
    caller: &Caller,
    kind: ListKind,
    (exposure, cursor): (Exposure, Option<&str>),
) -> Result<Bytes, BadCursor> {
    let view = &caller.view;
    let form = ListForm {
        family: caller.version.family(),
        with_levels: caller.mgp.features().contains(Features::TOOL_SECURITY),
    };
    let (table, principal) = (cx.policies.access.table(), caller.identity());
    let audience = table.audience(&principal);
    let is_tools = kind == ListKind::Tools;
    let with_apps = is_tools && access::has_apps(caller);
    let hides_app_tools = is_tools && !with_apps && shown.catalog.has_app_only_tools(view);
    let hides_skills = kind == ListKind::Resources && cx.skills.pins().has_blocked();
    let is_whole = audience == Audience::All && exposure == Exposure::All;
    if is_whole && !hides_app_tools && !hides_skills {
        return shown.catalog.page(view, kind, cursor, form);
    }
    let agents = &cx.exposure.agents;
    let key = ListKey {
        agent: agents
            .get_key_value(&caller.agent)
            .map(|(agent, _)| agent.clone()),
        exposure,
        with_apps,
        catalog: shown.catalog.generation(),
        skills: match kind {
            ListKind::Resources => cx.skills.generation(),
            ListKind::Tools | ListKind::Prompts | ListKind::Templates => 0,
        },
        view: view.clone(),
        kind,
        form,
        audience,
    };
    let held = session::cached_tools(caller, exposure);
    let list = if held.is_empty() {
        cx.filtered_lists.get(&key).or_else(|| {
            let made = Arc::new(filter_list(cx, shown, &key, &table, &principal, &held)?);
            cx.filtered_lists.insert(key, made.clone());
            Some(made)
        })
    } else {
        // Short, and for one session only: it is not cached.
        let made = filter_list(cx, shown, &key, &table, &principal, &held);
        made.map(Arc::new)
    };
    let page = match list {
        Some(list) => list.page(cursor, form)?,
        None => shown.catalog.page(view, kind, cursor, form)?,
    };
    Ok(match cursor {
        None => exposure::add_kernel_tools(cx, page, caller, exposure, form.with_levels),
        Some(_) => page,
    })
}

fn filter_list(
    cx: &Context,
    shown: &PublishedCatalog,
    key: &ListKey,
    table: &GrantTable,
    principal: &Principal,
    held: &Names,
) -> Option<FilteredList> {
    let now = unix_ms();
    let cached = |server: &ServerId, tool: &str| {
        !held.is_empty() && held.contains(&*canonical_name(server, tool))
    };
    let showing = match &key.agent {
        Some(agent) => cx.exposure.for_agent(agent),
        None => &cx.exposure.general,
    };
    let uis = uis_of_tools(shown, key);
    let lists = |server: &ServerId, tool: &str| match uis.get(&(server, tool)) {
        // A host renders a result only if it has the tool's definition, however the model found the tool.
        Some(ui) if key.with_apps || ui.is_app_only => key.with_apps,
        Some(_) | None => showing.is_listed(key.exposure, server, tool) || cached(server, tool),
    };
    let keep = |server: &ServerId, name: Option<&str>| match (key.kind, name) {
        (ListKind::Resources, Some(uri)) => {
            let skill = cx.skills.find_skill(server, uri);
            let is_blocked = |skill: &str| cx.skills.pins().is_blocked(server, skill);
            table.is_allowed(principal, server, skill.as_deref(), now)
                && !skill.as_deref().is_some_and(is_blocked)
        }
        (_, tool) => {
            tool.is_none_or(|tool| lists(server, tool))
                && table.is_allowed(principal, server, tool, now)
        }
    };
    let (whose, named) = (&key.audience, &key.agent);
    let (exposure, with_apps) = (key.exposure, key.with_apps);
    let skills = key.skills;
    let audience = format!("{whose:?} {named:?} {exposure:?} {held:?} {with_apps} {skills}");
    let (view, kind, form) = (&key.view, key.kind, key.form);
    shown.catalog.filter(view, kind, form, &audience, keep)
}

/// The UIs of the view's tools, by server and own name.
fn uis_of_tools<'a>(
    shown: &'a PublishedCatalog,
    key: &ListKey,
) -> HashMap<(&'a ServerId, &'a str), ToolUi> {
    if key.kind != ListKind::Tools {
        return HashMap::new();
    }
    let offers = shown.catalog.offers();
    let offers = offers.filter(|offer| key.view.includes(offer.server()));
    let tools = offers.flat_map(|offer| offer.tools());
    tools
        .filter_map(|tool| Some(((&tool.server, &*tool.own_name), tool.ui?)))
        .collect()
}

/// The key of a cached list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ListKey {
    catalog: u64,
    /// The known skills, which decide about their files.
    skills: u64,
    view: CatalogView,
    kind: ListKind,
    form: ListForm,
    audience: Audience,
    exposure: Exposure,
    /// With the tools of apps, whatever the exposure.
    with_apps: bool,
    /// Set for an agent with pinned tools of its own.
    agent: Option<AgentId>,
}

/// The cache of such lists.
#[derive(Debug, Default)]
pub struct FilteredLists(Mutex<ListCache>);

#[derive(Debug, Default)]
struct ListCache {
    lists: HashMap<ListKey, Arc<FilteredList>>,
    order: VecDeque<ListKey>,
    bytes: usize,
}

impl FilteredLists {
    /// How many lists are kept, and their bytes.
    #[must_use]
    pub fn cache_size(&self) -> (usize, usize) {
        let kept = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        (kept.lists.len(), kept.bytes)
    }

    fn get(&self, key: &ListKey) -> Option<Arc<FilteredList>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.lists.get(key).cloned()
    }

    fn insert(&self, key: ListKey, list: Arc<FilteredList>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes += list.size();
        if let Some(before) = kept.lists.insert(key.clone(), list) {
            kept.bytes -= before.size();
        } else {
            kept.order.push_back(key);
        }
        while kept.lists.len() > LISTS_MAX || kept.bytes > BYTES_MAX {
            let Some(oldest) = kept.order.pop_front() else {
                return;
            };
            if let Some(gone) = kept.lists.remove(&oldest) {
                kept.bytes -= gone.size();
            }
        }
    }
}
