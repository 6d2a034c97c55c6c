//! HTTP+SSE of 2024-11-05 for old clients: a line connection whose lines travel as POST bodies one
//! way and as events the other.
//!
//! `GET /sse` (or `/sse/<server>`) opens it and names the endpoint to POST to; it ends with its
//! stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use mgp_engine::catalog::View;
use mgp_protocol::ids::AgentId;
use mgp_transports::http::body::{Reply, collect};
use mgp_transports::sse;
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio_util::codec::{FramedRead, LinesCodec};

use super::answer::{refusal, unknown_session};
use super::post::BODY_DEADLINE;
use super::{HEARTBEAT, HttpDoor, status, stream_response};
use crate::connection;

/// Where messages are POSTed; the query names the connection.
pub(super) const ENDPOINT: &str = "/sse/messages";
/// Bytes between a POST and the connection that reads it, and back.
const PIPE: usize = 64 << 10;

/// Open connections of old clients, by the id in their endpoint.
#[derive(Debug, Default)]
pub struct OldStyle {
    open: Mutex<HashMap<String, Arc<Visit>>>,
}

#[derive(Debug)]
struct Visit {
    agent: AgentId,
    way_in: tokio::sync::Mutex<DuplexStream>,
}

impl OldStyle {
    /// Opens a connection; its first event names the endpoint.
    pub(super) fn open(
        self: &Arc<Self>,
        door: &HttpDoor,
        view: View,
        agent: AgentId,
    ) -> Response<Reply> {
        let id = crate::session::new_id().to_string();
        let (way_in, reader) = duplex(PIPE);
        let (writer, way_out) = duplex(PIPE);
        let visit = Arc::new(Visit {
            agent: agent.clone(),
            way_in: tokio::sync::Mutex::new(way_in),
        });
        {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            if open.len() >= door.sessions.limits().max {
                return refusal(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "too many sessions are open (`[http] max_sessions`)",
                );
            }
            open.insert(id.clone(), visit);
        }
        tokio::spawn(connection::serve(
            door.reception.clone(),
            agent,
            false,
            Some(view),
            tokio_util::sync::CancellationToken::new(),
            reader,
            writer,
        ));
        let endpoint = format!("{ENDPOINT}?session={id}");
        let first = sse::named("endpoint", None, endpoint.as_bytes());
        let leaving = Leaving {
            table: self.clone(),
            id,
        };
        let body = Reply::stream(events(first, way_out, leaving))
            .heartbeat(HEARTBEAT, sse::comment(""))
            .standing();
        stream_response(body)
    }

    /// Takes one POSTed message.
    pub(super) async fn post(
        &self,
        door: &HttpDoor,
        request: Request<Incoming>,
        agent: &AgentId,
    ) -> Response<Reply> {
        let query = request.uri().query().unwrap_or("");
        let visit = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("session="))
            .and_then(|id| {
                let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
                open.get(id).cloned()
            })
            .filter(|visit| visit.agent == *agent);
        let Some(visit) = visit else {
            return unknown_session();
        };
        let body = match collect(request.into_body(), door.manners.max_body, BODY_DEADLINE).await {
            Ok(body) => body,
            Err(error) => return refusal(error.status(), &error.to_string()),
        };
        match visit.pass(body).await {
            Ok(()) => status(StatusCode::ACCEPTED),
            Err(_) => unknown_session(),
        }
    }
}

impl Visit {
    /// A message on one line: between the tokens of JSON a line end means nothing.
    async fn pass(&self, body: Bytes) -> std::io::Result<()> {
        let mut line: Vec<u8> = body
            .iter()
            .map(|&b| if matches!(b, b'\n' | b'\r') { b' ' } else { b })
            .collect();
        line.push(b'\n');
        self.way_in.lock().await.write_all(&line).await
    }
}

/// Closes the connection when its stream is dropped.
struct Leaving {
    table: Arc<OldStyle>,
    id: String,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let mut open = self
            .table
            .open
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        open.remove(&self.id);
    }
}

/// The lines of a connection as events, for as long as the client takes them.
fn events(
    first: Bytes,
    way_out: DuplexStream,
    leaving: Leaving,
) -> impl Stream<Item = Bytes> + Send {
    let lines = FramedRead::new(way_out, LinesCodec::new()).filter_map(move |line| {
        let _open = &leaving;
        // An error is the last thing a stream of lines says.
        std::future::ready(line.ok().map(|line| sse::event(None, line.as_bytes())))
    });
    futures_util::stream::once(std::future::ready(first)).chain(lines)
}
