//! What is sent for a request, for an operator who looks on.

use bytes::Bytes;

use super::Exchange;
use crate::agent_tap::AgentTap;

impl Exchange {
    /// From now on what is sent for this request is shown to who looks on.
    pub fn tap(&self, tap: AgentTap) {
        let _ = self.tapped.set(tap);
    }

    /// A message of this request leaves.
    pub(super) fn tap_sent(&self, frame: &Bytes) {
        match (self.tapped.get(), self.rounds()) {
            (None, _) => {}
            (Some(tap), None) => tap.hears(frame),
            (Some(tap), Some(_)) => tap.hears_in_rounds(frame),
        }
    }

    /// A copy of a frame that may leave, where somebody looks on.
    pub(super) fn tap_copy(&self, frame: &[u8]) -> Option<Bytes> {
        let tapped = self.tapped.get();
        tapped.map(|_| Bytes::copy_from_slice(frame))
    }
}
