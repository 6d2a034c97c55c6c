//! Calls to a server: registered, written, awaited; settled exactly once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mgp_engine::callers::request_ids::WireId;
use mgp_engine::clock::MonotonicTime;
use mgp_engine::servers::attribution::Party;
use mgp_protocol::dialect::Era;
use mgp_protocol::jsonrpc;
use mgp_protocol::refusal::Refusal;
use mgp_sync::pending::NotAdmitted;
use mgp_transports::unread::ResponseBudget;
use tokio::sync::oneshot;

use super::alongside::{Alongside, FinalCheck};
use super::call_places::NoPlace;
use super::call_queue::{Turn, party};
use super::{InFlight, Link, LinkEvent, List, envelope};
use mgp_callers::exchange::call_stream::CallStreamHandle;
use mgp_callers::exchange::{Exchange, ReplyPath};
use mgp_callers::request::{Caller, Outcome};
use mgp_runtime::time::{moment, sleep_for_answer};
use mgp_runtime::trace::{PartSpan, Trace};

/// A call and for whom it is made.
#[derive(Debug)]
pub struct Call<'a> {
    /// The caller; `None` for the kernel's own calls.
    pub caller: Option<&'a Arc<Caller>>,
    /// The request that caused it.
    pub exchange: &'a Arc<Exchange>,
    /// The client's own progress token, as JSON text.
    pub token: Option<&'a str>,
    /// Where its chunks go, when it asks for any.
    pub stream: Option<&'a CallStreamHandle>,
    /// The server is given a token of the kernel's own, for a client that reads progress in the words of
    /// MGP.
    pub reports: bool,
    /// The era of the message; one the server speaks ([`Link::era`]).
    pub era: Era,
    /// Whether it may leave still; the kernel's own always may.
    pub final_check: Option<&'a dyn FinalCheck>,
    /// What HTTP headers repeat of it in the modern era.
    pub mirror: MirroredHeaders<'a>,
    /// Its span, where its request is sampled, and the request's trace.
    pub span: Option<&'a PartSpan>,
    /// The trace of the request that caused it.
    pub trace: Option<&'a Trace>,
}

/// What HTTP headers repeat of a modern request.
#[derive(Debug, Clone, Copy)]
pub struct MirroredHeaders<'a> {
    /// The method.
    pub method: &'a str,
    /// The server's own name, URI or task id that the request is about, not encoded.
    pub name: Option<&'a str>,
    /// `Mcp-Param-*` headers: full names, and values as they are sent.
    pub params: &'a [(String, String)],
}

impl Link {
    /// Calls the server; `frame` writes the request with the id it is given.
    ///
    /// # Errors
    /// Whatever kept the answer from coming, or the server's own error.
    pub async fn call(
        self: &Arc<Self>,
        call: Call<'_>,
        frame: impl FnOnce(WireId) -> Vec<u8>,
    ) -> Outcome {
        let arrived = moment();
        if call.exchange.budget().is_some_and(ResponseBudget::is_full) {
            return Err(Refusal::Overloaded {
                what: "the buffer of responses that this agent has not read".into(),
            });
        }
        let _pass = self.enter(call.mirror.method)?;
        // Dropped last: the client's other calls may all be waiting for the client's answer.
        let _rest = call.caller.map(|caller| Rest {
            link: self,
            who: party(caller),
        });
        // Only legacy servers ask, so only their calls take turns.
        let asks = call.era == Era::Legacy && self.turns.asks();
        let _turn = match call.caller.filter(|_| asks) {
            Some(caller) => {
                let _queue = call.trace.and_then(|trace| trace.part("queue"));
                let turn = self.turn(&call, caller).await;
                call.exchange.waited(moment().since(arrived));
                Some(turn?)
            }
            None => None,
        };
        let caller = call.caller.map(AsRef::as_ref);
        let place = self.places.take(self.limits.max_in_flight, caller);
        let _place = place.map_err(|no| self.overloaded(&no))?;
        if let Some(final_check) = call.final_check {
            final_check.still()?;
        }
        let (answer, settled) = oneshot::channel();
        let id = self.register(&call, answer, arrived)?;
        let _forget = Forget { link: self, id };
        let _carried = call.exchange.stop().carry();
        if let Some(stream) = call.stream {
            stream.begin(self.stream_notices(self.ids.shown(id)));
        }
        let frame = Bytes::from(frame(self.ids.shown(id)));
        let beside = Alongside {
            forwarded: call.exchange.forwarded(),
            span: call.span,
            trace: call.trace,
            final_check: call.final_check,
        };
        tokio::select! {
            biased;
            outcome = settled => {
                let outcome = outcome.unwrap_or_else(|_| Err(self.lost("its connection was closed")));
                let asks = outcome.is_err() || self.limits.consents.restrict();
                let outcome = match asks {
                    true => Box::pin(self.judged(&call, outcome)).await,
                    false => outcome,
                };
                if let Err(Refusal::Peer(error) | Refusal::Unattributed(error)) = &outcome {
                    self.refused(&call, error.get());
                }
                outcome
            }
            never = self.wire.carry(self, id, frame, call.era, call.mirror, beside) => match never {},
            () = call.exchange.stop().asked() => Err(self.stop(id, &call).await),
            () = call.exchange.cancelled() => {
                let reason = call.exchange.reason();
                self.take_back(id, reason.unwrap_or("the client cancelled the request"));
                Err(Refusal::Cancelled)
            }
            limit = self.overdue(id, call.era, arrived) => {
                self.take_back(id, "no answer in time");
                Err(self.silent(limit))
            }
        }
    }

