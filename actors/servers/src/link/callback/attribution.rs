//! Attributes a callback of a server to a call, and sends it to that call's client.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mgp_engine::servers::spec::CallbackAttribution;
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::mcp::RelatedCall;
use mgp_protocol::refusal::Refusal;
use tokio::time::Instant;

use super::origin::Origin;
use super::{
    ATTRIBUTION_TIMEOUT, SUSPENSION_HOLD, ambiguous_call_rejection, ask_client,
    call_ended_rejection, empty_roots, forward_progress, missing_call_rejection, no_call_rejection,
};
use crate::link::call_queue::call_origin;
use crate::link::{Callback, InFlight, Link, LinkEvent};
use mgp_callers::agent::CallbackResult;
use mgp_callers::request::Caller;
use mgp_callers::{CallRounds, InFlightCall};

/// An answer within this time keeps other clients queued: a client that answers without a person may get the
/// next callback at once.
const QUICK_ANSWER_MAX: Duration = Duration::from_millis(500);

/// How a server identified the call of a callback.
#[derive(Debug)]
pub(in crate::link) enum CallbackSource {
    /// It came on the stream of this call.
    Stream(u64),
    /// It names this call.
    Named(RelatedCall),
    /// It belongs to no call: roots that the server requests for itself.
    Outside,
    /// It must name its call and does not.
    Unnamed,
    /// It does not name a call.
    Unspecified,
}

/// The remaining time in which suspended calls block others; `None` if one of the calls is not suspended.
fn remaining_suspension(calls: &[Arc<InFlightCall>]) -> Option<Duration> {
    let left = calls.iter().map(|call| {
        let suspended = call.rounds().and_then(CallRounds::suspended_for)?;
        Some(SUSPENSION_HOLD.saturating_sub(suspended))
    });
    left.collect::<Option<Vec<_>>>()?.into_iter().max()
}

impl Link {
    /// Determines how a callback identifies its call. The first ambiguous callback makes the server's clients
    /// run one at a time.
    ///
    /// # Errors
    /// The callback's reference to its call is malformed.
    pub(in crate::link) fn callback_source(
        &self,
        callback: Callback,
        params: Option<&str>,
        via: Option<u64>,
    ) -> Result<CallbackSource, Refusal> {
        if let Some(call) = via {
            return Ok(CallbackSource::Stream(call));
        }
        let related = RelatedCall::from_params(params)?;
        if related.call.is_some() || self.find_related_call(&related).is_some() {
            return Ok(CallbackSource::Named(related));
        }
        let roots = callback == Callback::Roots;
        let by_call = self.settings.attribution == CallbackAttribution::ByCall;
        if roots && (by_call || self.roots_notified.swap(false, Ordering::Relaxed)) {
            return Ok(CallbackSource::Outside);
        }
        if by_call {
            return Ok(CallbackSource::Unnamed);
        }
        if !matches!(
            self.resolve_origin(&CallbackSource::Unspecified),
            Origin::NoCall
        ) && self.call_queue.serialize_calls()
        {
            self.log.push_note(
                "its callbacks do not name their call: from now on the calls of its clients run one client at a time; `questions` in its entry can change that",
            );
        }
        Ok(CallbackSource::Unspecified)
    }

    /// The call a callback belongs to at this moment; stateless calls cause none.
    fn resolve_origin(&self, source: &CallbackSource) -> Origin {
        let legacy = |family| family == ProtocolFamily::Legacy;
        match source {
            CallbackSource::Stream(id) => self.origin_among(Some(*id), legacy, call_origin),
            CallbackSource::Named(related) => {
                self.find_related_call(related).unwrap_or(Origin::NoCall)
            }
            CallbackSource::Outside | CallbackSource::Unnamed => Origin::NoCall,
            CallbackSource::Unspecified => self.origin_among(None, legacy, call_origin),
        }
    }

