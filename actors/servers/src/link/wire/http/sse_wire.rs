//! HTTP+SSE of 2024-11-05: messages are POSTed, and all answers come on one stream.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, Uri};
use mgp_engine::clock::MonotonicTime;
use mgp_engine::servers::supervision::session_loss::is_session_suspect;
use mgp_protocol::mcp::{Method as _, Ping};
use mgp_protocol::refusal::Refusal;
use mgp_sync::Credit;
use mgp_transports::http::client::{EventsError, SseEvents};

use super::session::{HttpSessionState, is_session_refused};
use super::{MAX_PENDING_POSTS, bare_status_refusal, wait_after_close};
use crate::link::Link;
use crate::login::ServerClient;
use mgp_callers::Flag;
use mgp_runtime::task;
use mgp_runtime::time::monotonic_now;

/// A connection to an HTTP+SSE server.
#[derive(Debug)]
pub struct SseWire {
    client: ServerClient,
    endpoint: Uri,
    headers: HeaderMap,
    pending_posts: Arc<Credit>,
    session: HttpSessionState,
    closed: Flag,
}

impl SseWire {
    /// Creates a connection that POSTs to `endpoint`.
    #[must_use]
    pub(crate) fn new(client: ServerClient, endpoint: Uri, mut headers: HeaderMap) -> Arc<Self> {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Arc::new(Self {
            client,
            endpoint,
            headers,
            pending_posts: Credit::new(MAX_PENDING_POSTS),
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
            .map_err(|e| link.lost_refusal(&e.to_string()))?;
        let status = answer.status;
        if status.is_success() {
            return Ok(());
        }
        let refused_at = monotonic_now();
        if is_session_suspect(status.as_u16()) && self.check_session_ended(refused_at).await {
            link.report_broken(format!("its session has ended (HTTP {})", status.as_u16()));
            return Err(link.unsent_refusal("its session has ended"));
        }
        Err(bare_status_refusal(
            link,
            status,
            self.client.sign_in_hint(status),
        ))
    }

    /// Checks whether the server refuses every message.
    async fn check_session_ended(&self, refused_at: MonotonicTime) -> bool {
        let (client, endpoint) = (&self.client, &self.endpoint);
        let refuses = is_session_refused(client, endpoint, self.headers.clone(), Ping::METHOD);
        self.session.check_ended(refused_at, refuses).await
    }

    /// True once the session is known to have ended: its stream ended, or it refuses all messages.
    #[must_use]
    pub(crate) fn is_session_ended(&self) -> bool {
        self.session.is_ended()
    }

    pub(in crate::link) fn send_message(self: &Arc<Self>, link: &Arc<Link>, frame: Bytes) {
        let Some(charge) = self.pending_posts.try_take(1) else {
            link.log
                .push_note("a notification was dropped: too many are under way");
            return;
        };
        let (wire, link) = (self.clone(), link.clone());
        task::spawn_detached("link.send", async move {
            let _charge = charge;
            let sent = tokio::select! {
                sent = wire.post(&link, frame) => sent,
                () = wait_after_close(&wire.closed) => return,
            };
            if let Err(error) = sent {
                link.log
                    .push_note(&format!("a notification failed: {error}"));
            }
        });
    }

    pub(in crate::link) fn close(&self) {
        self.closed.raise();
    }

    /// Passes the stream to the link; the connection ends with it.
    pub(crate) async fn listen(self: Arc<Self>, link: Arc<Link>, mut stream: Box<SseEvents>) {
        let read = async {
            loop {
                match stream.next().await {
                    Ok(Some(event)) => link.receive(&event.data, None),
                    Ok(None) => return "its event stream ended".to_owned(),
                    Err(EventsError::TooLarge(_)) => link.handle_oversized(&[], None),
                    Err(error) => return error.to_string(),
                }
            }
        };
        tokio::select! {
            why = read => {
                self.session.set_ended();
                link.report_broken(why);
            }
            () = self.closed.wait_until_raised() => {}
        }
    }
}