    /// Waits for the client's turn, at most as long as the call may wait for its answer.
    async fn turn(&self, call: &Call<'_>, caller: &Caller) -> Result<Turn<'_>, Refusal> {
        tokio::select! {
            biased;
            turn = self.turns.enter(party(caller), call.exchange) => turn,
            waited = self.patience(call.exchange) => {
                let held_up = Refusal::HeldUp {
                    server: self.server.clone(),
                    after_ms: millis(waited),
                };
                self.log.note(&held_up.to_string());
                Err(held_up)
            }
        }
    }

    /// Resolves when a silent call has lasted too long. It may become a task meanwhile, and tasks may be
    /// silent.
    async fn patience(&self, exchange: &Exchange) -> Duration {
        let (silence, most) = (self.limits.call_timeout, self.limits.call_timeout_max);
        sleep_for_answer(silence).await;
        if !silence.is_zero() && !exchange.is_unhurried() {
            return silence;
        }
        sleep_for_answer(most.saturating_sub(silence)).await;
        most
    }

    /// Sends the kernel's own request, in the modern era when the server speaks it.
    ///
    /// # Errors
    /// Whatever kept the answer from coming, or the server's own error.
    pub async fn ask(self: &Arc<Self>, method: &str, params: Option<&str>) -> Outcome {
        self.ask_in(self.era(Era::Modern), method, params).await
    }

    /// Sends the kernel's own request in the era where it exists.
    ///
    /// # Errors
    /// Whatever kept the answer from coming, or the server's own error.
    pub async fn ask_in(self: &Arc<Self>, era: Era, method: &str, params: Option<&str>) -> Outcome {
        self.ask_by(Exchange::new(ReplyPath::Nowhere), era, method, params)
            .await
    }

    /// The same without the time limit of calls: the caller has its own.
    ///
    /// # Errors
    /// As [`Self::ask_in`].
    pub async fn ask_unhurried(
        self: &Arc<Self>,
        era: Era,
        method: &str,
        params: Option<&str>,
    ) -> Outcome {
        let exchange = Exchange::new(ReplyPath::Nowhere);
        exchange.take_time();
        self.ask_by(exchange, era, method, params).await
    }

    /// Asks the server something of MCPL, which waits at most so long; then the server is told that nobody does any
    /// more.
    ///
    /// # Errors
    /// As [`Self::ask_in`], and [`Refusal::TimedOut`].
    pub async fn ask_in_mcpl(
        self: &Arc<Self>,
        method: &str,
        params: &str,
        limit: Duration,
    ) -> Outcome {
        let exchange = Exchange::new(ReplyPath::Nowhere);
        exchange.take_time();
        let asked = self.ask_by(exchange.clone(), Era::Legacy, method, Some(params));
        let mut asked = std::pin::pin!(asked);
        tokio::select! {
            biased;
            outcome = &mut asked => outcome,
            () = sleep_for_answer(limit) => {
                exchange.cancel_because(Some("no answer in time".into()));
                let _ = asked.await;
                Err(self.silent(limit))
            }
        }
    }

    async fn ask_by(
        self: &Arc<Self>,
        exchange: Arc<Exchange>,
        era: Era,
        method: &str,
        params: Option<&str>,
    ) -> Outcome {
        let call = Call {
            caller: None,
            exchange: &exchange,
            token: None,
            stream: None,
            reports: false,
            era,
            final_check: None,
            mirror: MirroredHeaders {
                method,
                name: None,
                params: &[],
            },
            span: None,
            trace: None,
        };
        let whole = match era {
            Era::Legacy => None,
            Era::Modern => Some(envelope::wrap(params, &self.own_meta)),
        };
        let params = whole.as_deref().or(params);
        let asked = self.call(call, |id| jsonrpc::request(&id.to_string(), method, params));
        Box::pin(asked).await
    }

    /// What else an error of the server tells, beside failing the call.
    fn refused(&self, call: &Call<'_>, error: &str) {
        if let Some(agent) = call.caller.and_then(|caller| caller.standing()) {
            self.elicited.refused(error, &agent);
        }
        // The tool's schema, which says which headers it wants, must have changed.
        if call.era == Era::Modern && envelope::code(error) == Some(envelope::HEADER_MISMATCH) {
            self.tells(LinkEvent::ListChanged(List::Tools));
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
            exchange: call.exchange.clone(),
            caller: call.caller.cloned(),
            token: call.token.map(Into::into),
            stream: call.stream.filter(|stream| stream.is_fresh()).cloned(),
            reports: call.reports,
            era: call.era,
            listens: false,
            channel: None,
            touched: AtomicU64::new(millis(arrived.since_start())),
        })
    }

