//! SSE streams of a Streamable HTTP server: the answer to a POST, and the standing GET stream.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use mgp_engine::servers::supervision::pace::ReopenPace;
use mgp_engine::servers::supervision::sessions::is_in_doubt;
use mgp_protocol::refusal::Refusal;
use mgp_transports::http::body::BodyError;
use mgp_transports::http::client::{ClientError, EventsError, Response, SseEvents, events};
use mgp_transports::sse::SseEvent;

use super::{HttpWire, LAST_EVENT, broken, is};
use crate::link::Link;
use mgp_runtime::time::moment;

/// Attempts to get the rest of a broken stream before the call counts as lost.
const MAX_RESUMES: u32 = 10;
/// Wait after a clean close (CMCP-037).
const AFTER_CLOSE: Duration = Duration::from_millis(50);
/// First and longest wait after an error (CMCP-037).
const AFTER_ERROR: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// A server cannot make us wait longer than this with `retry:`.
const MAX_RETRY: Duration = Duration::from_secs(30);

/// How a try to read the standing stream went on.
enum StandingStream {
    /// It was open for so long, and ended in good order.
    Ended(Duration),
    /// It broke, or the server could not be asked.
    Failed,
    /// The server has none, or not now.
    Refused(StatusCode),
}

/// The position in a stream.
#[derive(Debug, Default)]
struct StreamPosition {
    last_event: Option<HeaderValue>,
    retry: Option<Duration>,
}

impl StreamPosition {
    fn at(&mut self, event: &SseEvent) {
        if let Some(id) = &event.id
            && let Ok(id) = HeaderValue::from_bytes(id.as_ref())
        {
            self.last_event = Some(id);
        }
        if let Some(ms) = event.retry {
            self.retry = Some(Duration::from_millis(ms).min(MAX_RETRY));
        }
    }
}

impl HttpWire {
    /// Reads the stream that answers the call `id`, and resumes it when the server closes it early
    /// (SEP-1699).
    pub(super) async fn follow(
        &self,
        link: &Arc<Link>,
        id: u64,
        response: Response,
    ) -> Result<(), Refusal> {
        let mut place = StreamPosition::default();
        let mut resumes = 0;
        let mut stream = events(response.body, link.limits.max_frame);
        loop {
            let ended = self.drain(link, Some(id), &mut stream, &mut place).await;
            if !link.awaits(id) {
                return Ok(());
            }
            if place.last_event.is_none() || resumes == MAX_RESUMES {
                let why = ended.err().map_or_else(
                    || "its stream ended without the answer".to_owned(),
                    |e| format!("its stream broke: {e}"),
                );
                return Err(link.lost(&why));
            }
            link.paused(id);
            tokio::time::sleep(place.retry.unwrap_or(AFTER_CLOSE).max(AFTER_CLOSE)).await;
            resumes += 1;
            let response = self.get(&place).await.map_err(|e| broken(link, &e))?;
            // The server accepted the request itself, so it must not be sent again.
            let judged = self.judge(link, None, response).await;
            let response = judged.map_err(|e| link.lost(&e.to_string()))?;
            stream = events(response.body, link.limits.max_frame);
        }
    }

    /// Reads the stream that answers the modern call `id`, which cannot be resumed.
    pub(super) async fn follow_once(
        &self,
        link: &Arc<Link>,
        id: u64,
        response: Response,
    ) -> Result<(), Refusal> {
        let mut stream = events(response.body, link.limits.max_frame);
        let ended = self
            .drain(link, Some(id), &mut stream, &mut StreamPosition::default())
            .await;
        match ended {
            _ if !link.awaits(id) => Ok(()),
            Ok(()) => Err(link.lost("its stream ended without the answer")),
            Err(e) => Err(link.lost(&format!("its stream broke: {e}"))),
        }
    }

    /// Passes a stream to the link until it ends or its call has an answer.
    async fn drain(
        &self,
        link: &Arc<Link>,
        via: Option<u64>,
        stream: &mut SseEvents,
        place: &mut StreamPosition,
    ) -> Result<(), BodyError> {
        loop {
            if let Some(id) = via {
                link.wait_for_room(id, None).await;
            }
            match stream.next().await {
                Ok(Some(event)) => {
                    place.at(&event);
                    if !event.data.is_empty() {
                        link.receive(&event.data, via);
                    }
                }
                Ok(None) => return Ok(()),
                Err(EventsError::TooLarge(_)) => link.overrun(&[], via),
                Err(EventsError::Broken(why)) => return Err(why),
            }
            if via.is_some_and(|id| !link.awaits(id)) {
                return Ok(());
            }
        }
    }

    async fn get(&self, place: &StreamPosition) -> Result<Response, ClientError> {
        let mut headers: HeaderMap = self.headers();
        headers.remove(CONTENT_TYPE);
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(last) = &place.last_event {
            headers.insert(LAST_EVENT, last.clone());
        }
        self.client
            .request(Method::GET, &self.url, headers, None)
            .await
    }

    /// Keeps the standing GET stream open until the link closes; returns at once when the server has
    /// none (CMCP-034, CMCP-036, CMCP-037, CMCP-038).
    pub async fn listen(self: Arc<Self>, link: Arc<Link>) {
        tokio::select! {
            () = self.listen_on(&link) => {}
            () = self.closed.raised() => {}
        }
    }

    async fn listen_on(&self, link: &Arc<Link>) {
        let mut place = StreamPosition::default();
        let (mut wait, mut pace, mut was_open) = (AFTER_ERROR.0, ReopenPace::default(), false);
        loop {
            match self.standing(link, &mut place).await {
                StandingStream::Ended(lasted) => {
                    (wait, was_open) = (AFTER_ERROR.0, true);
                    tokio::time::sleep(pace.wait(lasted, place.retry)).await;
                    continue;
                }
                StandingStream::Failed => {}
                StandingStream::Refused(status) => {
                    let doubt = is_in_doubt(status.as_u16());
                    if self.has_session && doubt && self.has_ended(link, moment()).await {
                        let why = format!("its session has ended (HTTP {})", status.as_u16());
                        return link.breaks(why);
                    }
                    // A server that had one may have one again.
                    if !was_open {
                        return;
                    }
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(AFTER_ERROR.1);
        }
    }

    /// Opens the standing stream, and reads it to its end.
    async fn standing(&self, link: &Arc<Link>, place: &mut StreamPosition) -> StandingStream {
        match self.get(place).await {
            Ok(response) if is_stream(&response) => {
                let opened = moment();
                let mut stream = events(response.body, link.limits.max_frame);
                self.standing.store(true, Ordering::Relaxed);
                let ended = self.drain(link, None, &mut stream, place).await;
                self.standing.store(false, Ordering::Relaxed);
                match ended {
                    Ok(()) => StandingStream::Ended(moment().since(opened)),
                    Err(_) => StandingStream::Failed,
                }
            }
            Ok(response) if response.status.is_client_error() || response.status.is_success() => {
                StandingStream::Refused(response.status)
            }
            Ok(_) | Err(_) => StandingStream::Failed,
        }
    }
}

fn is_stream(response: &Response) -> bool {
    response.status.is_success() && is(response.headers.get(CONTENT_TYPE), "text/event-stream")
}
