//! Maps ids of inferences and conversations between their sides.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mgp_mcpl_engine::conversations::{ForeignIds, IdKind, Side};

/// Maps ids. Clones share the table.
#[derive(Clone, Debug)]
pub struct Conversations(Arc<Mutex<ForeignIds>>);

impl Conversations {
    /// Uses a key that only this node has.
    #[must_use]
    pub fn new(key: [u8; 32]) -> Self {
        Self(Arc::new(Mutex::new(ForeignIds::new(key))))
    }

    /// The id for `to` of an inference id of `from`.
    #[must_use]
    pub(crate) fn map_inference_id(&self, from: &Side, to: &Side, id: &str) -> String {
        self.lock_ids().map_id(from, to, IdKind::Inference, id)
    }

    /// The id for `to` of a conversation id of `from`.
    #[must_use]
    pub(crate) fn map_conversation_id(&self, from: &Side, to: &Side, id: &str) -> String {
        self.lock_ids().map_id(from, to, IdKind::Conversation, id)
    }

    /// Removes a disconnected side.
    pub(crate) fn forget(&self, side: &Side) {
        self.lock_ids().forget(side);
    }

    /// Held for one lookup.
    fn lock_ids(&self) -> MutexGuard<'_, ForeignIds> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