    pub(super) fn insert(&self, in_flight: InFlight) -> Result<u64, Refusal> {
        let refused = |refused| match refused {
            NotAdmitted::Full(_) => self.overloaded(&NoPlace::Full),
            NotAdmitted::Closed(_) => self.unreached("its connection was closed"),
        };
        self.pending.insert(in_flight).map_err(refused)
    }

    fn overloaded(&self, no: &NoPlace) -> Refusal {
        let (limit, server) = (self.limits.max_in_flight, &self.server);
        let list = format!("list of {limit} calls under way at server {server}");
        Refusal::Overloaded {
            what: no.describe(&list),
        }
    }

    /// Resolves when the call has been silent for too long or has taken too long in all, including its wait
    /// for its turn. The time a client needs for a question does not count as silence, nor does that of a
    /// question whose call is not known.
    async fn overdue(&self, id: u64, era: Era, started: MonotonicTime) -> Duration {
        let silence = self.limits.call_timeout;
        // A handshake is limited by the time of the whole start.
        if silence.is_zero() || self.peer_in(era).is_none() {
            return std::future::pending().await;
        }
        let mut wait = silence.saturating_sub(moment().since(started));
        loop {
            sleep_for_answer(wait).await;
            let now = moment();
            if now.since(started) >= self.limits.call_timeout_max {
                return self.limits.call_timeout_max;
            }
            let unhurried = self.pending.with(id, |call| {
                call.exchange.is_unhurried() || call.exchange.is_asked()
            });
            if self.questions.is_unplaced() || unhurried == Some(true) {
                self.touch(id);
            }
            let touched = self
                .pending
                .with(id, |call| call.touched.load(Ordering::Relaxed));
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
                    .saturating_sub(now.since(started)),
            );
        }
    }

    pub(super) fn touch(&self, id: u64) {
        self.pending.with(id, |call| {
            call.touched.store(now_ms(), Ordering::Relaxed);
        });
    }

    /// Removes a call from the table, then tells the server (CMCP-069). The handshake cannot be
    /// cancelled, and over HTTP a modern call is cancelled by dropping its response.
    pub(super) fn take_back(self: &Arc<Self>, id: u64, reason: &str) {
        let Some(call) = self.pending.take(id) else {
            return;
        };
        if self.peer_in(call.era).is_some() && self.wire.tells_cancels(call.era) {
            let params = format!(
                r#"{{"requestId":{},"reason":{}}}"#,
                self.ids.shown(id),
                mgp_protocol::splice::quoted(reason)
            );
            self.notify("notifications/cancelled", Some(&params));
        }
        self.questions.reconsider();
        self.callbacks.call_over(id);
    }

    pub(crate) fn lost(&self, why: &str) -> Refusal {
        Refusal::Lost {
            server: self.server.clone(),
            reason: why.to_owned(),
        }
    }

    /// Refuses a call whose answer is malformed.
    pub fn faulty(&self, what: &str) -> Refusal {
        Refusal::Faulty {
            server: self.server.clone(),
            reason: what.to_owned(),
        }
    }

    fn silent(&self, limit: Duration) -> Refusal {
        Refusal::TimedOut {
            server: self.server.clone(),
            after_ms: millis(limit),
            remote: self.wire.is_remote(),
        }
    }

    /// True while the call has no answer.
    pub(super) fn awaits(&self, id: u64) -> bool {
        self.pending.with(id, |_| ()).is_some()
    }

    /// The server closed the stream of this call; the answer comes later.
    pub(super) fn paused(&self, id: u64) {
        self.pending.with(id, |call| call.exchange.pause());
    }

    /// The connection was lost before the server read the request: it may be sent again over a new
    /// one.
    pub(super) fn untaken(&self, why: &str) -> Refusal {
        self.not_taken(why, false)
    }

    /// The same, because the server cannot be reached; the refusal of a remote server says
    /// so.
    pub(super) fn unreached(&self, why: &str) -> Refusal {
        self.not_taken(why, self.wire.is_remote())
    }

    fn not_taken(&self, why: &str, unreachable: bool) -> Refusal {
        Refusal::NotReady {
            server: self.server.clone(),
            state: "restarting",
            reason: Some(why.to_owned()),
            retry_after_ms: Some(0),
            unreachable,
        }
    }

    /// Settles a call whose answer was no message of its server's, once.
    pub(super) fn settle(&self, id: u64, outcome: Outcome) {
        self.tap_outcome(id, &outcome);
        self.settled(id, outcome);
    }

    /// Settles a call, once; an answer to no pending call is dropped (CMCP-007, CMCP-070), and false.
    pub(super) fn settled(&self, id: u64, outcome: Outcome) -> bool {
        let Some(call) = self.pending.take(id) else {
            return false;
        };
        let _ = call.answer.send(self.received(&call.exchange, outcome));
        self.questions.reconsider();
        self.callbacks.call_over(id);
        true
    }
}

