//! For servers that ask questions: calls of one client at a time, so that it is known whom to ask.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use mgp_engine::servers::attribution::Party;
use mgp_engine::servers::call_queue::{self, Enter, Ticket};
use mgp_protocol::refusal::Refusal;
use std::collections::HashMap;
use tokio::sync::oneshot;

use mgp_callers::exchange::Exchange;
use mgp_callers::request::Caller;

/// The queue of clients at one server; unused until the server asks its first question.
#[derive(Debug, Default)]
pub(super) struct CallQueue {
    asks: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    engine: call_queue::CallQueue,
    waiting: HashMap<Ticket, oneshot::Sender<()>>,
}

/// The right to have calls under way; dropping it lets the next client in.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    queue: &'a CallQueue,
    who: Party,
}

/// The party that a caller counts as. A stateless request says itself what its client can be asked.
pub(super) fn party(caller: &Caller) -> Party {
    match caller.is_alone() || caller.capabilities.can_be_asked() {
        true => Party::Client(caller.connection),
        false => Party::Unaskable,
    }
}

impl CallQueue {
    /// From now on clients take turns. True the first time.
    pub(super) fn serialise(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.engine.set_asks();
        !self.asks.swap(true, Ordering::AcqRel)
    }

    /// Calls that wait.
    pub(super) fn waiting(&self) -> usize {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.engine.waiting()
    }

    /// Waits for this client's turn at a server that asks.
    pub(super) async fn enter(&self, who: Party, exchange: &Exchange) -> Result<Turn<'_>, Refusal> {
        let (ticket, let_in) = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            match state.engine.enter(who) {
                Enter::Now => return Ok(Turn { queue: self, who }),
                Enter::Refused => {
                    return Err(Refusal::Overloaded {
                        what: "the queue at a server that serves one client at a time".into(),
                    });
                }
                Enter::Wait(ticket) => {
                    let (sender, receiver) = oneshot::channel();
                    state.waiting.insert(ticket, sender);
                    (ticket, receiver)
                }
            }
        };
        let mut place = WaitingCall {
            queue: self,
            who,
            ticket: Some(ticket),
        };
        tokio::select! {
            _ = let_in => {
                place.ticket = None;
                Ok(Turn { queue: self, who })
            }
            () = exchange.cancelled() => Err(Refusal::Cancelled),
        }
    }

    /// True once the server has asked a question.
    pub(super) fn asks(&self) -> bool {
        self.asks.load(Ordering::Acquire)
    }

    /// Notes whether all calls of a client wait for the client to answer; then others may have their turn.
    pub(super) fn rest(&self, who: Party, rests: bool) {
        if self.asks.load(Ordering::Acquire) {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let next = state.engine.rest(who, rests);
            state.let_in(next);
        }
    }

    fn leave(&self, who: Party) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let next = state.engine.leave(who);
        state.let_in(next);
    }
}

impl State {
    fn let_in(&mut self, tickets: Vec<Ticket>) {
        for ticket in tickets {
            if let Some(waiter) = self.waiting.remove(&ticket) {
                let _ = waiter.send(());
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.queue.leave(self.who);
    }
}

/// A place in the queue; dropping it leaves the queue.
struct WaitingCall<'a> {
    queue: &'a CallQueue,
    who: Party,
    ticket: Option<Ticket>,
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let mut state = self
            .queue
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if state.waiting.remove(&ticket).is_some() {
            let next = state.engine.cancel(ticket).unwrap_or_default();
            state.let_in(next);
        } else {
            // It was let in while it gave up: the turn goes to the next one.
            let next = state.engine.leave(self.who);
            state.let_in(next);
        }
    }
}
