//! Whose call a question of a server belongs to, and how its client is asked.

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
use crate::link::call_queue::party;
use crate::link::{Callback, InFlight, Link, LinkEvent};
use mgp_callers::agent::CallbackResult;
use mgp_callers::in_flight_call::InFlightCall;
use mgp_callers::in_flight_call::rounds::CallRounds;
use mgp_callers::request::Caller;

/// Who answers this soon keeps others waiting meanwhile: a client that does it without a person may be
/// asked again at once.
const QUICK_ANSWER_MAX: Duration = Duration::from_millis(500);

/// Where a question comes from, as far as its server says.
#[derive(Debug)]
pub(in crate::link) enum CallbackSource {
    /// On the stream of this call.
    Stream(u64),
    /// From the call that it names.
    Named(RelatedCall),
    /// From no call: roots, which the server wants for itself.
    Outside,
    /// From a call that it must name, and does not.
    Unnamed,
    /// It does not say.
    Unsaid,
}

/// What is left of the time that the clients of suspended calls have to themselves; `None` when one of
/// the calls is not suspended.
fn remaining_suspension(calls: &[Arc<InFlightCall>]) -> Option<Duration> {
    let left = calls.iter().map(|call| {
        let suspended = call.rounds().and_then(CallRounds::suspended_for)?;
        Some(SUSPENSION_HOLD.saturating_sub(suspended))
    });
    left.collect::<Option<Vec<_>>>()?.into_iter().max()
}

impl Link {
    /// Where a question comes from. From the first one in a call that could be anybody's, clients get
    /// their turns one after the other.
    ///
    /// # Errors
    /// It names its call, and cannot be understood.
    pub(in crate::link) fn callback_source(
        &self,
        asked: Callback,
        params: Option<&str>,
        via: Option<u64>,
    ) -> Result<CallbackSource, Refusal> {
        if let Some(call) = via {
            return Ok(CallbackSource::Stream(call));
        }
        let said = RelatedCall::from_params(params)?;
        if said.call.is_some() || self.find_related_call(&said).is_some() {
            return Ok(CallbackSource::Named(said));
        }
        let roots = asked == Callback::Roots;
        let by_call = self.settings.attribution == CallbackAttribution::ByCall;
        if roots && (by_call || self.roots_notified.swap(false, Ordering::Relaxed)) {
            return Ok(CallbackSource::Outside);
        }
        if by_call {
            return Ok(CallbackSource::Unnamed);
        }
        if !matches!(self.resolve_origin(&CallbackSource::Unsaid), Origin::Nobody)
            && self.call_queue.serialize_calls()
        {
            self.log.push_note(
                "it asks without saying in which call: from now on its clients get their turns one after \
                 the other; `questions` in its entry can spare them that",
            );
        }
        Ok(CallbackSource::Unsaid)
    }

    /// The call a question comes from, as things stand; modern calls cause none.
    fn resolve_origin(&self, source: &CallbackSource) -> Origin {
        let legacy = |era| era == ProtocolFamily::Legacy;
        match source {
            CallbackSource::Stream(id) => self.origin_among(Some(*id), legacy, party),
            CallbackSource::Named(said) => self.find_related_call(said).unwrap_or(Origin::Nobody),
            CallbackSource::Outside | CallbackSource::Unnamed => Origin::Nobody,
            CallbackSource::Unsaid => self.origin_among(None, legacy, party),
        }
    }

    /// The call under way that a question names: by its id, by its progress token or by its task.
    fn find_related_call(&self, said: &RelatedCall) -> Option<Origin> {
        let of = |call: &InFlight| {
            let caller = call
                .caller
                .clone()
                .filter(|_| call.family == ProtocolFamily::Legacy)?;
            Some(Origin::Call(caller, call.call.clone()))
        };
        let numbered = |id: u64| self.pending.inspect(self.ids.decode(id)?, of).flatten();
        if let Some(call) = said.call {
            return numbered(call);
        }
        if let Some(origin) = said.token.and_then(numbered) {
            return Some(origin);
        }
        let task = said.task.as_deref()?;
        let mut found = None;
        self.pending.for_each(|_, call| {
            if call.call.task().is_some_and(|(own, _)| own == task) {
                found = of(call).or(found.take());
            }
        });
        found
    }

