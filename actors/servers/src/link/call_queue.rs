//! Serializes the calls of clients at servers that send callbacks, so that a callback has one possible client.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use mgp_engine::servers::attribution::CallOrigin;
use mgp_engine::servers::call_queue::{self, QueueAdmission, Ticket};
use mgp_protocol::refusal::Refusal;
use std::collections::HashMap;
use tokio::sync::oneshot;

use mgp_callers::InFlightCall;
use mgp_callers::request::Caller;

/// The queue of clients at one server; unused until the server sends its first callback.
#[derive(Debug, Default)]
pub(super) struct CallQueue {
    is_serialized: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    engine: call_queue::CallQueue,
    waiting: HashMap<Ticket, oneshot::Sender<()>>,
}

/// Permission to run calls; dropping it admits the next client.
#[derive(Debug)]
pub(super) struct CallPermit<'a> {
    queue: &'a CallQueue,
    origin: CallOrigin,
}

/// The queue party of a caller. A stateless request declares itself which callbacks its client supports.
pub(super) fn call_origin(caller: &Caller) -> CallOrigin {
    if caller.is_stateless() || caller.capabilities.can_receive_requests() {
        CallOrigin::Client(caller.connection)
    } else {
        CallOrigin::NonInteractive
    }
}

impl CallQueue {
    /// From now on one client's calls run at a time. Returns true the first time.
    pub(super) fn serialize_calls(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.engine.serialize_clients();
        !self.is_serialized.swap(true, Ordering::AcqRel)
    }

    /// The number of waiting calls.
    pub(super) fn queued_calls(&self) -> usize {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.engine.queued_count()
    }

    /// Waits until this client's calls may run.
    pub(super) async fn acquire(
        &self,
        origin: CallOrigin,
        in_flight: &InFlightCall,
    ) -> Result<CallPermit<'_>, Refusal> {
        let (ticket, admitted) = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            match state.engine.enter(origin) {
                QueueAdmission::Admitted => {
                    return Ok(CallPermit {
                        queue: self,
                        origin,
                    });
                }
                QueueAdmission::Rejected => {
                    return Err(Refusal::Overloaded {
                        what: "the queue at a server that serves one client at a time".into(),
                    });
                }
                QueueAdmission::Queued(ticket) => {
                    let (sender, receiver) = oneshot::channel();
                    state.waiting.insert(ticket, sender);
                    (ticket, receiver)
                }
            }
        };
        let mut entry = QueueEntry {
            queue: self,
            origin,
            ticket: Some(ticket),
        };
        tokio::select! {
            _ = admitted => {
                entry.ticket = None;
                Ok(CallPermit { queue: self, origin })
            }
            () = in_flight.wait_until_cancelled() => Err(Refusal::Cancelled),
        }
    }

    /// True once calls are serialized.
    pub(super) fn is_serialized(&self) -> bool {
        self.is_serialized.load(Ordering::Acquire)
    }

    /// Records whether all calls of a client wait for an answer of that client; if so, other clients are
    /// admitted.
    pub(super) fn set_suspended(&self, origin: CallOrigin, suspended: bool) {
        if self.is_serialized.load(Ordering::Acquire) {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let next = state.engine.set_suspended(origin, suspended);
            state.wake(next);
        }
    }

    fn release(&self, origin: CallOrigin) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let next = state.engine.leave(origin);
        state.wake(next);
    }
}

impl State {
    fn wake(&mut self, tickets: Vec<Ticket>) {
        for ticket in tickets {
            if let Some(waiter) = self.waiting.remove(&ticket) {
                let _ = waiter.send(());
            }
        }
    }
}

impl Drop for CallPermit<'_> {
    fn drop(&mut self) {
        self.queue.release(self.origin);
    }
}

/// A position in the queue; dropping it leaves the queue.
struct QueueEntry<'a> {
    queue: &'a CallQueue,
    origin: CallOrigin,
    ticket: Option<Ticket>,
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let mut state = self
            .queue
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if state.waiting.remove(&ticket).is_some() {
            let next = state.engine.cancel(ticket).unwrap_or_default();
            state.wake(next);
        } else {
            // It was admitted while it gave up: admit the next client.
            let next = state.engine.leave(self.origin);
            state.wake(next);
        }
    }
}
