//! Reply bodies: bytes at once, or a stream that is kept alive.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::unread::{RequestGuard, ResponseBudget, UnreadResponse};

/// The body of a reply. All but streams have a length and are written without copying.
pub struct ReplyBody {
    kind: ReplyKind,
    /// The part that is unread by the client.
    unread: Option<UnreadResponse>,
    request: Option<Arc<RequestGuard>>,
}

enum ReplyKind {
    Whole(Bytes),
    Parts(std::vec::IntoIter<Bytes>),
    Stream(Box<StreamingBody>),
    WithTrailers(Box<TrailedBody>),
}

/// A stream with its heartbeat and end conditions.
struct StreamingBody {
    items: Pin<Box<dyn Stream<Item = Bytes> + Send>>,
    heartbeat: Option<Heartbeat>,
    long_lived: bool,
    closing: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    end: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// The trailers of an aborted body of frames: without them, HTTP/2 reports success.
#[derive(Debug, Clone, Copy)]
pub struct AbortTrailers {
    /// When aborted by [`ReplyBody::end_on`].
    pub canceled: fn() -> HeaderMap,
    /// When aborted by the closing listener.
    pub closing: fn() -> HeaderMap,
}

/// A body with its own trailers.
struct TrailedBody {
    frames: Pin<Box<Frames>>,
    abort_trailers: AbortTrailers,
    long_lived: bool,
    finished: bool,
    closing: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    end: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

type Frames = dyn Body<Data = Bytes, Error = Infallible> + Send;

impl ReplyBody {
    fn from_kind(kind: ReplyKind) -> Self {
        Self {
            kind,
            unread: None,
            request: None,
        }
    }

    /// An empty body.
    #[must_use]
    pub fn empty() -> Self {
        Self::full(Bytes::new())
    }

    /// A body in one piece.
    #[must_use]
    pub fn full(body: impl Into<Bytes>) -> Self {
        Self::from_kind(ReplyKind::Whole(body.into()))
    }

    /// A body in a few pieces, written one after the other.
    #[must_use]
    pub fn parts<const N: usize>(parts: [Bytes; N]) -> Self {
        let mut parts = Vec::from(parts);
        parts.retain(|part| !part.is_empty());
        Self::from_kind(ReplyKind::Parts(parts.into_iter()))
    }

    /// A stream of items. Dropped when the client disconnects.
    #[must_use]
    pub fn stream(items: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self::from_kind(ReplyKind::Stream(Box::new(StreamingBody {
            items: Box::pin(items),
            heartbeat: None,
            long_lived: false,
            closing: None,
            end: None,
        })))
    }

    /// The frames of another body, with trailers. Dropped when the client disconnects.
    #[must_use]
    pub fn with_trailers(
        frames: impl Body<Data = Bytes, Error = Infallible> + Send + 'static,
        abort_trailers: AbortTrailers,
    ) -> Self {
        Self::from_kind(ReplyKind::WithTrailers(Box::new(TrailedBody {
            frames: Box::pin(frames),
            abort_trailers,
            long_lived: false,
            finished: false,
            closing: None,
            end: None,
        })))
    }

    /// Inserts `beat` into a stream whenever it was silent for `every`. Other bodies ignore it.
    #[must_use]
    pub fn with_heartbeat(mut self, every: Duration, beat: Bytes) -> Self {
        if let ReplyKind::Stream(stream) = &mut self.kind {
            stream.heartbeat = Some(Heartbeat::new(every, beat));
        }
        self
    }

    /// Marks a stream that is no answer to a request: it ends as soon as its listener closes, where an answer may still be
    /// finished.
    #[must_use]
    pub fn mark_long_lived(mut self) -> Self {
        match &mut self.kind {
            ReplyKind::Stream(stream) => stream.long_lived = true,
            ReplyKind::WithTrailers(body) => body.long_lived = true,
            ReplyKind::Whole(_) | ReplyKind::Parts(_) => {}
        }
        self
    }

