//! Calls of stateless clients that wait until their client answers what a legacy server asks.

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

/// Calls that may be suspended at once: each holds a call under way at its server, so servers' own
/// bounds are met first; this one keeps clients that never come back from filling the table.
const MAX_PARKED: usize = 4096;

/// The suspended calls.
#[derive(Debug)]
pub struct SuspendedCalls {
    calls: Mutex<HashMap<u64, SuspendedCall>>,
    numbers: AtomicU64,
    /// How long a client may take to come back.
    patience: Duration,
}

/// A call that waits for its client.
#[derive(Debug)]
pub struct SuspendedCall {
    /// Goes on meanwhile, as far as it can.
    pub background: Arc<BackgroundCall>,
    /// Whose call it is, with what it declared when it began.
    pub caller: Arc<Caller>,
    /// The params of its first try.
    pub params: Option<ByteString>,
    /// Tells this stay from an earlier one of the same call.
    stay: u64,
    /// Ends the stay in time, and itself with it.
    _patience: SupervisedTask<()>,
}

impl SuspendedCalls {
    /// No call yet.
    #[must_use]
    pub fn new(patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            calls: Mutex::default(),
            numbers: AtomicU64::new(1),
            patience,
        })
    }

    /// How long a client may take to come back.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// A number for a call.
    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Parks a call. When its client does not come back in time it is taken back, so that the server
    /// need not wait any longer.
    ///
    /// # Errors
    /// [`Refusal::Overloaded`] above the bound.
    pub fn park(
        self: &Arc<Self>,
        number: u64,
        background: Arc<BackgroundCall>,
        caller: Arc<Caller>,
        params: Option<ByteString>,
    ) -> Result<(), Refusal> {
        let stay = self.number();
        let mut calls = self.calls();
        if calls.len() >= MAX_PARKED {
            return Err(Refusal::Overloaded {
                what: format!("the list of {MAX_PARKED} calls that wait for their clients"),
            });
        }
        let table = self.clone();
        let patience = task::supervised("suspended call", async move {
            tokio::time::sleep(table.patience).await;
            table.expire(number, stay);
        });
        let suspended = SuspendedCall {
            background,
            caller,
            params,
            stay,
            _patience: patience,
        };
        calls.insert(number, suspended);
        Ok(())
    }

    /// The client is back: takes the call out, unless it was taken back meanwhile.
    #[must_use]
    pub fn take(&self, number: u64) -> Option<SuspendedCall> {
        let suspended = self.calls().remove(&number);
        suspended.filter(|suspended| !suspended.background.exchange.is_cancelled())
    }

    /// Takes back every call of an agent that may not go on.
    pub fn end_of(&self, agent: &AgentId) {
        let mut calls = self.calls();
        for (_, suspended) in calls.extract_if(|_, suspended| suspended.caller.agent == *agent) {
            suspended.background.exchange.cancel();
        }
    }

    fn expire(&self, number: u64, stay: u64) {
        let mut calls = self.calls();
        if calls
            .get(&number)
            .is_some_and(|suspended| suspended.stay == stay)
            && let Some(suspended) = calls.remove(&number)
        {
            suspended.background.exchange.cancel();
        }
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<u64, SuspendedCall>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
