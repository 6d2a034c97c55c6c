//! Groups of replicated prompts, resources and templates, each of which is one list entry: their servers have the same
//! command line or URL and are marked as replicas, and the items have the same name or URI, arguments or type.

use std::collections::HashMap;
use std::sync::Arc;

use mgp_json::member;
use mgp_protocol::federation::tool_index::IndexRoot;
use mgp_protocol::ids::ServerId;

use super::ListKind;
use super::item::{CatalogPrompt, Definition, PromptArgument, ResourceTemplate};
use super::offer::ServerOffer;

/// Removed servers whose names still resolve to the group, as with tools.
const FORMER_SERVERS_MAX: usize = 8;

/// The key of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ItemGroupKey {
    /// Hash of the servers' command line or URL.
    spec_hash: IndexRoot,
    kind: ListKind,
    /// The server's own name or URI.
    own_name: Arc<str>,
    /// The arguments of a prompt, or the type of a resource.
    shape: Box<str>,
}

#[derive(Debug, Default)]
struct ItemGroupMembers {
    /// The server of this node first, then in order of arrival. The entry has the name of the first.
    servers: Vec<ServerId>,
    /// Removed servers.
    former: Vec<ServerId>,
    /// For templates: the first one.
    template: Option<Arc<ResourceTemplate>>,
}

#[derive(Debug, Default)]
pub(super) struct ItemGroups {
    groups: HashMap<ItemGroupKey, ItemGroupMembers>,
    /// The group of each item, including those of removed servers.
    group_of: HashMap<(ListKind, ServerId), HashMap<Arc<str>, ItemGroupKey>>,
}

impl ItemGroups {
    /// The groups of these offers, which keep their previous order.
    pub(super) fn rebuild(&self, offers: &[&ServerOffer]) -> Self {
        let mut next = Self::default();
        for offer in offers {
            next.add_items(offer, &offer.prompts.items, prompt_shape, |_| None);
            next.add_items(offer, &offer.resources.items, mime_type, |_| None);
            next.add_items(offer, &offer.templates.items, mime_type, |it| {
                Some(Arc::clone(it))
            });
        }
        for (group, members) in &mut next.groups {
            members.carry_over(self.groups.get(group));
            let all = members.servers.iter().chain(&members.former);
            for server in all {
                let key = (group.kind, server.clone());
                let own_name = Arc::clone(&group.own_name);
                next.group_of
                    .entry(key)
                    .or_default()
                    .insert(own_name, group.clone());
            }
        }
        next
    }

    fn add_items<D: Definition>(
        &mut self,
        offer: &ServerOffer,
        items: &[Arc<D>],
        shape: impl Fn(&D) -> Option<Box<str>>,
        template: impl Fn(&Arc<D>) -> Option<Arc<ResourceTemplate>>,
    ) {
        let Some(spec) = offer.replica_spec() else {
            return;
        };
        for item in items {
            let Some(shape) = shape(item) else { continue };
            let group = ItemGroupKey {
                spec_hash: spec.spec_hash,
                kind: D::KIND,
                own_name: Arc::clone(item.own_name()),
                shape,
            };
            let members = self.groups.entry(group).or_default();
            members.servers.push(offer.server().clone());
            members.template = members.template.take().or_else(|| template(item));
        }
    }

    fn members(&self, kind: ListKind, server: &ServerId, own: &str) -> Option<&ItemGroupMembers> {
        let group = self.group_of.get(&(kind, server.clone()))?.get(own)?;
        self.groups.get(group)
    }

    /// The servers of an item that this server has or had, the listed one first; empty without replicas. An unlisted
    /// resource is found by its template.
    pub(super) fn servers_of(&self, kind: ListKind, server: &ServerId, own: &str) -> &[ServerId] {
        if let Some(members) = self.members(kind, server, own) {
            return &members.servers;
        }
        let by_template = || {
            let templates = self.group_of.get(&(ListKind::Templates, server.clone()))?;
            let members = templates
                .values()
                .filter_map(|group| self.groups.get(group));
            let matching = members.filter_map(|members| {
                let template = &members.template.as_ref()?.template;
                template
                    .matches(own)
                    .then(|| (template.specificity(), members))
            });
            matching.max_by_key(|(specificity, _)| *specificity)
        };
        match kind {
            ListKind::Resources => by_template().map_or(&[], |(_, members)| &members.servers),
            ListKind::Tools | ListKind::Prompts | ListKind::Templates => &[],
        }
    }

    /// Whether the item is the listed one of its group.
    pub(super) fn is_listed<D: Definition>(&self, item: &D) -> bool {
        let members = self.members(D::KIND, item.server(), item.own_name());
        let first = members.and_then(|members| members.servers.first());
        first.is_none_or(|first| first == item.server())
    }

    /// Prompts of removed servers: the removed server, the prompt's own name, and the server that has it now.
    pub(super) fn former_prompts(&self) -> impl Iterator<Item = (&ServerId, &Arc<str>, &ServerId)> {
        let is_prompt =
            |(group, _): &(&ItemGroupKey, &ItemGroupMembers)| group.kind == ListKind::Prompts;
        let groups = self.groups.iter().filter(is_prompt);
        groups.flat_map(|(group, members)| {
            let first = members.servers.first();
            first.into_iter().flat_map(move |first| {
                let former = members.former.iter();
                former.map(move |former| (former, &group.own_name, first))
            })
        })
    }
}

impl ItemGroupMembers {
    /// Keeps the order of previous servers and the names of removed ones.
    fn carry_over(&mut self, previous: Option<&Self>) {
        let empty = Self::default();
        let previous = previous.unwrap_or(&empty);
        let position =
            |server: &ServerId| previous.servers.iter().position(|known| known == server);
        self.servers
            .sort_by_key(|server| (server.is_remote(), position(server).unwrap_or(usize::MAX)));
        let former = previous.former.iter().chain(&previous.servers);
        let removed = former.filter(|server| !self.servers.contains(server));
        let former: Vec<_> = removed.cloned().collect();
        self.former = former[former.len().saturating_sub(FORMER_SERVERS_MAX)..].to_vec();
    }
}

/// The sorted arguments of a prompt, without descriptions.
fn prompt_shape(prompt: &CatalogPrompt) -> Option<Box<str>> {
    let arguments = member(&prompt.raw, "arguments").unwrap_or("[]");
    let arguments: Vec<PromptArgument> = serde_json::from_str(arguments).ok()?;
    let arguments = arguments.into_iter();
    let mut arguments: Vec<_> = arguments.map(|it| (it.name, it.required)).collect();
    arguments.sort();
    serde_json::to_string(&arguments).ok().map(Into::into)
}

fn mime_type<D: Definition>(item: &D) -> Option<Box<str>> {
    let mime_type = member(item.raw(), "mimeType").unwrap_or("null");
    let mime_type: Option<String> = serde_json::from_str(mime_type).ok()?;
    Some(mime_type.unwrap_or_default().into())
}
