//! Reports the messages of one connection or session to an operator who watches the agent.

use std::sync::Arc;

use bytes::Bytes;
use mgp_json::quote;
use mgp_protocol::jsonrpc::{self, RequestId};
use mgp_protocol::mcp::{self, Initialize, Method};

use super::{Agent, AgentChannel};
use crate::agent_tap::AgentTap;
use crate::in_flight_call::InFlightCall;
use crate::in_flight_call::callback::CallbackResult;

impl Agent {
    fn open_tap(&self) -> Option<AgentTap> {
        AgentTap::for_agent(self.id(), self.is_operator(), self.connection)
    }

    /// Attaches the tap to a call outside the agent's own requests, while an operator watches.
    pub(super) fn with_tap(&self, call: Arc<InFlightCall>) -> Arc<InFlightCall> {
        if let Some(tap) = self.open_tap() {
            call.set_tap(tap);
        }
        call
    }

    /// Reports a sent message that belongs to no request. For a receive-only client it is reported with its
    /// request.
    pub(super) fn tap_sent(&self, frame: &Bytes) {
        let Some(tap) = self.open_tap() else { return };
        match &self.channel {
            AgentChannel::Line(_) | AgentChannel::Session(_) => tap.record_sent(frame),
            AgentChannel::Listener { call, .. } | AgentChannel::Follower(call) => call.set_tap(tap),
        }
    }

    pub(super) fn tap_hello(&self, hello: &Initialize<'_>) {
        if let Some(tap) = self.open_tap() {
            tap.record_initialize(&format!(
                r#"{{"protocolVersion":{},"capabilities":{},"clientInfo":{{"name":{},"version":{}}}}}"#,
                quote(&hello.protocol_version),
                hello.capabilities.get(),
                quote(&hello.client_info.name),
                quote(&hello.client_info.version),
            ));
        }
    }

    pub(super) fn tap_cancel(&self, params: Option<&str>) {
        if let Some(tap) = self.open_tap() {
            tap.record_cancelled(params);
        }
    }

    pub(super) fn tap_answer(&self, id: &RequestId, answer: &CallbackResult) {
        if let Some(tap) = self.open_tap() {
            tap.record_answer(id, answer);
        }
    }

    /// Reports a ping, which its endpoint answered.
    pub(super) fn tap_ping(&self, id: &RequestId) {
        if let Some(tap) = self.open_tap() {
            tap.record_request(id, mcp::Ping::METHOD, None);
            tap.record_sent(&jsonrpc::result(id.as_json(), "{}").into());
        }
    }

    /// Reports an unreadable message.
    pub fn tap_unreadable(&self, text: &[u8]) {
        if let Some(tap) = self.open_tap() {
            tap.record_received(Bytes::copy_from_slice(text));
        }
    }
}
