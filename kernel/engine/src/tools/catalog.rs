//! The merged catalog: what all servers offer, as lists for agents and tables for calls.
//!
//! A catalog is immutable; a change makes a new one that shares all unchanged parts. So a list is rendered once, and a
//! call costs one lookup.

mod claims;
pub mod cursor;
mod filtered_list;
pub mod freshness;
mod icons;
mod item;
mod item_groups;
mod list;
mod listed_item;
mod offer;
mod overrides;
mod replica_group;
mod tool_replicas;
mod view;
mod view_content;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::ids::ServerId;

use crate::servers::replica_spec::ReplicaSpec;
use crate::tools::catalog::cursor::BadCursor;
use crate::tools::catalog::freshness::Freshness;
use crate::tools::uris;
use icons::Icons;
use item_groups::ItemGroups;
use list::{ListContext, PagedList};
use tool_replicas::ToolReplicas;
use view_content::ViewContent;

pub use claims::{Availability, ClaimOutcome, NameClaim, NamedItem};
pub use filtered_list::FilteredList;
pub use icons::{ICONS_PATH, IconSource, image_type};
#[cfg(test)]
pub(crate) use item::{BadItem, DEFINITION_MAX};
pub use item::{CatalogPrompt, CatalogTool};
pub(crate) use item::{NAME_MAX, ResourceTemplate};
pub use list::Paging;
#[cfg(test)]
pub(crate) use offer::{ITEMS_MAX, TEMPLATES_MAX};
pub use offer::{OfferCounts, ServerOffer};
pub(crate) use view::Readers;
pub use view::{CatalogView, ListForm, ListKind};

/// The server and its own URI that a visible URI resolves to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceRoute<'a> {
    /// Its server.
    pub server: &'a ServerId,
    /// The server's own URI.
    pub uri: Cow<'a, str>,
}

/// Everything that is offered at one moment.
#[derive(Debug)]
pub struct Catalog {
    generation: u64,
    paging: Paging,
    offers: BTreeMap<ServerId, Arc<ServerOffer>>,
    replicas: ToolReplicas,
    item_groups: ItemGroups,
    icons: Icons,
    merged: ViewContent,
    by_server: HashMap<ServerId, Arc<ViewContent>>,
}

impl Catalog {
    /// The initial catalog.
    #[must_use]
    pub fn empty(paging: Paging) -> Self {
        let context = ListContext {
            view: CatalogView::All,
            paging: paging.clone(),
            generation: 0,
            with_levels: false,
        };
        Self {
            generation: 0,
            paging,
            offers: BTreeMap::new(),
            replicas: ToolReplicas::default(),
            item_groups: ItemGroups::default(),
            icons: Icons::default(),
            merged: ViewContent::merged(
                context,
                None,
                &[],
                (&ToolReplicas::default(), &ItemGroups::default()),
            ),
            by_server: HashMap::new(),
        }
    }

    /// The next catalog, with exactly these offers; of two offers of the same server the later counts. Unchanged parts
    /// are shared with this catalog.
    #[must_use]
    pub fn with_offers(&self, offers: &[Arc<ServerOffer>]) -> Self {
        let offers: BTreeMap<ServerId, Arc<ServerOffer>> = offers
            .iter()
            .map(|offer| (offer.server().clone(), Arc::clone(offer)))
            .collect();
        let by_server = offers
            .iter()
            .map(|(server, offer)| (server.clone(), self.next_content(server, offer)));
        let in_order: Vec<&ServerOffer> = offers.values().map(|offer| &**offer).collect();
        let tools = in_order.iter().flat_map(|offer| offer.tools());
        let replicas = self.replicas.rebuild(tools);
        let item_groups = self.item_groups.rebuild(&in_order);
        Self {
            generation: self.generation + 1,
            paging: self.paging.clone(),
            merged: ViewContent::merged(
                self.next_context(CatalogView::All),
                Some(&self.merged),
                &in_order,
                (&replicas, &item_groups),
            ),
            replicas,
            item_groups,
            icons: Icons::build(
                &self.paging.key,
                in_order.iter().flat_map(|offer| offer.icons()),
            ),
            by_server: by_server.collect(),
            offers,
        }
    }

    fn next_content(&self, server: &ServerId, offer: &Arc<ServerOffer>) -> Arc<ViewContent> {
        let previous = self.offers.get(server).zip(self.by_server.get(server));
        match previous {
            Some((same, content)) if Arc::ptr_eq(same, offer) => Arc::clone(content),
            _ => {
                let context = self.next_context(CatalogView::One(server.clone()));
                let previous = previous.map(|(_, content)| &**content);
                Arc::new(ViewContent::for_server(context, previous, offer))
            }
        }
    }

