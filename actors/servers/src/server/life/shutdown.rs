//! The end of a connection to a server (MGP §11.4).

use std::sync::Arc;
use std::time::Duration;

use mgp_engine::servers::health::DEADLINE;
use mgp_engine::servers::lifecycle::TransitionReason;
use mgp_engine::servers::supervision::StopOrder;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mgp::lifecycle::{Accepted, Shutdown};
use mgp_protocol::mgp::negotiation::Features;

use super::{LifeHandle, ServerLife};
use crate::link::Link;
use crate::server::event::Renewals;
use mgp_runtime::task;
use mgp_runtime::time::moment;

/// How long a life that was replaced waits for subscriptions at the next one: a server that is this slow to
/// answer would hold it for ever.
const RENEWAL: Duration = Duration::from_secs(10);

impl LifeHandle {
    /// It was replaced: it ends once what agents follow was asked for at the life that took over, and its
    /// calls and tasks are over.
    pub(in crate::server) fn leave(&self, order: StopOrder, mut renewals: Renewals) {
        let orders = self.orders.clone();
        orders.leaves.raise();
        task::detached("server.leaves", async move {
            tokio::select! {
                () = renewals.over() => {}
                () = tokio::time::sleep(RENEWAL) => {}
                () = orders.hurry.raised() => {}
                () = orders.kill.raised() => {}
            }
            let _ = orders.how_to_stop.set(order);
            orders.stop.raise();
        });
    }
}

impl ServerLife {
    /// Lets calls under way finish within the time there is. A server that negotiated `lifecycle` is told,
    /// and gets the time it says it needs, within that bound. False if calls are still under way at the
    /// end.
    pub(in crate::server) async fn shut_down(&self, link: &Arc<Link>, order: StopOrder) -> bool {
        let begun = moment();
        let time = order.within.unwrap_or_else(|| self.connector.drain());
        let leaves = self.orders.leaves.is_raised();
        if leaves {
            link.keep_tasks();
        }
        // The server is asked before admission closes, because closed admission would refuse the question.
        let (answer, drained) = tokio::join!(self.tell(link, order.why, time), link.drain(time));
        match answer {
            Some(answer) if answer.accepted => {
                let wants = Duration::from_millis(answer.estimated_drain_ms).min(time);
                tokio::time::sleep(wants.saturating_sub(moment().since(begun))).await;
            }
            Some(_) => {
                let note = "it does not accept that it is to end; it is ended all the same";
                self.handle.log.note(note);
            }
            None => {}
        }
        if leaves {
            let left = time.saturating_sub(moment().since(begun));
            let _ = tokio::time::timeout(left, link.tasks_over()).await;
        }
        drained
    }

    async fn tell(
        &self,
        link: &Arc<Link>,
        why: TransitionReason,
        time: Duration,
    ) -> Option<Accepted> {
        let shutdown = Shutdown {
            server_id: None,
            reason: why.told()?,
            timeout_ms: Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        };
        let era = link.era_of(Features::LIFECYCLE)?;
        let params = serde_json::to_string(&shutdown).expect("a shutdown is always JSON");
        let asked = link.ask_unhurried(era, Shutdown::METHOD, Some(&params));
        let answer = tokio::time::timeout(time.min(DEADLINE), asked).await;
        let answer = answer.ok()?.ok()?;
        mcp::read(std::str::from_utf8(&answer).ok()).ok()
    }
}