    /// The in-flight call that a callback names by id, progress token or task.
    fn find_related_call(&self, related: &RelatedCall) -> Option<Origin> {
        let of = |call: &InFlight| {
            let caller = call
                .caller
                .clone()
                .filter(|_| call.family == ProtocolFamily::Legacy)?;
            Some(Origin::Call(caller, call.call.clone()))
        };
        let numbered = |id: u64| self.pending.inspect(self.ids.decode(id)?, of).flatten();
        if let Some(call) = related.call {
            return numbered(call);
        }
        if let Some(origin) = related.token.and_then(numbered) {
            return Some(origin);
        }
        let task = related.task.as_deref()?;
        let mut found = None;
        self.pending.for_each(|_, call| {
            if call.call.task().is_some_and(|(own, _)| own == task) {
                found = of(call).or(found.take());
            }
        });
        found
    }

    /// Finds the client of the originating call and sends it the callback.
    pub(in crate::link) async fn ask_originating_client(
        self: &Arc<Self>,
        callback: Callback,
        params: Option<&str>,
        source: &CallbackSource,
    ) -> CallbackResult {
        let mut deadline = Instant::now() + ATTRIBUTION_TIMEOUT;
        let mut late = false;
        loop {
            let mut changed = std::pin::pin!(self.open_callbacks.change_notified());
            changed.as_mut().enable();
            match self.resolve_origin(source) {
                Origin::Call(caller, in_flight) => {
                    if let Some(agent) = caller.live_connection()
                        && callback == Callback::Elicitation
                    {
                        self.url_elicitations.record_request(params, &agent);
                    }
                    let pending_answer =
                        self.ask_client_of_call(&caller, &in_flight, callback, params);
                    if !matches!(source, CallbackSource::Unspecified) {
                        return pending_answer.await;
                    }
                    tokio::select! {
                        biased;
                        answer = pending_answer => return answer,
                        () = self.wait_until_ended_unasked(&in_flight) => deadline = Instant::now() + ATTRIBUTION_TIMEOUT,
                    }
                }
                Origin::NoCall => return self.answer_without_call(source, callback, params).await,
                // Suspended calls whose clients had their time to answer are cancelled, so that the other client
                // can be asked.
                Origin::Likely(_, _, others)
                    if remaining_suspension(&others) == Some(Duration::ZERO) =>
                {
                    others.iter().for_each(|other| other.cancel());
                    let _ = tokio::time::timeout_at(deadline, changed).await;
                }
                Origin::Likely(..) | Origin::Several if late => return ambiguous_call_rejection(),
                Origin::Likely(_, _, others) => {
                    let until = remaining_suspension(&others)
                        .map_or(deadline, |left| Instant::now() + left);
                    let _ = tokio::time::timeout_at(until.min(deadline), changed).await;
                    late = Instant::now() >= deadline;
                }
                Origin::Several => {
                    late = tokio::time::timeout_at(deadline, changed).await.is_err();
                }
            }
        }
    }

    /// Resolves when a call ends before its client received the callback; another call may then take it over.
    async fn wait_until_ended_unasked(&self, in_flight: &Arc<InFlightCall>) {
        let Some(rounds) = in_flight.rounds() else {
            // A client with a session receives callbacks outside of its calls' answers.
            return std::future::pending().await;
        };
        loop {
            let (mut ended, mut back) = (
                std::pin::pin!(self.open_callbacks.change_notified()),
                std::pin::pin!(rounds.change_notified()),
            );
            ended.as_mut().enable();
            back.as_mut().enable();
            if !rounds.will_return() && !self.is_in_flight(in_flight) {
                return;
            }
            tokio::select! {
                () = ended => {}
                () = back => {}
            }
        }
    }

    fn is_in_flight(&self, in_flight: &Arc<InFlightCall>) -> bool {
        let mut found = false;
        self.pending
            .for_each(|_, call| found |= Arc::ptr_eq(&call.call, in_flight));
        found
    }

    /// Sends a callback to a call's client. While all of the client's calls are suspended, other clients are
    /// admitted.
    async fn ask_client_of_call(
        self: &Arc<Self>,
        caller: &Arc<Caller>,
        in_flight: &InFlightCall,
        callback: Callback,
        params: Option<&str>,
    ) -> CallbackResult {
        let origin = call_origin(caller);
        let (suspension, _placed) = (in_flight.suspend(), self.open_callbacks.mark_placed());
        let mut pending_answer =
            std::pin::pin!(ask_client(self, caller, in_flight, callback, params));
        if let Ok(answer) = tokio::time::timeout(QUICK_ANSWER_MAX, pending_answer.as_mut()).await {
            return answer;
        }
        self.call_queue
            .set_suspended(origin, self.is_waiting_for_client(origin));
        let answer = pending_answer.await;
        drop(suspension);
        self.call_queue
            .set_suspended(origin, self.is_waiting_for_client(origin));
        answer
    }

