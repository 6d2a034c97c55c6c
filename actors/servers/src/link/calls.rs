//! Calls to a server: registered, written, awaited, and settled exactly once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mgp_engine::callers::request_ids::WireId;
use mgp_engine::calls::outcome;
use mgp_engine::clock::MonotonicTime;
use mgp_engine::servers::attribution::CallOrigin;
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::jsonrpc;
use mgp_protocol::refusal::{CallOutcome, Refusal};
use mgp_sync::AdmissionError;
use mgp_transports::ResponseBudget;
use tokio::sync::oneshot;

use super::call_context::{CallContext, FinalCheck};
use super::call_queue::{CallPermit, call_origin};
use super::call_slots::CallSlotError;
use super::{InFlight, Link, LinkEvent, List, request_meta};
use mgp_callers::request::{Caller, Outcome};
use mgp_callers::{CallStreamHandle, InFlightCall, ReplyPath};
use mgp_runtime::time::{monotonic_now, sleep_with_grace};
use mgp_runtime::trace::{ChildSpan, Trace};

/// A call to a server, with its caller and context.
#[derive(Debug)]
pub struct Call<'a> {
    /// The caller; `None` for the kernel's own calls.
    pub caller: Option<&'a Arc<Caller>>,
    /// The request that caused it.
    pub in_flight: &'a Arc<InFlightCall>,
    /// The client's own progress token, as JSON text.
    pub token: Option<&'a str>,
    /// The receiver of the call's chunks, if the client requested streaming.
    pub stream: Option<&'a CallStreamHandle>,
    /// True if the server gets a progress token of the kernel, for a client that reads progress in MGP's format.
    pub mgp_progress: bool,
    /// The protocol family of the message; the server must speak it ([`Link::choose_family`]).
    pub family: ProtocolFamily,
    /// The last check before the call is written; `None` for the kernel's own calls.
    pub final_check: Option<&'a dyn FinalCheck>,
    /// The HTTP headers that mirror parts of a stateless request.
    pub metadata_headers: MetadataHeaders<'a>,
    /// The span of the call, if its request is sampled.
    pub span: Option<&'a ChildSpan>,
    /// The trace of the request that caused it.
    pub trace: Option<&'a Trace>,
}

/// The HTTP headers that mirror parts of a stateless request.
#[derive(Debug, Clone, Copy)]
pub struct MetadataHeaders<'a> {
    /// The method.
    pub method: &'a str,
    /// The server's own name, URI or task id of what the request is about, not encoded.
    pub name: Option<&'a str>,
    /// `Mcp-Param-*` headers: full names, and encoded values.
    pub params: &'a [(String, String)],
}

