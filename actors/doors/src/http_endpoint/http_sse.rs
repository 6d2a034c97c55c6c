//! HTTP+SSE of 2024-11-05 for old clients: a line connection whose lines arrive as POST bodies and are sent
//! as events.
//!
//! `GET /sse` (or `/sse/<server>`) opens it and names the endpoint for POSTs; it ends with that stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http::{Request, Response, StatusCode};
use mgp_callers::Credential;
use mgp_engine::policy::access::ClaimedGroups;
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::framing::to_one_line;
use mgp_protocol::ids::AgentId;
use mgp_protocol::jsonrpc::partial_message::PartialMessage;
use mgp_protocol::jsonrpc::{self, Malformed};
use mgp_transports::http::body::{ReplyBody, RequestBody};
use mgp_transports::{FairSlots, SlotAdmission, Usage, sse};
use tokio::io::{AsyncRead, DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio_util::codec::{FramedRead, LinesCodec};
use tokio_util::io::StreamReader;
use tokio_util::sync::CancellationToken;

use super::post::read_message;
use super::responses::{json_response, overloaded_response, unknown_session_response};
use super::{HEARTBEAT_INTERVAL, HttpEndpoint, empty_response, stream_response};
use crate::connection::{self, ConnectionEnd};
use mgp_runtime::task;

/// The path for POSTed messages; the query names the connection.
pub(super) const ENDPOINT_PATH: &str = "/sse/messages";
/// Queued messages between POSTs and the connection. A further POST waits, so that a client holds no more
/// than its POSTs in flight and one message.
const QUEUE_MAX: usize = 1;
/// Bytes between the connection and the stream of its client.
const PIPE_BYTES: usize = 64 << 10;

/// Open connections of old clients, by the id in their endpoint.
#[derive(Debug)]
pub struct HttpSse {
    open: Mutex<SseClients>,
    /// Resolves when the endpoint closes: answers to what was accepted are still sent.
    drain: CancellationToken,
}

#[derive(Debug)]
struct SseClients {
    clients: HashMap<String, Arc<SseClient>>,
    agents: FairSlots<AgentId, String>,
}

#[derive(Debug)]
struct SseClient {
    agent: AgentId,
    groups: ClaimedGroups,
    inbound: mpsc::Sender<Bytes>,
    /// Cancelled when its slot is given to another client.
    evict: CancellationToken,
}

impl SseClients {
    /// Adds a client, and may evict one of the agent with the most clients. False when there is no slot.
    fn insert(&mut self, id: &str, client: Arc<SseClient>) -> bool {
        // Each holds its stream open: none is idle.
        match self.agents.admit(&client.agent, |_| Usage::Busy) {
            SlotAdmission::Free => {}
            SlotAdmission::Replaces(evicted) => {
                let evicted = self.clients.remove(&evicted);
                evicted.iter().for_each(|evicted| evicted.evict.cancel());
            }
            SlotAdmission::Full => return false,
        }
        self.agents.insert(&client.agent, id.to_owned());
        self.clients.insert(id.to_owned(), client);
        true
    }
}

impl HttpSse {
    /// Creates the table for `max` connections, until `drain` resolves.
    #[must_use]
    pub fn new(max: usize, drain: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            drain,
            open: Mutex::new(SseClients {
                clients: HashMap::new(),
                agents: FairSlots::new(max),
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, SseClients> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a connection; its first event names the endpoint.
    pub(super) fn open(
        self: &Arc<Self>,
        endpoint: &HttpEndpoint,
        view: CatalogView,
        pass: &Credential,
    ) -> Response<ReplyBody> {
        let id = mgp_runtime::ids::new_session_id().to_string();
        let (way_in, messages) = mpsc::channel(QUEUE_MAX);
        let (writer, way_out) = duplex(PIPE_BYTES);
        let leave = CancellationToken::new();
        let client = Arc::new(SseClient {
            agent: pass.agent.clone(),
            groups: pass.groups.clone(),
            inbound: way_in,
            evict: leave.clone(),
        });
        if !self.lock().insert(&id, client) {
            let message = "too many sessions are open (`[tuning.http] max_sessions`)";
            return overloaded_response(None, message);
        }
        let serving = connection::serve(
            endpoint.endpoint.clone(),
            (pass.agent.clone(), pass.groups.clone()),
            false,
            Some(view),
            ConnectionEnd {
                drain: self.drain.clone(),
                leave: leave.clone(),
            },
            line_reader(messages, self.drain.clone()),
            writer,
        );
        task::spawn_detached("http_sse.serve", serving);
        let endpoint = format!("{ENDPOINT_PATH}?session={id}");
        let first = sse::render_named_event("endpoint", None, endpoint.as_bytes());
        let leaving = SseClientEntry {
            table: self.clone(),
            id,
        };
        let events = event_stream(first, way_out, leaving).take_until(leave.cancelled_owned());
        let body = ReplyBody::stream(events);
        stream_response(body.with_heartbeat(HEARTBEAT_INTERVAL, sse::render_comment("")))
    }

    /// Handles one POSTed message.
    pub(super) async fn post(
        &self,
        endpoint: &HttpEndpoint,
        request: Request<RequestBody>,
        pass: &Credential,
    ) -> Response<ReplyBody> {
        let query = request.uri().query().unwrap_or("");
        let client = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("session="))
            .and_then(|id| self.lock().clients.get(id).cloned())
            .filter(|client| client.agent == pass.agent && client.groups == pass.groups);
        let Some(client) = client else {
            return unknown_session_response();
        };
        let body = match read_message(endpoint, request.into_body(), &pass.agent).await {
            Ok(body) => body,
            Err(response) => return *response,
        };
        if let Err(broken @ Malformed::NotJson(_)) = jsonrpc::parse(&body)
            && let Some(frame) = broken.to_frame()
        {
            if PartialMessage::scan(&body).is_response() {
                // An answer over the limit: the connection fails its callback and sends nothing.
                let _ = client.forward(body).await;
            }
            return json_response(StatusCode::BAD_REQUEST, ReplyBody::full(frame));
        }
        match client.forward(body).await {
            Ok(()) => empty_response(StatusCode::ACCEPTED),
            Err(SseClientGone) => unknown_session_response(),
        }
    }
}

impl SseClient {
    /// Forwards a message as one line: completely, or not at all if the client has disconnected.
    async fn forward(&self, body: Bytes) -> Result<(), SseClientGone> {
        self.inbound
            .send(to_one_line(body))
            .await
            .map_err(|_| SseClientGone)
    }
}

/// The connection has ended.
struct SseClientGone;

/// Reads messages as the lines of a connection. Once `drain` resolves, no further ones are accepted.
fn line_reader(
    messages: mpsc::Receiver<Bytes>,
    drain: CancellationToken,
) -> impl AsyncRead + Unpin + Send + 'static {
    let lines = stream::unfold((messages, drain), |(mut messages, drain)| async move {
        let next = drain.run_until_cancelled(messages.recv()).await;
        let line = match next {
            Some(line) => line?,
            None => {
                messages.close();
                messages.recv().await?
            }
        };
        let lines = stream::iter([line, Bytes::from_static(b"\n")]);
        Some((lines, (messages, drain)))
    });
    StreamReader::new(Box::pin(lines.flatten().map(std::io::Result::Ok)))
}

/// Closes the connection when its stream is dropped.
struct SseClientEntry {
    table: Arc<HttpSse>,
    id: String,
}

impl Drop for SseClientEntry {
    fn drop(&mut self) {
        let mut open = self.table.lock();
        open.agents.remove(&self.id);
        open.clients.remove(&self.id);
    }
}

/// Sends the lines of a connection as events, as fast as the client reads them.
fn event_stream(
    first: Bytes,
    way_out: DuplexStream,
    leaving: SseClientEntry,
) -> impl Stream<Item = Bytes> + Send {
    let lines = FramedRead::new(way_out, LinesCodec::new()).filter_map(move |line| {
        let _open = &leaving;
        // An error is the last item of a stream of lines.
        std::future::ready(
            line.ok()
                .map(|line| sse::render_event(None, line.as_bytes())),
        )
    });
    stream::once(std::future::ready(first)).chain(lines)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    /// A client that disconnects during its POST does not break a line: the next message is read correctly.
    #[tokio::test]
    async fn aborted_post_leaves_no_partial_line() {
        let (way_in, messages) = mpsc::channel(QUEUE_MAX);
        let client = SseClient {
            agent: AgentId::new(AgentId::LOCAL),
            groups: ClaimedGroups::default(),
            inbound: way_in,
            evict: CancellationToken::new(),
        };
        let mut read = line_reader(messages, CancellationToken::new());
        let long = Bytes::from(vec![b'x'; 2 * PIPE_BYTES]);
        // Dropped as soon as it has to wait.
        for _ in 0..3 {
            let _ = futures_util::FutureExt::now_or_never(client.forward(long.clone()));
        }
        let mut got = vec![0; long.len() + 1];
        read.read_exact(&mut got).await.unwrap();
        let next = client.forward(Bytes::from_static(b"{}"));
        assert!(next.await.is_ok());
        drop(client);
        let mut rest = Vec::new();
        read.read_to_end(&mut rest).await.unwrap();
        got.extend(rest);
        let whole = |line: &[u8]| line == long || line == b"{}" || line.is_empty();
        assert!(got.split(|byte| *byte == b'\n').all(whole), "torn");
        assert!(got.ends_with(b"\n{}\n"), "the next message is there");
    }
}
