//! The transports for messages to a server.

pub(super) mod http;
pub(super) mod lite;
pub(super) mod node;
mod tap;

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::refusal::Refusal;
use mgp_transports::lines::{LineSink, SendError};
use url::Url;

use self::http::{HttpWire, SseWire};
use self::lite::LiteWire;
use self::node::NodeWire;
use super::{CallContext, Link, LinkEvent, MetadataHeaders};

/// The transport of a link.
#[derive(Debug)]
pub enum Wire {
    /// Lines to a child's stdin.
    Child(LineSink),
    /// Streamable HTTP: each message is a POST.
    Http(Arc<HttpWire>),
    /// HTTP+SSE of 2024-11-05: each message is a POST, answers come on one stream.
    Sse(Arc<SseWire>),
    /// A server on another node: each request is a stream of the link to that node.
    Node(Arc<NodeWire>),
    /// MCP-lite: each call is a separate request.
    Lite(Arc<LiteWire>),
}

impl Wire {
    /// `stdio`, `http`, `sse`, `node`, `lite` or `grpc`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Child(_) => "stdio",
            Self::Http(_) => "http",
            Self::Sse(_) => "sse",
            Self::Node(_) => "node",
            Self::Lite(lite) => lite.name(),
        }
    }

    /// True for a server that is not the kernel's child.
    pub(super) fn is_remote(&self) -> bool {
        !matches!(self, Self::Child(_))
    }

    /// Whether the URL has scheme, host and port of the server's entry; false for programs and nodes.
    pub(super) fn is_own_origin(&self, url: &Url) -> bool {
        match self {
            Self::Http(http) => http.is_own_origin(url),
            Self::Child(_) | Self::Sse(_) | Self::Node(_) | Self::Lite(_) => false,
        }
    }

    /// Fetches an icon at the server's own address.
    pub(super) async fn fetch_icon(&self, url: &Url) -> Option<Bytes> {
        match self {
            Self::Http(http) => http.fetch_icon(url).await,
            Self::Child(_) | Self::Sse(_) | Self::Node(_) | Self::Lite(_) => None,
        }
    }

    /// Sends the call `id` and never resolves: the answer, or a failure here, settles the call in the pending
    /// table.
    pub(super) async fn send_call(
        &self,
        link: &Arc<Link>,
        id: u64,
        frame: Bytes,
        family: ProtocolFamily,
        mirror: MetadataHeaders<'_>,
        context: CallContext<'_>,
    ) -> Infallible {
        link.tap_sent(&frame);
        let sent = match (self, family) {
            (Self::Child(sink), _) => sink
                .send(frame)
                .map_err(|e| refusal_from_send_error(link, e)),
            (Self::Http(http), ProtocolFamily::Legacy) => http.call(link, id, frame, context).await,
            (Self::Http(http), ProtocolFamily::Stateless) => {
                http.call_stateless(link, id, frame, mirror, context).await
            }
            // Boxed: they are larger than the others, and would make each call larger.
            (Self::Sse(sse), _) => Box::pin(sse.post(link, frame)).await,
            (Self::Node(node), _) => Box::pin(node.call(link, id, &frame, mirror.method)).await,
            (Self::Lite(lite), _) => Box::pin(lite.call(link, id, &frame, context)).await,
        };
        if let Err(refusal) = sent {
            link.settle_call(id, Err(refusal));
        }
        std::future::pending().await
    }

    /// Sends a message without an answer. Dropped if it cannot be sent: the link is then broken, and its calls
    /// fail.
    pub(super) fn send_message(&self, link: &Arc<Link>, frame: Bytes) {
        link.tap_sent(&frame);
        match self {
            Self::Child(sink) => {
                let _ = sink.send(frame);
            }
            Self::Http(http) => http.send_message(link, frame),
            Self::Sse(sse) => sse.send_message(link, frame),
            Self::Node(node) => node.send_message(link, &frame),
            Self::Lite(lite) => lite.handle_message(&frame),
        }
    }

    /// True where a call is cancelled with a message, not by dropping its response.
    pub(super) fn should_send_cancel(&self, family: ProtocolFamily) -> bool {
        !matches!(
            (self, family),
            (Self::Http(_), ProtocolFamily::Stateless) | (Self::Node(_) | Self::Lite(_), _)
        )
    }

    /// Closes the connection.
    pub(super) fn close(&self) {
        match self {
            Self::Child(sink) => sink.close(),
            Self::Http(http) => http.close(),
            Self::Sse(sse) => sse.close(),
            // The link belongs to the node and stays open; a lite server has no connection.
            Self::Node(_) | Self::Lite(_) => {}
        }
    }
}

fn refusal_from_send_error(link: &Link, error: SendError) -> Refusal {
    match error {
        SendError::Full => Refusal::Overloaded {
            what: format!("the queue to server {}, which does not read,", link.server),
        },
        SendError::Closed => {
            link.emit(LinkEvent::Unusable(link.number));
            link.unsent_refusal("its stdin is closed")
        }
    }
}

/// Removes a leading byte order mark (RFC 8259, section 8.1).
pub(super) fn strip_bom(frame: Bytes) -> Bytes {
    if frame.starts_with(b"\xef\xbb\xbf") {
        frame.slice(3..)
    } else {
        frame
    }
}
