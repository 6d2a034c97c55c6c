//! Whose call a question of a server belongs to, and how its client is asked.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mgp_engine::servers::spec::QuestionAttribution;
use mgp_protocol::dialect::Era;
use mgp_protocol::mcp::RelatedCall;
use mgp_protocol::refusal::Refusal;
use tokio::time::Instant;

use super::origin::Origin;
use super::{ATTRIBUTION, SUSPENDED, ambiguous, no_roots, orphaned, over, progress, put, unnamed};
use crate::link::call_queue::party;
use crate::link::{ClientQuestion, InFlight, Link, LinkEvent};
use mgp_callers::agent::ClientAnswer;
use mgp_callers::exchange::Exchange;
use mgp_callers::exchange::rounds::CallRounds;
use mgp_callers::request::Caller;

/// Who answers this soon keeps others waiting meanwhile: a client that does it without a person may be
/// asked again at once.
const QUICK: Duration = Duration::from_millis(500);

/// Where a question comes from, as far as its server says.
#[derive(Debug)]
pub(in crate::link) enum QuestionSource {
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
fn left(calls: &[Arc<Exchange>]) -> Option<Duration> {
    let left = calls.iter().map(|call| {
        let suspended = call.rounds().and_then(CallRounds::suspended_for)?;
        Some(SUSPENDED.saturating_sub(suspended))
    });
    left.collect::<Option<Vec<_>>>()?.into_iter().max()
}

impl Link {
    /// Where a question comes from. From the first one in a call that could be anybody's, clients get
    /// their turns one after the other.
    ///
    /// # Errors
    /// It names its call, and cannot be understood.
    pub(in crate::link) fn source(
        &self,
        asked: ClientQuestion,
        params: Option<&str>,
        via: Option<u64>,
    ) -> Result<QuestionSource, Refusal> {
        if let Some(call) = via {
            return Ok(QuestionSource::Stream(call));
        }
        let said = RelatedCall::read(params)?;
        if said.call.is_some() || self.named(&said).is_some() {
            return Ok(QuestionSource::Named(said));
        }
        let roots = asked == ClientQuestion::Roots;
        let by_call = self.ways.asking == QuestionAttribution::ByCall;
        if roots && (by_call || self.roots_told.swap(false, Ordering::Relaxed)) {
            return Ok(QuestionSource::Outside);
        }
        if by_call {
            return Ok(QuestionSource::Unnamed);
        }
        if !matches!(self.asker(&QuestionSource::Unsaid), Origin::Nobody) && self.turns.serialise()
        {
            self.log.note(
                "it asks without saying in which call: from now on its clients get their turns one after \
                 the other; `questions` in its entry can spare them that",
            );
        }
        Ok(QuestionSource::Unsaid)
    }

    /// The call a question comes from, as things stand; modern calls cause none.
    fn asker(&self, source: &QuestionSource) -> Origin {
        let legacy = |era| era == Era::Legacy;
        match source {
            QuestionSource::Stream(id) => self.origin_among(Some(*id), legacy, party),
            QuestionSource::Named(said) => self.named(said).unwrap_or(Origin::Nobody),
            QuestionSource::Outside | QuestionSource::Unnamed => Origin::Nobody,
            QuestionSource::Unsaid => self.origin_among(None, legacy, party),
        }
    }

    /// The call under way that a question names: by its id, by its progress token or by its task.
    fn named(&self, said: &RelatedCall) -> Option<Origin> {
        let of = |call: &InFlight| {
            let caller = call.caller.clone().filter(|_| call.era == Era::Legacy)?;
            Some(Origin::Call(caller, call.exchange.clone()))
        };
        let numbered = |id: u64| self.pending.with(self.ids.number(id)?, of).flatten();
        if let Some(call) = said.call {
            return numbered(call);
        }
        if let Some(origin) = said.token.and_then(numbered) {
            return Some(origin);
        }
        let task = said.task.as_deref()?;
        let mut found = None;
        self.pending.for_each(|_, call| {
            if call.exchange.task().is_some_and(|(own, _)| own == task) {
                found = of(call).or(found.take());
            }
        });
        found
    }