impl Link {
    /// Calls the server; `frame` renders the request with the given id.
    ///
    /// # Errors
    /// The reason why there is no answer, or the server's own error.
    pub async fn call(
        self: &Arc<Self>,
        call: Call<'_>,
        frame: impl FnOnce(WireId) -> Vec<u8>,
    ) -> Outcome {
        let arrived = monotonic_now();
        if call.in_flight.budget().is_some_and(ResponseBudget::is_full) {
            return Err(Refusal::Overloaded {
                what: "the buffer of responses that this agent has not read".into(),
            });
        }
        let _pass = self.admit(call.metadata_headers.method)?;
        // Dropped last: all other calls of the client may be waiting for its answer.
        let _rest = call.caller.map(|caller| SuspensionUpdate {
            link: self,
            origin: call_origin(caller),
        });
        // Only legacy servers send callbacks, so only their calls are serialized.
        let serialized = call.family == ProtocolFamily::Legacy && self.call_queue.is_serialized();
        let _permit = match call.caller.filter(|_| serialized) {
            Some(caller) => {
                let _queue = call.trace.and_then(|trace| trace.start_child_span("queue"));
                let permit = self.acquire_permit(&call, caller).await;
                call.in_flight
                    .add_queue_wait(monotonic_now().duration_since(arrived));
                Some(permit?)
            }
            None => None,
        };
        let caller = call.caller.map(AsRef::as_ref);
        let slot = self.slots.take(self.limits.max_in_flight, caller);
        let _slot = slot.map_err(|error| self.overloaded_refusal(&error))?;
        if let Some(final_check) = call.final_check {
            final_check.recheck()?;
        }
        let (answer, settled) = oneshot::channel();
        call.in_flight.dispatch()?;
        let registered = self.register(&call, answer, arrived);
        let id =
            registered.inspect_err(|_| call.in_flight.end_request(CallOutcome::NotExecuted))?;
        let _forget = RegisteredCall { link: self, id };
        let _carried = call.in_flight.stop().track_request();
        if let Some(stream) = call.stream {
            stream.begin(
                self.stream_notice_sink(self.ids.encode(id)),
                self.chunk_guard(),
            );
        }
        let frame = Bytes::from(frame(self.ids.encode(id)));
        let context = CallContext {
            forwarded: call.in_flight.forwarded_headers(),
            span: call.span,
            trace: call.trace,
            final_check: call.final_check,
        };
        let outcome = tokio::select! {
            biased;
            // Before the answer: what it reads may settle the call, and then nothing is polled once more.
            never = self.wire.send_call(self, id, frame, call.family, call.metadata_headers, context) => match never {},
            outcome = settled => {
                let outcome = outcome.unwrap_or_else(|_| Err(self.lost_refusal("its connection was closed")));
                let outcome = match &self.guard {
                    Some(guard) => Box::pin(self.guard_outcome(guard, &call, outcome)).await,
                    None => outcome,
                };
                let needs_consent = outcome.is_err() || self.limits.consents.is_restricted();
                let outcome = match needs_consent {
                    true => Box::pin(self.check_outcome_consent(&call, outcome)).await,
                    false => outcome,
                };
                if let Err(Refusal::Peer(error) | Refusal::Unattributed(error)) = &outcome {
                    self.inspect_error(&call, error.get());
                }
                outcome
            }
            () = call.in_flight.stop().wait_until_requested() => Err(self.stop_call(id, &call).await),
            () = call.in_flight.wait_until_cancelled() => {
                let reason = call.in_flight.cancel_reason();
                self.cancel_call(id, reason.unwrap_or("the client cancelled the request"));
                Err(Refusal::Cancelled)
            }
            limit = self.wait_for_timeout(id, call.family, arrived) => {
                self.cancel_call(id, "no answer in time");
                Err(self.timeout_refusal(limit))
            }
        };
        call.in_flight.end_request(outcome::for_request(&outcome));
        outcome
    }

