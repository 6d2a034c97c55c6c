//! Handles the requests of agents: the checks, and one file for each family of methods.
//!
//! Works on published snapshots only. Payloads stay the text that was received; what must change (a name,
//! a URI, a progress token) is spliced in.

mod answer;
mod audit;
pub mod checks;
pub mod confirmations;
mod cut_results;
pub mod known_names;
pub mod listener;
pub mod offered;
pub mod rates;
mod replicas;

/// The methods of MCP that agents call.
pub mod mcp {
    pub mod completion;
    pub mod initialize;
    pub mod lists;
    pub mod logging;
    mod own_resources;
    pub mod prompts;
    pub mod resources;
    pub mod roots;
    pub mod subscriptions;
    pub mod tasks;
    pub mod tools;
}

/// The methods of MGP that agents call.
pub mod mgp {
    pub mod access;
    pub mod agent;
    pub mod callback;
    pub mod calls;
    pub mod discovery;
    pub mod events;
    pub mod kernel_tool;
    pub mod recorder;
    pub mod stream;
    pub mod tools;
}

/// What agents that are MCPL hosts say, and what MCPL adds to calls.
pub mod mcpl {
    use mgp_callers::request::{Outcome, Request};
    use mgp_protocol::mcpl::McplError;

    pub(crate) mod call;
    pub mod channels;
    pub mod context;
    pub mod feature_sets;
    pub mod inference;
    pub mod state;

    /// Nobody answers this method here.
    fn unanswered(request: &Request) -> Outcome {
        Err(McplError::method_not_found(&request.method).into())
    }
}

pub use self::answer::nothing;
pub use self::audit::{CallMetrics, NO_TOOL, OTHERS};
pub use self::checks::confirmation::ConfirmationRules;
pub use self::checks::validators::Validation;
pub use self::checks::{CompiledSchemas, Policies};
pub use self::cut_results::CutResults;
pub use self::mcp::lists::exposure::{Exposing, Showing, ToolCounts};
pub use self::mcp::lists::filtered::SiftedLists;
pub use self::mgp::stream::CallStreams;
pub use self::rates::Rates;
pub use self::replicas::CallerHomes;

use crate::checks::access;
use crate::known_names::NameSources;
use mgp_callers::agent::supervisor::Agents;
use mgp_callers::directory::Directory;
use mgp_callers::request::Caller;
use mgp_callers::tasks::Tasks;
use mgp_cluster::replication::ReplicationHandle;
use mgp_engine::callers::agent_asks::AnsweringAgents;
use mgp_engine::tools::catalog::{CatalogTool, CatalogView};
use mgp_mcpl::agents::McplAgents;
use mgp_mcpl::channels::Channels;
use mgp_mcpl::hooks::Hooks;
use mgp_mcpl::host::McplHost;
use mgp_mcpl::state::States;
use mgp_protocol::ids::ServerId;
use mgp_servers::server::ServerTable;
use mgp_servers::upstream::Upstream;
use mgp_store::audit::AuditHandle;
use mgp_sync::snapshot::Snapshot;
use mgp_tools::catalog::Shown;
use mgp_tools::events::EventsHandle;
use mgp_tools::registrar::Registrar;
use mgp_tools::search::SearchHandle;
use mgp_tools::subscriptions::SubscriptionsHandle;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What the handlers need: published state, and handles to the actors that own it.
#[derive(Debug)]
pub struct Context {
    /// The published catalog.
    pub shown: Arc<Snapshot<Shown>>,
    /// All servers.
    pub servers: Arc<ServerTable>,
    /// Looks up agents, servers and tools by name.
    pub name_sources: NameSources,
    /// Registers servers while the kernel runs.
    pub registrar: Arc<Registrar>,
    /// Cached lists for callers that may not see everything.
    pub sifted: SiftedLists,
    /// Subscriptions to resources.
    pub subscriptions: SubscriptionsHandle,
    /// Subscriptions to events.
    pub events: EventsHandle,
    /// The connected agents.
    pub directory: Arc<Directory>,
    /// The supervisor under which event subscriptions run.
    pub agents: Agents,
    /// The kernel's own tasks, and the names of those at servers.
    pub tasks: Arc<Tasks>,
    /// What the checks of a call need.
    pub policies: Policies,
    /// Which agents answer others.
    pub answering: AnsweringAgents,
    /// The audit log.
    pub audit: AuditHandle,
    /// Counts and times of calls.
    pub metrics: Arc<CallMetrics>,
    /// The calls under way and the room of their streams.
    pub streams: CallStreams,
    /// Cancelled when the kernel ends.
    pub closing: CancellationToken,
    /// The search over tools.
    pub search: SearchHandle,
    /// The logs of the cluster.
    pub replication: ReplicationHandle,
    /// Which tools are listed for which agent.
    pub exposing: Exposing,
    /// The servers that speak MCPL.
    pub mcpl: Arc<McplHost>,
    /// The agents that are hosts of MCPL.
    pub mcpl_agents: Arc<McplAgents>,
    /// The states of stateful tools.
    pub states: Arc<States>,
    /// The channels of MCPL.
    pub channels: Arc<Channels>,
    /// What servers add before inferences, and change behind them.
    pub hooks: Hooks,
    /// Where servers that are one of several remember their callers.
    pub homes: CallerHomes,
    /// What was cut off results, for their callers to read on in.
    pub cut_results: CutResults,
}

impl Context {
    /// The tool of that name, as shown in the view. One whose server has not listed it itself yet is none: a call
    /// of it waits for the server, and is judged by the definition that comes.
    #[must_use]
    pub fn tool(&self, view: &CatalogView, name: &str) -> Option<Arc<CatalogTool>> {
        let shown = self.shown.load();
        let tool = shown.catalog.tool(view, name)?;
        let mut places = shown.catalog.replicas(tool).iter().chain([tool]);
        let is_current = places.any(|tool| shown.is_current(&tool.server));
        is_current.then(|| Arc::clone(tool))
    }

    /// The server of this id, as calls use it.
    pub(crate) fn upstream(&self, server: &ServerId) -> Upstream<'_> {
        Upstream::new(&self.servers, server)
    }

    /// The servers the caller may reach, connected or not.
    pub(crate) fn upstreams(&self, caller: &Caller) -> Vec<Upstream<'_>> {
        let servers = self.servers.load();
        let ids: Vec<&ServerId> = match &caller.view {
            CatalogView::All | CatalogView::Set(_) => servers.keys().collect(),
            CatalogView::One(id) => servers
                .get_key_value(id)
                .map(|(id, _)| id)
                .into_iter()
                .collect(),
        };
        let seen = ids.into_iter().filter(|id| access::sees(self, caller, id));
        seen.map(|id| self.upstream(id)).collect()
    }
}
