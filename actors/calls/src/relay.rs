//! The data plane: finds the server of a request, checks, calls, relays.
//!
//! Reads published snapshots only. Payloads stay the text they came as; what must change (a name, a
//! URI, a progress token) is spliced.

mod access;
mod audited;
mod calls;
mod checks;
mod claims;
mod confirmation;
mod exposing;
mod finding;
mod forward;
mod granting;
mod holding;
mod listening;
mod lists;
mod newcomers;
mod offered;
mod own;
mod permits;
mod rates;
mod registering;
mod requesting;
mod retrying;
pub(crate) mod rounds;
mod subscribing;
mod tasks;
mod tracing;
mod welcome;

pub use self::confirmation::Confirmation;
pub use self::exposing::{Counted, Exposing, Showing};

use std::sync::Arc;

use bytes::Bytes;
use mgp_engine::tools::catalog::{CatalogTool, CatalogView};
use mgp_protocol::ids::ServerId;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::quoted;
use mgp_sync::snapshot::Snapshot;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::naming::Naming;
use crate::validation::Validation;
use mgp_callers::agent::supervisor::Agents;
use mgp_callers::directory::Directory;
use mgp_callers::request::{Caller, Outcome, Request};
use mgp_callers::tasks::Tasks;
use mgp_policy::access::AccessHandle;
use mgp_policy::approvals::ApprovalsHandle;
use mgp_policy::permissions::PermissionsHandle;
use mgp_policy::pins::PinsHandle;
use mgp_servers::link::Link;
use mgp_servers::server::ServerTable;
use mgp_store::audit::AuditHandle;
use mgp_tools::catalog::Shown;
use mgp_tools::finder::FinderHandle;
use mgp_tools::registrar::Registrar;
use mgp_tools::subscriptions::SubscriptionsHandle;

pub use self::access::SiftedLists;
pub use self::rates::Rates;

/// What answering needs: published state, and the ways to those who own it.
#[derive(Debug)]
pub struct Relay {
    /// What is offered right now.
    pub shown: Arc<Snapshot<Shown>>,
    /// All servers.
    pub servers: Arc<ServerTable>,
    /// What waits for a person.
    pub approvals: ApprovalsHandle,
    /// Who may call what.
    pub access: AccessHandle,
    /// Who and what there is, by name.
    pub naming: Naming,
    /// Servers that come and go while the kernel runs.
    pub registrar: Arc<Registrar>,
    /// What servers may do.
    pub permissions: PermissionsHandle,
    /// What tools were when they were approved.
    pub pins: PinsHandle,
    /// Lists for those who may not see everything.
    pub sifted: SiftedLists,
    /// Who wants to hear about which resource.
    pub subscriptions: SubscriptionsHandle,
    /// Who is connected.
    pub directory: Arc<Directory>,
    /// The parent of event subscriptions.
    pub agents: Agents,
    /// The kernel's own tasks, and the names of all.
    pub tasks: Arc<Tasks>,
    /// How many calls each agent may make.
    pub rates: Rates,
    /// Who looks at arguments.
    pub validation: Validation,
    /// How a person's yes is had.
    pub confirmation: Confirmation,
    /// Where what is done is written down.
    pub audit: AuditHandle,
    /// The kernel ends.
    pub closing: CancellationToken,
    /// Who finds tools.
    pub finder: FinderHandle,
    /// What of all tools agents are shown.
    pub exposing: Exposing,
    /// Version of this program.
    pub version: String,
}

impl Relay {
    /// The tool of that name, as shown in the view.
    #[must_use]
    pub fn tool(&self, view: &CatalogView, name: &str) -> Option<Arc<CatalogTool>> {
        self.shown.load().catalog.tool(view, name).cloned()
    }

    async fn link(&self, request: &Request, server: &ServerId) -> Result<Arc<Link>, Refusal> {
        let servers = self.servers.load();
        let handle = servers
            .get(server)
            .ok_or_else(|| Refusal::UnknownServer(server.to_string()))?;
        let (caller, exchange) = (&request.caller, &request.exchange);
        handle.connection_of(caller, exchange).await
    }

    /// The servers a caller may reach, connected right now.
    fn links(&self, caller: &Caller) -> Vec<Arc<Link>> {
        let servers = self.servers.load();
        let mut links: Vec<_> = match &caller.view {
            CatalogView::All => servers.values().filter_map(|s| s.link()).collect(),
            CatalogView::One(id) => servers.get(id).and_then(|s| s.link()).into_iter().collect(),
        };
        links.retain(|link| self.sees(caller, &link.server));
        links
    }

    /// Where the caller's calls go that are connected right now: those servers, or its own instances of them.
    fn links_of(&self, caller: &Caller) -> Vec<Arc<Link>> {
        let (servers, links) = (self.servers.load(), self.links(caller));
        let own = |link: Arc<Link>| servers.get(&link.server)?.link_of(caller);
        links.into_iter().filter_map(own).collect()
    }
}

/// An answer of the kernel's own.
fn json(answer: &impl Serialize) -> Outcome {
    let written = serde_json::to_vec(answer).map(Bytes::from);
    written.map_err(|error| Refusal::Broken(error.to_string()))
}

/// The same as what a tool of the kernel answers: structured, and as text.
fn structured(caller: &Caller, answer: &[u8]) -> Bytes {
    let answer = String::from_utf8_lossy(answer);
    let complete = match caller.version.is_legacy() {
        true => "",
        false => r#","resultType":"complete""#,
    };
    format!(
        r#"{{"content":[{{"type":"text","text":{}}}],"structuredContent":{answer}{complete}}}"#,
        quoted(&answer)
    )
    .into()
}

/// A JSON string's text; borrowed where it has no escapes.
fn text(raw: &RawValue, what: &str) -> Result<String, Refusal> {
    serde_json::from_str(raw.get())
        .map_err(|_| Refusal::BadParams(format!("`{what}` must be a string")))
}

fn required(request: &Request) -> Result<&str, Refusal> {
    request
        .params
        .as_deref()
        .ok_or_else(|| Refusal::BadParams("`params` is missing".into()))
}

/// The answer to a request that has nothing to say.
#[must_use]
pub fn nothing() -> Bytes {
    Bytes::from_static(b"{}")
}