    /// Waits until the client's calls may run, at most as long as the call may wait for its answer.
    async fn acquire_permit(
        &self,
        call: &Call<'_>,
        caller: &Caller,
    ) -> Result<CallPermit<'_>, Refusal> {
        tokio::select! {
            biased;
            permit = self.call_queue.acquire(call_origin(caller), call.in_flight) => permit,
            waited = self.wait_for_permit_timeout(call.in_flight) => {
                let held_up = Refusal::QueueTimeout {
                    server: self.server.clone(),
                    after_ms: millis(waited),
                };
                self.log.push_note(&held_up.to_string());
                Err(held_up)
            }
        }
    }

    /// Resolves when a queued call has exceeded its timeout. The call may become a task meanwhile, and tasks
    /// have no silence limit.
    async fn wait_for_permit_timeout(&self, in_flight: &InFlightCall) -> Duration {
        let (silence, most) = (self.limits.call_timeout, self.limits.call_timeout_max);
        sleep_with_grace(silence).await;
        if !silence.is_zero() && !in_flight.has_no_timeout() {
            return silence;
        }
        sleep_with_grace(most.saturating_sub(silence)).await;
        most
    }

    /// Sends the kernel's own request, in the stateless family if the server speaks it.
    ///
    /// # Errors
    /// The reason why there is no answer, or the server's own error.
    pub async fn request(self: &Arc<Self>, method: &str, params: Option<&str>) -> Outcome {
        self.request_in(
            self.choose_family(ProtocolFamily::Stateless),
            method,
            params,
        )
        .await
    }

    /// Sends the kernel's own request in the given protocol family.
    ///
    /// # Errors
    /// The reason why there is no answer, or the server's own error.
    pub async fn request_in(
        self: &Arc<Self>,
        family: ProtocolFamily,
        method: &str,
        params: Option<&str>,
    ) -> Outcome {
        self.send_kernel_request(
            InFlightCall::new(ReplyPath::Discard),
            family,
            method,
            params,
        )
        .await
    }

    /// Sends a request without the call timeout: the caller has its own.
    ///
    /// # Errors
    /// As [`Self::request_in`].
    pub async fn request_without_timeout(
        self: &Arc<Self>,
        family: ProtocolFamily,
        method: &str,
        params: Option<&str>,
    ) -> Outcome {
        let in_flight = InFlightCall::new(ReplyPath::Discard);
        in_flight.disable_timeout();
        self.send_kernel_request(in_flight, family, method, params)
            .await
    }

    /// Sends an MCPL request with a timeout, as [`Self::request_within`].
    ///
    /// # Errors
    /// As [`Self::request_in`], and [`Refusal::TimedOut`].
    pub async fn request_mcpl(
        self: &Arc<Self>,
        method: &str,
        params: &str,
        limit: Duration,
    ) -> Outcome {
        self.request_in_time(ProtocolFamily::Legacy, method, params, limit)
            .await
    }

    /// Sends the kernel's own request with a timeout, and cancels it at the server when that expires.
    ///
    /// # Errors
    /// As [`Self::request_in`], and [`Refusal::TimedOut`].
    pub async fn request_within(
        self: &Arc<Self>,
        method: &str,
        params: &str,
        limit: Duration,
    ) -> Outcome {
        let family = self.choose_family(ProtocolFamily::Stateless);
        self.request_in_time(family, method, params, limit).await
    }

    async fn request_in_time(
        self: &Arc<Self>,
        family: ProtocolFamily,
        method: &str,
        params: &str,
        limit: Duration,
    ) -> Outcome {
        let in_flight = InFlightCall::new(ReplyPath::Discard);
        in_flight.disable_timeout();
        let request = self.send_kernel_request(in_flight.clone(), family, method, Some(params));
        let mut request = std::pin::pin!(request);
        tokio::select! {
            biased;
            outcome = &mut request => outcome,
            () = sleep_with_grace(limit) => {
                in_flight.cancel_with_reason(Some("no answer in time".into()));
                let _ = request.await;
                Err(self.timeout_refusal(limit))
            }
        }
    }

    async fn send_kernel_request(
        self: &Arc<Self>,
        in_flight: Arc<InFlightCall>,
        family: ProtocolFamily,
        method: &str,
        params: Option<&str>,
    ) -> Outcome {
        let call = Call {
            caller: None,
            in_flight: &in_flight,
            token: None,
            stream: None,
            mgp_progress: false,
            family,
            final_check: None,
            metadata_headers: MetadataHeaders {
                method,
                name: None,
                params: &[],
            },
            span: None,
            trace: None,
        };
        let whole = match family {
            ProtocolFamily::Legacy => None,
            ProtocolFamily::Stateless => Some(request_meta::add_meta(params, &self.kernel_meta)),
        };
        let params = whole.as_deref().or(params);
        let request = self.call(call, |id| jsonrpc::request(&id.to_string(), method, params));
        Box::pin(request).await
    }

    /// Handles error codes that mean more than a failed call.
    fn inspect_error(&self, call: &Call<'_>, error: &str) {
        if let Some(agent) = call.caller.and_then(|caller| caller.live_connection()) {
            self.url_elicitations.record_error(error, &agent);
        }
        // The tool's schema, which defines the headers, must have changed.
        if call.family == ProtocolFamily::Stateless
            && request_meta::error_code(error) == Some(request_meta::HEADER_MISMATCH)
        {
            self.emit(LinkEvent::ListChanged(List::Tools));
        }
    }

    fn register(
        &self,
        call: &Call<'_>,
        answer: oneshot::Sender<Outcome>,
        arrived: MonotonicTime,
    ) -> Result<u64, Refusal> {
        self.insert(InFlight {
            answer,
            call: call.in_flight.clone(),
            caller: call.caller.cloned(),
            token: call.token.map(Into::into),
            stream: call.stream.filter(|stream| stream.is_fresh()).cloned(),
            mgp_progress: call.mgp_progress,
            family: call.family,
            is_listen: false,
            channel: None,
            last_activity: AtomicU64::new(millis(arrived.since_start())),
        })
    }

    pub(super) fn insert(&self, in_flight: InFlight) -> Result<u64, Refusal> {
        let refused = |refused| match refused {
            AdmissionError::Full(_) => self.overloaded_refusal(&CallSlotError::Full),
            AdmissionError::Closed(_) => self.unreachable_refusal("its connection was closed"),
        };
        self.pending.insert(in_flight).map_err(refused)
    }

    fn overloaded_refusal(&self, error: &CallSlotError) -> Refusal {
        let (limit, server) = (self.limits.max_in_flight, &self.server);
        let list = format!("list of {limit} calls under way at server {server}");
        Refusal::Overloaded {
            what: error.describe(&list),
        }
    }

    /// Resolves when the call has been silent for too long or has exceeded its total time, including its time in
    /// the queue. The time a client needs to answer a callback does not count as silence, nor does that of a
    /// callback whose call is unknown.
    async fn wait_for_timeout(
        &self,
        id: u64,
        family: ProtocolFamily,
        started: MonotonicTime,
    ) -> Duration {
        let silence = self.limits.call_timeout;
        // A handshake is limited by the timeout of the whole start.
        if silence.is_zero() || self.peer_for(family).is_none() {
            return std::future::pending().await;
        }
        let mut wait = silence.saturating_sub(monotonic_now().duration_since(started));
        loop {
            sleep_with_grace(wait).await;
            let now = monotonic_now();
            if now.duration_since(started) >= self.limits.call_timeout_max {
                return self.limits.call_timeout_max;
            }
            let unhurried = self.pending.inspect(id, |call| {
                call.call.has_no_timeout() || call.call.has_open_callback()
            });
            if self.open_callbacks.has_unplaced() || unhurried == Some(true) {
                self.record_activity(id);
            }
            let touched = self
                .pending
                .inspect(id, |call| call.last_activity.load(Ordering::Relaxed));
            let Some(touched) = touched else {
                return std::future::pending().await;
            };
            let quiet = now
                .since_start()
                .saturating_sub(Duration::from_millis(touched));
            if quiet >= silence {
                return silence;
            }
            wait = (silence - quiet).min(
                self.limits
                    .call_timeout_max
                    .saturating_sub(now.duration_since(started)),
            );
        }
    }

    pub(super) fn record_activity(&self, id: u64) {
        self.pending.inspect(id, |call| {
            call.last_activity.store(now_ms(), Ordering::Relaxed);
        });
    }

    /// Removes a call from the table, then notifies the server (CMCP-069). The handshake cannot be cancelled,
    /// and over HTTP a stateless call is cancelled by dropping its response.
    pub(super) fn cancel_call(self: &Arc<Self>, id: u64, reason: &str) {
        let Some(call) = self.pending.take(id) else {
            return;
        };
        if self.peer_for(call.family).is_some() && self.wire.should_send_cancel(call.family) {
            let params = format!(
                r#"{{"requestId":{},"reason":{}}}"#,
                self.ids.encode(id),
                mgp_json::quote(reason)
            );
            self.notify("notifications/cancelled", Some(&params));
        }
        self.open_callbacks.notify_call_ended();
        self.mgp_callbacks.end_call(id);
    }

    pub(crate) fn lost_refusal(&self, why: &str) -> Refusal {
        Refusal::ServerLost {
            server: self.server.clone(),
            reason: why.to_owned(),
        }
    }

    /// The refusal of a call whose answer is malformed.
    pub(crate) fn invalid_answer_refusal(&self, what: &str) -> Refusal {
        Refusal::InvalidAnswer {
            server: self.server.clone(),
            reason: what.to_owned(),
        }
    }

    fn timeout_refusal(&self, limit: Duration) -> Refusal {
        Refusal::TimedOut {
            server: self.server.clone(),
            after_ms: millis(limit),
            remote: self.wire.is_remote(),
        }
    }

    /// True while the call has no answer.
    pub(super) fn is_pending(&self, id: u64) -> bool {
        self.pending.inspect(id, |_| ()).is_some()
    }

    /// Marks that the server closed the stream of this call; the answer comes later.
    pub(super) fn pause_call(&self, id: u64) {
        self.pending.inspect(id, |call| call.call.pause());
    }

    /// The refusal of a call that was lost before the server read it; it is retried over a new connection.
    pub(super) fn unsent_refusal(&self, why: &str) -> Refusal {
        self.retryable_refusal(why, false)
    }

    /// The refusal of a call because the server cannot be reached; for remote servers the text says so.
    pub(super) fn unreachable_refusal(&self, why: &str) -> Refusal {
        self.retryable_refusal(why, self.wire.is_remote())
    }

    fn retryable_refusal(&self, why: &str, unreachable: bool) -> Refusal {
        Refusal::NotReady {
            server: self.server.clone(),
            state: "restarting",
            reason: Some(why.to_owned()),
            retry_after_ms: Some(0),
            unreachable,
        }
    }

    /// Settles a call with an outcome that is not a message of its server.
    pub(super) fn settle_call(&self, id: u64, outcome: Outcome) {
        self.tap_outcome(id, &outcome);
        self.try_settle_call(id, outcome);
    }

    /// Settles a call, once. An answer to no pending call is dropped, and the result is false (CMCP-007,
    /// CMCP-070).
    pub(super) fn try_settle_call(&self, id: u64, outcome: Outcome) -> bool {
        let Some(call) = self.pending.take(id) else {
            return false;
        };
        let _ = call.answer.send(self.charge_answer(&call.call, outcome));
        self.open_callbacks.notify_call_ended();
        self.mgp_callbacks.end_call(id);
        true
    }
}