    fn next_context(&self, view: CatalogView) -> ListContext {
        ListContext {
            view,
            paging: self.paging.clone(),
            generation: self.generation + 1,
            with_levels: false,
        }
    }

    /// The number of this catalog; the empty one is 0.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// All offers, ordered by server.
    pub fn offers(&self) -> impl Iterator<Item = &Arc<ServerOffer>> {
        self.offers.values()
    }

    /// The offer of a server; `None` without any list, even an empty one.
    #[must_use]
    pub fn offer(&self, server: &ServerId) -> Option<&Arc<ServerOffer>> {
        self.offers.get(server)
    }

    /// The size of a server's offer; `None` without any list, even an empty one.
    #[must_use]
    pub fn counts(&self, server: &ServerId) -> Option<OfferCounts> {
        self.offers.get(server).map(|offer| offer.counts())
    }

    /// The tool of that name. In a merged view that is the visible name, `server:tool`, or the bare name if only one
    /// server has it and it is not in the form of a qualified name.
    #[must_use]
    pub fn tool(&self, view: &CatalogView, name: &str) -> Option<&Arc<CatalogTool>> {
        self.view_content(view)?.tools.get(name)
    }

    /// Whether some tools of the view are only for apps, so that its list depends on the client.
    #[must_use]
    pub fn has_app_only_tools(&self, view: &CatalogView) -> bool {
        self.view_content(view)
            .is_some_and(|content| content.has_app_only_tools)
    }

    /// The replicas of a tool, the one whose name is listed first; empty for a tool without replicas.
    #[must_use]
    pub fn replicas(&self, tool: &CatalogTool) -> &[Arc<CatalogTool>] {
        self.replicas.members(tool)
    }

    /// Whether the merged list has an entry for this tool, alone or for its replicas.
    #[must_use]
    pub fn is_listed(&self, tool: &CatalogTool) -> bool {
        self.replicas.is_listed(tool)
    }

    /// The server's tool of that name, or its first one, if it is a replica.
    #[must_use]
    pub fn replica_tool(&self, server: &ServerId, tool: Option<&str>) -> Option<&Arc<CatalogTool>> {
        let mut tools = self.offers.get(server)?.tools().iter();
        tools.find(|candidate| {
            candidate.replica.is_some() && tool.is_none_or(|tool| *candidate.own_name == *tool)
        })
    }

    /// All groups of replicated tools.
    pub fn replica_groups(&self) -> impl Iterator<Item = &[Arc<CatalogTool>]> {
        self.replicas.groups()
    }

    /// The servers of a replicated prompt, resource or template, the one whose name is listed first; empty for an item
    /// without replicas.
    #[must_use]
    pub fn replica_servers(&self, kind: ListKind, server: &ServerId, own: &str) -> &[ServerId] {
        self.item_groups.servers_of(kind, server, own)
    }

    /// The replica data of a server that is marked as a replica.
    #[must_use]
    pub fn replica_spec(&self, server: &ServerId) -> Option<&ReplicaSpec> {
        self.offers.get(server)?.replica_spec()
    }

    /// The prompt of that name, as with tools.
    #[must_use]
    pub fn prompt(&self, view: &CatalogView, name: &str) -> Option<&Arc<CatalogPrompt>> {
        self.view_content(view)?.prompts.get(name)
    }

    /// Resolves a URI: to the server that lists it, that it is wrapped for, or that has the most specific template for
    /// it. `None` also if several servers list it: those are reached only by wrapped URIs.
    #[must_use]
    pub fn resource<'a>(&'a self, view: &CatalogView, uri: &'a str) -> Option<ResourceRoute<'a>> {
        if view.is_merged() && uris::is_wrapped(uri) {
            return self.wrapped_resource(uri).or_else(|| {
                // Apps and skills name resources by the URIs that their server knows.
                uris::keeps_scheme(uri)
                    .then(|| self.merged.resource(uri))
                    .flatten()
            });
        }
        self.view_content(view)?.resource(uri)
    }

    fn wrapped_resource<'a>(&'a self, wrapped: &'a str) -> Option<ResourceRoute<'a>> {
        let (server, uri) = uris::unwrap(wrapped)?;
        let server = match self.offers.get_key_value(&*server) {
            Some((server, _)) => server,
            // The name of a removed replica leads to the others.
            None => self
                .replica_servers(ListKind::Resources, &ServerId::new(&*server), &uri)
                .first()?,
        };
        Some(ResourceRoute { server, uri })
    }

