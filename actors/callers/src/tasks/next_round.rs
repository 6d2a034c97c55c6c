//! A task whose call gets `input_required`: the kernel handles the rounds, and the client answers by
//! `tasks/update` (MCP 2026-07-28, multi round-trip requests).

use std::sync::Arc;

use bytestring::ByteString;
use futures_util::future::join_all;
use mgp_json::render_object;
use mgp_protocol::refusal::Refusal;
use serde_json::value::RawValue;

use crate::in_flight_call::InFlightCall;
use crate::request::background_call::BackgroundCall;
use crate::request::server_input_required::{
    InputRequired, MAX_ROUNDS, parse_input_required, render_next_round,
};
use crate::request::{Caller, GuardedAnswer, Outcome, Request, Routes};
use mgp_runtime::trace::Trace;

/// The data needed to make the next round of the call of a task.
#[derive(Debug, Clone)]
pub struct NextRound {
    /// Routes the call.
    pub routes: Arc<dyn Routes>,
    /// The caller.
    pub caller: Arc<Caller>,
    /// Its method.
    pub method: ByteString,
    /// Its params, as JSON text.
    pub params: Option<ByteString>,
    /// The trace of all rounds.
    pub trace: Trace,
}

/// Resolves with the call's final outcome.
pub(super) async fn wait_for_final_outcome(
    background: &BackgroundCall,
    round: &NextRound,
) -> Outcome {
    let first = background.wait_for_outcome().await;
    round.run_rounds(&background.call, first).await
}

impl NextRound {
    /// Runs the rounds of a call that had this first outcome: sends the callbacks its server needs to the
    /// client, and repeats the call with the answers.
    ///
    /// # Errors
    /// Those of the call; [`Refusal::Internal`] when the callbacks do not end.
    pub async fn run_rounds(&self, call: &Arc<InFlightCall>, first: Outcome) -> Outcome {
        let mut outcome = first?;
        for _ in 0..MAX_ROUNDS {
            let text = String::from_utf8_lossy(&outcome);
            let Some(needs) = parse_input_required(&text) else {
                drop(text);
                return Ok(outcome);
            };
            let responses = ask_client(call, &needs).await?;
            let first = self.params.as_deref().unwrap_or("{}");
            let params = render_next_round(first, &responses, needs.request_state);
            let request = Request {
                caller: self.caller.clone(),
                call: call.clone(),
                method: self.method.clone(),
                params: Some(params.into()),
                trace: self.trace.clone(),
            };
            drop(needs);
            drop(text);
            outcome = GuardedAnswer::new(|| self.routes.answer(request)).await?;
        }
        Err(Refusal::Internal(format!(
            "the server asked for more input {MAX_ROUNDS} times in one call"
        )))
    }
}

/// Sends the callbacks of a round to the client; returns the `inputResponses` object.
async fn ask_client(call: &InFlightCall, needs: &InputRequired<'_>) -> Result<String, Refusal> {
    let rounds = call
        .rounds()
        .expect("only a stateless client's call has rounds");
    let can = rounds.capabilities();
    for input in needs.input_requests.values() {
        let missing = match &*input.method {
            "sampling/createMessage" if !can.sampling => r#"{"sampling":{}}"#,
            "roots/list" if !can.roots => r#"{"roots":{}}"#,
            _ => continue,
        };
        let required = RawValue::from_string(missing.into()).expect("a literal is JSON");
        return Err(Refusal::MissingCapability { required });
    }
    let callbacks = needs.input_requests.iter().map(|(key, input)| async move {
        let params = input.params.map(RawValue::get);
        let answer = rounds
            .send_callback(call.wait_until_cancelled(), &input.method, params)
            .await;
        match answer {
            Ok(Ok(result)) => Ok((key, String::from_utf8_lossy(&result).into_owned())),
            Ok(Err(_)) | Err(_) if call.is_cancelled() => Err(Refusal::Cancelled),
            Ok(Err(_)) => Err(Refusal::Internal(
                "the client answered with an error".into(),
            )),
            Err(error) => Err(Refusal::Internal(error.to_string())),
        }
    });
    let answers: Result<Vec<_>, Refusal> = join_all(callbacks).await.into_iter().collect();
    answers.map(render_object)
}
