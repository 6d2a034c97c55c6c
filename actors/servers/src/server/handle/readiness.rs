//! How calls and lists wait for a server that is starting.

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

/// How long after a server's first start began lists wait for it: enough for an installed program to start,
/// far less than any client waits for an answer.
const LIST_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a call waits for a server that is being started.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// A next try that is nearer than this is waited for.
const NEAR_RETRY: Duration = Duration::from_secs(1);

/// How long it waits for one of another node: that starts nothing, and is there at once or away.
const NODE_TIMEOUT: Duration = Duration::from_secs(1);

impl ServerHandle {
    /// The connection for a call; waits a little for a server that is starting. As many calls may wait as
    /// may be under way at the server, so that all that waited can be sent, and of each agent no more than its
    /// share, which is counted anew when they are sent.
    ///
    /// # Errors
    /// [`Refusal::NotReady`] with state, reason and the time of the next try; [`Refusal::Overloaded`]
    /// where too many wait; [`Refusal::Cancelled`].
    pub async fn connection(
        &self,
        caller: Option<&Caller>,
        exchange: &InFlightCall,
    ) -> Result<Arc<Link>, Refusal> {
        if let Some(link) = self.link.get() {
            return Ok(link);
        }
        if !is_expected(&self.status.borrow()) {
            return Err(self.not_ready_refusal());
        }
        let _waiter = self.take_waiting_slot(caller)?;
        self.wake_supervisor();
        let mut status = self.status.subscribe();
        let settled = status.wait_for(|status| !is_expected(status));
        tokio::select! {
            biased;
            link = self.link.wait_until_filled() => Ok(link),
            _ = settled => self.link.get().ok_or_else(|| self.not_ready_refusal()),
            () = exchange.wait_until_cancelled() => Err(Refusal::Cancelled),
            () = wait_for_start_timeout(self.status.subscribe(), self.start_timeout()) => Err(self.not_ready_refusal()),
        }
    }

    /// A server at a URL that waits for its next try is tried now.
    fn wake_supervisor(&self) {
        let next = self.status.borrow().next_start;
        if next.is_some_and(|at| at.duration_since(monotonic_now()) > NEAR_RETRY) {
            let _ = self.send(ServerMsg::CallWaiting);
        }
    }

    /// What can be expected of it while it publishes nothing.
    #[must_use]
    pub fn outlook(&self) -> Availability {
        let status = self.status.borrow();
        match status.state {
            _ if !is_expected(&status) => Availability::Unavailable,
            // Neither lists nor unknown names wait for other nodes.
            _ if self.id.is_remote() => Availability::Unavailable,
            // What it offers is known here a moment before agents can see it.
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

    /// Whether it comes up without anybody's doing, now or at its next try.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        let status = self.status.borrow();
        is_expected(&status) || status.next_start.is_some()
    }

    /// Whether calls wait for it now.
    pub(in crate::server) fn should_wait(&self) -> bool {
        is_expected(&self.status.borrow())
    }

    /// Whether it is in its first start and began so recently that lists wait for it.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.outlook() == Availability::FirstStart && !self.remaining_list_wait().is_zero()
    }

    /// Resolves when it is connected for the first time, has failed or will not start, and when lists no
    /// longer wait for it.
    pub async fn wait_for_first_start(&self) {
        let mut status = self.status.subscribe();
        let settled =
            status.wait_for(|now| now.state == LifecycleState::Connected || !is_first(now));
        let _ = tokio::time::timeout(self.remaining_list_wait(), settled).await;
    }

    fn start_timeout(&self) -> Duration {
        if self.id.is_remote() {
            NODE_TIMEOUT
        } else {
            START_TIMEOUT
        }
    }

    /// How long lists still wait for it.
    fn remaining_list_wait(&self) -> Duration {
        let since = self.status.borrow().since;
        LIST_TIMEOUT.saturating_sub(monotonic_now().duration_since(since))
    }

    fn take_waiting_slot(&self, caller: Option<&Caller>) -> Result<CallSlot<'_>, Refusal> {
        let places = self.status.borrow().waiting_calls_max;
        self.waiting_calls.take(places, caller).map_err(|no| {
            let id = &self.id;
            let list = format!("list of {places} calls that wait for server {id}");
            Refusal::Overloaded {
                what: no.describe(&list),
            }
        })
    }
}

/// It is to be connected, and its last start, if any, did not fail.
fn is_first(status: &Status) -> bool {
    is_expected(status)
        && matches!(
            status.state,
            LifecycleState::Registered | LifecycleState::Connecting
        )
}

fn is_expected(status: &Status) -> bool {
    status
        .state
        .can_accept_calls_soon(status.starts_automatically)
        && !status.awaits_operator
}

/// A server that is restarted finishes its calls first; the time for that is bounded elsewhere.
async fn wait_for_start_timeout(mut status: watch::Receiver<Status>, most: Duration) {
    let drained = status.wait_for(|status| status.state != LifecycleState::Draining);
    let _ = drained.await;
    tokio::time::sleep(most).await;
}