    /// Finds the client that is meant and asks it.
    pub(in crate::link) async fn ask_originating_client(
        self: &Arc<Self>,
        asked: Callback,
        params: Option<&str>,
        source: &CallbackSource,
    ) -> CallbackResult {
        let mut deadline = Instant::now() + ATTRIBUTION_TIMEOUT;
        let mut late = false;
        loop {
            let mut changed = std::pin::pin!(self.open_callbacks.change_notified());
            changed.as_mut().enable();
            match self.resolve_origin(source) {
                Origin::Call(caller, exchange) => {
                    if let Some(agent) = caller.live_connection()
                        && asked == Callback::Elicitation
                    {
                        self.url_elicitations.record_request(params, &agent);
                    }
                    let put = self.ask_client_of_call(&caller, &exchange, asked, params);
                    if !matches!(source, CallbackSource::Unsaid) {
                        return put.await;
                    }
                    tokio::select! {
                        biased;
                        answer = put => return answer,
                        () = self.wait_until_ended_unasked(&exchange) => deadline = Instant::now() + ATTRIBUTION_TIMEOUT,
                    }
                }
                Origin::Nobody => return self.answer_without_call(source, asked, params).await,
                // Those who have had their time to answer make room for one who asks now.
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

    /// Resolves when a call is over before its client was shown the question: then another call asks it.
    async fn wait_until_ended_unasked(&self, exchange: &Arc<InFlightCall>) {
        let Some(rounds) = exchange.rounds() else {
            // A client with a session reads its questions outside of its calls' answers.
            return std::future::pending().await;
        };
        loop {
            let (mut ended, mut back) = (
                std::pin::pin!(self.open_callbacks.change_notified()),
                std::pin::pin!(rounds.change_notified()),
            );
            ended.as_mut().enable();
            back.as_mut().enable();
            if !rounds.will_return() && !self.is_in_flight(exchange) {
                return;
            }
            tokio::select! {
                () = ended => {}
                () = back => {}
            }
        }
    }

    fn is_in_flight(&self, exchange: &Arc<InFlightCall>) -> bool {
        let mut found = false;
        self.pending
            .for_each(|_, call| found |= Arc::ptr_eq(&call.call, exchange));
        found
    }

    /// Puts a question to a client; while all its calls wait for a person, others get their turn.
    async fn ask_client_of_call(
        self: &Arc<Self>,
        caller: &Arc<Caller>,
        exchange: &InFlightCall,
        question: Callback,
        params: Option<&str>,
    ) -> CallbackResult {
        let who = party(caller);
        let (asked, _placed) = (exchange.suspend(), self.open_callbacks.mark_placed());
        let mut put = std::pin::pin!(ask_client(self, caller, exchange, question, params));
        if let Ok(answer) = tokio::time::timeout(QUICK_ANSWER_MAX, put.as_mut()).await {
            return answer;
        }
        self.call_queue
            .set_suspended(who, self.is_waiting_for_client(who));
        let answer = put.await;
        drop(asked);
        self.call_queue
            .set_suspended(who, self.is_waiting_for_client(who));
        answer
    }

    /// There is no call to ask in. Many servers ask for roots right after the handshake and keep them: they
    /// get those of the only client that has any, and none where there are several.
    async fn answer_without_call(
        self: &Arc<Self>,
        source: &CallbackSource,
        asked: Callback,
        params: Option<&str>,
    ) -> CallbackResult {
        match source {
            CallbackSource::Named(_) => return call_ended_rejection(),
            CallbackSource::Unnamed => return missing_call_rejection(),
            CallbackSource::Stream(_) | CallbackSource::Outside | CallbackSource::Unsaid => {}
        }
        if asked != Callback::Roots {
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
                asked.method(),
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

    /// Resolves when the server has read nothing more for a while.
    async fn quiet(it: &mut ScriptedServer) {
        let more = tokio::time::timeout(Duration::from_secs(1), it.next_message()).await;
        assert!(more.is_err(), "{more:?}");
    }

    /// CMCP-055: a call that waits for another client's is over when its own time is, and says why; the
    /// server never sees it.
    #[tokio::test(start_paused = true)]
    async fn a_call_that_waits_for_its_turn_is_under_its_own_deadline() {
        let mut it = ScriptedServer::legacy("{}");
        it.serialize_calls().await;
        let (long, busy) = it.call(1);
        long.disable_timeout();
        it.next_message().await;
        let (_, waits) = it.call(2);
        quiet(&mut it).await;
        assert_eq!(it.link.queued_calls(), 1);
        let begun = Instant::now();
        let refusal = waits.await.unwrap().unwrap_err();
        assert!(
            begun.elapsed() < it.link.limits.call_timeout,
            "it waited from its arrival on"
        );
        assert!(matches!(refusal, Refusal::QueueTimeout { .. }), "{refusal}");
        let words = refusal.to_string();
        assert!(words.contains("another client's call"), "{words}");
        assert!(words.contains(r#"`questions = "by-call"`"#), "{words}");
        assert_eq!(it.link.queued_calls(), 0);
        quiet(&mut it).await;
        assert!(!busy.is_finished());
    }

    /// CMCP-058: one that is taken back while it waits ends at once.
    #[tokio::test(start_paused = true)]
    async fn a_call_that_waits_for_its_turn_can_be_taken_back() {
        let mut it = ScriptedServer::legacy("{}");
        it.serialize_calls().await;
        let (long, _busy) = it.call(1);
        long.disable_timeout();
        it.next_message().await;
        let (exchange, waits) = it.call(2);
        quiet(&mut it).await;
        exchange.cancel();
        let begun = Instant::now();
        let refusal = waits.await.unwrap().unwrap_err();
        assert!(matches!(refusal, Refusal::Cancelled), "{refusal}");
        assert_eq!(
            (begun.elapsed(), it.link.queued_calls()),
            (Duration::ZERO, 0)
        );
    }

    /// CMCP-074: a question that names its call, in any of three ways, is put to that call's client
    /// whoever else calls, and nobody waits from then on.
    #[tokio::test(start_paused = true)]
    async fn a_question_that_names_its_call_holds_nobody_up() {
        let named: [fn(&Value) -> Value; 3] = [
            |id| json!({ RELATED_CALL: id }),
            |id| json!({ "progressToken": id }),
            |_| json!({ RELATED_TASK: {"taskId": "own"} }),
        ];
        for meta in named {
            let mut it = ScriptedServer::legacy("{}");
            let (first, _one) = it.call(1);
            first.set_task("own", "shown");
            let request = it.next_message().await;
            let (second, _two) = it.call(2);
            it.next_message().await;
            it.request_form_with("q", &meta(&request["id"]));
            let attempts = first.rounds().unwrap();
            let asked =
                tokio::time::timeout(Duration::from_secs(1), attempts.wait_for_callbacks()).await;
            asked.expect("it is clear who is meant");
            assert!(!attempts.input_requests().contains(RELATED_CALL));
            assert!(!second.rounds().unwrap().has_open_callbacks());
            let (_, _three) = it.call(3);
            it.next_message().await;
            assert_eq!(it.link.queued_calls(), 0);
        }
    }

    /// Two calls of one client: a question that was put in the one that ends first goes to the other one, unless the
    /// client has it already.
    #[tokio::test(start_paused = true)]
    async fn a_question_in_a_call_that_ends_unasked_goes_to_the_other_one() {
        for shown in [false, true] {
            let mut it = ScriptedServer::legacy("{}");
            let (first, _one) = it.call(1);
            it.next_message().await;
            let (second, _two) = it.call(1);
            let request = it.next_message().await;
            it.request_form("q");
            let (first, second) = (first.rounds().unwrap(), second.rounds().unwrap());
            second.wait_for_callbacks().await;
            if shown {
                second.suspend(true);
            }
            it.answer(&request, "result", &json!({}));
            let moved =
                tokio::time::timeout(Duration::from_secs(1), first.wait_for_callbacks()).await;
            assert_eq!(moved.is_err(), shown, "its client has it");
            let asked = if shown { second } else { first };
            asked.answer(r#"{"elicitation-1":{"action":"decline"}}"#);
            assert_eq!(it.next_message().await["id"], "q");
        }
    }

    /// `questions = "by-call"`: a question that names no call, or one that is over, is refused at once.
    #[tokio::test(start_paused = true)]
    async fn where_each_question_names_its_call_none_is_guessed() {
        let mut it = ScriptedServer::with_attribution(CallbackAttribution::ByCall);
        it.complete_handshake(Version::LATEST_LEGACY, "{}");
        let (exchange, calling) = it.call(1);
        let request = it.next_message().await;
        it.request_form("unnamed");
        let refused = it.next_message().await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        let words = refused["error"]["message"].as_str().unwrap();
        assert!(words.contains(RELATED_CALL), "{words}");
        it.send(&json!({"jsonrpc": "2.0", "id": "roots", "method": "roots/list"}));
        assert_eq!(it.next_message().await["result"], json!({"roots": []}));
        assert!(!exchange.rounds().unwrap().has_open_callbacks());
        it.answer(&request, "result", &json!({}));
        calling.await.unwrap().unwrap();
        it.request_form_with("late", &json!({ RELATED_CALL: request["id"] }));
        assert_eq!(it.next_message().await["error"]["code"], -32602);
        let (_, _two) = it.call(2);
        it.next_message().await;
        let (_, _three) = it.call(3);
        it.next_message().await;
    }

    /// MCP-067, CMCP-074: roots that a server wants for itself are nobody's of those who call, also when
    /// it fetches them anew in the middle of a call; no turns come of it.
    #[tokio::test(start_paused = true)]
    async fn roots_outside_of_calls_are_no_callers_and_hold_nobody_up() {
        let mut it = ScriptedServer::legacy("{}");
        let ask = json!({"jsonrpc": "2.0", "id": "r", "method": "roots/list"});
        it.send(&ask);
        assert_eq!(it.next_message().await["result"], json!({"roots": []}));
        let (exchange, _one) = it.call(1);
        it.next_message().await;
        it.link.notify_roots_changed();
        assert_eq!(
            it.next_message().await["method"],
            "notifications/roots/list_changed"
        );
        it.send(&ask);
        assert_eq!(it.next_message().await["result"], json!({"roots": []}));
        assert!(!exchange.rounds().unwrap().has_open_callbacks());
        let (_, _two) = it.call(2);
        it.next_message().await;
        // What it asks next it asks in a call, of which there are two.
        it.send(&ask);
        quiet(&mut it).await;
    }
}
