//! The parts of MCPL.

use std::sync::{Arc, OnceLock};

use mgp_callers::directory::Directory;
use mgp_mcpl::agents::McplAgents;
use mgp_mcpl::host::{McplHost, McplNoun};
use mgp_mcpl::scopes::ScopeKeeper;
use mgp_mcpl_engine::policy::McplRules;
use mgp_policy::approvals::ApprovalsHandle;
use mgp_runtime::event_sink::EventSink;
use mgp_store::audit::AuditHandle;
use ractor::SpawnErr;

use super::super::data_folder::StoredMcpl;
use crate::config::KernelConfig;
use crate::tree::RootActor;

/// The host of MCPL servers, and the agents that are hosts themselves.
pub(super) struct McplParts {
    pub(super) host: Arc<McplHost>,
    pub(super) agents: Arc<McplAgents>,
}

impl McplParts {
    /// Starts what MCPL needs; actors of it at the root are added to `root`. The agents that are hosts are put where
    /// they are looked for when grants change.
    pub(super) async fn start(
        kernel: &KernelConfig,
        kept: StoredMcpl,
        (directory, hosts): (&Arc<Directory>, &OnceLock<Arc<McplAgents>>),
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
        host.attend(nouns(&agents));
        let _ = hosts.set(agents.clone());
        let _ = root;
        Ok(Self { host, agents })
    }

    /// Takes up what the configuration says.
    pub(super) fn configured(&self) -> EventSink<McplRules> {
        let host = self.host.clone();
        EventSink::new(move |rules| host.configure(rules))
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
