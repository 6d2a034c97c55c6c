//! The content of one view, and the owner of each name and URI in it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::Arc;

use super::item::{
    CatalogPrompt, CatalogResource, CatalogTool, Definition, ResourceTemplate, rename_member,
};
use super::item_groups::ItemGroups;
use super::list::{ListContext, ListPair, PagedList};
use super::listed_item::ListedItem;
use super::offer::ServerOffer;
use super::tool_replicas::ToolReplicas;
use super::{CatalogView, ListForm, ListKind, ResourceRoute};
use crate::tool_names;
use crate::tools::uris;

/// The lists of one view, and its lookup tables for calls.
#[derive(Debug)]
pub(super) struct ViewContent {
    lists: [ListPair; 4],
    /// Some of its tools are only for apps.
    pub(super) has_app_only_tools: bool,
    pub(super) tools: HashMap<Arc<str>, Arc<CatalogTool>>,
    pub(super) prompts: HashMap<Arc<str>, Arc<CatalogPrompt>>,
    /// By own URI; `None` if several servers have it.
    resources: HashMap<Arc<str>, Option<Arc<CatalogResource>>>,
    /// By visible `uriTemplate`.
    templates: HashMap<Arc<str>, Arc<ResourceTemplate>>,
    /// Candidates for unlisted URIs, the most specific first.
    patterns: Vec<Arc<ResourceTemplate>>,
}

impl ViewContent {
    /// One server under its own names.
    pub(super) fn for_server(
        context: ListContext,
        previous: Option<&Self>,
        offer: &ServerOffer,
    ) -> Self {
        let templates = offer.templates.items.iter();
        Self {
            lists: build_lists(
                context,
                previous,
                [
                    own_tool_entries(offer),
                    own_name_entries(&offer.prompts.items),
                    own_name_entries(&offer.resources.items),
                    own_name_entries(&offer.templates.items),
                ],
            ),
            has_app_only_tools: offer.tools.items.iter().any(|tool| tool.is_app_only()),
            tools: index_by_own_name(&offer.tools.items),
            prompts: index_by_own_name(&offer.prompts.items),
            resources: uri_owners(&[offer]),
            templates: templates
                .map(|t| (Arc::clone(&t.uri_template), Arc::clone(t)))
                .collect(),
            patterns: sort_by_specificity(offer.templates.items.to_vec()),
        }
    }

    /// All servers, in order, under unambiguous names.
    pub(super) fn merged(
        context: ListContext,
        previous: Option<&Self>,
        offers: &[&ServerOffer],
        (replicas, item_groups): (&ToolReplicas, &ItemGroups),
    ) -> Self {
        // Servers of other nodes must not change what URIs of this node's servers resolve to.
        let local = offers.iter().filter(|offer| !offer.server().is_remote());
        let resources = uri_owners(&local.copied().collect::<Vec<_>>());
        let templates = visible_templates(offers);
        let is_in_view = |tool: &&Arc<CatalogTool>| tool.is_in_view(&CatalogView::All);
        let tools = || {
            let all = offers.iter().flat_map(|offer| offer.tools.items.iter());
            all.filter(is_in_view)
        };
        let prompts = || offers.iter().flat_map(|offer| offer.prompts.items.iter());
        let resource_entries = offers
            .iter()
            .flat_map(|offer| offer.resources.items.iter())
            .filter(|resource| item_groups.is_listed(&***resource))
            .map(|resource| resource_entry(resource, &resources));
        Self {
            lists: build_lists(
                context,
                previous,
                [
                    offers
                        .iter()
                        .flat_map(|offer| tool_entries(offer, replicas))
                        .collect(),
                    prompts()
                        .filter(|prompt| item_groups.is_listed(&***prompt))
                        .map(|p| {
                            ListedItem::new(&p.merged_name, &p.raw).with_name_range(&p.name_range)
                        })
                        .collect(),
                    resource_entries.collect(),
                    templates
                        .iter()
                        .filter(|(_, template)| item_groups.is_listed(&**template))
                        .map(|(visible, t)| template_entry(visible, t))
                        .collect(),
                ],
            ),
            has_app_only_tools: tools().any(|tool| tool.is_app_only()),
            tools: with_own_names(
                with_former_names(
                    index_by_all_names(tools(), |tool| &tool.canonical_name),
                    replicas,
                ),
                tools(),
            ),
            prompts: with_former_prompts(
                index_by_all_names(prompts(), |prompt| &prompt.canonical_name),
                item_groups,
            ),
            patterns: sort_by_specificity(
                templates
                    .iter()
                    .filter(|(visible, template)| **visible == *template.uri_template)
                    .map(|(_, template)| Arc::clone(template))
                    .collect(),
            ),
            templates: templates.into_iter().collect(),
            resources,
        }
    }

