//! Ids of inferences and conversations, as each side knows them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mgp_mcpl_engine::conversations::{ForeignIds, IdKind, Side};

/// Passes ids from side to side. Clones share the table.
#[derive(Clone, Debug)]
pub struct Conversations(Arc<Mutex<ForeignIds>>);

impl Conversations {
    /// With a key that only this node has.
    #[must_use]
    pub fn new(key: [u8; 32]) -> Self {
        Self(Arc::new(Mutex::new(ForeignIds::new(key))))
    }

    /// The id that `to` gets for an inference id of `from`.
    #[must_use]
    pub(crate) fn map_inference_id(&self, from: &Side, to: &Side, id: &str) -> String {
        self.lock_ids().map_id(from, to, IdKind::Inference, id)
    }

    /// The same of a conversation.
    #[must_use]
    pub(crate) fn map_conversation_id(&self, from: &Side, to: &Side, id: &str) -> String {
        self.lock_ids().map_id(from, to, IdKind::Conversation, id)
    }

    /// A side disconnected.
    pub(crate) fn forget(&self, side: &Side) {
        self.lock_ids().forget(side);
    }

    /// Held for one look-up.
    fn lock_ids(&self) -> MutexGuard<'_, ForeignIds> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
