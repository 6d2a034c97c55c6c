//! Sends the kernel's messages to one agent.

use std::sync::Arc;

use bytes::Bytes;
use mgp_engine::callers::tasks::NamedTask;
use mgp_engine::tools::catalog::ListKind;
use mgp_protocol::jsonrpc::{self, Message};
use mgp_protocol::mcp::subscriptions::Filter;
use mgp_protocol::splice::{Splice, member};
use mgp_runtime::tap;
use mgp_transports::lines::{LineSink, QueueLimits, SendError};
use serde_json::value::RawValue;

use super::Agent;
use crate::exchange::streams::{GET, Streams};
use crate::exchange::{Delivery, Exchange, pass_line};

/// The channel for an agent's messages.
#[derive(Debug)]
pub enum Outward {
    /// A line connection, which carries all messages.
    Line(LineSink),
    /// A legacy HTTP session.
    Session(Arc<Streams>),
    /// A `subscriptions/listen` of a stateless client.
    Listening {
        /// The request.
        exchange: Arc<Exchange>,
        /// The events it wants.
        wanted: Filter,
        /// `_meta` of all its messages, as JSON text, with the id of the subscription.
        tag: Box<str>,
        /// The tasks it wants news of, with the client's ids.
        tasks: Vec<(NamedTask, String)>,
    },
    /// An `mgp/events/subscribe` of an agent of another node, which stays open for its events.
    Following(Arc<Exchange>),
}

impl Agent {
    /// Whether a request outside of the client's own reaches it now. A session of HTTP needs its GET stream.
    #[must_use]
    pub fn is_reachable(&self) -> bool {
        match &self.outward {
            Outward::Line(_) => true,
            Outward::Session(streams) => streams.is_get_open(),
            Outward::Listening { .. } | Outward::Following(_) => false,
        }
    }

    /// Sends a message that belongs to no request.
    pub fn tell(&self, frame: Bytes, class: Delivery) {
        if !self.is_ready() {
            return;
        }
        self.tap_told(&frame);
        match &self.outward {
            Outward::Line(sink) => pass_line(sink, frame, class),
            Outward::Session(streams) => streams.push(GET, frame, class),
            Outward::Listening { exchange, tag, .. } => {
                if let Some(tagged) = tagged(&frame, tag) {
                    exchange.send(tagged, class);
                }
            }
            Outward::Following(exchange) => exchange.send(frame, class),
        }
    }

    /// Sends a message that belongs to no request if there is room for it now, which is never more than so
    /// much of a line.
    ///
    /// # Errors
    /// [`SendError::Full`] when it is to be sent later; [`SendError::Closed`] when it never can be.
    pub fn offer(&self, frame: Bytes, room: QueueLimits) -> Result<(), SendError> {
        let copy = tap::is_open().then(|| frame.clone());
        match &self.outward {
            _ if !self.is_ready() => Err(SendError::Full),
            Outward::Line(sink) => sink.offer_within(frame, room),
            Outward::Session(streams) => streams.offer(GET, frame),
            Outward::Listening { .. } => Err(SendError::Closed),
            Outward::Following(exchange) => exchange.offer_now(frame),
        }?;
        if let Some(copy) = copy {
            self.tap_told(&copy);
        }
        Ok(())
    }

    /// Resolves when [`Self::offer`] may find room, where that is known.
    pub fn room(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        match &self.outward {
            Outward::Following(exchange) if self.is_ready() => exchange.rounds()?.room(),
            Outward::Following(_)
            | Outward::Line(_)
            | Outward::Session(_)
            | Outward::Listening { .. } => None,
        }
    }
}

/// A notification with the id of its subscription.
fn tagged(frame: &Bytes, tag: &str) -> Option<Bytes> {
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

/// The notification that a list changed.
pub(crate) fn list_changed(kind: ListKind) -> &'static str {
    match kind {
        ListKind::Tools => "notifications/tools/list_changed",
        ListKind::Prompts => "notifications/prompts/list_changed",
        ListKind::Resources | ListKind::Templates => "notifications/resources/list_changed",
    }
}