impl Link {
    /// The answer, if there is room for it. One pipe carries those of all agents, so that no other way is left
    /// here: to read on later would keep the answers of others waiting.
    fn received(&self, exchange: &Exchange, outcome: Outcome) -> Outcome {
        let bytes = match &outcome {
            Ok(result) => result.len(),
            Err(Refusal::Peer(error) | Refusal::Unattributed(error)) => error.get().len(),
            Err(_) => 0,
        };
        match exchange.budget() {
            Some(budget) if !exchange.receive(bytes) => Err(Refusal::Undelivered {
                server: self.server.clone(),
                limit: budget.limit(),
            }),
            Some(_) | None => outcome,
        }
    }

    /// Waits with an answer that comes on a stream of its own until there is room for it: its server and the
    /// system hold it meanwhile, and no other answer waits for it.
    pub(super) async fn wait_for_room(&self, id: u64, announced: Option<u64>) {
        let exchange = self.pending.with(id, |call| call.exchange.clone());
        match (exchange, announced) {
            (Some(exchange), Some(bytes)) => {
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                exchange
                    .receive_later(bytes.min(self.limits.max_frame))
                    .await;
            }
            (Some(exchange), None) => exchange.wait_while_full().await,
            (None, _) => {}
        }
    }
}

/// Removes the call from the table on drop, however it ends.
pub(super) struct Forget<'a> {
    pub(super) link: &'a Arc<Link>,
    pub(super) id: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.link.take_back(self.id, "the caller is gone");
    }
}

/// On drop, decides anew whether all other calls of the client wait for it.
struct Rest<'a> {
    link: &'a Link,
    who: Party,
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        if self.link.turns.asks() {
            self.link.turns.rest(self.who, self.link.rests(self.who));
        }
    }
}

fn now_ms() -> u64 {
    millis(moment().since_start())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    use crate::link::scripted::Scripted;

    /// A call that comes while the server finishes its last ones is sent over the next connection.
    #[tokio::test]
    async fn a_call_that_comes_too_late_may_be_made_again_at_once() {
        let it = Scripted::modern("{}");
        assert!(it.link.drain(Duration::from_secs(1)).await);
        let late = it.link.ask("tools/call", Some("{}")).await.unwrap_err();
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

    /// SEP-2243: a server that reports missing headers has a newer schema than the known one.
    #[tokio::test]
    async fn a_header_mismatch_has_the_tools_fetched_again() {
        let mut it = Scripted::modern("{}");
        for (code, heard) in [(-32602, vec![]), (-32020, vec!["Tools".to_owned()])] {
            let link = it.link.clone();
            let call = tokio::spawn(async move { link.ask("tools/call", Some("{}")).await });
            let request = it.next().await;
            it.answer(&request, "error", &json!({"code": code, "message": ""}));
            call.await.unwrap().unwrap_err();
            assert_eq!(*it.heard.0.lock().unwrap(), heard, "{code}");
        }
    }
}