impl Link {
    /// Charges the answer to the caller's memory budget and refuses it if the budget is exhausted. One pipe
    /// carries the answers of all agents, so reading cannot be delayed for one of them.
    fn charge_answer(&self, in_flight: &InFlightCall, outcome: Outcome) -> Outcome {
        let bytes = match &outcome {
            Ok(result) => result.len(),
            Err(Refusal::Peer(error) | Refusal::Unattributed(error)) => error.get().len(),
            Err(_) => 0,
        };
        match in_flight.budget() {
            Some(budget) if !in_flight.try_reserve_response(bytes) => Err(Refusal::Undelivered {
                server: self.server.clone(),
                limit: budget.limit(),
            }),
            Some(_) | None => outcome,
        }
    }

    /// Delays an answer that comes on its own stream until the caller's memory budget allows it; backpressure
    /// reaches the server, and no other answer is delayed.
    pub(super) async fn wait_for_budget(&self, id: u64, announced: Option<u64>) {
        let in_flight = self.pending.inspect(id, |call| call.call.clone());
        match (in_flight, announced) {
            (Some(in_flight), Some(bytes)) => {
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                in_flight
                    .reserve_response(bytes.min(self.limits.max_frame))
                    .await;
            }
            (Some(in_flight), None) => in_flight.wait_while_full().await,
            (None, _) => {}
        }
    }
}

