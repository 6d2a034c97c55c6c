//! Servers that start for the first time, and who asks for a list meanwhile. Many clients ask once and
//! never again, so a list waits a moment for them; a greeting waits for nobody.

use std::sync::Arc;

use mgp_engine::catalog::{Kind, Outlook, View};
use mgp_protocol::refusal::Refusal;

use super::Relay;
use crate::request::{Caller, Outcome, Request};
use crate::server::ServerHandle;

impl Relay {
    /// A list, once the servers that are just starting are there, or their moment is over.
    ///
    /// # Errors
    /// As of [`Relay::list`], and [`Refusal::Cancelled`].
    pub async fn list_with_newcomers(&self, request: &Request, kind: Kind) -> Outcome {
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
        !self.newcomers(caller).is_empty()
    }

    /// Whether lists of the caller's lack a server that has not been there yet and comes, however long
    /// that takes.
    pub(super) fn lacks_some(&self, caller: &Caller) -> bool {
        let comes = |server: &ServerHandle| server.outlook() == Outlook::First;
        !self.those(caller, comes).is_empty()
    }

    fn newcomers(&self, caller: &Caller) -> Vec<Arc<ServerHandle>> {
        self.those(caller, ServerHandle::is_new)
    }

    /// Of the servers the caller may see those that are like this: what is hidden from it shows nowhere.
    fn those(
        &self,
        caller: &Caller,
        are: impl Fn(&ServerHandle) -> bool,
    ) -> Vec<Arc<ServerHandle>> {
        let servers = self.servers.load();
        let mut all: Vec<_> = match &caller.view {
            View::All => servers.values().collect(),
            View::One(only) => servers.get(only).into_iter().collect(),
        };
        all.retain(|server| are(server) && self.sees(caller, &server.id));
        all.into_iter().cloned().collect()
    }
}
