//! The parts of MCPL.

use std::sync::Arc;

use mgp_callers::directory::Directory;
use mgp_mcpl::agents::McplAgents;
use mgp_mcpl::hooks::{HookOrigin, Hooks, HooksFrom, PassId};
use mgp_mcpl::host::{McplHost, McplNoun};
use mgp_mcpl::push::{PushHandle, PushTo};
use mgp_mcpl::scopes::ScopeKeeper;
use mgp_mcpl_engine::policy::McplRules;
use mgp_policy::approvals::ApprovalsHandle;
use mgp_runtime::event_sink::EventSink;
use mgp_servers::server::ServerTable;
use mgp_store::audit::AuditHandle;
use mgp_tools::events::EventsHandle;
use ractor::SpawnErr;

use super::super::data_folder::StoredMcpl;
use crate::config::KernelConfig;
use crate::tree::RootActor;

/// The host of MCPL servers, and the agents that are hosts themselves.
pub(super) struct McplParts {
    pub(super) host: Arc<McplHost>,
    pub(super) agents: Arc<McplAgents>,
    pub(super) hooks: Hooks,
    push: PushHandle,
}

impl McplParts {
    /// Starts what MCPL needs; actors of it at the root are added to `root`.
    pub(super) async fn start(
        kernel: &KernelConfig,
        kept: StoredMcpl,
        directory: &Arc<Directory>,
        approvals: &ApprovalsHandle,
        (servers, events): (&Arc<ServerTable>, &EventsHandle),
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
        let hooks = Hooks::new(
            kernel.mcpl.hooks.clone(),
            HooksFrom {
                host: host.clone(),
                ids: ids(),
                models: EventSink::new(drop),
                servers: servers.clone(),
            },
        );
        let push = PushHandle::new(
            kept.push,
            kernel.mcpl.push.clone(),
            PushTo {
                host: host.clone(),
                agents: agents.clone(),
                events: events.clone(),
                inference: EventSink::new(drop),
                ids: ids(),
                servers: servers.clone(),
            },
        );
        host.attend(nouns(&agents, &push));
        let _ = root;
        Ok(Self {
            host,
            agents,
            hooks,
            push,
        })
    }

    /// Takes up what the configuration says.
    pub(super) fn configured(&self) -> EventSink<McplRules> {
        let (host, hooks, push) = (self.host.clone(), self.hooks.clone(), self.push.clone());
        EventSink::new(move |rules: McplRules| {
            hooks.set_policy(rules.hooks.clone());
            push.set_policy(rules.push.clone());
            host.configure(rules);
        })
    }
}

/// Who takes what servers say of MCPL.
fn nouns(agents: &Arc<McplAgents>, push: &PushHandle) -> Vec<McplNoun> {
    let agents = agents.clone();
    vec![
        // Agents that are hosts are told of sets that come and go.
        McplNoun {
            methods: &[],
            takes: EventSink::new(drop),
            hears: EventSink::new(move |_| agents.refresh()),
        },
        push.noun(),
    ]
}

/// What servers are told for the ids of agents and of other servers: a hash of whose it is and who reads it.
fn ids() -> PassId {
    PassId::new(|origin, server, kind, id| {
        let whose = match origin {
            HookOrigin::Agent(agent) => format!("agent {} {:?}", agent.id, agent.connection),
            HookOrigin::Server { server, .. } => format!("server {server}"),
        };
        let text = format!("{kind:?}\n{whose}\n{server}\n{id}");
        blake3::hash(text.as_bytes()).to_hex()[..32].to_owned()
    })
}
