//! Waiting of calls and lists for a server that is starting.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mgp_engine::servers::lifecycle::LifecycleState;
use mgp_engine::tools::catalog::Availability;
use mgp_protocol::refusal::Refusal;
use tokio::sync::watch;

use super::{ServerHandle, Status};
use crate::link::Link;
use crate::link::call_slots::CallSlot;
use crate::server::ServerMsg;
use mgp_callers::InFlightCall;
use mgp_callers::request::Caller;
use mgp_runtime::time::monotonic_now;

/// How long lists wait after a server's first start began: enough for an installed program to start, far less
/// than client timeouts.
const LIST_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a call waits for a starting server.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// A scheduled restart sooner than this is awaited, not forced.
const NEAR_RETRY: Duration = Duration::from_secs(1);

/// How long a call waits for a server on another node, which is either available at once or not at all.
const NODE_TIMEOUT: Duration = Duration::from_secs(1);

impl ServerHandle {
    /// The connection for a call; waits a short time for a starting server. The number of waiting calls is
    /// limited by the server's call limit, so that all of them can be sent. The share of each agent is limited
    /// as well, and checked again when they are sent.
    ///
    /// # Errors
    /// [`Refusal::NotReady`] with state, reason and the time of the next start; [`Refusal::Overloaded`] if too
    /// many calls wait; [`Refusal::Cancelled`].
    pub async fn connection(
        &self,
        caller: Option<&Caller>,
        in_flight: &InFlightCall,
    ) -> Result<Arc<Link>, Refusal> {
        if let Some(link) = self.link.get() {
            self.record_use();
            return Ok(link);
        }
        if !is_expected(&self.status.borrow()) {
            return Err(self.not_ready_refusal());
        }
        let _waiter = self.take_waiting_slot(caller)?;
        self.called.notify_one();
        let mut status = self.status.subscribe();
        let failed_before = status.borrow().failed_generation;
        self.wake();
        self.record_use();
        // A server that a call starts is not retried for the calls that waited: they get the reason.
        let settled = status.wait_for(|status| {
            let start_failed = status.starts_on_call && status.failed_generation > failed_before;
            !is_expected(status) || start_failed
        });
        tokio::select! {
            biased;
            link = self.link.wait_until_filled() => {
                self.record_use();
                Ok(link)
            }
            _ = settled => self.link.get().ok_or_else(|| self.not_ready_refusal()),
            () = in_flight.wait_until_cancelled() => Err(Refusal::Cancelled),
            () = wait_for_start_timeout(self.status.subscribe(), self.start_timeout()) => Err(self.not_ready_refusal()),
        }
    }

    /// Resolves when a call waits for it, or has since the last time.
    pub(in crate::server) async fn wait_for_caller(&self) {
        self.called.notified().await;
    }

    /// Starts a server now that a call starts, or an HTTP server that waits for its next start.
    pub fn wake(&self) {
        let (starts_on_call, next) = {
            let status = self.status.borrow();
            (status.starts_on_call, status.next_start)
        };
        let is_late = next.is_some_and(|at| at.duration_since(monotonic_now()) > NEAR_RETRY);
        if is_late || starts_on_call && next.is_none() {
            let _ = self.send(ServerMsg::CallWaiting);
        }
    }

    /// What the start of the server is waiting for, for its callers; `None` while it does not start.
    pub(crate) fn describe_start(&self) -> Option<String> {
        let status = self.status.borrow();
        let is_starting = matches!(
            status.state,
            LifecycleState::Connecting | LifecycleState::Restarting
        );
        let start = status.start.as_ref().filter(|_| is_starting)?;
        Some(format!("starting {}: {}", self.id, start.describe()))
    }

    /// Resolves when the server no longer waits for a call, or for the end of its last run.
    pub(crate) async fn wait_until_starting(&self) {
        let mut status = self.status.subscribe();
        let _ = status.wait_for(|status| !status.starts_on_call).await;
    }

    /// The expected availability of a server that has published no offer.
    #[must_use]
    pub fn outlook(&self) -> Availability {
        let status = self.status.borrow();
        match status.state {
            _ if !is_expected(&status) => Availability::Unavailable,
            // Neither lists nor unknown names wait for other nodes.
            _ if self.id.is_remote() => Availability::Unavailable,
            // The offer is known here a moment before agents can see it.
            _ if is_first(&status) && !self.was_connected.load(Ordering::Relaxed) => {
                Availability::FirstStart
            }
            LifecycleState::Registered
            | LifecycleState::Connecting
            | LifecycleState::Connected
            | LifecycleState::Draining
            | LifecycleState::Disconnected
            | LifecycleState::Error
            | LifecycleState::Restarting => Availability::Expected,
        }
    }

    /// True if it starts without an operator, now or at its next retry.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        let status = self.status.borrow();
        is_expected(&status) || status.next_start.is_some()
    }

    /// True if it runs on demand and takes calls, now or after the start that a call causes.
    #[must_use]
    pub fn starts_for_calls(&self) -> bool {
        let status = self.status.borrow();
        status.starts_by_calls && is_expected(&status)
    }

    /// True if calls wait for it now.
    pub(in crate::server) fn should_wait(&self) -> bool {
        is_expected(&self.status.borrow())
    }

    /// True if it is in its first start, which began so recently that lists wait for it.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.outlook() == Availability::FirstStart && !self.remaining_list_wait().is_zero()
    }

    /// Resolves when the first start has succeeded, failed or was cancelled, or when lists no longer wait for
    /// it.
    pub async fn wait_for_first_start(&self) {
        let mut status = self.status.subscribe();
        let settled =
            status.wait_for(|now| now.state == LifecycleState::Connected || !is_first(now));
        let _ = tokio::time::timeout(self.remaining_list_wait(), settled).await;
    }

    /// A call that starts its server waits as long as the start may take: without the call, nobody would start it.
    fn start_timeout(&self) -> Duration {
        let status = self.status.borrow();
        if self.id.is_remote() {
            NODE_TIMEOUT
        } else if status.starts_by_calls {
            // The start reports its own timeout first.
            START_TIMEOUT.max(status.start_timeout + NEAR_RETRY)
        } else {
            START_TIMEOUT
        }
    }

    /// How much longer lists wait for it.
    fn remaining_list_wait(&self) -> Duration {
        let since = self.status.borrow().since;
        LIST_TIMEOUT.saturating_sub(monotonic_now().duration_since(since))
    }

    fn take_waiting_slot(&self, caller: Option<&Caller>) -> Result<CallSlot<'_>, Refusal> {
        let limit = self.status.borrow().waiting_calls_max;
        self.waiting_calls.take(limit, caller).map_err(|error| {
            let id = &self.id;
            let list = format!("list of {limit} calls that wait for server {id}");
            Refusal::Overloaded {
                what: error.describe(&list),
            }
        })
    }
}

/// True if it should be connected, and its last start, if any, did not fail.
fn is_first(status: &Status) -> bool {
    is_expected(status)
        && !status.is_asleep()
        && matches!(
            status.state,
            LifecycleState::Registered | LifecycleState::Connecting
        )
}

fn is_expected(status: &Status) -> bool {
    let will_start = status.starts_automatically || status.starts_on_call;
    status.state.can_accept_calls_soon(will_start) && !status.awaits_operator
}

/// Waits for draining, which has its own limit, and then for this timeout.
async fn wait_for_start_timeout(mut status: watch::Receiver<Status>, most: Duration) {
    let drained = status.wait_for(|status| status.state != LifecycleState::Draining);
    let _ = drained.await;
    tokio::time::sleep(most).await;
}