    pub(super) fn list(&self, kind: ListKind, form: ListForm) -> &Arc<PagedList> {
        self.lists[kind as usize].for_form(form)
    }

    /// Resolves an unwrapped URI.
    pub(super) fn resource<'a>(&'a self, uri: &'a str) -> Option<ResourceRoute<'a>> {
        let matching = || self.patterns.iter().find(|t| t.template.matches(uri));
        let server = match self.resources.get(uri) {
            Some(owner) => &owner.as_ref()?.server,
            None => &matching()?.server,
        };
        Some(ResourceRoute {
            server,
            uri: Cow::Borrowed(uri),
        })
    }

    pub(super) fn template(&self, visible: &str) -> Option<&Arc<ResourceTemplate>> {
        self.templates.get(visible)
    }
}

/// The four lists of a view, in the order of [`ListKind`].
fn build_lists(
    context: ListContext,
    previous: Option<&ViewContent>,
    entries: [Vec<ListedItem>; 4],
) -> [ListPair; 4] {
    let context = Arc::new(context);
    let mut kinds = ListKind::ALL.into_iter();
    entries.map(|entries| {
        let kind = kinds.next().expect("there are as many kinds as lists");
        let previous = previous.map(|content| &content.lists[kind as usize]);
        ListPair::build(kind, &context, previous, entries)
    })
}

fn own_name_entries<D: Definition>(items: &[Arc<D>]) -> Vec<ListedItem> {
    let entry = |item: &Arc<D>| ListedItem::new(item.own_name(), item.raw());
    items.iter().map(entry).collect()
}

fn own_tool_entries(offer: &ServerOffer) -> Vec<ListedItem> {
    let entry = |tool: &Arc<CatalogTool>| tool_entry(offer, tool, &tool.exposed_name);
    offer.tools.items.iter().map(entry).collect()
}

fn tool_entries(offer: &ServerOffer, replicas: &ToolReplicas) -> impl Iterator<Item = ListedItem> {
    let listed = offer.tools.items.iter();
    let listed =
        listed.filter(|tool| replicas.is_listed(tool) && tool.is_in_view(&CatalogView::All));
    listed.map(|tool| {
        let entry = tool_entry(offer, tool, &tool.merged_name);
        match tool.merged_definition() {
            None => entry.with_name_range(&tool.name_range),
            Some(merged) => ListedItem {
                raw: merged.raw,
                legacy: merged.legacy,
                ..entry.with_name_range(&merged.name_range)
            },
        }
    })
}

fn tool_entry(offer: &ServerOffer, tool: &CatalogTool, key: &Arc<str>) -> ListedItem {
    ListedItem {
        legacy: tool.raw_for_legacy().cloned(),
        offers_tasks: offer.supports_tasks && !tool.declares_execution,
        level: Some(tool.requirements.risk.level),
        ..ListedItem::new(key, tool.visible_raw())
    }
}

fn index_by_own_name<D: Definition>(items: &[Arc<D>]) -> HashMap<Arc<str>, Arc<D>> {
    let named = |item: &Arc<D>| (Arc::clone(item.exposed_name()), Arc::clone(item));
    let mut names: HashMap<_, _> = items.iter().map(named).collect();
    // The server's own name resolves, too.
    for item in items
        .iter()
        .filter(|item| item.exposed_name() != item.own_name())
    {
        let own = names.entry(Arc::clone(item.own_name()));
        own.or_insert_with(|| Arc::clone(item));
    }
    names
}

/// Visible names first, then `server:name`, then bare names that only one server of this node has and that are not
/// in the form of the others: otherwise a server could answer for another one that is stopped. Bare names never resolve to
/// other nodes and do not depend on them.
fn index_by_all_names<'a, D: Definition + 'a>(
    items: impl Iterator<Item = &'a Arc<D>> + Clone,
    canonical: impl Fn(&D) -> &Arc<str>,
) -> HashMap<Arc<str>, Arc<D>> {
    let mut owners: HashMap<&Arc<str>, usize> = HashMap::new();
    let local = items.clone().filter(|item| !item.server().is_remote());
    for item in local.clone() {
        *owners.entry(item.own_name()).or_default() += 1;
    }
    let visible = items.clone().map(|item| (item.merged_name(), item));
    let canonical = items.clone().map(|item| (canonical(item), item));
    let bare = local.map(|item| (item.own_name(), item));
    let bare = bare.filter(|(name, _)| owners[name] == 1 && !tool_names::is_qualified(name));
    let mut names = HashMap::with_capacity(2 * items.clone().count() + owners.len());
    for (name, item) in visible.chain(canonical).chain(bare) {
        names
            .entry(Arc::clone(name))
            .or_insert_with(|| Arc::clone(item));
    }
    names
}

