//! MGP callbacks of a server (§13.4). Each belongs to the call it names, is sent to a client once, and its
//! answer is sent to the server when it arrives.

mod respond;
mod route;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mgp_engine::callers::callbacks::{
    CallbackArrival, CallbackForm, CallbackOutcome, CallbackTicket, CallbackTimeout,
    ReceivedCallbacks,
};
use mgp_engine::clock::MonotonicTime;
use mgp_protocol::jsonrpc::RequestId;
use mgp_protocol::mcp;
use mgp_protocol::mgp::callback::{self, CallbackKind, Request};

use self::respond::ResponseSlots;
use crate::link::call_queue::call_origin;
use crate::link::{InFlight, Link};
use mgp_callers::request::Caller;
use mgp_callers::{Flag, InFlightCall};
use mgp_runtime::task;
use mgp_runtime::time::monotonic_now;

pub(in crate::link) use self::respond::MAX_RESPONSES;

/// An answer within this time keeps other clients queued, as for other callbacks.
const QUICK_ANSWER_MAX: Duration = Duration::from_millis(500);
/// Callbacks without a recipient are logged up to this number, then only counted.
const UNROUTABLE_LOGGED_MAX: u64 = 20;

/// The MGP callbacks of in-flight calls.
#[derive(Debug, Default)]
pub(in crate::link) struct MgpCallbacks {
    state: Mutex<CallbackState>,
    responses: ResponseSlots,
    /// The number of callbacks without a recipient.
    not_asked: AtomicU64,
}

#[derive(Debug, Default)]
struct CallbackState {
    engine: ReceivedCallbacks,
    /// For each open callback, a flag that is raised when its call ends.
    ended: HashMap<CallbackTicket, Arc<Flag>>,
}

/// A callback that was received and not settled.
struct ReceivedCallback {
    id: RequestId,
    ticket: CallbackTicket,
    form: CallbackForm,
    message: String,
    /// The params as sent by the server.
    params: String,
    arrived: MonotonicTime,
    timeout: CallbackTimeout,
    caller: Arc<Caller>,
    call: Arc<InFlightCall>,
}

/// The outcome of routing a callback.
enum RoutingOutcome {
    /// A response, as JSON text.
    Response(String),
    /// No response; the reason in one word.
    Declined(&'static str),
    /// No answer came in time.
    TimedOut,
    /// The callback needs no response.
    NoResponse,
}

impl MgpCallbacks {
    /// Ends the callbacks of an ended call.
    pub(in crate::link) fn end_call(&self, call: u64) {
        let mut state = self.state();
        if state.engine.is_empty() {
            return;
        }
        for ticket in state.engine.end_call(call) {
            if let Some(over) = state.ended.remove(&ticket) {
                over.raise();
            }
        }
    }

    /// The call to which a callback belongs.
    pub(in crate::link) fn call_for(&self, id: &RequestId) -> Option<u64> {
        self.state().engine.call_for(id)
    }

    fn register(&self, id: &RequestId, call: u64, bytes: usize) -> (CallbackArrival, Arc<Flag>) {
        let (mut state, over) = (self.state(), Arc::new(Flag::default()));
        let arrived = state.engine.receive(id, call, bytes);
        if let CallbackArrival::New(ticket) = &arrived {
            state.ended.insert(*ticket, over.clone());
        }
        (arrived, over)
    }

    /// Settles a callback; true if it was open.
    fn settle(&self, callback: &ReceivedCallback, end: CallbackOutcome) -> bool {
        let mut state = self.state();
        state.ended.remove(&callback.ticket);
        state.engine.settle(&callback.id, callback.ticket, end)
    }

    /// Settles a callback with an answer, which stays available to the server until the returned value is
    /// dropped.
    fn settle_with_answer(
        &self,
        callback: &ReceivedCallback,
        answer: &str,
    ) -> Option<UndeliveredAnswer<'_>> {
        let end = CallbackOutcome::Answered(answer.to_owned());
        self.settle(callback, end)
            .then_some(UndeliveredAnswer(self))
    }

    fn state(&self) -> MutexGuard<'_, CallbackState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer that was not delivered to its server.
struct UndeliveredAnswer<'a>(&'a MgpCallbacks);

impl Drop for UndeliveredAnswer<'_> {
    fn drop(&mut self) {
        self.0.state().engine.confirm_delivery();
    }
}

