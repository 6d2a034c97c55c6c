//! The actors at the root of the tree, and what it means to lose one.

use std::sync::Arc;

use mgp_callers::request::Answering;
use mgp_engine::servers::tree_plan::Loss;
use ractor::{ActorCell, SpawnErr};

/// The actors at the root beside the servers' supervisors, and what it means to lose one.
pub const ROOT: [(&str, Loss); 18] = [
    // No child would end with the kernel any more.
    ("guard", Loss::EndsKernel),
    // Who follows what is known nowhere else.
    ("subscriptions", Loss::EndsKernel),
    ("events", Loss::EndsKernel),
    // What was acknowledged last may be on its way to the disk.
    ("access", Loss::EndsKernel),
    ("agent_registry", Loss::EndsKernel),
    // Whoever waits for a person would wait for ever: the questions are asked again at the next start.
    ("permissions", Loss::EndsKernel),
    ("pins", Loss::EndsKernel),
    ("registrar", Loss::EndsKernel),
    // Calls that go on as tasks would be followed by nobody: the next start shows them as failed.
    ("tasks", Loss::EndsKernel),
    // Made again from what is published, and from what servers offer again.
    ("catalog", Loss::Restarted),
    // Made again from what is published. A server whose tools cannot be indexed takes nobody along.
    ("search", Loss::Restarted),
    // The connections of all agents end with it.
    ("agents", Loss::EndsKernel),
    // Dialed again; the others notice no more than a cable that was pulled.
    ("links", Loss::Restarted),
    // What was acknowledged last may be on its way to the disk.
    ("replication", Loss::EndsKernel),
    ("shares", Loss::EndsKernel),
    // Others would go on by what they were told last.
    ("tool_index", Loss::EndsKernel),
    // Tickets that were given out would be good for nothing, and nobody would know.
    ("pairing", Loss::EndsKernel),
    ("lan", Loss::EndsKernel),
];

/// Starts an actor at the root again, and refills the slot its handles hold.
pub type Restart = Arc<dyn Fn() -> Answering<Result<ActorCell, SpawnErr>> + Send + Sync>;

/// An actor at the root.
#[derive(Clone)]
pub struct RootActor {
    /// Its name in [`ROOT`].
    pub name: &'static str,
    /// Where it is.
    pub cell: ActorCell,
    /// How it is started again, where [`ROOT`] says that it is.
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
    pub fn lasting(name: &'static str, cell: ActorCell) -> Self {
        let restart = None;
        Self {
            name,
            cell,
            restart,
        }
    }

    /// One that is started again.
    pub fn restarted<F>(
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
    pub(super) fn loss(&self) -> Loss {
        let known = ROOT.iter().find(|(name, _)| *name == self.name);
        known.map_or(Loss::EndsKernel, |(_, loss)| *loss)
    }
}
