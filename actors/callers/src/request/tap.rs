//! Reports requests and their answers to an operator who watches.

use std::sync::Arc;

use mgp_protocol::dialect::Dialect;
use mgp_protocol::jsonrpc::RequestId;

use super::{AnswerFuture, Caller, Outcome, Request, render_answer};
use crate::agent_tap::AgentTap;

impl AgentTap {
    /// Opens a tap for the connection of a caller; `None` while no operator watches.
    #[must_use]
    pub fn for_caller(caller: &Caller) -> Option<Self> {
        Self::for_agent(&caller.agent, caller.operator, caller.connection)
    }

    /// Reports a request of a connection or session, and its answer; unchanged while no operator watches.
    /// Requests of stateless clients are reported where their rounds are answered.
    #[must_use]
    pub fn wrap_answer(
        request: Request,
        answer: impl FnOnce(Request) -> AnswerFuture,
    ) -> AnswerFuture {
        let tap = match request.call.rounds() {
            None => Self::for_caller(&request.caller),
            Some(_) => None,
        };
        let tapped = tap.and_then(|tap| Some((tap, request.call.request_id()?)));
        let Some((tap, id)) = tapped else {
            return answer(request);
        };
        tap.record_request(&id, &request.method, request.params.as_deref());
        let (call, dialect) = (request.call.clone(), request.caller.dialect());
        call.set_tap(tap.clone());
        let answering = answer(request);
        Box::pin(async move {
            let outcome = answering.await;
            if call.is_awaited() {
                tap.record_answer_sent(&id, &outcome, dialect);
            }
            outcome
        })
    }

    /// Reports the answer to `initialize`.
    #[must_use]
    pub fn wrap_initialize(caller: Arc<Caller>, answering: AnswerFuture) -> AnswerFuture {
        let Some(tap) = Self::for_caller(&caller) else {
            return answering;
        };
        Box::pin(async move {
            let outcome = answering.await;
            tap.record_answer_sent(&Self::initialize_id(), &outcome, caller.dialect());
            outcome
        })
    }

    /// Reports the answer that is sent to the agent.
    pub fn record_answer_sent(&self, id: &RequestId, outcome: &Outcome, dialect: Dialect) {
        self.record_sent(&render_answer(id.as_json(), outcome, dialect));
    }
}
