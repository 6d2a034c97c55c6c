//! `mgp/callback/respond`: sends the answer of a callback to its server.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::jsonrpc;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::callback::Respond;
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::refusal::Refusal;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::link::CallContext;
use crate::link::calls::RegisteredCall;
use crate::link::{InFlight, Link, MetadataHeaders, request_meta};
use mgp_callers::{InFlightCall, ReplyPath};
use mgp_runtime::task;

/// The maximum of responses in flight to one server. They do not count as calls, because calls wait for them,
/// and are sent even when no new call is accepted.
pub(in crate::link) const MAX_RESPONSES: usize = 16;
/// How long a server may take to acknowledge a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The slots for responses in flight.
#[derive(Debug)]
pub(super) struct ResponseSlots(Arc<Semaphore>);

impl Default for ResponseSlots {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_RESPONSES)))
    }
}

impl Link {
    /// Sends a response as soon as a slot is free.
    pub(super) async fn send_callback_response(self: &Arc<Self>, params: String) {
        let slots = self.mgp_callbacks.responses.0.clone();
        if let Ok(slot) = slots.acquire_owned().await {
            self.send_response(&params, slot).await;
        }
    }

    /// Sends a response that the server can poll for; dropped if no slot is free.
    pub(super) fn try_send_callback_response(self: &Arc<Self>, params: String) {
        let slots = self.mgp_callbacks.responses.0.clone();
        let Ok(slot) = slots.try_acquire_owned() else {
            return;
        };
        let link = self.clone();
        task::spawn_detached("callbacks.respond", async move {
            link.send_response(&params, slot).await;
        });
    }

    async fn send_response(self: &Arc<Self>, params: &str, _slot: OwnedSemaphorePermit) {
        let Some(family) = self.family_negotiating(Features::CALLBACKS) else {
            return;
        };
        let (answer, settled) = oneshot::channel();
        let in_flight = InFlight {
            answer,
            call: InFlightCall::new(ReplyPath::Discard),
            caller: None,
            token: None,
            stream: None,
            mgp_progress: false,
            family,
            is_listen: false,
            channel: None,
            last_activity: AtomicU64::new(0),
        };
        let Ok(id) = self.insert(in_flight) else {
            return;
        };
        let _forget = RegisteredCall { link: self, id };
        let whole = match family {
            ProtocolFamily::Legacy => params.to_owned(),
            ProtocolFamily::Stateless => request_meta::add_meta(Some(params), &self.kernel_meta),
        };
        let id_text = self.ids.encode(id).to_string();
        let frame = jsonrpc::request(&id_text, Respond::METHOD, Some(&whole));
        let mirror = MetadataHeaders {
            method: Respond::METHOD,
            name: None,
            params: &[],
        };
        tokio::select! {
            biased;
            outcome = settled => self.log_response_outcome(outcome.unwrap_or(Err(Refusal::Cancelled))),
            never = self.wire.send_call(self, id, frame.into(), family, mirror, CallContext::default()) => match never {},
            () = tokio::time::sleep(RESPONSE_TIMEOUT) => self.log.push_note("it did not acknowledge the answer to its callback"),
        }
    }

    /// Logs the server's reply to a response.
    fn log_response_outcome(&self, outcome: mgp_callers::request::Outcome) {
        if let Err(refusal) = outcome
            && let Some(error) = refusal.relayed_error()
        {
            self.log
                .push_note(&format!("it rejected the answer to its callback: {error}"));
        }
    }
}
