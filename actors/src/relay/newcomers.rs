//! Servers that start for the first time, and who asks for a list meanwhile. Many clients ask once and
//! never again, so a list waits a moment for them; a greeting waits for nobody.

use std::sync::Arc;

use mgp_engine::tools::catalog::{CatalogView, ListKind, Outlook};
use mgp_protocol::refusal::Refusal;

use super::Relay;
use crate::request::{Caller, Outcome, Request};
use crate::server::ServerHandle;

impl Relay {
    /// A list, once the servers that are just starting are there, or their moment is over.
    ///
    /// # Errors
    /// As of [`Relay::list`], and [`Refusal::Cancelled`].
    pub async fn list_with_newcomers(&self, request: &Request, kind: ListKind) -> Outcome {
        let newcomers = self.newcomers(&request.caller);
        let arriving = async {
            // Each has its own deadline, whoever is waited for first.
            for newcomer in &newcomers {
                newcomer.arrives().await;
            }
        };
        tokio::select! {
            () = arriving => self.list(request, kind),
            () = request.exchange.cancelled() => Err(Refusal::Cancelled),
        }
    }

    /// Whether a list of the caller's would lack a server that is just starting.
    #[must_use]
    pub fn awaits_newcomers(&self, caller: &Caller) -> bool {
        self.any(caller, ServerHandle::is_new)
    }

    /// Whether lists of the caller's lack a server that has not been there yet and comes, however long
    /// that takes.
    pub(super) fn lacks_some(&self, caller: &Caller) -> bool {
        self.any(caller, |server| server.outlook() == Outlook::First)
    }

    fn newcomers(&self, caller: &Caller) -> Vec<Arc<ServerHandle>> {
        let servers = self.servers.load();
        let mut all: Vec<_> = match &caller.view {
            CatalogView::All => servers.values().cloned().collect(),
            CatalogView::One(only) => servers.get(only).cloned().into_iter().collect(),
        };
        all.retain(|server| server.is_new() && self.sees(caller, &server.id));
        all
    }

    /// Whether a server that the caller may see is like this: what is hidden from it shows nowhere.
    fn any(&self, caller: &Caller, is: impl Fn(&ServerHandle) -> bool) -> bool {
        let servers = self.servers.load();
        let is = |server: &Arc<ServerHandle>| is(server) && self.sees(caller, &server.id);
        match &caller.view {
            CatalogView::All => servers.values().any(is),
            CatalogView::One(only) => servers.get(only).is_some_and(is),
        }
    }
}
