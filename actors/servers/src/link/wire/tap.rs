//! Copies the messages of a link to open taps. Messages in another encoding than JSON-RPC (MCP-lite, another
//! node) are shown as the kernel sees them.

use bytes::Bytes;
use mgp_callers::request::Outcome;
use mgp_protocol::jsonrpc;
use mgp_protocol::mgp::kernel::recorder::MessageSender;
use mgp_runtime::tap::{self, TapSubject};

use crate::link::Link;

impl Link {
    /// Copies a message that is sent to the server.
    pub(in crate::link) fn tap_sent(&self, frame: &Bytes) {
        if tap::has_open_taps() {
            tap::publish(&self.subject(), self.number, MessageSender::Kernel, frame);
        }
    }

    /// Copies a message that came from the server.
    pub(in crate::link) fn tap_received(&self, frame: &Bytes) {
        // The messages of a batch are copied one by one.
        if tap::has_open_taps() && !(frame.starts_with(b"[") && self.can_batch()) {
            tap::publish(&self.subject(), self.number, MessageSender::Server, frame);
        }
    }

    /// Copies the outcome of a call that was not answered in JSON-RPC.
    pub(in crate::link) fn tap_outcome(&self, id: u64, outcome: &Outcome) {
        if tap::has_open_taps() && self.is_pending(id) {
            self.tap_ended(id, outcome);
        }
    }

    /// Copies the outcome of a call that the pending table can no longer settle.
    pub(in crate::link) fn tap_ended(&self, id: u64, outcome: &Outcome) {
        if !tap::has_open_taps() {
            return;
        }
        let id = self.ids.encode(id).to_string();
        let answered = match outcome {
            Ok(result) => jsonrpc::result(&id, &String::from_utf8_lossy(result)),
            Err(refusal) => match refusal.relayed_error() {
                Some(error) => jsonrpc::error(&id, error),
                None => {
                    let why = refusal.to_string();
                    return tap::publish_abandoned(&self.subject(), self.number, &id, why);
                }
            },
        };
        let (server, frame) = (MessageSender::Server, answered.into());
        tap::publish(&self.subject(), self.number, server, &frame);
    }

    fn subject(&self) -> TapSubject {
        TapSubject::Server(self.server.clone())
    }
}