    /// The template with this `uriTemplate` as visible in the view; for `completion/complete`.
    #[must_use]
    pub fn template(
        &self,
        view: &CatalogView,
        uri_template: &str,
    ) -> Option<&Arc<ResourceTemplate>> {
        self.view_content(view)?.template(uri_template)
    }

    /// The form of a server's URI in a view, so that reading it leads back to that server. For URIs in results and
    /// notifications.
    #[must_use]
    pub fn visible_uri<'a>(
        &self,
        view: &CatalogView,
        server: &ServerId,
        uri: &'a str,
    ) -> Cow<'a, str> {
        match view {
            CatalogView::One(_) => Cow::Borrowed(uri),
            CatalogView::All | CatalogView::Set(_) if uris::is_wrapped(uri) => {
                Cow::Owned(uris::wrap(server, uri))
            }
            CatalogView::All | CatalogView::Set(_) => match self.resource(view, uri) {
                Some(route) if route.server == server && route.uri == uri => Cow::Borrowed(uri),
                _ => Cow::Owned(uris::wrap(server, uri)),
            },
        }
    }

    /// A page of a list, for a client that reads it in that form: the whole result object,
    /// `{"tools":[…],"nextCursor":"…"}`.
    ///
    /// # Errors
    /// [`BadCursor`] if the cursor is invalid or belongs to another list, view or protocol version's form, or if the last
    /// entry that the client got is gone.
    pub fn page(
        &self,
        view: &CatalogView,
        kind: ListKind,
        cursor: Option<&str>,
        form: impl Into<ListForm>,
    ) -> Result<Bytes, BadCursor> {
        let form = form.into();
        match (self.view_content(view), cursor) {
            (Some(content), cursor) => content.list(kind, form).page(cursor, form.family),
            (None, None) => Ok(format!("{{\"{}\":[]}}", kind.result_member()).into()),
            (None, Some(_)) => Err(BadCursor),
        }
    }

    /// How long the list of one server may be cached; `None` if it has none.
    #[must_use]
    pub fn server_freshness(&self, server: &ServerId, kind: ListKind) -> Option<Freshness> {
        self.offers.get(server)?.freshness(kind)
    }

    /// How long the list may be cached: as long as its least fresh part, the list of one server. A list without parts is
    /// stale at once.
    #[must_use]
    pub fn freshness(&self, view: &CatalogView, kind: ListKind) -> Freshness {
        let offers = self.offers.values();
        let offers = offers.filter(|offer| view.includes(offer.server()));
        let parts = offers.filter_map(|offer| offer.freshness(kind));
        parts.reduce(Freshness::combine).unwrap_or_default()
    }

    fn view_content(&self, view: &CatalogView) -> Option<&ViewContent> {
        match view {
            CatalogView::All | CatalogView::Set(_) => Some(&self.merged),
            CatalogView::One(server) => self.by_server.get(server).map(|content| &**content),
        }
    }

    /// The form for stateless clients, from which the legacy form is derived.
    fn list(&self, view: &CatalogView, kind: ListKind) -> Option<&PagedList> {
        let list = self
            .view_content(view)?
            .list(kind, ProtocolFamily::Stateless.into());
        Some(list)
            .map(|list| &**list)
            .filter(|list| !list.is_empty())
    }
}

/// The lists that differ, for `list_changed`: tools, prompts, and resources including templates.
#[must_use]
pub fn changed_lists(old: &Catalog, new: &Catalog) -> Vec<(CatalogView, ListKind)> {
    let servers: BTreeSet<&ServerId> = old.offers.keys().chain(new.offers.keys()).collect();
    let views = servers.into_iter().cloned().map(CatalogView::One);
    let differs = |view: &CatalogView, kind| match (old.list(view, kind), new.list(view, kind)) {
        (Some(old), Some(new)) => !old.has_same_entries(new),
        (None, None) => false,
        (Some(_), None) | (None, Some(_)) => true,
    };
    let mut changes = Vec::new();
    for view in std::iter::once(CatalogView::All).chain(views) {
        for kinds in [
            &[ListKind::Tools][..],
            &[ListKind::Prompts],
            &[ListKind::Resources, ListKind::Templates],
        ] {
            if kinds.iter().any(|kind| differs(&view, *kind)) {
                changes.push((view.clone(), kinds[0]));
            }
        }
    }
    changes
}

#[cfg(test)]
mod tests;
