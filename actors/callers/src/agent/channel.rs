//! The channel over which the kernel sends to one agent.

use std::sync::Arc;

use bytes::Bytes;
use mgp_engine::callers::tasks::TaskHandle;
use mgp_engine::tools::catalog::ListKind;
use mgp_json::{Splice, member};
use mgp_protocol::jsonrpc::{self, Message};
use mgp_protocol::mcp::subscriptions::Filter;
use mgp_runtime::tap;
use mgp_transports::lines::{LineSink, QueueLimits, SendError};
use serde_json::value::RawValue;

use super::Agent;
use crate::in_flight_call::streams::{GET_LANE, Streams};
use crate::in_flight_call::{Delivery, InFlightCall, send_line_as};

/// The channel for messages that belong to no request.
#[derive(Debug)]
pub enum AgentChannel {
    /// A line connection, which carries all messages.
    Line(LineSink),
    /// A legacy HTTP session.
    Session(Arc<Streams>),
    /// A `subscriptions/listen` of a stateless client.
    Listener {
        /// The request.
        call: Arc<InFlightCall>,
        /// The events it wants.
        wanted: Filter,
        /// `_meta` of all its messages, as JSON text, with the id of the subscription.
        tag: Box<str>,
        /// The tasks it follows, with the client's ids.
        tasks: Vec<(TaskHandle, String)>,
    },
    /// An `mgp/events/subscribe` of an agent of another node, which stays open for its events.
    Follower(Arc<InFlightCall>),
}

impl Agent {
    /// True if a request outside the client's own requests reaches it now. An HTTP session needs its GET
    /// stream.
    #[must_use]
    pub fn is_reachable(&self) -> bool {
        match &self.channel {
            AgentChannel::Line(_) => true,
            AgentChannel::Session(streams) => streams.is_get_open(),
            AgentChannel::Listener { .. } | AgentChannel::Follower(_) => false,
        }
    }

    /// Sends a message that belongs to no request.
    pub fn send(&self, frame: Bytes, class: Delivery) {
        if !self.is_ready() {
            return;
        }
        self.tap_sent(&frame);
        match &self.channel {
            AgentChannel::Line(sink) => send_line_as(sink, frame, class),
            AgentChannel::Session(streams) => streams.push(GET_LANE, frame, class),
            AgentChannel::Listener { call, tag, .. } => {
                if let Some(tagged) = add_subscription_tag(&frame, tag) {
                    call.send(tagged, class);
                }
            }
            AgentChannel::Follower(call) => call.send(frame, class),
        }
    }

    /// Sends a message that belongs to no request, if the queue has capacity now; a line queue is used up
    /// to `limits`.
    ///
    /// # Errors
    /// [`SendError::Full`] to try again later; [`SendError::Closed`] when the channel is closed.
    pub fn try_send(&self, frame: Bytes, limits: QueueLimits) -> Result<(), SendError> {
        let copy = tap::has_open_taps().then(|| frame.clone());
        match &self.channel {
            _ if !self.is_ready() => Err(SendError::Full),
            AgentChannel::Line(sink) => sink.send_within(frame, limits),
            AgentChannel::Session(streams) => streams.try_push(GET_LANE, frame),
            AgentChannel::Listener { .. } => Err(SendError::Closed),
            AgentChannel::Follower(call) => call.try_send_on_round(frame),
        }?;
        if let Some(copy) = copy {
            self.tap_sent(&copy);
        }
        Ok(())
    }

    /// Resolves when [`Self::try_send`] may find capacity; `None` for channels that cannot report it.
    pub fn capacity_available(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        match &self.channel {
            AgentChannel::Follower(call) if self.is_ready() => call.rounds()?.capacity_available(),
            AgentChannel::Follower(_)
            | AgentChannel::Line(_)
            | AgentChannel::Session(_)
            | AgentChannel::Listener { .. } => None,
        }
    }
}

/// Adds the id of its subscription to a notification.
fn add_subscription_tag(frame: &Bytes, tag: &str) -> Option<Bytes> {
    let Ok(Message::Notification { method, params }) = jsonrpc::parse(frame) else {
        return None;
    };
    let params = params.map_or("{}", RawValue::get);
    let mut splice = Splice::new(params);
    match member(params, "_meta") {
        Some(meta) => splice.replace(meta, tag),
        None => splice.insert_member(params, "_meta", tag),
    }
    Some(jsonrpc::notification(&method, Some(&splice.finish())).into())
}

/// The method of the notification that a list changed.
pub(crate) fn list_changed_method(kind: ListKind) -> &'static str {
    match kind {
        ListKind::Tools => "notifications/tools/list_changed",
        ListKind::Prompts => "notifications/prompts/list_changed",
        ListKind::Resources | ListKind::Templates => "notifications/resources/list_changed",
    }
}
