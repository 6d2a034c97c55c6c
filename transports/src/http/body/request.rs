//! The body of a request, whose rest is read when it is not needed.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// Most bytes that are read of a body whose request was answered without it.
const REST_BYTES: usize = 1 << 20;

/// How long these bytes are read.
const REST_TIME: Duration = Duration::from_secs(2);

/// The body of a request.
///
/// A request that is rejected for its head is answered while its client still writes. If its stream is then reset, or its
/// connection closed, clients lose the answer: curl 7.88 every other one. So the rest is read, up to 1 MiB and for 2 s,
/// when the body is dropped before its end.
#[derive(Debug)]
pub struct RequestBody {
    /// `None` at the end of the body.
    incoming: Option<Incoming>,
}

impl From<Incoming> for RequestBody {
    fn from(incoming: Incoming) -> Self {
        let incoming = (!incoming.is_end_stream()).then_some(incoming);
        Self { incoming }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(incoming) = &mut self.incoming else {
            return Poll::Ready(None);
        };
        let frame = std::task::ready!(Pin::new(&mut *incoming).poll_frame(cx));
        if incoming.is_end_stream() || !matches!(frame, Some(Ok(_))) {
            self.incoming = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let nothing = || SizeHint::with_exact(0);
        self.incoming.as_ref().map_or_else(nothing, Body::size_hint)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let (Some(mut rest), Ok(runtime)) = (self.incoming.take(), Handle::try_current()) else {
            return;
        };
        runtime.spawn(async move {
            let read = async {
                let mut left = REST_BYTES;
                while let Ok(Some(bytes)) = super::next_data(&mut rest).await {
                    left = left.saturating_sub(bytes.len());
                    if left == 0 {
                        return;
                    }
                }
            };
            let _ = timeout(REST_TIME, read).await;
        });
    }
}
