//! Reports the messages of a request to an operator who watches.

use bytes::Bytes;

use super::InFlightCall;
use crate::agent_tap::AgentTap;

impl InFlightCall {
    /// Reports messages of this request to the operator from now on.
    pub fn set_tap(&self, tap: AgentTap) {
        let _ = self.tap.set(tap);
    }

    /// Reports a message of this request that is about to be sent.
    pub(super) fn tap_sent(&self, frame: &Bytes) {
        match (self.tap.get(), self.rounds()) {
            (None, _) => {}
            (Some(tap), None) => tap.record_sent(frame),
            (Some(tap), Some(_)) => tap.record_sent_in_round(frame),
        }
    }

    /// A copy of a frame about to be sent, while an operator watches.
    pub(super) fn copy_for_tap(&self, frame: &[u8]) -> Option<Bytes> {
        let tapped = self.tap.get();
        tapped.map(|_| Bytes::copy_from_slice(frame))
    }
}
