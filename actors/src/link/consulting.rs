//! Whose call a question of a server belongs to, and how its client is asked.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mgp_engine::spec::Asking;
use mgp_protocol::dialect::Era;
use mgp_protocol::mcp::Belonging;
use mgp_protocol::refusal::Refusal;
use tokio::time::Instant;

use super::inbound::Origin;
use super::turns::party;
use super::{InFlight, Link};
use crate::agent::ClientAnswer;
use crate::attempts::Attempts;
use crate::exchange::Exchange;
use crate::question;
use crate::request::Caller;

/// Who answers this soon keeps others waiting meanwhile: a client that does it without a person may be
/// asked again at once.
const QUICK: Duration = Duration::from_millis(500);

/// Where a question comes from, as far as its server says.
#[derive(Debug)]
pub(super) enum From {
    /// On the stream of this call.
    Stream(u64),
    /// From the call that it names.
    Named(Belonging),
    /// From no call: roots, which the server wants for itself.
    Outside,
    /// From a call that it must name, and does not.
    Unnamed,
    /// It does not say.
    Unsaid,
}

/// What is left of the time that the clients of parked calls have to themselves; `None` when one of
/// the calls is not parked.
fn left(calls: &[Arc<Exchange>]) -> Option<Duration> {
    let left = calls.iter().map(|call| {
        let parked = call.attempts().and_then(Attempts::parked_for)?;
        Some(question::PARKED.saturating_sub(parked))
    });
    left.collect::<Option<Vec<_>>>()?.into_iter().max()
}

impl Link {
    /// Where a question comes from. From the first one in a call that could be anybody's, clients get
    /// their turns one after the other.
    ///
    /// # Errors
    /// It names its call, and cannot be understood.
    pub(super) fn from(
        &self,
        method: &str,
        params: Option<&str>,
        via: Option<u64>,
    ) -> Result<From, Refusal> {
        if let Some(call) = via {
            return Ok(From::Stream(call));
        }
        let said = Belonging::read(params)?;
        if said.call.is_some() || self.named(&said).is_some() {
            return Ok(From::Named(said));
        }
        let roots = method == "roots/list";
        let by_call = self.ways.asking == Asking::ByCall;
        if roots && (by_call || self.roots_told.swap(false, Ordering::Relaxed)) {
            return Ok(From::Outside);
        }
        if by_call {
            return Ok(From::Unnamed);
        }
        if !matches!(self.asker(&From::Unsaid), Origin::Nobody) && self.turns.serialise() {
            self.log.note(
                "it asks without saying in which call: from now on its clients get their turns one after \
                 the other; `questions` in its entry can spare them that",
            );
        }
        Ok(From::Unsaid)
    }

    /// The call a question comes from, as things stand; modern calls cause none.
    fn asker(&self, from: &From) -> Origin {
        let legacy = |era| era == Era::Legacy;
        match from {
            From::Stream(id) => self.origin_among(Some(*id), legacy, party),
            From::Named(said) => self.named(said).unwrap_or(Origin::Nobody),
            From::Outside | From::Unnamed => Origin::Nobody,
            From::Unsaid => self.origin_among(None, legacy, party),
        }
    }

    /// The call under way that a question names: by its id, by its progress token or by its task.
    fn named(&self, said: &Belonging) -> Option<Origin> {
        let may = |call: &InFlight| call.era == Era::Legacy;
        let of = |call: &InFlight| {
            let caller = call.caller.clone().filter(|_| may(call))?;
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
    pub(super) async fn consult(
        self: &Arc<Self>,
        method: &str,
        params: Option<&str>,
        from: &From,
    ) -> ClientAnswer {
        let deadline = Instant::now() + question::ATTRIBUTION;
        let mut late = false;
        loop {
            let mut changed = std::pin::pin!(self.questions.changed());
            changed.as_mut().enable();
            match self.asker(from) {
                Origin::Call(caller, exchange) => {
                    if let Some(agent) = caller.standing()
                        && method == "elicitation/create"
                    {
                        self.elicited.asked(params, &agent);
                    }
                    return self.put(&caller, &exchange, method, params).await;
                }
                Origin::Nobody => return self.orphaned(from, method, params).await,
                // Those who have had their time to answer make room for one who asks now.
                Origin::Likely(_, _, others) if left(&others) == Some(Duration::ZERO) => {
                    others.iter().for_each(|other| other.cancel());
                    let _ = tokio::time::timeout_at(deadline, changed).await;
                }
                Origin::Likely(..) | Origin::Several if late => return question::ambiguous(),
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

    /// Puts a question to a client; while all its calls wait for a person, others get their turn.
    async fn put(
        self: &Arc<Self>,
        caller: &Arc<Caller>,
        exchange: &Exchange,
        method: &str,
        params: Option<&str>,
    ) -> ClientAnswer {
        let who = party(caller);
        let (asked, _placed) = (exchange.asks(), self.questions.place());
        let mut put = std::pin::pin!(question::put(self, caller, exchange, method, params));
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
        from: &From,
        method: &str,
        params: Option<&str>,
    ) -> ClientAnswer {
        match from {
            From::Named(_) => return question::over(),
            From::Unnamed => return question::unnamed(),
            From::Stream(_) | From::Outside | From::Unsaid => {}
        }
        if method != "roots/list" {
            return question::orphaned();
        }
        self.asks_roots.store(true, Ordering::Relaxed);
        let Some(agent) = self.upward.only_rooted(&self.server) else {
            return question::no_roots();
        };
        match agent
            .ask(&agent.outside(), Some(self), method, params)
            .await
        {
            Ok(answer) => answer,
            Err(_) => question::no_roots(),
        }
    }
}