impl Link {
    /// Handles `notifications/mgp.callback.request`. A callback that names no in-flight call is dropped.
    pub(in crate::link) fn handle_mgp_callback(
        self: &Arc<Self>,
        params: Option<&str>,
        via: Option<u64>,
    ) {
        let request =
            mcp::parse_params::<Request<'_>>(params).map_err(|refusal| refusal.to_string());
        let read = request.and_then(|request| {
            let form = CallbackForm::new(request.kind, request.options.clone());
            Ok((form.map_err(|unfit| unfit.to_string())?, request))
        });
        let (form, request) = match read {
            Ok(read) => read,
            Err(why) => return self.record_unroutable_callback(&why),
        };
        let (Some(id), Some((call, caller, in_flight))) =
            (request.id(), self.find_callback_call(&request, via))
        else {
            return self
                .record_unroutable_callback("its `request_id` names no call that is under way");
        };
        let params = params.unwrap_or("{}");
        let (arrived, over) = self.mgp_callbacks.register(&id, call, params.len());
        match arrived {
            // The call ended before the callback was registered.
            CallbackArrival::New(_) if !self.is_pending(call) => self.mgp_callbacks.end_call(call),
            CallbackArrival::New(ticket) => {
                let callback = ReceivedCallback {
                    id,
                    ticket,
                    form,
                    message: request.message.as_deref().unwrap_or_default().to_owned(),
                    params: params.to_owned(),
                    arrived: monotonic_now(),
                    timeout: CallbackTimeout::from_timeout_ms(request.timeout_ms()),
                    caller,
                    call: in_flight,
                };
                self.spawn_callback(callback, over);
            }
            CallbackArrival::Pending | CallbackArrival::Ended => {}
            CallbackArrival::Answered(answer) => self.try_send_callback_response(answer),
            CallbackArrival::OtherCall => self
                .record_unroutable_callback("another call has a callback with this `callback_id`"),
            CallbackArrival::TooMany => {
                self.record_unroutable_callback("too many callbacks wait for an answer already");
                if request.kind != CallbackKind::Notification {
                    let answer =
                        callback::decline_params(&id, &form.decline_response(), "too_many");
                    self.try_send_callback_response(answer);
                }
            }
        }
    }

    /// The client's call that a callback names; it must be the call on whose stream the callback came.
    fn find_callback_call(
        &self,
        request: &Request<'_>,
        via: Option<u64>,
    ) -> Option<(u64, Arc<Caller>, Arc<InFlightCall>)> {
        let named = match request.request_id {
            Some(_) => Some(self.ids.decode(request.call_id()?)?),
            None => via,
        };
        let number = named.filter(|named| via.is_none_or(|via| via == *named))?;
        let of = |call: &InFlight| Some((number, call.caller.clone()?, call.call.clone()));
        self.pending.inspect(number, of).flatten()
    }

    /// Counts a callback without a recipient.
    fn record_unroutable_callback(&self, why: &str) {
        self.count_dropped();
        if self.mgp_callbacks.not_asked.fetch_add(1, Ordering::Relaxed) < UNROUTABLE_LOGGED_MAX {
            self.log
                .push_note(&format!("a callback of it was dropped: {why}"));
        }
    }

    fn spawn_callback(self: &Arc<Self>, callback: ReceivedCallback, over: Arc<Flag>) {
        let link = self.clone();
        task::spawn_detached("callbacks.ask", async move {
            let routed = task::catch_panic("callbacks.ask", link.run_callback(&callback));
            let outcome = tokio::select! {
                outcome = routed => outcome.unwrap_or(RoutingOutcome::Declined("failed")),
                () = tokio::time::sleep(callback.timeout.duration) => RoutingOutcome::TimedOut,
                // The server cancelled the callback.
                () = over.wait_until_raised() => return,
                () = link.wait_until_closed() => return,
            };
            let origin = call_origin(&callback.caller);
            link.call_queue
                .set_suspended(origin, link.is_waiting_for_client(origin));
            link.settle_callback(&callback, outcome).await;
        });
    }

    /// Runs a callback. While all calls of the client are suspended, other clients are admitted.
    async fn run_callback(self: &Arc<Self>, callback: &ReceivedCallback) -> RoutingOutcome {
        if callback.form.kind() == CallbackKind::Notification {
            self.display_callback(callback).await;
            return RoutingOutcome::NoResponse;
        }
        let (origin, _suspended) = (call_origin(&callback.caller), callback.call.suspend());
        let mut pending_answer = std::pin::pin!(self.route_callback(callback));
        if let Ok(outcome) = tokio::time::timeout(QUICK_ANSWER_MAX, pending_answer.as_mut()).await {
            return outcome;
        }
        self.call_queue
            .set_suspended(origin, self.is_waiting_for_client(origin));
        pending_answer.await
    }

    async fn settle_callback(
        self: &Arc<Self>,
        callback: &ReceivedCallback,
        outcome: RoutingOutcome,
    ) {
        let answer = match outcome {
            RoutingOutcome::Response(response) => {
                callback::response_params(&callback.id, &response)
            }
            RoutingOutcome::Declined(why) => {
                callback::decline_params(&callback.id, &callback.form.decline_response(), why)
            }
            // A notification needs no response.
            RoutingOutcome::NoResponse | RoutingOutcome::TimedOut
                if callback.form.kind() == CallbackKind::Notification =>
            {
                self.mgp_callbacks
                    .settle(callback, CallbackOutcome::Displayed);
                return;
            }
            // If the server set the timeout itself, it knows; otherwise it is notified.
            RoutingOutcome::TimedOut if !callback.timeout.is_from_server => {
                callback::decline_params(
                    &callback.id,
                    &callback.form.decline_response(),
                    "timed_out",
                )
            }
            RoutingOutcome::NoResponse | RoutingOutcome::TimedOut => {
                self.mgp_callbacks
                    .settle(callback, CallbackOutcome::Unanswered);
                return;
            }
        };
        if let Some(_untold) = self.mgp_callbacks.settle_with_answer(callback, &answer) {
            self.send_callback_response(answer).await;
        }
    }
}
