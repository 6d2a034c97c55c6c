//! Callbacks of a server (MGP §13.4): each belongs to the call that it names, is asked once, and is
//! answered to the server when its answer is there.

mod respond;
mod route;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mgp_engine::callers::callbacks::{
    Arrived, AskedCallbacks, CallbackEnd, CallbackForm, CallbackTicket, Patience,
};
use mgp_engine::clock::MonotonicTime;
use mgp_protocol::jsonrpc::RequestId;
use mgp_protocol::mcp;
use mgp_protocol::mgp::callback::{self, CallbackKind, Request};

use self::respond::Responses;
use crate::link::call_queue::party;
use crate::link::{InFlight, Link};
use mgp_callers::exchange::{Exchange, Flag};
use mgp_callers::request::Caller;
use mgp_runtime::task;
use mgp_runtime::time::moment;

pub(in crate::link) use self::respond::MAX_RESPONSES;

/// Who answers this soon keeps others waiting meanwhile, as with other questions.
const QUICK: Duration = Duration::from_millis(500);
/// Callbacks that reach nobody are noted in the server's log up to this number, then only counted.
const NOTED: u64 = 20;

/// The callbacks of the calls that are under way.
#[derive(Debug, Default)]
pub(in crate::link) struct ServerCallbacks {
    state: Mutex<CallbackState>,
    responses: Responses,
    /// Callbacks that reached nobody.
    not_asked: AtomicU64,
}

#[derive(Debug, Default)]
struct CallbackState {
    engine: AskedCallbacks,
    /// Raised for an open one when its call is over.
    over: HashMap<CallbackTicket, Arc<Flag>>,
}

/// A callback that is being asked.
struct AskedCallback {
    id: RequestId,
    ticket: CallbackTicket,
    form: CallbackForm,
    message: String,
    /// As the server sent it.
    params: String,
    arrived: MonotonicTime,
    patience: Patience,
    caller: Arc<Caller>,
    exchange: Arc<Exchange>,
}

/// What comes of asking.
enum AskedOutcome {
    /// This response, as JSON text.
    Said(String),
    /// No response, and why not, in one word.
    Declined(&'static str),
    /// Nobody answered in time.
    TimedOut,
    /// Nothing is to be said.
    Shown,
}

impl ServerCallbacks {
    /// The call is over, and its callbacks with it.
    pub(in crate::link) fn call_over(&self, call: u64) {
        let mut state = self.state();
        if state.engine.is_empty() {
            return;
        }
        for ticket in state.engine.call_over(call) {
            if let Some(over) = state.over.remove(&ticket) {
                over.raise();
            }
        }
    }

    /// The call in which the server asked it.
    pub(in crate::link) fn call_of(&self, id: &RequestId) -> Option<u64> {
        self.state().engine.call_of(id)
    }

    fn arrives(&self, id: &RequestId, call: u64, bytes: usize) -> (Arrived, Arc<Flag>) {
        let (mut state, over) = (self.state(), Arc::new(Flag::default()));
        let arrived = state.engine.arrives(id, call, bytes);
        if let Arrived::New(ticket) = &arrived {
            state.over.insert(*ticket, over.clone());
        }
        (arrived, over)
    }

    /// True when it was open still.
    fn settle(&self, asked: &AskedCallback, end: CallbackEnd) -> bool {
        let mut state = self.state();
        state.over.remove(&asked.ticket);
        state.engine.settle(&asked.id, asked.ticket, end)
    }

    /// The same with an answer, which waits for the server until the returned value is dropped.
    fn answered(&self, asked: &AskedCallback, answer: &str) -> Option<UntoldAnswer<'_>> {
        let end = CallbackEnd::Answered(answer.to_owned());
        self.settle(asked, end).then_some(UntoldAnswer(self))
    }

    fn state(&self) -> MutexGuard<'_, CallbackState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer that its server was not told yet.
struct UntoldAnswer<'a>(&'a ServerCallbacks);

impl Drop for UntoldAnswer<'_> {
    fn drop(&mut self) {
        self.0.state().engine.told();
    }
}

