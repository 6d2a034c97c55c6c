//! Sends the kernel's messages to one agent.

use std::sync::Arc;

use bytes::Bytes;
use mgp_engine::callers::tasks::NamedTask;
use mgp_engine::tools::catalog::ListKind;
use mgp_protocol::jsonrpc::{self, Message};
use mgp_protocol::mcp::subscriptions::Filter;
use mgp_protocol::splice::{Splice, member};
use mgp_transports::lines::LineSink;
use serde_json::value::RawValue;

use crate::exchange::Exchange;
use crate::exchange::streams::Streams;

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

/// A notification with the id of its subscription.
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

/// The notification that a list changed.
pub(crate) fn list_changed(kind: ListKind) -> &'static str {
    match kind {
        ListKind::Tools => "notifications/tools/list_changed",
        ListKind::Prompts => "notifications/prompts/list_changed",
        ListKind::Resources | ListKind::Templates => "notifications/resources/list_changed",
    }
}
