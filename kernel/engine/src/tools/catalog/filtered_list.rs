//! A list for callers that may see only a part of it.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use mgp_protocol::ids::ServerId;

use super::list::PagedList;
use super::{Catalog, CatalogView, ListForm, ListKind};
use crate::tools::catalog::cursor::BadCursor;
use crate::tools::uris;

/// A list without hidden entries, which leave no trace in pages or cursors.
#[derive(Debug)]
pub struct FilteredList(Arc<PagedList>);

impl FilteredList {
    /// A page, as of the whole list.
    ///
    /// # Errors
    /// [`BadCursor`], as of the whole list.
    pub fn page(
        &self,
        cursor: Option<&str>,
        form: impl Into<ListForm>,
    ) -> Result<Bytes, BadCursor> {
        self.0.page(cursor, form.into().family)
    }

    /// Approximate bytes of it and all rendered pages.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.size()
    }
}

impl Catalog {
    /// Filters a list of a view. `keep` gets the server of an entry and, for a tool or a resource, its own name or URI. `audience` identifies the
    /// callers that see the same entries. `None` if the view has no lists.
    #[must_use]
    pub fn filter(
        &self,
        view: &CatalogView,
        kind: ListKind,
        form: impl Into<ListForm>,
        audience: &str,
        keep: impl Fn(&ServerId, Option<&str>) -> bool,
    ) -> Option<FilteredList> {
        let list = self.view_content(view)?.list(kind, form.into());
        let is_visible = |key: &str| {
            let owner = self.owner(view, kind, key);
            match (view, kind, self.merged.tools.get(key)) {
                // The entry is visible to callers that may call any replica.
                (CatalogView::All | CatalogView::Set(_), ListKind::Tools, Some(tool))
                    if tool.replica.is_some() =>
                {
                    let mut replicas = self.replicas(tool).iter();
                    replicas.any(|tool| keep(&tool.server, Some(&tool.own_name)))
                }
                (CatalogView::All | CatalogView::Set(_), _, _) => {
                    let servers = self.item_servers(kind, key);
                    servers.iter().any(|server| keep(server, None))
                        || owner.is_some_and(|(server, name)| keep(server, name.as_deref()))
                }
                _ => owner.is_some_and(|(server, name)| keep(server, name.as_deref())),
            }
        };
        Some(FilteredList(list.filtered(
            audience_generation(list.generation(), audience),
            is_visible,
        )))
    }

    /// The servers of a replicated entry.
    fn item_servers(&self, kind: ListKind, key: &str) -> &[ServerId] {
        let servers = match kind {
            ListKind::Tools => None,
            ListKind::Prompts => {
                let prompt = self.merged.prompts.get(key);
                prompt.map(|it| self.replica_servers(kind, &it.server, &it.own_name))
            }
            ListKind::Resources => {
                let route = self.resource(&CatalogView::All, key);
                route.map(|it| self.replica_servers(kind, it.server, &it.uri))
            }
            ListKind::Templates => {
                let template = self.merged.template(key);
                template.map(|it| self.replica_servers(kind, &it.server, &it.uri_template))
            }
        };
        servers.unwrap_or_default()
    }

    /// The server of an entry and, for a tool or a resource, its own name or URI.
    fn owner<'a>(
        &'a self,
        view: &CatalogView,
        kind: ListKind,
        key: &'a str,
    ) -> Option<(&'a ServerId, Option<Cow<'a, str>>)> {
        let content = self.view_content(view)?;
        if let CatalogView::One(server) = view
            && kind != ListKind::Tools
        {
            let uri = (kind == ListKind::Resources).then_some(Cow::Borrowed(key));
            return self.offers.get_key_value(server).map(|(id, _)| (id, uri));
        }
        match kind {
            ListKind::Tools => {
                let tool = content.tools.get(key)?;
                Some((&tool.server, Some(Cow::Borrowed(&*tool.own_name))))
            }
            ListKind::Prompts => Some((&content.prompts.get(key)?.server, None)),
            ListKind::Resources if uris::is_wrapped(key) => {
                let (server, uri) = uris::unwrap(key)?;
                Some((self.offers.get_key_value(&*server)?.0, Some(uri)))
            }
            ListKind::Resources => {
                let resource = content.resource(key)?;
                Some((resource.server, Some(resource.uri)))
            }
            ListKind::Templates => Some((&content.template(key)?.server, None)),
        }
    }
}

/// The generation of a list for an audience. It is unique to the audience, so that cursors of other lists are not trusted.
fn audience_generation(generation: u64, audience: &str) -> u64 {
    let mut hasher = blake3::Hasher::new_derive_key("mgp 2026-11 audience of a list");
    hasher.update(&generation.to_le_bytes());
    hasher.update(audience.as_bytes());
    let mut prefix = [0; 8];
    prefix.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_le_bytes(prefix)
}
