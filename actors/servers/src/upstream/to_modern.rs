//! A legacy caller and a modern server: the kernel itself handles each round of `input_required`, which
//! the client does not know (MCP 2026-07-28, multi round-trip requests).

use std::sync::Arc;

use futures_util::future::join_all;
use mgp_engine::calls::outcome::after_dispatch;
use mgp_engine::servers::log_levels::LogLevel;
use mgp_protocol::dialect::Era;
use mgp_protocol::era::{self, Stamp};
use mgp_protocol::federation::hello::LifeId;
use mgp_protocol::jsonrpc::METHOD_NOT_FOUND;
use mgp_protocol::mcp::ClientCapabilities;
use mgp_protocol::mcp::meta::TASKS;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::{member, quoted};
use serde_json::value::RawValue;

use super::tasks::{wants_task, with_related, without_task};
use super::{Outgoing, in_words_of, translated};
use crate::link::question;
use crate::link::{Link, Wire};
use crate::negotiation;
use mgp_callers::agent::ClientAnswer;
use mgp_callers::negotiation::kernel_info;
use mgp_callers::request::input_required::{Input, MAX_ROUNDS, Needs, needs, next_round};
use mgp_callers::request::{Outcome, Request};
use mgp_runtime::ids::new_id;

/// Questions in one round; a person answers one at a time.
const MAX_QUESTIONS: usize = 64;

/// Calls a modern server for a legacy client, and puts the server's questions to the client.
pub(super) async fn rounds(request: &Request, link: &Arc<Link>, outgoing: Outgoing<'_>) -> Outcome {
    let caller = &request.caller;
    let mut own = outgoing.spliced(None).finish();
    let as_task = wants_task(request, link, &own);
    if as_task {
        own = without_task(&own).into();
    }
    let first = stamped(request, link, &own, as_task);
    let mut params = first.clone();
    let run = run_of_owner(link);
    for round in 0..MAX_ROUNDS {
        let result = translated(request, link, outgoing, Era::Modern, &params).await;
        // Whatever keeps a later round from its server, the call was made with the first one.
        let result = result.map_err(|refusal| match round {
            0 => refusal,
            _ => after_dispatch(refusal, &link.server),
        });
        let (version, method) = (caller.version, outgoing.method);
        let result = result.map_err(|refusal| in_words_of(refusal, version, method))?;
        let text = String::from_utf8_lossy(&result);
        if as_task && member(&text, "resultType") == Some("\"task\"") {
            return Ok(result);
        }
        let Some(needs) = needs(&text) else {
            return Ok(match era::to_legacy_result(&text, caller.version) {
                std::borrow::Cow::Borrowed(_) => result,
                std::borrow::Cow::Owned(text) => text.into(),
            });
        };
        // Dropped, a question is withdrawn at the client.
        let (responses, _) = tokio::select! {
            biased;
            answers = ask(request, link, &needs) => answers?,
            why = owner_lost(link, run) => return Err(link.lost(&why)),
        };
        params = next_round(&first, &responses, needs.request_state);
    }
    Err(link.faulty(&format!(
        "it asked for more input {MAX_ROUNDS} times in one call"
    )))
}

/// Which run of the owner's node the call begins with, where another node runs the server.
fn run_of_owner(link: &Link) -> Option<LifeId> {
    match link.wire() {
        Wire::Node(node) => node.run(),
        Wire::Child(_) | Wire::Http(_) | Wire::Sse(_) | Wire::Lite(_) => None,
    }
}

/// Resolves when what waits for the answer is lost, with its node. A server that this kernel reaches itself may
/// go on after a restart: what it needs for that comes back with the answer.
async fn owner_lost(link: &Link, run: Option<LifeId>) -> String {
    match (link.wire(), run) {
        (Wire::Node(node), Some(run)) => node.run_lost(run).await,
        _ => std::future::pending().await,
    }
}

