//! What an agent says and hears over its connection or in its session, for an operator who looks on.

use std::sync::Arc;

use bytes::Bytes;
use mgp_protocol::jsonrpc::{self, RequestId};
use mgp_protocol::mcp::{self, Initialize, Method};
use mgp_protocol::splice::quoted;

use super::{Agent, Outward};
use crate::agent_tap::AgentTap;
use crate::exchange::Exchange;
use crate::exchange::question::ClientAnswer;

impl Agent {
    fn tapped(&self) -> Option<AgentTap> {
        AgentTap::of(self.id(), self.is_operator(), self.connection)
    }

    /// An exchange outside the agent's own requests, shown where somebody looks on.
    pub(super) fn tapping(&self, exchange: Arc<Exchange>) -> Arc<Exchange> {
        if let Some(tap) = self.tapped() {
            exchange.tap(tap);
        }
        exchange
    }

    /// It is sent a message that belongs to no request. To one who only receives, it goes with its request.
    pub(super) fn tap_told(&self, frame: &Bytes) {
        let Some(tap) = self.tapped() else { return };
        match &self.outward {
            Outward::Line(_) | Outward::Session(_) => tap.hears(frame),
            Outward::Listening { exchange, .. } | Outward::Following(exchange) => exchange.tap(tap),
        }
    }

    pub(super) fn tap_hello(&self, hello: &Initialize<'_>) {
        if let Some(tap) = self.tapped() {
            tap.said_hello(&format!(
                r#"{{"protocolVersion":{},"capabilities":{},"clientInfo":{{"name":{},"version":{}}}}}"#,
                quoted(&hello.protocol_version),
                hello.capabilities.get(),
                quoted(&hello.client_info.name),
                quoted(&hello.client_info.version),
            ));
        }
    }

    pub(super) fn tap_cancel(&self, params: Option<&str>) {
        if let Some(tap) = self.tapped() {
            tap.cancelled(params);
        }
    }

    pub(super) fn tap_answer(&self, id: &RequestId, answer: &ClientAnswer) {
        if let Some(tap) = self.tapped() {
            tap.answered(id, answer);
        }
    }

    /// It asked whether the kernel is there, and its door answered.
    pub(super) fn tap_ping(&self, id: &RequestId) {
        if let Some(tap) = self.tapped() {
            tap.asked(id, mcp::Ping::METHOD, None);
            tap.hears(&jsonrpc::result(id.as_json(), "{}").into());
        }
    }

    /// It sent something that cannot be read.
    pub fn tap_unreadable(&self, text: &[u8]) {
        if let Some(tap) = self.tapped() {
            tap.said(Bytes::copy_from_slice(text));
        }
    }
}
