//! Prompts, resources and templates that are one entry wherever they are read: their servers are started as the same
//! thing and marked so, and they have the same name or URI and take or give the same.

use std::collections::HashMap;
use std::sync::Arc;

use mgp_json::member;
use mgp_protocol::federation::tool_index::IndexRoot;
use mgp_protocol::ids::ServerId;

use super::ListKind;
use super::item::{CatalogPrompt, Definition, PromptArgument, ResourceTemplate};
use super::offer::ServerOffer;

/// Servers that are gone whose names still lead to the others, as with tools.
const FORMER_SERVERS_MAX: usize = 8;

/// What makes things one entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ItemGroupKey {
    /// What their servers are started as, hashed.
    spec_hash: IndexRoot,
    kind: ListKind,
    /// The server's own name or URI.
    own_name: Arc<str>,
    /// What a prompt takes, or of which type a resource is.
    shape: Box<str>,
}

/// Where they are.
#[derive(Debug, Default)]
struct ItemGroupMembers {
    /// That of this node first, then in the order they came. The first one lends the entry its name.
    servers: Vec<ServerId>,
    /// Those that are gone.
    former: Vec<ServerId>,
    /// Of templates: that of the first one.
    template: Option<Arc<ResourceTemplate>>,
}

/// All that may be read at several servers.
#[derive(Debug, Default)]
pub(super) struct ItemGroups {
    groups: HashMap<ItemGroupKey, ItemGroupMembers>,
    /// The group of each thing, also of those that are gone.
    group_of: HashMap<(ListKind, ServerId), HashMap<Arc<str>, ItemGroupKey>>,
}

impl ItemGroups {
    /// Those of these offers, each in the order it had.
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
                let own = Arc::clone(&group.own_name);
                next.group_of
                    .entry(key)
                    .or_default()
                    .insert(own, group.clone());
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
        let Some(mark) = offer.replica_spec() else {
            return;
        };
        for item in items {
            let Some(shape) = shape(item) else { continue };
            let group = ItemGroupKey {
                spec_hash: mark.spec_hash,
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

    /// Where something can be read that this server has or had, the one that lends the name first; nothing for what
    /// stands alone. Of a resource that no server lists, its template says where.
    pub(super) fn servers_of(&self, kind: ListKind, server: &ServerId, own: &str) -> &[ServerId] {
        if let Some(members) = self.members(kind, server, own) {
            return &members.servers;
        }
        let by_template = || {
            let of = self.group_of.get(&(ListKind::Templates, server.clone()))?;
            let members = of.values().filter_map(|group| self.groups.get(group));
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

    /// Whether it is the entry that is shown.
    pub(super) fn is_listed<D: Definition>(&self, item: &D) -> bool {
        let members = self.members(D::KIND, item.server(), item.own_name());
        let first = members.and_then(|members| members.servers.first());
        first.is_none_or(|first| first == item.server())
    }

    /// The prompts of servers that are gone, and which server has them now: by the gone one and the prompt's own name.
    pub(super) fn former_prompts(&self) -> impl Iterator<Item = (&ServerId, &Arc<str>, &ServerId)> {
        let of_prompts =
            |(group, _): &(&ItemGroupKey, &ItemGroupMembers)| group.kind == ListKind::Prompts;
        let groups = self.groups.iter().filter(of_prompts);
        groups.flat_map(|(group, members)| {
            let first = members.servers.first();
            first.into_iter().flat_map(move |first| {
                let gone = members.former.iter();
                gone.map(move |gone| (gone, &group.own_name, first))
            })
        })
    }
}

impl ItemGroupMembers {
    /// Those that were there keep their order, and those that are gone leave their names.
    fn carry_over(&mut self, before: Option<&Self>) {
        let empty = Self::default();
        let before = before.unwrap_or(&empty);
        let place = |server: &ServerId| before.servers.iter().position(|known| known == server);
        self.servers
            .sort_by_key(|server| (server.is_remote(), place(server).unwrap_or(usize::MAX)));
        let former = before.former.iter().chain(&before.servers);
        let gone = former.filter(|server| !self.servers.contains(server));
        let former: Vec<_> = gone.cloned().collect();
        self.former = former[former.len().saturating_sub(FORMER_SERVERS_MAX)..].to_vec();
    }
}

/// What a prompt takes, in an order of its own: how its arguments are described is no difference.
fn prompt_shape(prompt: &CatalogPrompt) -> Option<Box<str>> {
    let arguments = member(&prompt.raw, "arguments").unwrap_or("[]");
    let arguments: Vec<PromptArgument> = serde_json::from_str(arguments).ok()?;
    let arguments = arguments.into_iter();
    let mut arguments: Vec<_> = arguments.map(|it| (it.name, it.required)).collect();
    arguments.sort();
    serde_json::to_string(&arguments).ok().map(Into::into)
}

/// The type of what is read.
fn mime_type<D: Definition>(item: &D) -> Option<Box<str>> {
    let said = member(item.raw(), "mimeType").unwrap_or("null");
    let said: Option<String> = serde_json::from_str(said).ok()?;
    Some(said.unwrap_or_default().into())
}
