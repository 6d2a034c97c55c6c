//! The shutdown of a connection to a server (MGP §11.4).

use std::sync::Arc;
use std::time::Duration;

use mgp_engine::servers::health::PING_TIMEOUT;
use mgp_engine::servers::lifecycle::TransitionReason;
use mgp_engine::servers::supervision::StopOrder;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mgp::lifecycle::{Accepted, Shutdown};
use mgp_protocol::mgp::negotiation::Features;

use super::{GenerationHandle, ServerGeneration};
use crate::link::Link;
use crate::server::event::PendingResubscriptions;
use mgp_runtime::task;
use mgp_runtime::time::monotonic_now;

/// How long a replaced generation waits for subscriptions at its successor, so that a slow server cannot keep it
/// running forever.
const RESUBSCRIPTION_TIMEOUT: Duration = Duration::from_secs(10);

impl GenerationHandle {
    /// Drains a replaced generation: it ends once its subscriptions are restored at its successor, and its calls
    /// and tasks have ended.
    pub(in crate::server) fn drain_replaced(
        &self,
        order: StopOrder,
        mut renewals: PendingResubscriptions,
    ) {
        let orders = self.orders.clone();
        orders.is_replaced.raise();
        task::spawn_detached("server.leaves", async move {
            tokio::select! {
                () = renewals.wait() => {}
                () = tokio::time::sleep(RESUBSCRIPTION_TIMEOUT) => {}
                () = orders.hurry.wait_until_raised() => {}
                () = orders.kill.wait_until_raised() => {}
            }
            let _ = orders.stop_order.set(order);
            orders.stop.raise();
        });
    }
}

impl ServerGeneration {
    /// Drains in-flight calls within the drain timeout. A server that negotiated `lifecycle` is notified, and
    /// gets the time it requests, within the timeout. False if calls are still in flight at the end.
    pub(in crate::server) async fn shut_down(&self, link: &Arc<Link>, order: StopOrder) -> bool {
        let begun = monotonic_now();
        let time = order
            .drain_timeout
            .unwrap_or_else(|| self.connector.drain_timeout());
        let leaves = self.orders.is_replaced.is_raised();
        if leaves {
            link.accept_task_requests();
        }
        // The server is notified first, because closed admission would refuse the request.
        let (answer, drained) = tokio::join!(
            self.announce_shutdown(link, order.reason, time),
            link.drain(time)
        );
        match answer {
            Some(answer) if answer.accepted => {
                let wants = Duration::from_millis(answer.estimated_drain_ms).min(time);
                tokio::time::sleep(wants.saturating_sub(monotonic_now().duration_since(begun)))
                    .await;
            }
            Some(_) => {
                let note = "it rejected its shutdown; it is stopped anyway";
                self.handle.log.push_note(note);
            }
            None => {}
        }
        if leaves {
            let left = time.saturating_sub(monotonic_now().duration_since(begun));
            let _ = tokio::time::timeout(left, link.wait_for_tasks()).await;
        }
        drained
    }

    async fn announce_shutdown(
        &self,
        link: &Arc<Link>,
        why: TransitionReason,
        time: Duration,
    ) -> Option<Accepted> {
        let shutdown = Shutdown {
            server_id: None,
            reason: why.to_mgp_reason()?,
            timeout_ms: Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        };
        let family = link.family_negotiating(Features::LIFECYCLE)?;
        let params = serde_json::to_string(&shutdown).expect("a shutdown is always JSON");
        let request = link.request_without_timeout(family, Shutdown::METHOD, Some(&params));
        let answer = tokio::time::timeout(time.min(PING_TIMEOUT), request).await;
        let answer = answer.ok()?.ok()?;
        mcp::parse_params(std::str::from_utf8(&answer).ok()).ok()
    }
}
