//! Sends a call as server-sent events (§4.3, A.4): `message` for each part, then `done` or `error`. Closing
//! the connection drops the call, which cancels it. Parts are rendered only when the reader takes them.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use mgp_protocol::framing::to_one_line_bytes;
use mgp_transports::sse;

use crate::lite::call::{LiteEvent, RunningLiteCall};

/// The events of one call.
pub(super) struct LiteEvents {
    running: Option<RunningLiteCall>,
}

impl LiteEvents {
    pub(super) fn new(running: RunningLiteCall) -> Self {
        Self {
            running: Some(running),
        }
    }
}

impl futures_util::Stream for LiteEvents {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some(running) = &mut self.running else {
            return Poll::Ready(None);
        };
        let event = match std::task::ready!(running.poll_next(cx)) {
            LiteEvent::Partial(part) => {
                let data = [br#"{"partial":"#, &*part, b"}"].concat();
                sse::render_named_event("message", None, &to_one_line_bytes(&data))
            }
            LiteEvent::Done(outcome) => {
                self.running = None;
                match outcome {
                    Ok(answer) => {
                        sse::render_named_event("done", None, &to_one_line_bytes(&answer.result))
                    }
                    Err(error) => {
                        sse::render_named_event("error", None, error.to_json().as_bytes())
                    }
                }
            }
        };
        Poll::Ready(Some(event))
    }
}
