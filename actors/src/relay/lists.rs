//! The four lists: bytes that were made when the catalog was published, and how long they may be kept.

use std::time::Duration;

use bytes::Bytes;
use mgp_engine::tools::catalog::ListKind;
use mgp_engine::tools::catalog::freshness::{Freshness, Scope};
use mgp_protocol::dialect::Era;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp;
use mgp_protocol::mcp::ServerCapabilities;
use mgp_protocol::mcp::meta::SERVER_INFO;
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::refusal::Refusal;

use super::Relay;
use super::exposing::before;
use super::own::with_own;
use crate::catalog::Shown;
use crate::link::List;
use crate::request::{Caller, Outcome, Request};
use crate::time::moment;

/// A list that is stale is fetched again no sooner than this after the last time, however often
/// clients ask and however short a time its server promised.
const REFETCH: Duration = Duration::from_secs(1);

impl Relay {
    /// `tools/list` and its three sisters: bytes that were made when the catalog was published.
    ///
    /// # Errors
    /// [`Refusal::BadCursor`], [`Refusal::BadParams`].
    pub fn list(&self, request: &Request, kind: ListKind) -> Outcome {
        let listing: mcp::Listing<'_> = mcp::read(request.params.as_deref())?;
        let version = request.caller.version;
        let shown = self.shown.load();
        let cursor = listing.cursor.as_deref();
        let page = self
            .page(&shown, &request.caller, kind, cursor)
            .map_err(|_| Refusal::BadCursor)?;
        let page = with_own(page, &request.caller, kind, listing.cursor.is_none());
        let page = match kind {
            ListKind::Tools if listing.cursor.is_none() => {
                let security = request.caller.mgp.features();
                let security = security.contains(Features::TOOL_SECURITY);
                before(page, &self.registering_tools(&request.caller, security))
            }
            ListKind::Tools | ListKind::Prompts | ListKind::Resources | ListKind::Templates => page,
        };
        match version.era() {
            Era::Legacy => Ok(page),
            Era::Modern => {
                Ok(self.complete_page(&page, self.freshness(&shown, &request.caller, kind)))
            }
        }
    }

    /// A page as a stateless client gets it, with how long it may be kept (MCP 2026-07-28, caching).
    fn complete_page(&self, page: &[u8], freshness: Freshness) -> Bytes {
        let tail = format!(
            r#","resultType":"complete","ttlMs":{},"cacheScope":"{}","_meta":{{"{SERVER_INFO}":{}}}}}"#,
            freshness.ttl_ms,
            freshness.scope.as_str(),
            self.info()
        );
        let open = page.strip_suffix(b"}").unwrap_or(page);
        [open, tail.as_bytes()].concat().into()
    }

    /// How long a list may be kept. What a server that says when it changes promised holds from now
    /// on, for the kernel would know better; what another promised holds from when it was fetched,
    /// and is fetched again when that is over. A list that lacks a server that is still starting is stale
    /// at once.
    fn freshness(&self, shown: &Shown, caller: &Caller, kind: ListKind) -> Freshness {
        let view = &caller.view;
        let mut freshness = shown.catalog.freshness(view, kind);
        if !self.access.table().is_uniform() {
            freshness.scope = Scope::Private;
        }
        for (server, peer) in &shown.peers {
            let told = tells(&peer.capabilities, kind);
            if told || peer.version.is_legacy() || !view.shows(server) {
                continue;
            }
            let Some(fetched) = shown.fetched.get(server).map(|at| at[kind as usize]) else {
                continue;
            };
            let Some(promised) = shown.catalog.freshness_of(server, kind) else {
                continue;
            };
            let age = moment().since(fetched);
            let left = promised.remaining(age);
            if left.ttl_ms == 0 && age >= REFETCH {
                self.refetch(server, kind);
            }
            freshness = freshness.and(left);
        }
        if self.lacks_some(caller) {
            freshness.ttl_ms = 0;
        }
        freshness
    }

    fn refetch(&self, server: &ServerId, kind: ListKind) {
        let list = match kind {
            ListKind::Tools => List::Tools,
            ListKind::Prompts => List::Prompts,
            ListKind::Resources | ListKind::Templates => List::Resources,
        };
        if let Some(handle) = self.servers.load().get(server) {
            handle.refresh(list);
        }
    }
}

fn tells(can: &ServerCapabilities, kind: ListKind) -> bool {
    match kind {
        ListKind::Tools => can.tools_list_changed,
        ListKind::Prompts => can.prompts_list_changed,
        ListKind::Resources | ListKind::Templates => can.resources_list_changed,
    }
}
