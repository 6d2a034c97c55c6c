//! HTTP+SSE of 2024-11-05: messages are POSTed, all answers come on one stream.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, Uri};
use mgp_engine::clock::MonotonicTime;
use mgp_engine::servers::supervision::sessions::is_in_doubt;
use mgp_protocol::mcp::{Method as _, Ping};
use mgp_protocol::refusal::Refusal;
use mgp_sync::credit::Credit;
use mgp_transports::http::client::{EventsError, SseEvents};

use super::session::{HttpSessionState, refuses};
use super::{MAX_TELLS, parted, without_words};
use crate::link::Link;
use crate::login::ServerClient;
use mgp_callers::exchange::Flag;
use mgp_runtime::task;
use mgp_runtime::time::moment;

/// A server of that transport.
#[derive(Debug)]
pub struct SseWire {
    client: ServerClient,
    endpoint: Uri,
    headers: HeaderMap,
    tells: Arc<Credit>,
    session: HttpSessionState,
    closed: Flag,
}

impl SseWire {
    /// A connection that POSTs to `endpoint`.
    #[must_use]
    pub fn new(client: ServerClient, endpoint: Uri, mut headers: HeaderMap) -> Arc<Self> {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Arc::new(Self {
            client,
            endpoint,
            headers,
            tells: Credit::new(MAX_TELLS),
            session: HttpSessionState::default(),
            closed: Flag::default(),
        })
    }

    pub(in crate::link) async fn post(
        &self,
        link: &Arc<Link>,
        frame: Bytes,
    ) -> Result<(), Refusal> {
        let answer = self
            .client
            .request(
                Method::POST,
                &self.endpoint,
                self.headers.clone(),
                Some(frame),
            )
            .await
            .map_err(|e| link.lost(&e.to_string()))?;
        let status = answer.status;
        if status.is_success() {
            return Ok(());
        }
        let refused_at = moment();
        if is_in_doubt(status.as_u16()) && self.has_ended(refused_at).await {
            link.breaks(format!("its session has ended (HTTP {})", status.as_u16()));
            return Err(link.untaken("its session has ended"));
        }
        Err(without_words(link, status, self.client.hint(status)))
    }

    /// Whether the server, which refused a message, refuses any.
    async fn has_ended(&self, refused_at: MonotonicTime) -> bool {
        let (client, endpoint) = (&self.client, &self.endpoint);
        let refuses = refuses(client, endpoint, self.headers.clone(), Ping::METHOD);
        self.session.has_ended(refused_at, refuses).await
    }

    /// True once the server is known to have ended the session: with its stream, or by refusing messages.
    #[must_use]
    pub fn session_is_over(&self) -> bool {
        self.session.is_over()
    }

    pub(in crate::link) fn tell(self: &Arc<Self>, link: &Arc<Link>, frame: Bytes) {
        let Some(charge) = self.tells.try_take(1) else {
            link.log
                .note("a notification was dropped: too many are under way");
            return;
        };
        let (wire, link) = (self.clone(), link.clone());
        task::detached("link.send", async move {
            let _charge = charge;
            let told = tokio::select! {
                told = wire.post(&link, frame) => told,
                () = parted(&wire.closed) => return,
            };
            if let Err(error) = told {
                link.log.note(&format!("a notification failed: {error}"));
            }
        });
    }

    pub(in crate::link) fn close(&self) {
        self.closed.raise();
    }

    /// Passes the stream to the link; when it ends, so does the connection.
    pub async fn listen(self: Arc<Self>, link: Arc<Link>, mut stream: Box<SseEvents>) {
        let read = async {
            loop {
                match stream.next().await {
                    Ok(Some(event)) => link.receive(&event.data, None),
                    Ok(None) => return "its event stream ended".to_owned(),
                    Err(EventsError::TooLarge(_)) => link.overrun(&[], None),
                    Err(error) => return error.to_string(),
                }
            }
        };
        tokio::select! {
            why = read => {
                self.session.set_over();
                link.breaks(why);
            }
            () = self.closed.raised() => {}
        }
    }
}
