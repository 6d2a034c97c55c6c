//! How calls and lists wait for a server that is starting.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mgp_engine::servers::lifecycle::LifecycleState;
use mgp_engine::tools::catalog::Outlook;
use mgp_protocol::refusal::Refusal;
use tokio::sync::watch;

use super::{ServerHandle, Status};
use crate::link::Link;
use crate::link::call_places::CallPlace;
use crate::server::ServerMsg;
use mgp_callers::exchange::Exchange;
use mgp_callers::request::Caller;
use mgp_runtime::time::moment;

/// How long after a server's first start began lists wait for it: enough for an installed program to start,
/// far less than any client waits for an answer.
const LIST_PATIENCE: Duration = Duration::from_secs(3);

/// How long a call waits for a server that is being started.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// A next try that is nearer than this is waited for.
const SOON: Duration = Duration::from_secs(1);

/// How long it waits for one of another node: that starts nothing, and is there at once or away.
const NODE_PATIENCE: Duration = Duration::from_secs(1);

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
        exchange: &Exchange,
    ) -> Result<Arc<Link>, Refusal> {
        if let Some(link) = self.link.get() {
            return Ok(link);
        }
        if !comes(&self.status.borrow()) {
            return Err(self.not_ready());
        }
        let _waiter = self.waiter(caller)?;
        self.wake();
        let mut status = self.status.subscribe();
        let settled = status.wait_for(|status| !comes(status));
        tokio::select! {
            biased;
            link = self.link.filled() => Ok(link),
            _ = settled => self.link.get().ok_or_else(|| self.not_ready()),
            () = exchange.cancelled() => Err(Refusal::Cancelled),
            () = patience(self.status.subscribe(), self.start_patience()) => Err(self.not_ready()),
        }
    }

    /// A server at a URL that waits for its next try is tried now.
    fn wake(&self) {
        let next = self.status.borrow().next_try;
        if next.is_some_and(|at| at.since(moment()) > SOON) {
            let _ = self.tell(ServerMsg::Called);
        }
    }

    /// What can be expected of it while it publishes nothing.
    #[must_use]
    pub fn outlook(&self) -> Outlook {
        let status = self.status.borrow();
        match status.state {
            _ if !comes(&status) => Outlook::Gone,
            // Neither lists nor unknown names wait for other nodes.
            _ if self.id.is_of_node() => Outlook::Gone,
            // What it offers is known here a moment before agents can see it.
            _ if is_first(&status) && !self.was_connected.load(Ordering::Relaxed) => Outlook::First,
            LifecycleState::Registered
            | LifecycleState::Connecting
            | LifecycleState::Connected
            | LifecycleState::Draining
            | LifecycleState::Disconnected
            | LifecycleState::Error
            | LifecycleState::Restarting => Outlook::Coming,
        }
    }

    /// Whether it comes up without anybody's doing, now or at its next try.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        let status = self.status.borrow();
        comes(&status) || status.next_try.is_some()
    }

    /// Whether calls wait for it now.
    pub(in crate::server) fn is_coming(&self) -> bool {
        comes(&self.status.borrow())
    }

    /// Whether it is in its first start and began so recently that lists wait for it.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.outlook() == Outlook::First && !self.newness().is_zero()
    }

    /// Resolves when it is connected for the first time, has failed or will not start, and when lists no
    /// longer wait for it.
    pub async fn arrives(&self) {
        let mut status = self.status.subscribe();
        let settled =
            status.wait_for(|now| now.state == LifecycleState::Connected || !is_first(now));
        let _ = tokio::time::timeout(self.newness(), settled).await;
    }

    fn start_patience(&self) -> Duration {
        match self.id.is_of_node() {
            true => NODE_PATIENCE,
            false => START_PATIENCE,
        }
    }

    /// How long lists still wait for it.
    fn newness(&self) -> Duration {
        let since = self.status.borrow().since;
        LIST_PATIENCE.saturating_sub(moment().since(since))
    }

    fn waiter(&self, caller: Option<&Caller>) -> Result<CallPlace<'_>, Refusal> {
        let places = self.status.borrow().places;
        self.waiters.take(places, caller).map_err(|no| {
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
    comes(status)
        && matches!(
            status.state,
            LifecycleState::Registered | LifecycleState::Connecting
        )
}

fn comes(status: &Status) -> bool {
    status.state.comes_up(status.due) && !status.waiting
}

/// A server that is restarted finishes its calls first; the time for that is bounded elsewhere.
async fn patience(mut status: watch::Receiver<Status>, most: Duration) {
    let drained = status.wait_for(|status| status.state != LifecycleState::Draining);
    let _ = drained.await;
    tokio::time::sleep(most).await;
}
