//! The actors at the root of the tree, and what the loss of each means.

use std::sync::Arc;

use mgp_callers::request::AnswerFuture;
use mgp_engine::servers::tree_plan::LossPolicy;
use ractor::{ActorCell, SpawnErr};

/// The actors at the root, except the supervisors of servers.
pub const ROOT_ACTORS: [(&str, LossPolicy); 18] = [
    // Without it, children would outlive the kernel.
    ("guard", LossPolicy::StopKernel),
    // Nothing else stores the subscriptions.
    ("subscriptions", LossPolicy::StopKernel),
    ("events", LossPolicy::StopKernel),
    // The last acknowledged decision may still be on its way to the disk.
    ("access", LossPolicy::StopKernel),
    ("agent_registry", LossPolicy::StopKernel),
    // Pending approvals would wait for ever; the next start asks again.
    ("permissions", LossPolicy::StopKernel),
    ("pins", LossPolicy::StopKernel),
    ("registrar", LossPolicy::StopKernel),
    // Nobody would follow calls that continue as tasks; the next start reports them as failed.
    ("tasks", LossPolicy::StopKernel),
    // Rebuilt from the published catalog and from what servers list again.
    ("catalog", LossPolicy::Restart),
    // Rebuilt from the published catalog. A server whose tools cannot be indexed affects no other.
    ("search", LossPolicy::Restart),
    // All agents' connections end with it.
    ("agents", LossPolicy::StopKernel),
    // Dialed again; peers see a short disconnection.
    ("links", LossPolicy::Restart),
    // The last acknowledged decision may still be on its way to the disk.
    ("replication", LossPolicy::StopKernel),
    ("shares", LossPolicy::StopKernel),
    // Peers would continue with outdated lists.
    ("tool_index", LossPolicy::StopKernel),
    // Issued tickets would be invalid, and nobody would notice.
    ("pairing", LossPolicy::StopKernel),
    ("lan", LossPolicy::StopKernel),
];

/// Restarts a root actor and refills the slot that its handles use.
pub(crate) type Restart = Arc<dyn Fn() -> AnswerFuture<Result<ActorCell, SpawnErr>> + Send + Sync>;

/// An actor at the root.
#[derive(Clone)]
pub struct RootActor {
    /// Its name in [`ROOT_ACTORS`].
    pub name: &'static str,
    /// The actor.
    pub cell: ActorCell,
    /// Restarts the actor, if [`ROOT_ACTORS`] says so.
    pub restart: Option<Restart>,
}

impl std::fmt::Debug for RootActor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl RootActor {
    /// An actor whose loss shuts the kernel down.
    #[must_use]
    pub fn permanent(name: &'static str, cell: ActorCell) -> Self {
        let restart = None;
        Self {
            name,
            cell,
            restart,
        }
    }

    /// An actor that is restarted after its loss.
    pub fn restartable<F>(
        name: &'static str,
        cell: ActorCell,
        restart: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<ActorCell, SpawnErr>> + Send + 'static,
    {
        let restart: Restart = Arc::new(move || Box::pin(restart()));
        Self {
            name,
            cell,
            restart: Some(restart),
        }
    }

    pub(super) fn on_loss(&self) -> LossPolicy {
        let row = ROOT_ACTORS.iter().find(|(name, _)| *name == self.name);
        row.map_or(LossPolicy::StopKernel, |(_, loss)| *loss)
    }
}
