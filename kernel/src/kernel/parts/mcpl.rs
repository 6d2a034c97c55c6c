//! The parts of MCPL.

use std::sync::Arc;

use mgp_callers::directory::Directory;
use mgp_mcpl::agents::McplAgents;
use mgp_mcpl::channels::Channels;
use mgp_mcpl::conversations::Conversations;
use mgp_mcpl::host::{McplHost, McplNoun};
use mgp_mcpl::inference::around::NothingAround;
use mgp_mcpl::inference::{InferenceFrom, InferenceHandle};
use mgp_mcpl::scopes::ScopeKeeper;
use mgp_mcpl::state::States;
use mgp_mcpl_engine::policy::McplRules;
use mgp_policy::approvals::ApprovalsHandle;
use mgp_runtime::event_sink::EventSink;
use mgp_runtime::task;
use mgp_servers::server::ServerEvent;
use mgp_store::audit::AuditHandle;
use ractor::SpawnErr;

use super::super::data_folder::StoredMcpl;
use crate::config::KernelConfig;
use crate::tree::RootActor;

/// The host of MCPL servers, and the agents that are hosts themselves.
pub(super) struct McplParts {
    pub(super) host: Arc<McplHost>,
    pub(super) agents: Arc<McplAgents>,
    pub(super) inference: InferenceHandle,
    pub(super) states: Arc<States>,
    pub(super) channels: Arc<Channels>,
}

impl McplParts {
    /// Starts what MCPL needs; actors of it at the root are added to `root`.
    pub(super) async fn start(
        kernel: &KernelConfig,
        kept: StoredMcpl,
        directory: &Arc<Directory>,
        approvals: &ApprovalsHandle,
        audit: &AuditHandle,
        root: &mut Vec<RootActor>,
    ) -> Result<Self, SpawnErr> {
        let scopes = ScopeKeeper::new(
            kept.scopes,
            kept.folder.join("scopes.json"),
            approvals.clone(),
        );
        let host = McplHost::new(kept.sets, scopes, audit.clone());
        host.configure(kernel.mcpl.clone());
        let agents = McplAgents::new(directory.clone(), host.sets().clone());
        let conversations = Conversations::new(kept.ids);
        let states = States::new(kept.folder.join("state"), kernel.mcpl.state.clone());
        task::detached("mcpl.states", States::looked_over(Arc::downgrade(&states)));
        let rules = kernel.mcpl.channels.clone();
        let channels = Channels::new(host.clone(), agents.clone(), conversations.clone(), rules);
        let inference = InferenceHandle::new(
            kept.tokens,
            kernel.mcpl.inference.clone(),
            InferenceFrom {
                host: host.clone(),
                agents: agents.clone(),
                directory: directory.clone(),
                ids: conversations,
                around: Arc::new(NothingAround),
                publish: EventSink::new(drop),
            },
        );
        let mut nouns = nouns(&agents);
        nouns.push(channels.noun());
        nouns.push(inference.noun());
        host.attend(nouns);
        let _ = root;
        Ok(Self {
            host,
            agents,
            inference,
            states,
            channels,
        })
    }

    /// Takes what of the events of servers is of MCPL, and passes on all others.
    pub(super) fn taken_by(&self, below: EventSink<ServerEvent>) -> EventSink<ServerEvent> {
        let states = self.states.clone();
        self.host.taken_by(EventSink::new(move |event| {
            if let ServerEvent::Removed(server) = &event {
                states.server_removed(server);
            }
            below.send(event);
        }))
    }

    /// Takes up what the configuration says.
    pub(super) fn configured(&self) -> EventSink<McplRules> {
        let (host, inference) = (self.host.clone(), self.inference.clone());
        let (states, channels) = (self.states.clone(), self.channels.clone());
        EventSink::new(move |rules: McplRules| {
            inference.configure(rules.inference.clone());
            states.configure(rules.state.clone());
            channels.configure(rules.channels.clone());
            host.configure(rules);
        })
    }
}

/// Who takes what servers say of MCPL.
fn nouns(agents: &Arc<McplAgents>) -> Vec<McplNoun> {
    let agents = agents.clone();
    vec![
        // Agents that are hosts are told of sets that come and go.
        McplNoun {
            methods: &[],
            takes: EventSink::new(drop),
            hears: EventSink::new(move |_| agents.refresh()),
        },
    ]
}
