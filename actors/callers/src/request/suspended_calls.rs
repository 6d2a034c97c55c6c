//! Suspended calls: stateless clients' calls that wait for the answer to a legacy server's callback.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytestring::ByteString;
use mgp_protocol::ids::AgentId;
use mgp_protocol::refusal::Refusal;

use super::background_call::BackgroundCall;
use crate::agent::caller::Caller;
use mgp_runtime::task::{self, SupervisedTask};

/// The most suspended calls. Each is in flight at its server, so the servers' limits apply first;
/// this limit keeps clients that never return from filling the table.
const MAX_SUSPENDED: usize = 4096;

/// The most suspended calls of one agent: a sixteenth, so that an agent which never returns leaves capacity
/// for others.
const AGENT_MAX: usize = MAX_SUSPENDED / 16;

/// The suspended calls.
#[derive(Debug)]
pub struct SuspendedCalls {
    calls: Mutex<HashMap<u64, SuspendedCall>>,
    numbers: AtomicU64,
    /// How long a client may take to return.
    return_timeout: Duration,
}

/// A suspended call.
#[derive(Debug)]
pub struct SuspendedCall {
    /// The call itself, which continues as far as it can.
    pub background: Arc<BackgroundCall>,
    /// The caller, with its capabilities at the start.
    pub caller: Arc<Caller>,
    /// The params of the first request.
    pub params: Option<ByteString>,
    /// Distinguishes this suspension from earlier ones of the same call.
    suspension: u64,
    /// Ends the suspension when its time is over.
    _expiry: SupervisedTask<()>,
}

impl SuspendedCalls {
    /// Creates an empty table; clients have `return_timeout` to return.
    #[must_use]
    pub fn new(return_timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            calls: Mutex::default(),
            numbers: AtomicU64::new(1),
            return_timeout,
        })
    }

    /// How long a client may take to return.
    #[must_use]
    pub fn return_timeout(&self) -> Duration {
        self.return_timeout
    }

    /// Allocates the number of a suspended call.
    pub fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Suspends a call. If its client does not return in time the call is cancelled, so that the server
    /// does not wait any longer.
    ///
    /// # Errors
    /// [`Refusal::Overloaded`] above the limit for all or for one agent.
    pub fn suspend(
        self: &Arc<Self>,
        number: u64,
        background: Arc<BackgroundCall>,
        caller: Arc<Caller>,
        params: Option<ByteString>,
    ) -> Result<(), Refusal> {
        let suspension = self.next_number();
        let mut calls = self.lock_calls();
        if calls.len() >= MAX_SUSPENDED {
            return Err(Refusal::Overloaded {
                what: format!("the list of {MAX_SUSPENDED} calls that wait for their clients"),
            });
        }
        let own = calls
            .values()
            .filter(|call| call.caller.agent == caller.agent);
        if own.count() >= AGENT_MAX {
            let agent = &caller.agent;
            return Err(Refusal::Overloaded {
                what: format!("the list of {AGENT_MAX} calls of {agent} that wait for its answers"),
            });
        }
        let table = self.clone();
        let expiry = task::spawn_supervised("calls.suspended", async move {
            tokio::time::sleep(table.return_timeout).await;
            table.expire(number, suspension);
        });
        let suspended = SuspendedCall {
            background,
            caller,
            params,
            suspension,
            _expiry: expiry,
        };
        calls.insert(number, suspended);
        Ok(())
    }

    /// The params of a suspended call's first request, for its own caller, and the open callbacks as the
    /// `inputRequests` object. `None` when the call is no longer suspended.
    #[must_use]
    pub fn pending_input(&self, number: u64, caller: &str) -> Option<(Option<ByteString>, String)> {
        let calls = self.lock_calls();
        let call = calls.get(&number)?;
        if call.caller.principal() != caller {
            return None;
        }
        let rounds = call.background.call.rounds()?;
        Some((call.params.clone(), rounds.input_requests()))
    }

    /// Removes the call of a client that has returned, unless it was cancelled meanwhile.
    #[must_use]
    pub fn take(&self, number: u64) -> Option<SuspendedCall> {
        let suspended = self.lock_calls().remove(&number);
        suspended.filter(|suspended| !suspended.background.call.is_cancelled())
    }

    /// Cancels every call of an agent whose credential was revoked.
    pub fn cancel_for_agent(&self, agent: &AgentId) {
        let mut calls = self.lock_calls();
        for (_, suspended) in calls.extract_if(|_, suspended| suspended.caller.agent == *agent) {
            suspended.background.call.cancel();
        }
    }

    fn expire(&self, number: u64, suspension: u64) {
        let mut calls = self.lock_calls();
        if calls
            .get(&number)
            .is_some_and(|suspended| suspended.suspension == suspension)
            && let Some(suspended) = calls.remove(&number)
        {
            suspended.background.call.cancel();
        }
    }

    fn lock_calls(&self) -> MutexGuard<'_, HashMap<u64, SuspendedCall>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use mgp_engine::tools::catalog::CatalogView;
    use mgp_protocol::dialect::Version;
    use mgp_protocol::ids::ConnectionId;
    use mgp_protocol::mcp::ClientCapabilities;
    use mgp_protocol::mgp::negotiation::PLAIN;

    use super::*;
    use crate::agent::caller::CallerSession;
    use crate::in_flight_call::{InFlightCall, ReplyPath};
    use crate::request::GuardedAnswer;

    fn caller(name: &str) -> Arc<Caller> {
        Arc::new(Caller {
            connection: ConnectionId(1),
            agent: AgentId::new(name),
            groups: Default::default(),
            operator: false,
            view: CatalogView::All,
            version: Version::STATELESS,
            capabilities: ClientCapabilities::default(),
            extensions: None,
            mgp: PLAIN,
            mcpl: None,
            session: CallerSession::Stateless,
            address: None,
            activity: Arc::default(),
        })
    }

    #[tokio::test]
    async fn silent_agent_leaves_capacity_for_others() {
        let table = SuspendedCalls::new(Duration::from_secs(600));
        let suspend = |name: &str| {
            let answering = GuardedAnswer::new(|| Box::pin(std::future::pending()));
            let background =
                BackgroundCall::start(InFlightCall::new(ReplyPath::Discard), answering);
            table.suspend(table.next_number(), background, caller(name), None)
        };
        for _ in 0..AGENT_MAX {
            suspend("agent.greedy").unwrap();
        }
        let refused = suspend("agent.greedy").unwrap_err();
        assert!(matches!(refused, Refusal::Overloaded { .. }), "{refused}");
        suspend("agent.other").unwrap();
        table.cancel_for_agent(&AgentId::new("agent.greedy"));
        suspend("agent.greedy").unwrap();
    }
}
