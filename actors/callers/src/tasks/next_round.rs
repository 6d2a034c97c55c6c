//! A task whose call gets `input_required`: the kernel handles the rounds, and the client answers by
//! `tasks/update` (MCP 2026-07-28, multi round-trip requests).

use std::sync::Arc;

use bytestring::ByteString;
use futures_util::future::join_all;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::quoted;
use serde_json::value::RawValue;

use crate::request::background_call::BackgroundCall;
use crate::request::input_required::{MAX_ROUNDS, Needs, needs, next_round};
use crate::request::{Caller, GuardedAnswer, Outcome, Request, Routes};
use mgp_runtime::trace::Trace;

/// What is needed to make the next round of the call of a task.
#[derive(Debug, Clone)]
pub struct NextRound {
    /// Handles the call.
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
pub(super) async fn whole(background: &BackgroundCall, round: &NextRound) -> Outcome {
    let mut outcome = background.outcome().await?;
    for _ in 0..MAX_ROUNDS {
        let text = String::from_utf8_lossy(&outcome).into_owned();
        let Some(needs) = needs(&text) else {
            return Ok(outcome);
        };
        let responses = ask(background, &needs).await?;
        let first = round.params.as_deref().unwrap_or("{}");
        let params = next_round(first, &responses, needs.request_state);
        let request = Request {
            caller: round.caller.clone(),
            exchange: background.exchange.clone(),
            method: round.method.clone(),
            params: Some(params.into()),
            trace: round.trace.clone(),
        };
        outcome = GuardedAnswer::new(|| round.routes.answer(request)).await?;
    }
    Err(Refusal::Broken(format!(
        "the server asked for more input {MAX_ROUNDS} times in one call"
    )))
}

/// Puts the questions of a round to the client; returns the `inputResponses` object.
async fn ask(background: &BackgroundCall, needs: &Needs<'_>) -> Result<String, Refusal> {
    let exchange = &background.exchange;
    let rounds = exchange.rounds().expect("a task is a stateless client's");
    let asking = needs.input_requests.iter().map(|(key, input)| async move {
        let params = input.params.map(RawValue::get);
        let answer = rounds
            .ask(exchange.cancelled(), &input.method, params)
            .await;
        match answer {
            Ok(Ok(result)) => Ok(format!(
                "{}:{}",
                quoted(key),
                String::from_utf8_lossy(&result)
            )),
            Ok(Err(_)) | Err(_) if exchange.is_cancelled() => Err(Refusal::Cancelled),
            Ok(Err(_)) => Err(Refusal::Broken("the client answered with an error".into())),
            Err(why) => Err(Refusal::Broken(why.to_string())),
        }
    });
    let answers: Result<Vec<String>, Refusal> = join_all(asking).await.into_iter().collect();
    Ok(format!("{{{}}}", answers?.join(",")))
}
