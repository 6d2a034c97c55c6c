//! Icons that clients load from this kernel.

use bytes::Bytes;
use mgp_engine::tools::catalog::{IconSource, ListKind, image_type};

use crate::Context;
use mgp_callers::request::{Caller, Icon};
use mgp_tools::PublishedCatalog;

/// The page with addresses at this kernel, for a caller that can load them there.
pub(crate) fn with_addresses(
    cx: &Context,
    shown: &PublishedCatalog,
    caller: &Caller,
    kind: ListKind,
    page: Bytes,
) -> Bytes {
    let Some(address) = &caller.address else {
        return page;
    };
    let catalog = &shown.catalog;
    catalog.with_icon_addresses(page, kind, address, |server, url| {
        let handle = cx.servers.load().get(server).cloned();
        let link = handle.and_then(|handle| handle.link());
        link.is_some_and(|link| link.is_own_origin(url))
    })
}

/// The icon of that name; `None` for contents that are no image.
pub async fn load(cx: &Context, name: &str) -> Option<Icon> {
    let shown = cx.catalog.load();
    let bytes = match shown.catalog.icon(name)? {
        IconSource::Data(bytes) => bytes,
        IconSource::Url(url, servers) => {
            let handles = cx.servers.load();
            let mut links = servers
                .iter()
                .filter_map(|server| handles.get(server)?.link());
            let link = links.find(|link| link.is_own_origin(&url))?;
            link.fetch_icon(&url).await?
        }
    };
    let media_type = image_type(&bytes)?;
    Some(Icon { media_type, bytes })
}
