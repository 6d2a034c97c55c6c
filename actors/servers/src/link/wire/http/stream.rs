//! SSE streams of a Streamable HTTP server: the response to a POST, and the GET stream.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use mgp_engine::servers::supervision::backoff::ReopenBackoff;
use mgp_engine::servers::supervision::session_loss::is_session_suspect;
use mgp_protocol::refusal::Refusal;
use mgp_transports::http::body::BodyError;
use mgp_transports::http::client::{ClientError, EventsError, Response, SseEvents, read_events};
use mgp_transports::sse::SseEvent;

use super::{HttpWire, LAST_EVENT, broken_refusal, has_media_type};
use crate::link::Link;
use mgp_runtime::time::monotonic_now;

/// The maximum of attempts to resume a broken stream before the call counts as lost.
const MAX_RESUMES: u32 = 10;
/// The delay after a clean close (CMCP-037).
const REOPEN_DELAY: Duration = Duration::from_millis(50);
/// First and longest delay after an error (CMCP-037).
const ERROR_BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// The longest delay that a server can request with `retry:`.
const RETRY_MAX: Duration = Duration::from_secs(30);

/// How an attempt to read the GET stream ended.
enum GetStreamEnd {
    /// It was open for this long and ended cleanly.
    Ended(Duration),
    /// It broke, or the request failed.
    Failed,
    /// The server refused it.
    Refused(StatusCode),
}

/// The position in a stream.
#[derive(Debug, Default)]
struct StreamPosition {
    last_event: Option<HeaderValue>,
    retry: Option<Duration>,
}

impl StreamPosition {
    fn update(&mut self, event: &SseEvent) {
        if let Some(id) = &event.id
            && let Ok(id) = HeaderValue::from_bytes(id.as_ref())
        {
            self.last_event = Some(id);
        }
        if let Some(ms) = event.retry {
            self.retry = Some(Duration::from_millis(ms).min(RETRY_MAX));
        }
    }
}

impl HttpWire {
    /// Reads the stream that answers the call `id`, and resumes it if the server closes it early (SEP-1699).
    pub(super) async fn read_call_stream(
        &self,
        link: &Arc<Link>,
        id: u64,
        response: Response,
    ) -> Result<(), Refusal> {
        let mut position = StreamPosition::default();
        let mut resumes = 0;
        let mut stream = read_events(response.body, link.limits.max_frame);
        loop {
            let ended = self
                .relay_stream(link, Some(id), &mut stream, &mut position)
                .await;
            if !link.is_pending(id) {
                stream.discard_rest();
                return Ok(());
            }
            if position.last_event.is_none() || resumes == MAX_RESUMES {
                let why = ended.err().map_or_else(
                    || "its stream ended without the answer".to_owned(),
                    |e| format!("its stream broke: {e}"),
                );
                return Err(link.lost_refusal(&why));
            }
            link.pause_call(id);
            tokio::time::sleep(position.retry.unwrap_or(REOPEN_DELAY).max(REOPEN_DELAY)).await;
            resumes += 1;
            let response = self
                .open_get_stream(&position)
                .await
                .map_err(|e| broken_refusal(link, &e))?;
            // The server accepted the request, so it must not be sent again.
            let judged = self.check_status(link, None, response).await;
            let response = judged.map_err(|e| link.lost_refusal(&e.to_string()))?;
            stream = read_events(response.body, link.limits.max_frame);
        }
    }

    /// Reads the stream that answers the stateless call `id`, which cannot be resumed.
    pub(super) async fn read_stateless_stream(
        &self,
        link: &Arc<Link>,
        id: u64,
        response: Response,
    ) -> Result<(), Refusal> {
        let mut stream = read_events(response.body, link.limits.max_frame);
        let ended = self
            .relay_stream(link, Some(id), &mut stream, &mut StreamPosition::default())
            .await;
        match ended {
            _ if !link.is_pending(id) => {
                stream.discard_rest();
                Ok(())
            }
            Ok(()) => Err(link.lost_refusal("its stream ended without the answer")),
            Err(e) => Err(link.lost_refusal(&format!("its stream broke: {e}"))),
        }
    }

