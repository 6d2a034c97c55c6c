//! Log messages that arrive after the answer. Legacy servers may send them on their GET stream, which may be
//! read later than the response with the answer.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use mgp_protocol::dialect::ProtocolFamily;
use tokio::sync::oneshot;

use super::{InFlight, Link, Wire};
use mgp_callers::InFlightCall;
use mgp_callers::request::Caller;

/// How long an answered call waits for such messages. Two connections to one server are read almost in order.
const LATE_MESSAGE_WINDOW: Duration = Duration::from_millis(50);

/// Keeps the call registered for the GET stream until dropped.
#[derive(Debug)]
pub(crate) struct LateMessages<'a> {
    link: &'a Link,
    id: u64,
}

impl Link {
    /// Registers for late messages before a call; `None` if all messages arrive in order. If the pending table
    /// is full, late messages are lost.
    pub(crate) fn register_late_messages(
        &self,
        caller: &Arc<Caller>,
        in_flight: &Arc<InFlightCall>,
    ) -> Option<LateMessages<'_>> {
        match &self.wire {
            Wire::Http(http) if http.has_get_stream() => {}
            Wire::Http(_) | Wire::Child(_) | Wire::Sse(_) | Wire::Node(_) | Wire::Lite(_) => {
                return None;
            }
        }
        let in_flight = InFlight {
            // There is no request to answer.
            answer: oneshot::channel().0,
            call: in_flight.clone(),
            caller: Some(caller.clone()),
            token: None,
            stream: None,
            mgp_progress: false,
            family: ProtocolFamily::Legacy,
            is_listen: false,
            channel: None,
            last_activity: AtomicU64::new(0),
        };
        let id = self.insert(in_flight).ok()?;
        Some(LateMessages { link: self, id })
    }
}

impl LateMessages<'_> {
    /// Resolves when no more messages are expected after the answer.
    pub(crate) async fn wait_for_late_messages(self) {
        tokio::time::sleep(LATE_MESSAGE_WINDOW).await;
    }
}

impl Drop for LateMessages<'_> {
    fn drop(&mut self) {
        drop(self.link.pending.take(self.id));
        self.link.open_callbacks.notify_call_ended();
    }
}