    /// Aborts a stream, even an answer, as soon as `end` resolves.
    pub fn end_on(&mut self, end: impl Future<Output = ()> + Send + 'static) {
        match &mut self.kind {
            ReplyKind::Stream(stream) => stream.end = Some(Box::pin(end)),
            ReplyKind::WithTrailers(body) => body.end = Some(Box::pin(end)),
            ReplyKind::Whole(_) | ReplyKind::Parts(_) => {}
        }
    }

    /// Counts the body as unread by its agent until it was sent; a stream as it is produced.
    pub fn count_unread(&mut self, budget: &ResponseBudget) {
        let len = self.size_hint().exact().unwrap_or(0);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        self.set_unread(budget.count(len));
    }

    /// Sets the count of a stream that is already counted.
    pub fn set_unread(&mut self, unread: UnreadResponse) {
        self.unread = Some(unread);
    }

    /// Extends the request until the last byte of the body was sent.
    pub(in crate::http) fn attach_request(&mut self, request: RequestGuard) {
        self.request = Some(Arc::new(request));
    }

    /// The bytes, counted until they were sent.
    fn count_piece(&mut self, bytes: Bytes) -> Bytes {
        let unread = self.unread.as_mut().map(|held| held.split_off(bytes.len()));
        match &self.request {
            Some(request) => request.clone().attach_to(bytes, unread),
            None => match unread {
                Some(unread) => unread.attach_to(bytes),
                None => bytes,
            },
        }
    }

    /// Ends a long-lived stream when the listener closes.
    pub(in crate::http) fn close_with(&mut self, door: &CancellationToken) {
        let closing = || Some(Box::pin(door.clone().cancelled_owned()));
        match &mut self.kind {
            ReplyKind::Stream(stream) if stream.long_lived => stream.closing = closing(),
            ReplyKind::WithTrailers(body) if body.long_lived => body.closing = closing(),
            ReplyKind::Stream(_)
            | ReplyKind::WithTrailers(_)
            | ReplyKind::Whole(_)
            | ReplyKind::Parts(_) => {}
        }
    }
}

impl fmt::Debug for ReplyBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ReplyKind::Whole(body) => f.debug_tuple("Whole").field(&body.len()).finish(),
            ReplyKind::Parts(parts) => f.debug_tuple("Parts").field(&parts.len()).finish(),
            ReplyKind::Stream(_) => f.write_str("Stream"),
            ReplyKind::WithTrailers(_) => f.write_str("Trailed"),
        }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match &mut self.kind {
            ReplyKind::Whole(body) if body.is_empty() => Poll::Ready(None),
            ReplyKind::Whole(body) => Poll::Ready(Some(Frame::data(std::mem::take(body)))),
            ReplyKind::Parts(parts) => Poll::Ready(parts.next().map(Frame::data)),
            ReplyKind::Stream(stream) => stream.poll_next(cx).map(|item| item.map(Frame::data)),
            ReplyKind::WithTrailers(body) => body
                .poll_frame(cx)
                .map(|frame| frame.map(|Ok(frame)| frame)),
        };
        next.map(|frame| Some(Ok(frame?.map_data(|bytes| self.count_piece(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            ReplyKind::Whole(body) => body.is_empty(),
            ReplyKind::Parts(parts) => parts.len() == 0,
            ReplyKind::Stream(_) => false,
            ReplyKind::WithTrailers(body) => body.finished || body.frames.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let exact = |len: usize| SizeHint::with_exact(len as u64);
        match &self.kind {
            ReplyKind::Whole(body) => exact(body.len()),
            ReplyKind::Parts(parts) => exact(parts.as_slice().iter().map(Bytes::len).sum()),
            ReplyKind::Stream(_) | ReplyKind::WithTrailers(_) => SizeHint::default(),
        }
    }
}

impl StreamingBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(end) = &mut self.end
            && end.as_mut().poll(cx).is_ready()
        {
            self.items = Box::pin(futures_util::stream::empty());
            self.end = None;
            return Poll::Ready(None);
        }
        if let Poll::Ready(item) = self.items.as_mut().poll_next(cx) {
            if let Some(heartbeat) = &mut self.heartbeat {
                heartbeat.due = None;
            }
            return Poll::Ready(item);
        }
        if let Some(closing) = &mut self.closing
            && closing.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(None);
        }
        match &mut self.heartbeat {
            Some(heartbeat) => heartbeat.poll_beat(cx).map(Some),
            None => Poll::Pending,
        }
    }
}

impl TrailedBody {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.finished {
            return Poll::Ready(None);
        }
        if let Some(end) = &mut self.end
            && end.as_mut().poll(cx).is_ready()
        {
            return self.abort(self.abort_trailers.canceled);
        }
        if let Poll::Ready(frame) = self.frames.as_mut().poll_frame(cx) {
            return Poll::Ready(frame);
        }
        if let Some(closing) = &mut self.closing
            && closing.as_mut().poll(cx).is_ready()
        {
            return self.abort(self.abort_trailers.closing);
        }
        Poll::Pending
    }

