//! The actors at the root of the tree, and what it means to lose one.

use std::sync::Arc;

use mgp_callers::request::AnswerFuture;
use mgp_engine::servers::tree_plan::LossPolicy;
use ractor::{ActorCell, SpawnErr};

/// The actors at the root beside the servers' supervisors, and what it means to lose one.
pub const ROOT_ACTORS: [(&str, LossPolicy); 18] = [
    // No child would end with the kernel any more.
    ("guard", LossPolicy::StopKernel),
    // Who follows what is known nowhere else.
    ("subscriptions", LossPolicy::StopKernel),
    ("events", LossPolicy::StopKernel),
    // What was acknowledged last may be on its way to the disk.
    ("access", LossPolicy::StopKernel),
    ("agent_registry", LossPolicy::StopKernel),
    // Whoever waits for a person would wait for ever: the questions are asked again at the next start.
    ("permissions", LossPolicy::StopKernel),
    ("pins", LossPolicy::StopKernel),
    ("registrar", LossPolicy::StopKernel),
    // Calls that go on as tasks would be followed by nobody: the next start shows them as failed.
    ("tasks", LossPolicy::StopKernel),
    // Made again from what is published, and from what servers offer again.
    ("catalog", LossPolicy::Restart),
    // Made again from what is published. A server whose tools cannot be indexed takes nobody along.
    ("search", LossPolicy::Restart),
    // The connections of all agents end with it.
    ("agents", LossPolicy::StopKernel),
    // Dialed again; the others notice no more than a cable that was pulled.
    ("links", LossPolicy::Restart),
    // What was acknowledged last may be on its way to the disk.
    ("replication", LossPolicy::StopKernel),
    ("shares", LossPolicy::StopKernel),
    // Others would go on by what they were told last.
    ("tool_index", LossPolicy::StopKernel),
    // Tickets that were given out would be good for nothing, and nobody would know.
    ("pairing", LossPolicy::StopKernel),
    ("lan", LossPolicy::StopKernel),
];

/// Starts an actor at the root again, and refills the slot its handles hold.
pub type Restart = Arc<dyn Fn() -> AnswerFuture<Result<ActorCell, SpawnErr>> + Send + Sync>;

/// An actor at the root.
#[derive(Clone)]
pub struct RootActor {
    /// Its name in [`ROOT_ACTORS`].
    pub name: &'static str,
    /// Where it is.
    pub cell: ActorCell,
    /// How it is started again, where [`ROOT_ACTORS`] says that it is.
    pub restart: Option<Restart>,
}

impl std::fmt::Debug for RootActor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl RootActor {
    /// One whose loss ends the kernel.
    #[must_use]
    pub fn permanent(name: &'static str, cell: ActorCell) -> Self {
        let restart = None;
        Self {
            name,
            cell,
            restart,
        }
    }

    /// One that is started again.
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

    /// What its loss means.
    pub(super) fn on_loss(&self) -> LossPolicy {
        let known = ROOT_ACTORS.iter().find(|(name, _)| *name == self.name);
        known.map_or(LossPolicy::StopKernel, |(_, loss)| *loss)
    }
}