    /// Passes a stream to the link until it ends or its call has an answer.
    async fn relay_stream(
        &self,
        link: &Arc<Link>,
        via: Option<u64>,
        stream: &mut SseEvents,
        position: &mut StreamPosition,
    ) -> Result<(), BodyError> {
        loop {
            if let Some(id) = via {
                link.wait_for_budget(id, None).await;
            }
            match stream.next().await {
                Ok(Some(event)) => {
                    position.update(&event);
                    if !event.data.is_empty() {
                        link.receive(&event.data, via);
                    }
                }
                Ok(None) => return Ok(()),
                Err(EventsError::TooLarge(_)) => link.handle_oversized(&[], via),
                Err(EventsError::Broken(why)) => return Err(why),
            }
            if via.is_some_and(|id| !link.is_pending(id)) {
                return Ok(());
            }
        }
    }

    async fn open_get_stream(&self, position: &StreamPosition) -> Result<Response, ClientError> {
        let mut headers: HeaderMap = self.headers();
        headers.remove(CONTENT_TYPE);
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(last) = &position.last_event {
            headers.insert(LAST_EVENT, last.clone());
        }
        self.client
            .request(Method::GET, &self.url, headers, None)
            .await
    }

    /// Keeps the GET stream open until the link closes; returns at once if the server has none (CMCP-034,
    /// CMCP-036, CMCP-037, CMCP-038).
    pub(crate) async fn listen(self: Arc<Self>, link: Arc<Link>) {
        tokio::select! {
            () = self.run_listen_loop(&link) => {}
            () = self.closed.wait_until_raised() => {}
        }
    }

    async fn run_listen_loop(&self, link: &Arc<Link>) {
        let mut position = StreamPosition::default();
        let (mut wait, mut pace, mut was_open) = (ERROR_BACKOFF.0, ReopenBackoff::default(), false);
        loop {
            match self.read_get_stream(link, &mut position).await {
                GetStreamEnd::Ended(lasted) => {
                    (wait, was_open) = (ERROR_BACKOFF.0, true);
                    tokio::time::sleep(pace.next_wait(lasted, position.retry)).await;
                    continue;
                }
                GetStreamEnd::Failed => {}
                GetStreamEnd::Refused(status) => {
                    let doubt = is_session_suspect(status.as_u16());
                    if self.has_session
                        && doubt
                        && self.check_session_ended(link, monotonic_now()).await
                    {
                        let why = format!("its session has ended (HTTP {})", status.as_u16());
                        return link.report_broken(why);
                    }
                    // A server that had a GET stream may offer it again.
                    if !was_open {
                        return;
                    }
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(ERROR_BACKOFF.1);
        }
    }

    /// Opens the GET stream and reads it to its end.
    async fn read_get_stream(
        &self,
        link: &Arc<Link>,
        position: &mut StreamPosition,
    ) -> GetStreamEnd {
        match self.open_get_stream(position).await {
            Ok(response) if is_stream(&response) => {
                let opened = monotonic_now();
                let mut stream = read_events(response.body, link.limits.max_frame);
                self.is_get_stream_open.store(true, Ordering::Relaxed);
                let ended = self.relay_stream(link, None, &mut stream, position).await;
                self.is_get_stream_open.store(false, Ordering::Relaxed);
                match ended {
                    Ok(()) => GetStreamEnd::Ended(monotonic_now().duration_since(opened)),
                    Err(_) => GetStreamEnd::Failed,
                }
            }
            Ok(response) if response.status.is_client_error() || response.status.is_success() => {
                GetStreamEnd::Refused(response.status)
            }
            Ok(_) | Err(_) => GetStreamEnd::Failed,
        }
    }
}

fn is_stream(response: &Response) -> bool {
    response.status.is_success()
        && has_media_type(response.headers.get(CONTENT_TYPE), "text/event-stream")
}