    /// The last frame; drops the source of the others.
    fn abort(&mut self, why: fn() -> HeaderMap) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.finished = true;
        self.frames = Box::pin(http_body_util::Empty::new());
        Poll::Ready(Some(Ok(Frame::trailers(why()))))
    }
}

/// Sends payloads during silence. The first silence creates the timer; items only move the due time, so that a busy
/// stream does not touch the timer.
struct Heartbeat {
    interval: Duration,
    payload: Bytes,
    timer: Option<Pin<Box<Sleep>>>,
    due: Option<Instant>,
}

impl Heartbeat {
    fn new(interval: Duration, payload: Bytes) -> Self {
        Self {
            interval,
            payload,
            timer: None,
            due: None,
        }
    }

    fn poll_beat(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        let due = *self
            .due
            .get_or_insert_with(|| Instant::now() + self.interval);
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        while timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= due {
                self.due = None;
                return Poll::Ready(self.payload.clone());
            }
            timer.as_mut().reset(due);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::BodyExt;

    use super::*;

    async fn beat_of(body: &mut ReplyBody) -> Bytes {
        body.frame().await.unwrap().unwrap().into_data().unwrap()
    }

    /// A client without trailers would take the part it has for the whole.
    #[tokio::test]
    async fn an_aborted_body_has_trailers_with_the_reason() {
        let abort_trailers = || AbortTrailers {
            canceled: || HeaderMap::from_iter([(REASON, "ended".parse().unwrap())]),
            closing: || HeaderMap::from_iter([(REASON, "closing".parse().unwrap())]),
        };
        let endless = || http_body_util::StreamBody::new(stream::pending());
        let mut ended = ReplyBody::with_trailers(endless(), abort_trailers());
        ended.end_on(std::future::ready(()));
        let mut closing = ReplyBody::with_trailers(endless(), abort_trailers()).mark_long_lived();
        let door = CancellationToken::new();
        closing.close_with(&door);
        door.cancel();
        for (mut body, why) in [(ended, "ended"), (closing, "closing")] {
            let last = body.frame().await.unwrap().unwrap();
            assert_eq!(last.into_trailers().unwrap()[REASON], why);
            assert!(body.is_end_stream() && body.frame().await.is_none());
        }
        let mut whole = ReplyBody::with_trailers(ReplyBody::full("whole"), abort_trailers());
        whole.close_with(&door);
        assert_eq!(beat_of(&mut whole).await, "whole");
        assert!(whole.frame().await.is_none());
    }

    const REASON: http::HeaderName = http::HeaderName::from_static("said");

    #[tokio::test(start_paused = true)]
    async fn a_heartbeat_follows_silence_only() {
        let (items, receiver) = tokio::sync::mpsc::channel::<Bytes>(1);
        let items_out = stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|item| (item, receiver))
        });
        let every = Duration::from_secs(10);
        let mut body =
            ReplyBody::stream(items_out).with_heartbeat(every, Bytes::from_static(b":\n\n"));
        let start = Instant::now();
        assert_eq!(beat_of(&mut body).await, ":\n\n");
        assert_eq!(beat_of(&mut body).await, ":\n\n");
        assert_eq!(start.elapsed().as_secs(), 20);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(9)).await;
            items.send(Bytes::from_static(b"data")).await.unwrap();
            items.closed().await;
        });
        assert_eq!(beat_of(&mut body).await, "data");
        assert_eq!(beat_of(&mut body).await, ":\n\n");
        assert_eq!(start.elapsed().as_secs(), 39);
    }
}
