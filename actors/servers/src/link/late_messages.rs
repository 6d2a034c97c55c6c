//! Log messages that arrive after the answer: legacy servers may send them on their standing HTTP stream,
//! which may be read later than the response with the answer.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use mgp_protocol::dialect::Era;
use tokio::sync::oneshot;

use super::{InFlight, Link, Wire};
use mgp_callers::exchange::Exchange;
use mgp_callers::request::Caller;

/// How long an answered call waits for such messages. Two connections to one server are not read in
/// order, but nearly so.
const LATE: Duration = Duration::from_millis(50);

/// Keeps the call registered for the standing stream until dropped.
#[derive(Debug)]
pub struct LateMessages<'a> {
    link: &'a Link,
    id: u64,
}

impl Link {
    /// To be created before a call that wants log messages; `None` where all messages come in one order.
    /// When the table of calls is full, the call goes without.
    pub fn beside(
        &self,
        caller: &Arc<Caller>,
        exchange: &Arc<Exchange>,
    ) -> Option<LateMessages<'_>> {
        match &self.wire {
            Wire::Http(http) if http.is_standing() => {}
            Wire::Http(_) | Wire::Child(_) | Wire::Sse(_) | Wire::Node(_) | Wire::Lite(_) => {
                return None;
            }
        }
        let in_flight = InFlight {
            // It is no request, so nobody answers it.
            answer: oneshot::channel().0,
            exchange: exchange.clone(),
            caller: Some(caller.clone()),
            token: None,
            stream: None,
            reports: false,
            era: Era::Legacy,
            listens: false,
            channel: None,
            touched: AtomicU64::new(0),
        };
        let id = self.insert(in_flight).ok()?;
        Some(LateMessages { link: self, id })
    }
}

impl LateMessages<'_> {
    /// After the answer: resolves when no more messages are expected.
    pub async fn late(self) {
        tokio::time::sleep(LATE).await;
    }
}

impl Drop for LateMessages<'_> {
    fn drop(&mut self) {
        drop(self.link.pending.take(self.id));
        self.link.questions.reconsider();
    }
}