/// A legacy client's params as a modern server reads them; with `tasks` they declare that the client
/// can be given tasks.
pub(super) fn stamped(request: &Request, link: &Link, params: &str, tasks: bool) -> String {
    let caller = &request.caller;
    let capabilities = declared(&caller.capabilities, tasks);
    let capabilities = link.limits.consents.declared(&capabilities);
    let mgp = link.mgp_in(Era::Modern).is_active();
    // The owner of a server at another node keeps an answer back for log messages that come late: not for who never
    // asked for any.
    let level = match matches!(link.wire(), Wire::Node(_)) {
        true => caller.asked_log_level(&request.exchange),
        false => caller.log_level(&request.exchange),
    };
    let stamp = Stamp {
        client_info: &kernel_info(),
        capabilities: &negotiation::declared(&capabilities, Era::Modern, mgp),
        log_level: level.map(LogLevel::as_str),
    };
    era::to_modern_params(Some(params), &stamp)
}

/// Puts all questions of a round to the client at once; returns the `inputResponses` object and its
/// keys.
pub(super) async fn ask(
    request: &Request,
    link: &Arc<Link>,
    needs: &Needs<'_>,
) -> Result<(String, Vec<String>), Refusal> {
    let keys = needs.input_requests.keys().take(MAX_QUESTIONS).cloned();
    let asking = needs.input_requests.iter().take(MAX_QUESTIONS);
    let asking = asking.map(|(key, input)| async move {
        let answer = ask_one(request, link, input).await?;
        Ok(format!("{}:{answer}", quoted(key)))
    });
    let answers: Result<Vec<String>, Refusal> = join_all(asking).await.into_iter().collect();
    Ok((format!("{{{}}}", answers?.join(",")), keys.collect()))
}

async fn ask_one(
    request: &Request,
    link: &Arc<Link>,
    input: &Input<'_>,
) -> Result<String, Refusal> {
    let (caller, exchange) = (&request.caller, &request.exchange);
    let Some(asked) = question::read(&input.method) else {
        return Err(link.faulty(&format!(
            "it needs {}, which no client can be asked",
            input.method
        )));
    };
    let params = input.params.map(RawValue::get);
    let id = new_id();
    let params = era::to_legacy_question(&input.method, params, caller.version, id.as_str());
    let params = params.map(|params| match exchange.task() {
        Some((_, id)) => with_related(&params, id),
        None => params.to_string(),
    });
    let answer = match params {
        Some(params) => question::put(link, caller, exchange, asked, Some(&params)).await,
        None => question::refused(
            METHOD_NOT_FOUND,
            &format!("a client of {} cannot be asked this", caller.version),
        ),
    };
    said(&input.method, answer)
}

/// A client's answer in the modern era, whose `inputResponses` hold no errors.
fn said(method: &str, answer: ClientAnswer) -> Result<String, Refusal> {
    match (answer, method) {
        (Ok(result), _) => Ok(String::from_utf8_lossy(&result).into_owned()),
        (Err(_), "elicitation/create") => Ok(r#"{"action":"cancel"}"#.into()),
        (Err(_), "roots/list") => Ok(r#"{"roots":[]}"#.into()),
        (Err(error), _) => {
            let error = String::from_utf8_lossy(&error).into_owned();
            // The client's, and not the server's: what that did until it asked is not known.
            Err(RawValue::from_string(error).map_or(Refusal::Cancelled, Refusal::Unattributed))
        }
    }
}

/// What a legacy client declared, as a modern server reads it.
fn declared(can: &ClientCapabilities, tasks: bool) -> String {
    let mut out = Vec::new();
    if tasks {
        out.push(format!(r#""extensions":{{"{TASKS}":{{}}}}"#));
    }
    if can.roots {
        out.push(r#""roots":{}"#.to_owned());
    }
    if can.sampling {
        let tools = if can.sampling_tools {
            r#""tools":{}"#
        } else {
            ""
        };
        out.push(format!(r#""sampling":{{{tools}}}"#));
    }
    let modes: Vec<&str> = [
        (can.elicitation_form, r#""form":{}"#),
        (can.elicitation_url, r#""url":{}"#),
    ]
    .into_iter()
    .filter_map(|(can, text)| can.then_some(text))
    .collect();
    if !modes.is_empty() {
        out.push(format!(r#""elicitation":{{{}}}"#, modes.join(",")));
    }
    format!("{{{}}}", out.join(","))
}