/// The name of a removed replica resolves to the others, unless another tool has it now.
fn with_former_names(
    mut names: HashMap<Arc<str>, Arc<CatalogTool>>,
    replicas: &ToolReplicas,
) -> HashMap<Arc<str>, Arc<CatalogTool>> {
    let former = replicas.former_names();
    for (name, tool) in former.filter(|(_, tool)| tool.is_in_view(&CatalogView::All)) {
        names
            .entry(Arc::clone(name))
            .or_insert_with(|| Arc::clone(tool));
    }
    names
}

/// A renamed tool also resolves by its own name, and its new name also in the form `server:name`.
fn with_own_names<'a>(
    mut names: HashMap<Arc<str>, Arc<CatalogTool>>,
    tools: impl Iterator<Item = &'a Arc<CatalogTool>>,
) -> HashMap<Arc<str>, Arc<CatalogTool>> {
    for tool in tools.filter(|tool| tool.exposed_name != tool.own_name) {
        let forms = [
            tool_names::canonical_name(&tool.server, &tool.exposed_name),
            tool_names::visible_name(&tool.server, &tool.own_name),
        ];
        for form in forms {
            let name = names.entry(form.into());
            name.or_insert_with(|| Arc::clone(tool));
        }
    }
    names
}

/// Like [`with_former_names`], for prompts.
fn with_former_prompts(
    mut names: HashMap<Arc<str>, Arc<CatalogPrompt>>,
    item_groups: &ItemGroups,
) -> HashMap<Arc<str>, Arc<CatalogPrompt>> {
    for (gone, own, now) in item_groups.former_prompts() {
        let Some(prompt) = names.get(&*tool_names::canonical_name(now, own)).cloned() else {
            continue;
        };
        let former = [
            tool_names::visible_name(gone, own),
            tool_names::canonical_name(gone, own),
        ];
        for name in former {
            let name: Arc<str> = name.into();
            names.entry(name).or_insert_with(|| Arc::clone(&prompt));
        }
    }
    names
}

fn uri_owners(offers: &[&ServerOffer]) -> HashMap<Arc<str>, Option<Arc<CatalogResource>>> {
    let mut owners = HashMap::new();
    for resource in offers.iter().flat_map(|offer| offer.resources.items.iter()) {
        match owners.entry(Arc::clone(&resource.uri)) {
            Slot::Vacant(slot) => {
                slot.insert(Some(Arc::clone(resource)));
            }
            Slot::Occupied(mut slot) => {
                slot.insert(None);
            }
        }
    }
    owners
}

/// A URI that several servers have is wrapped, and so is one that looks wrapped, and each of another node:
/// else a server could take reads meant for another one.
fn resource_entry(
    resource: &CatalogResource,
    owners: &HashMap<Arc<str>, Option<Arc<CatalogResource>>>,
) -> ListedItem {
    let here = !resource.server.is_remote();
    let alone = here && matches!(owners.get(&resource.uri), Some(Some(_)));
    let alone = alone && !uris::is_wrapped(&resource.uri);
    if alone {
        return ListedItem::new(&resource.uri, &resource.raw);
    }
    let wrapped: Arc<str> = uris::wrap(&resource.server, &resource.uri).into();
    let text = rename_member(&resource.raw, "uri", &wrapped);
    ListedItem::new(&wrapped, &text)
}

/// Each template with the text it is shown by: wrapped for the same reasons as URIs.
fn visible_templates(offers: &[&ServerOffer]) -> Vec<(Arc<str>, Arc<ResourceTemplate>)> {
    let all = || offers.iter().flat_map(|offer| offer.templates.items.iter());
    let mut owners: HashMap<&str, usize> = HashMap::new();
    for template in all().filter(|template| !template.server.is_remote()) {
        *owners.entry(&template.uri_template).or_default() += 1;
    }
    let with_visible_uri = |template: &Arc<ResourceTemplate>| {
        let is_unique =
            owners.get(&*template.uri_template) == Some(&1) && !template.server.is_remote();
        let is_unique = is_unique && !uris::is_wrapped(&template.uri_template);
        let text = if is_unique {
            Arc::clone(&template.uri_template)
        } else {
            uris::wrap_template(&template.server, &template.uri_template).into()
        };
        (text, Arc::clone(template))
    };
    all().map(with_visible_uri).collect()
}

fn template_entry(visible: &Arc<str>, template: &ResourceTemplate) -> ListedItem {
    let text = if *visible == template.uri_template {
        Arc::clone(&template.raw)
    } else {
        rename_member(&template.raw, "uriTemplate", visible)
    };
    ListedItem::new(visible, &text)
}

fn sort_by_specificity(mut templates: Vec<Arc<ResourceTemplate>>) -> Vec<Arc<ResourceTemplate>> {
    templates.sort_by_key(|t| std::cmp::Reverse(t.template.specificity()));
    templates
}