    /// Finds the client that is meant and asks it.
    pub(in crate::link) async fn consult(
        self: &Arc<Self>,
        asked: ClientQuestion,
        params: Option<&str>,
        source: &QuestionSource,
    ) -> ClientAnswer {
        let mut deadline = Instant::now() + ATTRIBUTION;
        let mut late = false;
        loop {
            let mut changed = std::pin::pin!(self.questions.changed());
            changed.as_mut().enable();
            match self.asker(source) {
                Origin::Call(caller, exchange) => {
                    if let Some(agent) = caller.standing()
                        && asked == ClientQuestion::Elicitation
                    {
                        self.elicited.asked(params, &agent);
                    }
                    let put = self.put(&caller, &exchange, asked, params);
                    if !matches!(source, QuestionSource::Unsaid) {
                        return put.await;
                    }
                    tokio::select! {
                        biased;
                        answer = put => return answer,
                        () = self.ends_unasked(&exchange) => deadline = Instant::now() + ATTRIBUTION,
                    }
                }
                Origin::Nobody => return self.orphaned(source, asked, params).await,
                // Those who have had their time to answer make room for one who asks now.
                Origin::Likely(_, _, others) if left(&others) == Some(Duration::ZERO) => {
                    others.iter().for_each(|other| other.cancel());
                    let _ = tokio::time::timeout_at(deadline, changed).await;
                }
                Origin::Likely(..) | Origin::Several if late => return ambiguous(),
                Origin::Likely(_, _, others) => {
                    let until = left(&others).map_or(deadline, |left| Instant::now() + left);
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
    async fn ends_unasked(&self, exchange: &Arc<Exchange>) {
        let Some(rounds) = exchange.rounds() else {
            // A client with a session reads its questions outside of its calls' answers.
            return std::future::pending().await;
        };
        loop {
            let (mut ended, mut back) = (
                std::pin::pin!(self.questions.changed()),
                std::pin::pin!(rounds.changed()),
            );
            ended.as_mut().enable();
            back.as_mut().enable();
            if !rounds.will_return() && !self.is_under_way(exchange) {
                return;
            }
            tokio::select! {
                () = ended => {}
                () = back => {}
            }
        }
    }

    fn is_under_way(&self, exchange: &Arc<Exchange>) -> bool {
        let mut found = false;
        self.pending
            .for_each(|_, call| found |= Arc::ptr_eq(&call.exchange, exchange));
        found
    }

    /// Puts a question to a client; while all its calls wait for a person, others get their turn.
    async fn put(
        self: &Arc<Self>,
        caller: &Arc<Caller>,
        exchange: &Exchange,
        question: ClientQuestion,
        params: Option<&str>,
    ) -> ClientAnswer {
        let who = party(caller);
        let (asked, _placed) = (exchange.asks(), self.questions.place());
        let mut put = std::pin::pin!(put(self, caller, exchange, question, params));
        if let Ok(answer) = tokio::time::timeout(QUICK, put.as_mut()).await {
            return answer;
        }
        self.turns.rest(who, self.rests(who));
        let answer = put.await;
        drop(asked);
        self.turns.rest(who, self.rests(who));
        answer
    }

    /// There is no call to ask in. Many servers ask for roots right after the handshake and keep them: they
    /// get those of the only client that has any, and none where there are several.
    async fn orphaned(
        self: &Arc<Self>,
        source: &QuestionSource,
        asked: ClientQuestion,
        params: Option<&str>,
    ) -> ClientAnswer {
        match source {
            QuestionSource::Named(_) => return over(),
            QuestionSource::Unnamed => return unnamed(),
            QuestionSource::Stream(_) | QuestionSource::Outside | QuestionSource::Unsaid => {}
        }
        if asked != ClientQuestion::Roots {
            return orphaned();
        }
        self.asks_roots.store(true, Ordering::Relaxed);
        let Some(agent) = self.asks(LinkEvent::RootsAsked).await.flatten() else {
            return no_roots();
        };
        match agent
            .ask(
                &agent.outside(),
                Some(progress(self)),
                asked.method(),
                params,
            )
            .await
        {
            Ok(answer) => answer,
            Err(_) => no_roots(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgp_protocol::dialect::Version;
    use mgp_protocol::mcp::meta::{RELATED_CALL, RELATED_TASK};
    use serde_json::{Value, json};

    use crate::link::scripted::Scripted;

    /// Resolves when the server has read nothing more for a while.
    async fn quiet(it: &mut Scripted) {
        let more = tokio::time::timeout(Duration::from_secs(1), it.next()).await;
        assert!(more.is_err(), "{more:?}");
    }

    /// CMCP-055: a call that waits for another client's is over when its own time is, and says why; the
    /// server never sees it.
    #[tokio::test(start_paused = true)]
    async fn a_call_that_waits_for_its_turn_is_under_its_own_deadline() {
        let mut it = Scripted::legacy("{}");
        it.known_to_ask().await;
        let (long, busy) = it.call(1);
        long.take_time();
        it.next().await;
        let (_, waits) = it.call(2);
        quiet(&mut it).await;
        assert_eq!(it.link.waiting(), 1);
        let begun = Instant::now();
        let refusal = waits.await.unwrap().unwrap_err();
        assert!(
            begun.elapsed() < it.link.limits.call_timeout,
            "it waited from its arrival on"
        );
        assert!(matches!(refusal, Refusal::HeldUp { .. }), "{refusal}");
        let words = refusal.to_string();
        assert!(words.contains("another client's call"), "{words}");
        assert!(words.contains(r#"`questions = "by-call"`"#), "{words}");
        assert_eq!(it.link.waiting(), 0);
        quiet(&mut it).await;
        assert!(!busy.is_finished());
    }

    /// CMCP-058: one that is taken back while it waits ends at once.
    #[tokio::test(start_paused = true)]
    async fn a_call_that_waits_for_its_turn_can_be_taken_back() {
        let mut it = Scripted::legacy("{}");
        it.known_to_ask().await;
        let (long, _busy) = it.call(1);
        long.take_time();
        it.next().await;
        let (exchange, waits) = it.call(2);
        quiet(&mut it).await;
        exchange.cancel();
        let begun = Instant::now();
        let refusal = waits.await.unwrap().unwrap_err();
        assert!(matches!(refusal, Refusal::Cancelled), "{refusal}");
        assert_eq!((begun.elapsed(), it.link.waiting()), (Duration::ZERO, 0));
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
            let mut it = Scripted::legacy("{}");
            let (first, _one) = it.call(1);
            first.is_about("own", "shown");
            let request = it.next().await;
            let (second, _two) = it.call(2);
            it.next().await;
            it.ask_with("q", &meta(&request["id"]));
            let attempts = first.rounds().unwrap();
            let asked = tokio::time::timeout(Duration::from_secs(1), attempts.asked()).await;
            asked.expect("it is clear who is meant");
            assert!(!attempts.input_requests().contains(RELATED_CALL));
            assert!(!second.rounds().unwrap().is_asking());
            let (_, _three) = it.call(3);
            it.next().await;
            assert_eq!(it.link.waiting(), 0);
        }
    }

    /// Two calls of one client: a question that was put in the one that ends first goes to the other one, unless the
    /// client has it already.
    #[tokio::test(start_paused = true)]
    async fn a_question_in_a_call_that_ends_unasked_goes_to_the_other_one() {
        for shown in [false, true] {
            let mut it = Scripted::legacy("{}");
            let (first, _one) = it.call(1);
            it.next().await;
            let (second, _two) = it.call(1);
            let request = it.next().await;
            it.ask("q");
            let (first, second) = (first.rounds().unwrap(), second.rounds().unwrap());
            second.asked().await;
            if shown {
                second.leave(true);
            }
            it.answer(&request, "result", &json!({}));
            let moved = tokio::time::timeout(Duration::from_secs(1), first.asked()).await;
            assert_eq!(moved.is_err(), shown, "its client has it");
            let asked = if shown { second } else { first };
            asked.answer(r#"{"elicitation-1":{"action":"decline"}}"#);
            assert_eq!(it.next().await["id"], "q");
        }
    }

    /// `questions = "by-call"`: a question that names no call, or one that is over, is refused at once.
    #[tokio::test(start_paused = true)]
    async fn where_each_question_names_its_call_none_is_guessed() {
        let mut it = Scripted::asking(QuestionAttribution::ByCall);
        it.meets(Version::LATEST_LEGACY, "{}");
        let (exchange, calling) = it.call(1);
        let request = it.next().await;
        it.ask("unnamed");
        let refused = it.next().await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        let words = refused["error"]["message"].as_str().unwrap();
        assert!(words.contains(RELATED_CALL), "{words}");
        it.say(&json!({"jsonrpc": "2.0", "id": "roots", "method": "roots/list"}));
        assert_eq!(it.next().await["result"], json!({"roots": []}));
        assert!(!exchange.rounds().unwrap().is_asking());
        it.answer(&request, "result", &json!({}));
        calling.await.unwrap().unwrap();
        it.ask_with("late", &json!({ RELATED_CALL: request["id"] }));
        assert_eq!(it.next().await["error"]["code"], -32602);
        let (_, _two) = it.call(2);
        it.next().await;
        let (_, _three) = it.call(3);
        it.next().await;
    }

    /// MCP-067, CMCP-074: roots that a server wants for itself are nobody's of those who call, also when
    /// it fetches them anew in the middle of a call; no turns come of it.
    #[tokio::test(start_paused = true)]
    async fn roots_outside_of_calls_are_no_callers_and_hold_nobody_up() {
        let mut it = Scripted::legacy("{}");
        let ask = json!({"jsonrpc": "2.0", "id": "r", "method": "roots/list"});
        it.say(&ask);
        assert_eq!(it.next().await["result"], json!({"roots": []}));
        let (exchange, _one) = it.call(1);
        it.next().await;
        it.link.roots_changed();
        assert_eq!(
            it.next().await["method"],
            "notifications/roots/list_changed"
        );
        it.say(&ask);
        assert_eq!(it.next().await["result"], json!({"roots": []}));
        assert!(!exchange.rounds().unwrap().is_asking());
        let (_, _two) = it.call(2);
        it.next().await;
        // What it asks next it asks in a call, of which there are two.
        it.say(&ask);
        quiet(&mut it).await;
    }
}
