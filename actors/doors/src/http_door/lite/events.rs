//! A call as server-sent events (§4.3, A.4): `message` for each part, then `done` or `error`. Closing the connection
//! drops the call, which cancels it. Nothing is made of a part before its reader takes it.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use mgp_protocol::framing::on_one_line;
use mgp_transports::sse;

use crate::lite::call::{LiteEvent, RunningLite};

/// The events of one call.
pub(super) struct LiteEvents {
    running: Option<RunningLite>,
}

impl LiteEvents {
    pub(super) fn of(running: RunningLite) -> Self {
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
                sse::named("message", None, &on_one_line(&data))
            }
            LiteEvent::Done(outcome) => {
                self.running = None;
                match outcome {
                    Ok(answer) => sse::named("done", None, &on_one_line(&answer.result)),
                    Err(error) => sse::named("error", None, error.to_json().as_bytes()),
                }
            }
        };
        Poll::Ready(Some(event))
    }
}
