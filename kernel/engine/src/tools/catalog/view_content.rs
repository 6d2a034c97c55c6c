//! The contents of one view, and the server of each name and URI in it.

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
use super::{ListForm, ListKind, ResourceRoute};
use crate::tool_names;
use crate::tools::uris::{self, WRAPPED_PREFIX};

/// One view: its lists, and its tables for calls.
#[derive(Debug)]
pub(super) struct ViewContent {
    lists: [ListPair; 4],
    pub(super) tools: HashMap<Arc<str>, Arc<CatalogTool>>,
    pub(super) prompts: HashMap<Arc<str>, Arc<CatalogPrompt>>,
    /// By own URI; `None` where several servers have it.
    resources: HashMap<Arc<str>, Option<Arc<CatalogResource>>>,
    /// By `uriTemplate` as shown.
    templates: HashMap<Arc<str>, Arc<ResourceTemplate>>,
    /// Those that unlisted URIs are tried against, the most specific first.
    patterns: Vec<Arc<ResourceTemplate>>,
}

impl ViewContent {
    /// One server under its own names.
    pub(super) fn for_server(
        edition: ListContext,
        previous: Option<&Self>,
        offer: &ServerOffer,
    ) -> Self {
        let templates = offer.templates.items.iter();
        Self {
            lists: build_lists(
                edition,
                previous,
                [
                    own_tool_entries(offer),
                    own_name_entries(&offer.prompts.items),
                    own_name_entries(&offer.resources.items),
                    own_name_entries(&offer.templates.items),
                ],
            ),
            tools: index_by_own_name(&offer.tools.items),
            prompts: index_by_own_name(&offer.prompts.items),
            resources: uri_owners(&[offer]),
            templates: templates
                .map(|t| (Arc::clone(&t.uri_template), Arc::clone(t)))
                .collect(),
            patterns: sort_by_specificity(offer.templates.items.to_vec()),
        }
    }