    /// Answers a callback that belongs to no call. Many servers request the roots right after the handshake and
    /// cache them: they get the roots of the only client that has any, and an empty list if there are several
    /// clients.
    async fn answer_without_call(
        self: &Arc<Self>,
        source: &CallbackSource,
        callback: Callback,
        params: Option<&str>,
    ) -> CallbackResult {
        match source {
            CallbackSource::Named(_) => return call_ended_rejection(),
            CallbackSource::Unnamed => return missing_call_rejection(),
            CallbackSource::Stream(_) | CallbackSource::Outside | CallbackSource::Unspecified => {}
        }
        if callback != Callback::Roots {
            return no_call_rejection();
        }
        self.roots_requested.store(true, Ordering::Relaxed);
        let Some(agent) = self
            .ask_supervisor(LinkEvent::RootsRequested)
            .await
            .flatten()
        else {
            return empty_roots();
        };
        match agent
            .send_callback(
                &agent.new_kernel_call(),
                Some(forward_progress(self)),
                callback.method(),
                params,
            )
            .await
        {
            Ok(answer) => answer,
            Err(_) => empty_roots(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgp_protocol::dialect::Version;
    use mgp_protocol::mcp::meta::{RELATED_CALL, RELATED_TASK};
    use serde_json::{Value, json};

    use crate::link::scripted::ScriptedServer;

    /// Asserts that the server receives nothing more for one second.
    async fn assert_quiet(server: &mut ScriptedServer) {
        let more = tokio::time::timeout(Duration::from_secs(1), server.next_message()).await;
        assert!(more.is_err(), "{more:?}");
    }

    /// CMCP-055: a queued call ends at its own deadline with an error that explains the queue, and is never
    /// sent.
    #[tokio::test(start_paused = true)]
    async fn queued_call_times_out_at_its_own_deadline() {
        let mut server = ScriptedServer::legacy("{}");
        server.serialize_calls().await;
        let (long, busy) = server.call(1);
        long.disable_timeout();
        server.next_message().await;
        let (_, waits) = server.call(2);
        assert_quiet(&mut server).await;
        assert_eq!(server.link.queued_calls(), 1);
        let begun = Instant::now();
        let refusal = waits.await.unwrap().unwrap_err();
        assert!(
            begun.elapsed() < server.link.limits.call_timeout,
            "it waited from its arrival on"
        );
        assert!(matches!(refusal, Refusal::QueueTimeout { .. }), "{refusal}");
        let message = refusal.to_string();
        assert!(message.contains("another client's call"), "{message}");
        assert!(message.contains(r#"`questions = "by-call"`"#), "{message}");
        assert_eq!(server.link.queued_calls(), 0);
        assert_quiet(&mut server).await;
        assert!(!busy.is_finished());
    }

    /// CMCP-058: a call cancelled while queued ends at once.
    #[tokio::test(start_paused = true)]
    async fn queued_call_can_be_cancelled() {
        let mut server = ScriptedServer::legacy("{}");
        server.serialize_calls().await;
        let (long, _busy) = server.call(1);
        long.disable_timeout();
        server.next_message().await;
        let (in_flight, waits) = server.call(2);
        assert_quiet(&mut server).await;
        in_flight.cancel();
        let begun = Instant::now();
        let refusal = waits.await.unwrap().unwrap_err();
        assert!(matches!(refusal, Refusal::Cancelled), "{refusal}");
        assert_eq!(
            (begun.elapsed(), server.link.queued_calls()),
            (Duration::ZERO, 0)
        );
    }

    /// CMCP-074: a callback that names its call, in any of three ways, goes to that call's client even if other
    /// clients have calls, and no call is queued afterwards.
    #[tokio::test(start_paused = true)]
    async fn callback_that_names_its_call_queues_no_other_call() {
        let named: [fn(&Value) -> Value; 3] = [
            |id| json!({ RELATED_CALL: id }),
            |id| json!({ "progressToken": id }),
            |_| json!({ RELATED_TASK: {"taskId": "own"} }),
        ];
        for meta in named {
            let mut server = ScriptedServer::legacy("{}");
            let (first, _one) = server.call(1);
            first.set_task("own", "shown");
            let request = server.next_message().await;
            let (second, _two) = server.call(2);
            server.next_message().await;
            server.request_form_with("q", &meta(&request["id"]));
            let attempts = first.rounds().unwrap();
            let received =
                tokio::time::timeout(Duration::from_secs(1), attempts.wait_for_callbacks()).await;
            received.expect("it is clear who is meant");
            assert!(!attempts.input_requests().contains(RELATED_CALL));
            assert!(!second.rounds().unwrap().has_open_callbacks());
            let (_, _three) = server.call(3);
            server.next_message().await;
            assert_eq!(server.link.queued_calls(), 0);
        }
    }

    /// Two calls of one client: a callback attributed to the call that ends first moves to the other one, unless
    /// the client has received it.
    #[tokio::test(start_paused = true)]
    async fn undelivered_callback_of_ended_call_moves_to_other_call() {
        for shown in [false, true] {
            let mut server = ScriptedServer::legacy("{}");
            let (first, _one) = server.call(1);
            server.next_message().await;
            let (second, _two) = server.call(1);
            let request = server.next_message().await;
            server.request_form("q");
            let (first, second) = (first.rounds().unwrap(), second.rounds().unwrap());
            second.wait_for_callbacks().await;
            if shown {
                second.suspend(true);
            }
            server.answer(&request, "result", &json!({}));
            let moved =
                tokio::time::timeout(Duration::from_secs(1), first.wait_for_callbacks()).await;
            assert_eq!(moved.is_err(), shown, "its client has it");
            let asking_call = if shown { second } else { first };
            asking_call.answer(r#"{"elicitation-1":{"action":"decline"}}"#);
            assert_eq!(server.next_message().await["id"], "q");
        }
    }

    /// `questions = "by-call"`: a callback that names no call, or an ended one, is refused at once.
    #[tokio::test(start_paused = true)]
    async fn by_call_attribution_never_guesses() {
        let mut server = ScriptedServer::with_attribution(CallbackAttribution::ByCall);
        server.complete_handshake(Version::LATEST_LEGACY, "{}");
        let (in_flight, calling) = server.call(1);
        let request = server.next_message().await;
        server.request_form("unnamed");
        let refused = server.next_message().await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains(RELATED_CALL), "{message}");
        server.send(&json!({"jsonrpc": "2.0", "id": "roots", "method": "roots/list"}));
        assert_eq!(server.next_message().await["result"], json!({"roots": []}));
        assert!(!in_flight.rounds().unwrap().has_open_callbacks());
        server.answer(&request, "result", &json!({}));
        calling.await.unwrap().unwrap();
        server.request_form_with("late", &json!({ RELATED_CALL: request["id"] }));
        assert_eq!(server.next_message().await["error"]["code"], -32602);
        let (_, _two) = server.call(2);
        server.next_message().await;
        let (_, _three) = server.call(3);
        server.next_message().await;
    }

    /// MCP-067, CMCP-074: roots that a server requests for itself belong to no caller, also during a call, and
    /// do not serialize calls.
    #[tokio::test(start_paused = true)]
    async fn roots_outside_of_calls_do_not_serialize_calls() {
        let mut server = ScriptedServer::legacy("{}");
        let ask = json!({"jsonrpc": "2.0", "id": "r", "method": "roots/list"});
        server.send(&ask);
        assert_eq!(server.next_message().await["result"], json!({"roots": []}));
        let (in_flight, _one) = server.call(1);
        server.next_message().await;
        server.link.notify_roots_changed();
        assert_eq!(
            server.next_message().await["method"],
            "notifications/roots/list_changed"
        );
        server.send(&ask);
        assert_eq!(server.next_message().await["result"], json!({"roots": []}));
        assert!(!in_flight.rounds().unwrap().has_open_callbacks());
        let (_, _two) = server.call(2);
        server.next_message().await;
        // Its next callback comes during two calls.
        server.send(&ask);
        assert_quiet(&mut server).await;
    }
}
