//! The way from the kernel to one agent.

use std::sync::Arc;

use bytes::Bytes;
use mgp_engine::callers::tasks::NamedTask;
use mgp_protocol::jsonrpc::{self, Message};
use mgp_protocol::mcp::subscriptions::Filter;
use mgp_protocol::splice::{Splice, member};
use mgp_transports::lines::LineSink;
use serde_json::value::RawValue;

use crate::exchange::streams::Streams;
use crate::exchange::{Delivery, Exchange};

/// Where an agent's messages go.
#[derive(Debug)]
pub enum Outward {
    /// One line connection carries everything.
    Line(LineSink),
    /// A legacy HTTP session.
    Session(Arc<Streams>),
    /// A `subscriptions/listen` of a stateless client.
    Listening {
        /// The request.
        exchange: Arc<Exchange>,
        /// What it wants to hear.
        wanted: Filter,
        /// `_meta` of all it hears, as JSON text: names the subscription.
        tag: Box<str>,
        /// The tasks it wants to hear of, and what its client calls them.
        tasks: Vec<(NamedTask, String)>,
    },
}

/// A notification with the name of its subscription.
pub(super) fn tagged(frame: &Bytes, tag: &str) -> Option<Bytes> {
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

/// Sends a line that may be lost when its reader lags behind, or one that may not.
pub fn pass_line(sink: &LineSink, frame: Bytes, class: Delivery) {
    match class {
        Delivery::Lossy => drop(sink.offer(frame)),
        Delivery::Reliable => send_line(sink, frame),
    }
}

/// Sends a line; a reader so slow that its queue is full is cut off.
pub fn send_line(sink: &LineSink, frame: Bytes) {
    if sink.send(frame).is_err() {
        sink.close();
    }
}
