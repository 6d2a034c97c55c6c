//! A list for callers that may not see all of it.

use std::sync::Arc;

use bytes::Bytes;
use mgp_protocol::ids::ServerId;

use super::list::PagedList;
use super::{Catalog, CatalogView, ListForm, ListKind};
use crate::tools::catalog::cursor::BadCursor;
use crate::tools::uris::{self, WRAPPED_PREFIX};

/// A list without what its readers may not see. An entry that is not there leaves no trace: not in
/// the pages, not in the cursors.
#[derive(Debug)]
pub struct FilteredList(Arc<PagedList>);

impl FilteredList {
    /// A page of it, as of the whole list.
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

    /// Bytes of it with all its pages once they are made, nearly.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.size()
    }
}

impl Catalog {
    /// The list of a view without what `keep` does not keep, which is told the server of an entry and,
    /// of a tool, the server's own name for it. `audience` tells those who see the same apart from all
    /// others. `None` when the view has no lists.
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
        let kept = |key: &str| {
            let owner = self.owner(view, kind, key);
            match (view, kind, self.merged.tools.get(key)) {
                // Whoever may call one of the replicas is shown their entry.
                (CatalogView::All | CatalogView::Set(_), ListKind::Tools, Some(tool))
                    if tool.replica.is_some() =>
                {
                    let mut places = self.replicas(tool).iter();
                    places.any(|tool| keep(&tool.server, Some(&tool.own_name)))
                }
                (CatalogView::All | CatalogView::Set(_), _, _) => {
                    let places = self.item_servers(kind, key);
                    places.iter().any(|server| keep(server, None))
                        || owner.is_some_and(|(server, tool)| keep(server, tool))
                }
                _ => owner.is_some_and(|(server, tool)| keep(server, tool)),
            }
        };
        Some(FilteredList(list.filtered(
            audience_generation(list.generation(), audience),
            kept,
        )))
    }

    /// Where the entry of a list can be read that is one of several.
    fn item_servers(&self, kind: ListKind, key: &str) -> &[ServerId] {
        let places = match kind {
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
        places.unwrap_or_default()
    }

    /// Whose an entry of a list is, and what the server calls it when it is a tool.
    fn owner<'a>(
        &'a self,
        view: &CatalogView,
        kind: ListKind,
        key: &'a str,
    ) -> Option<(&'a ServerId, Option<&'a str>)> {
        let front = self.view_content(view)?;
        if let CatalogView::One(server) = view
            && kind != ListKind::Tools
        {
            return self.offers.get_key_value(server).map(|(id, _)| (id, None));
        }
        match kind {
            ListKind::Tools => {
                let tool = front.tools.get(key)?;
                Some((&tool.server, Some(&tool.own_name)))
            }
            ListKind::Prompts => Some((&front.prompts.get(key)?.server, None)),
            ListKind::Resources if key.starts_with(WRAPPED_PREFIX) => {
                let (server, _) = uris::unwrap(key)?;
                Some((self.offers.get_key_value(server)?.0, None))
            }
            ListKind::Resources => Some((front.resource(key)?.server, None)),
            ListKind::Templates => Some((&front.template(key)?.server, None)),
        }
    }
}

/// The generation of a list that is made for an audience: another one for each, so that a cursor's
/// offset is only believed where it was made.
fn audience_generation(generation: u64, audience: &str) -> u64 {
    let mut hasher = blake3::Hasher::new_derive_key("mgp 2026-11 audience of a list");
    hasher.update(&generation.to_le_bytes());
    hasher.update(audience.as_bytes());
    let mut mark = [0; 8];
    mark.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_le_bytes(mark)
}