impl Link {
    /// `notifications/mgp.callback.request`. One that names no call under way reaches nobody.
    pub(in crate::link) fn called_back(self: &Arc<Self>, params: Option<&str>, via: Option<u64>) {
        let asked = mcp::read::<Request<'_>>(params).map_err(|refusal| refusal.to_string());
        let read = asked.and_then(|asked| {
            let form = CallbackForm::new(asked.kind, asked.options.clone());
            Ok((form.map_err(|unfit| unfit.to_string())?, asked))
        });
        let (form, asked) = match read {
            Ok(read) => read,
            Err(why) => return self.not_asked(&why),
        };
        let (Some(id), Some((call, caller, exchange))) =
            (asked.id(), self.calling_back(&asked, via))
        else {
            return self.not_asked("it names no call that is under way by `request_id`");
        };
        let params = params.unwrap_or("{}");
        let (arrived, over) = self.callbacks.arrives(&id, call, params.len());
        match arrived {
            // It ended before this was noted.
            Arrived::New(_) if !self.awaits(call) => self.callbacks.call_over(call),
            Arrived::New(ticket) => {
                let asked = AskedCallback {
                    id,
                    ticket,
                    form,
                    message: asked.message.as_deref().unwrap_or_default().to_owned(),
                    params: params.to_owned(),
                    arrived: moment(),
                    patience: Patience::of(asked.timeout_ms()),
                    caller,
                    exchange,
                };
                self.ask_callback(asked, over);
            }
            Arrived::Waits | Arrived::Over => {}
            Arrived::Answered(answer) => self.respond_if_room(answer),
            Arrived::OfAnother => self.not_asked("another call has one of this `callback_id`"),
            Arrived::TooMany => {
                self.not_asked("too many wait for an answer already");
                if asked.kind != CallbackKind::Notification {
                    let answer = callback::declined(&id, &form.declined(), "too_many");
                    self.respond_if_room(answer);
                }
            }
        }
    }

    /// The call of a client that a callback names, which is the one on whose stream it comes.
    fn calling_back(
        &self,
        asked: &Request<'_>,
        via: Option<u64>,
    ) -> Option<(u64, Arc<Caller>, Arc<Exchange>)> {
        let named = match asked.request_id {
            Some(_) => Some(self.ids.number(asked.call()?)?),
            None => via,
        };
        let number = named.filter(|named| via.is_none_or(|via| via == *named))?;
        let of = |call: &InFlight| Some((number, call.caller.clone()?, call.exchange.clone()));
        self.pending.with(number, of).flatten()
    }

    /// Counts a callback that reaches nobody.
    fn not_asked(&self, why: &str) {
        self.dropped();
        if self.callbacks.not_asked.fetch_add(1, Ordering::Relaxed) < NOTED {
            self.log
                .note(&format!("a callback of it was dropped: {why}"));
        }
    }

    fn ask_callback(self: &Arc<Self>, asked: AskedCallback, over: Arc<Flag>) {
        let link = self.clone();
        task::detached("callbacks.ask", async move {
            let asking = task::caught("callbacks.ask", link.outcome_of(&asked));
            let outcome = tokio::select! {
                outcome = asking => outcome.unwrap_or(AskedOutcome::Declined("failed")),
                () = tokio::time::sleep(asked.patience.lasts) => AskedOutcome::TimedOut,
                // The server no longer wants to know.
                () = over.raised() => return,
                () = link.over() => return,
            };
            let who = party(&asked.caller);
            link.turns.rest(who, link.rests(who));
            link.settle_callback(&asked, outcome).await;
        });
    }

    /// The outcome; while all calls of the client wait for a person, others get their turn.
    async fn outcome_of(self: &Arc<Self>, asked: &AskedCallback) -> AskedOutcome {
        if asked.form.kind() == CallbackKind::Notification {
            self.show_callback(asked).await;
            return AskedOutcome::Shown;
        }
        let (who, _counted) = (party(&asked.caller), asked.exchange.asks());
        let mut put = std::pin::pin!(self.put_callback(asked));
        if let Ok(outcome) = tokio::time::timeout(QUICK, put.as_mut()).await {
            return outcome;
        }
        self.turns.rest(who, self.rests(who));
        put.await
    }

    async fn settle_callback(self: &Arc<Self>, asked: &AskedCallback, outcome: AskedOutcome) {
        let answer = match outcome {
            AskedOutcome::Said(response) => callback::response(&asked.id, &response),
            AskedOutcome::Declined(why) => {
                callback::declined(&asked.id, &asked.form.declined(), why)
            }
            // Of a notification nobody waits to hear.
            AskedOutcome::Shown | AskedOutcome::TimedOut
                if asked.form.kind() == CallbackKind::Notification =>
            {
                self.callbacks.settle(asked, CallbackEnd::Shown);
                return;
            }
            // A server that set the time itself knows that it is over; any other one waits to be told.
            AskedOutcome::TimedOut if !asked.patience.known => {
                callback::declined(&asked.id, &asked.form.declined(), "timed_out")
            }
            AskedOutcome::Shown | AskedOutcome::TimedOut => {
                self.callbacks.settle(asked, CallbackEnd::Unanswered);
                return;
            }
        };
        if let Some(_untold) = self.callbacks.answered(asked, &answer) {
            self.respond(answer).await;
        }
    }
}
