//! What a legacy server says beside the call it is about: over HTTP some send log messages on their
//! standing stream, and these may be read after the answer that was sent later.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use mgp_protocol::dialect::Era;
use tokio::sync::oneshot;

use super::{InFlight, Link, Wire};
use mgp_callers::exchange::Exchange;
use mgp_callers::request::Caller;

/// How long a call that is answered waits for what was said before: two connections to one server
/// are not read in one order, but nearly.
const LATE: Duration = Duration::from_millis(50);

/// Keeps a call in sight of the standing stream after its answer, until dropped.
#[derive(Debug)]
pub struct LateMessages<'a> {
    link: &'a Link,
    id: u64,
}

impl Link {
    /// To be held from before a call that wants to hear of log messages; `None` where what belongs
    /// to calls comes in one order. When the table of calls is full, the call does without.
    pub fn beside(
        &self,
        caller: &Arc<Caller>,
        exchange: &Arc<Exchange>,
    ) -> Option<LateMessages<'_>> {
        match &self.wire {
            Wire::Http(http) if http.is_standing() => {}
            Wire::Http(_) | Wire::Child(_) | Wire::Sse(_) => return None,
        }
        let in_flight = InFlight {
            // Nobody answers it: it has no request.
            answer: oneshot::channel().0,
            exchange: exchange.clone(),
            caller: Some(caller.clone()),
            token: None,
            era: Era::Legacy,
            listens: false,
            touched: AtomicU64::new(0),
        };
        let id = self.insert(in_flight).ok()?;
        Some(LateMessages { link: self, id })
    }
}

impl LateMessages<'_> {
    /// The call has its answer: resolves when nothing more is expected.
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