/// A call in the pending table; removed on drop.
pub(super) struct RegisteredCall<'a> {
    pub(super) link: &'a Arc<Link>,
    pub(super) id: u64,
}

impl Drop for RegisteredCall<'_> {
    fn drop(&mut self) {
        self.link.cancel_call(self.id, "the caller is gone");
    }
}

/// On drop, updates whether all other calls of the client are suspended.
struct SuspensionUpdate<'a> {
    link: &'a Link,
    origin: CallOrigin,
}

impl Drop for SuspensionUpdate<'_> {
    fn drop(&mut self) {
        if self.link.call_queue.is_serialized() {
            self.link
                .call_queue
                .set_suspended(self.origin, self.link.is_waiting_for_client(self.origin));
        }
    }
}

fn now_ms() -> u64 {
    millis(monotonic_now().since_start())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    use crate::link::scripted::ScriptedServer;

    /// A call during `drain` is refused as retryable, and goes to the next connection.
    #[tokio::test]
    async fn call_during_drain_is_retryable_at_once() {
        let server = ScriptedServer::stateless("{}");
        assert!(server.link.drain(Duration::from_secs(1)).await);
        let late = server
            .link
            .request("tools/call", Some("{}"))
            .await
            .unwrap_err();
        assert!(
            matches!(
                late,
                Refusal::NotReady {
                    retry_after_ms: Some(0),
                    ..
                }
            ),
            "{late}"
        );
    }

    /// SEP-2243: a server that reports missing headers has a newer schema than the kernel.
    #[tokio::test]
    async fn header_mismatch_refetches_tools() {
        let mut server = ScriptedServer::stateless("{}");
        for (code, expected) in [(-32602, vec![]), (-32020, vec!["Tools".to_owned()])] {
            let link = server.link.clone();
            let call = tokio::spawn(async move { link.request("tools/call", Some("{}")).await });
            let request = server.next_message().await;
            server.answer(&request, "error", &json!({"code": code, "message": ""}));
            call.await.unwrap().unwrap_err();
            assert_eq!(*server.received.0.lock().unwrap(), expected, "{code}");
        }
    }
}
