//! Handles the requests of agents: the checks, and one file for each family of methods.
//!
//! Works on published snapshots only. Payloads stay the text that was received; what must change (a name,
//! a URI, a progress token) is spliced in.

mod answer;
mod audit;
pub mod checks;
pub mod confirmations;
pub mod icons;
pub mod listener;
pub mod name_sources;
mod rates;
mod relayed;
mod replicas;
mod result_names;
mod result_pages;
mod skill_table;
pub mod skills;
pub mod unoffered_capabilities;

/// The methods of MCP that agents call.
pub mod mcp {
    mod apps;
    pub mod completion;
    pub mod extensions;
    pub mod initialize;
    mod kernel_resources;
    pub mod lists;
    pub mod logging;
    pub mod prompts;
    pub mod resources;
    pub mod roots;
    pub mod skills;
    pub mod subscriptions;
    pub mod tasks;
    pub mod tools;
}

/// The methods of MGP that agents call.
pub mod mgp {
    pub mod access;
    pub mod agent;
    pub mod approvals;
    pub mod callback;
    pub mod calls;
    pub mod discovery;
    pub mod events;
    pub mod groups;
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
    fn unhandled_method(request: &Request) -> Outcome {
        Err(McplError::method_not_found(&request.method).into())
    }
}

pub use self::answer::empty_result;
pub use self::audit::CallMetrics;
pub use self::checks::confirmation::ConfirmationRules;
pub use self::checks::validators::Validation;
pub use self::checks::{CompiledSchemas, LinkLookups, Policies};
pub use self::mcp::lists::exposure::{AgentExposure, ExposureSettings, ToolCounts};
pub use self::mcp::lists::filtered::FilteredLists;
pub use self::mgp::stream::CallStreams;
pub use self::rates::Rates;
pub use self::replicas::CallAffinity;
pub use self::result_pages::TruncatedResults;
pub use self::skill_table::SkillTable;

use crate::checks::access;
use crate::name_sources::NameSources;
use mgp_callers::Directory;
use mgp_callers::agent::supervisor::Agents;
use mgp_callers::request::Caller;
use mgp_callers::tasks::Tasks;
use mgp_cluster::pairing::PairingHandle;
use mgp_cluster::replication::ReplicationHandle;
use mgp_engine::callers::agent_requests::RequestableAgents;
use mgp_engine::tools::catalog::{CatalogTool, CatalogView};
use mgp_mcpl::state::States;
use mgp_mcpl::{Channels, Hooks, McplAgents, McplHost};
use mgp_protocol::ids::ServerId;
use mgp_servers::upstream::Upstream;
use mgp_servers::{Logins, ServerTable};
use mgp_store::audit::AuditHandle;
use mgp_sync::Snapshot;
use mgp_tools::registrar::Registrar;
use mgp_tools::search::SearchHandle;
use mgp_tools::{EventsHandle, PublishedCatalog, SubscriptionsHandle};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What the handlers need: published state, and handles to the actors that own it.
#[derive(Debug)]
pub struct Context {
    /// The published catalog.
    pub catalog: Arc<Snapshot<PublishedCatalog>>,
    /// All servers.
    pub servers: Arc<ServerTable>,
    /// Looks up agents, servers and tools by name.
    pub name_sources: NameSources,
    /// Registers servers while the kernel runs.
    pub registrar: Arc<Registrar>,
    /// Cached lists for callers that may not see everything.
    pub filtered_lists: FilteredLists,
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
    pub answering_agents: RequestableAgents,
    /// The audit log.
    pub audit: AuditHandle,
    /// Counts and times of calls.
    pub metrics: Arc<CallMetrics>,
    /// The in-flight calls and the capacity of their streams.
    pub streams: CallStreams,
    /// Cancelled when the kernel ends.
    pub shutdown: CancellationToken,
    /// The search over tools.
    pub search: SearchHandle,
    /// The logs of the cluster.
    pub replication: ReplicationHandle,
    /// How nodes join.
    pub pairing: PairingHandle,
    /// The logins at servers.
    pub logins: Arc<Logins>,
    /// Which tools are listed for which agent.
    pub exposure: ExposureSettings,
    /// The servers that speak MCPL.
    pub mcpl: Arc<McplHost>,
    /// The agents that are hosts of MCPL.
    pub mcpl_agents: Arc<McplAgents>,
    /// The states of stateful tools.
    pub states: Arc<States>,
    /// The channels of MCPL.
    pub channels: Arc<Channels>,
    /// What servers add before inferences and change after them.
    pub hooks: Hooks,
    /// Where servers that are one of several remember their callers.
    pub affinity: CallAffinity,
    /// What was cut off results, for their callers to read on in.
    pub truncated_results: TruncatedResults,
    /// The skills of servers, and their pins.
    pub skills: Arc<SkillTable>,
}

impl Context {
    /// The tool of that name, as shown in the view. One whose server has not listed it itself yet is none: a call
    /// of it waits for the server, and is judged by the definition that comes.
    #[must_use]
    pub fn tool(&self, view: &CatalogView, name: &str) -> Option<Arc<CatalogTool>> {
        let shown = self.catalog.load();
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
        let seen = ids
            .into_iter()
            .filter(|id| access::can_see_server(self, caller, id));
        seen.map(|id| self.upstream(id)).collect()
    }
}
