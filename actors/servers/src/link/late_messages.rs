//! Log messages that arrive after the answer: legacy servers may send them on their standing HTTP stream,
//! which may be read later than the response with the answer.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use mgp_protocol::dialect::ProtocolFamily;
use tokio::sync::oneshot;

use super::{InFlight, Link, Wire};
use mgp_callers::InFlightCall;
use mgp_callers::request::Caller;

/// How long an answered call waits for such messages. Two connections to one server are not read in
/// order, but nearly so.
const LATE_MESSAGE_WINDOW: Duration = Duration::from_millis(50);

/// Keeps the call registered for the standing stream until dropped.
#[derive(Debug)]
pub(crate) struct LateMessages<'a> {
    link: &'a Link,
    id: u64,
}

impl Link {
    /// To be created before a call that wants log messages; `None` where all messages come in one order.
    /// When the table of calls is full, the call goes without.
    pub(crate) fn register_late_messages(
        &self,
        caller: &Arc<Caller>,
        exchange: &Arc<InFlightCall>,
    ) -> Option<LateMessages<'_>> {
        match &self.wire {
            Wire::Http(http) if http.has_get_stream() => {}
            Wire::Http(_) | Wire::Child(_) | Wire::Sse(_) | Wire::Node(_) | Wire::Lite(_) => {
                return None;
            }
        }
        let in_flight = InFlight {
            // It is no request, so nobody answers it.
            answer: oneshot::channel().0,
            call: exchange.clone(),
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
    /// After the answer: resolves when no more messages are expected.
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
