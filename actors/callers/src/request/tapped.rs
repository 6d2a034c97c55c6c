//! Requests and their answers, for an operator who looks on.

use std::sync::Arc;

use mgp_protocol::dialect::Dialect;
use mgp_protocol::jsonrpc::RequestId;

use super::{Answering, Caller, Outcome, Request, answer_frame};
use crate::agent_tap::AgentTap;

impl AgentTap {
    /// The connection of a caller; `None` while nobody looks on.
    #[must_use]
    pub fn of_caller(caller: &Caller) -> Option<Self> {
        Self::of(&caller.agent, caller.operator, caller.connection)
    }

    /// A request that came over a connection or in a session, and its answer; as it is where nobody looks on. Those
    /// of stateless clients are shown by who answers their rounds.
    #[must_use]
    pub fn around(request: Request, answer: impl FnOnce(Request) -> Answering) -> Answering {
        let tap = match request.exchange.rounds() {
            None => Self::of_caller(&request.caller),
            Some(_) => None,
        };
        let tapped = tap.and_then(|tap| Some((tap, request.exchange.request_id()?)));
        let Some((tap, id)) = tapped else {
            return answer(request);
        };
        tap.asked(&id, &request.method, request.params.as_deref());
        let (exchange, dialect) = (request.exchange.clone(), request.caller.dialect());
        exchange.tap(tap.clone());
        let answering = answer(request);
        Box::pin(async move {
            let outcome = answering.await;
            if exchange.is_awaited() {
                tap.hears_answer(&id, &outcome, dialect);
            }
            outcome
        })
    }

    /// The answer to `initialize`.
    #[must_use]
    pub fn around_welcome(caller: Arc<Caller>, answering: Answering) -> Answering {
        let Some(tap) = Self::of_caller(&caller) else {
            return answering;
        };
        Box::pin(async move {
            let outcome = answering.await;
            tap.hears_answer(&Self::hello_id(), &outcome, caller.dialect());
            outcome
        })
    }

    /// The agent is sent the answer to its request.
    pub fn hears_answer(&self, id: &RequestId, outcome: &Outcome, dialect: Dialect) {
        self.hears(&answer_frame(id.as_json(), outcome, dialect));
    }
}