    /// All servers, in their order, so that nothing in it is mistaken for another thing.
    pub(super) fn merged(
        edition: ListContext,
        previous: Option<&Self>,
        offers: &[&ServerOffer],
        (replicas, alike): (&ToolReplicas, &ItemGroups),
    ) -> Self {
        // URIs of this node's own servers lead where they led before, whatever other nodes have.
        let here = offers.iter().filter(|offer| !offer.server().is_remote());
        let resources = uri_owners(&here.copied().collect::<Vec<_>>());
        let templates = visible_templates(offers);
        let tools = || offers.iter().flat_map(|offer| offer.tools.items.iter());
        let prompts = || offers.iter().flat_map(|offer| offer.prompts.items.iter());
        let resource_entries = offers
            .iter()
            .flat_map(|offer| offer.resources.items.iter())
            .filter(|resource| alike.is_listed(&***resource))
            .map(|resource| resource_entry(resource, &resources));
        Self {
            lists: build_lists(
                edition,
                previous,
                [
                    offers
                        .iter()
                        .flat_map(|offer| tool_entries(offer, replicas))
                        .collect(),
                    prompts()
                        .filter(|prompt| alike.is_listed(&***prompt))
                        .map(|p| {
                            ListedItem::new(&p.merged_name, &p.raw).with_name_range(&p.name_range)
                        })
                        .collect(),
                    resource_entries.collect(),
                    templates
                        .iter()
                        .filter(|(_, template)| alike.is_listed(&**template))
                        .map(|(shown, t)| template_entry(shown, t))
                        .collect(),
                ],
            ),
            tools: with_own_names(
                with_former_names(
                    index_by_all_names(tools(), |tool| &tool.canonical_name),
                    replicas,
                ),
                tools(),
            ),
            prompts: with_former_prompts(
                index_by_all_names(prompts(), |prompt| &prompt.canonical_name),
                alike,
            ),
            patterns: sort_by_specificity(
                templates
                    .iter()
                    .filter(|(shown, template)| **shown == *template.uri_template)
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

    /// Whose a URI is that is not wrapped.
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

    pub(super) fn template(&self, shown: &str) -> Option<&Arc<ResourceTemplate>> {
        self.templates.get(shown)
    }
}

/// The four lists of a view, in the order of [`ListKind`].
fn build_lists(
    edition: ListContext,
    previous: Option<&ViewContent>,
    entries: [Vec<ListedItem>; 4],
) -> [ListPair; 4] {
    let edition = Arc::new(edition);
    let mut kinds = ListKind::ALL.into_iter();
    entries.map(|entries| {
        let kind = kinds.next().expect("there are as many kinds as lists");
        let previous = previous.map(|front| &front.lists[kind as usize]);
        ListPair::build(kind, &edition, previous, entries)
    })
}

fn own_name_entries<D: Definition>(items: &[Arc<D>]) -> Vec<ListedItem> {
    let own = |item: &Arc<D>| ListedItem::new(item.own_name(), item.raw());
    items.iter().map(own).collect()
}

fn own_tool_entries(offer: &ServerOffer) -> Vec<ListedItem> {
    let own = |tool: &Arc<CatalogTool>| tool_entry(offer, tool, &tool.exposed_name);
    offer.tools.items.iter().map(own).collect()
}

fn tool_entries(offer: &ServerOffer, replicas: &ToolReplicas) -> impl Iterator<Item = ListedItem> {
    let shown = offer.tools.items.iter();
    let shown = shown.filter(|tool| replicas.is_listed(tool));
    shown.map(|tool| tool_entry(offer, tool, &tool.merged_name).with_name_range(&tool.name_range))
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
    // Who knows it by its server's name reaches it by that, too.
    for item in items
        .iter()
        .filter(|item| item.exposed_name() != item.own_name())
    {
        let own = names.entry(Arc::clone(item.own_name()));
        own.or_insert_with(|| Arc::clone(item));
    }
    names
}

/// Shown names first, then `server:name`, then bare names that only one server of this node has and
/// that cannot be taken for one of the others: else a server could answer for another one that is stopped.
/// No bare name leads to another node, nor is any taken away because another node has it, too.
fn index_by_all_names<'a, D: Definition + 'a>(
    items: impl Iterator<Item = &'a Arc<D>> + Clone,
    canonical: impl Fn(&D) -> &Arc<str>,
) -> HashMap<Arc<str>, Arc<D>> {
    let mut owners: HashMap<&Arc<str>, usize> = HashMap::new();
    let here = items.clone().filter(|item| !item.server().is_remote());
    for item in here.clone() {
        *owners.entry(item.own_name()).or_default() += 1;
    }
    let shown = items.clone().map(|item| (item.merged_name(), item));
    let full = items.clone().map(|item| (canonical(item), item));
    let bare = here.map(|item| (item.own_name(), item));
    let bare = bare.filter(|(name, _)| owners[name] == 1 && !tool_names::is_qualified(name));
    let mut names = HashMap::with_capacity(2 * items.clone().count() + owners.len());
    for (name, item) in shown.chain(full).chain(bare) {
        names
            .entry(Arc::clone(name))
            .or_insert_with(|| Arc::clone(item));
    }
    names
}

/// Who knows a replica by the name of one that is gone is led to the others, unless the name is another's now.
fn with_former_names(
    mut names: HashMap<Arc<str>, Arc<CatalogTool>>,
    replicas: &ToolReplicas,
) -> HashMap<Arc<str>, Arc<CatalogTool>> {
    for (name, tool) in replicas.former_names() {
        names
            .entry(Arc::clone(name))
            .or_insert_with(|| Arc::clone(tool));
    }
    names
}

/// Who knows a tool that is shown under another name by its server's reaches it by that, too; and it has the form
/// `server:name` of the other one.
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

/// The same for prompts.
fn with_former_prompts(
    mut names: HashMap<Arc<str>, Arc<CatalogPrompt>>,
    alike: &ItemGroups,
) -> HashMap<Arc<str>, Arc<CatalogPrompt>> {
    for (gone, own, now) in alike.former_prompts() {
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
    let alone = alone && !resource.uri.starts_with(WRAPPED_PREFIX);
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
    let shown = |template: &Arc<ResourceTemplate>| {
        let alone = owners.get(&*template.uri_template) == Some(&1) && !template.server.is_remote();
        let alone = alone && !template.uri_template.starts_with(WRAPPED_PREFIX);
        let text = if alone {
            Arc::clone(&template.uri_template)
        } else {
            uris::wrap_template(&template.server, &template.uri_template).into()
        };
        (text, Arc::clone(template))
    };
    all().map(shown).collect()
}

fn template_entry(shown: &Arc<str>, template: &ResourceTemplate) -> ListedItem {
    let text = if *shown == template.uri_template {
        Arc::clone(&template.raw)
    } else {
        rename_member(&template.raw, "uriTemplate", shown)
    };
    ListedItem::new(shown, &text)
}

fn sort_by_specificity(mut templates: Vec<Arc<ResourceTemplate>>) -> Vec<Arc<ResourceTemplate>> {
    templates.sort_by_key(|t| std::cmp::Reverse(t.template.specificity()));
    templates
}
