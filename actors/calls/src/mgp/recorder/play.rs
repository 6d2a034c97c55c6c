//! `mgp/kernel/recorder/play`: the operator replays a request to a server. It acts as the operator, so no agent
//! policy applies; it is audited.

use mgp_callers::request::{Outcome, Request};
use mgp_engine::calls::recorder::replay::is_replayable;
use mgp_engine::tools::catalog::CatalogView;
use mgp_json::member;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::meta::progress_token;
use mgp_protocol::mcp::request_headers::{param_headers, subject};
use mgp_protocol::mgp::audit::{EventType, Outcome as Ending, Target};
use mgp_protocol::mgp::kernel::recorder::Play;
use mgp_protocol::refusal::Refusal;
use mgp_servers::link::MetadataHeaders;
use mgp_servers::upstream::ReplayedRequest;
use mgp_store::audit::{new_event, operator_actor};
use serde_json::json;
use serde_json::value::RawValue;

use super::{current_masks, parse_params};
use crate::Context;

/// `mgp/kernel/recorder/play`.
///
/// # Errors
/// An unknown server, a method that is not played, and whatever kept the answer from coming.
pub async fn play(cx: &Context, request: &Request) -> Outcome {
    let asked: Play = parse_params(request)?;
    let unknown = || Refusal::UnknownServer(asked.server.clone());
    let server = ServerId::parse_local_or_remote(&asked.server).map_err(|_| unknown())?;
    if !is_replayable(&asked.method) {
        return Err(Refusal::BadParams(format!(
            "{} is not played",
            asked.method
        )));
    }
    let params = asked.params.as_deref();
    let named = subject(&asked.method).and_then(|subject| member(params?, subject));
    let name: Option<String> = named.and_then(|name| serde_json::from_str(name).ok());
    let headers = argument_headers(cx, &server, &asked, name.as_deref());
    let token = progress_token(request.params.as_deref().unwrap_or("{}"))?;
    let played = ReplayedRequest {
        is_stateless: asked.modern,
        params,
        token: token.filter(|_| asked.progress).map(RawValue::get),
        metadata_headers: MetadataHeaders {
            method: &asked.method,
            name: name.as_deref(),
            params: &headers,
        },
    };
    let outcome = cx.upstream(&server).replay(request, played).await;
    audit_play(cx, request, &asked, name.as_deref(), &outcome);
    let masks = current_masks(cx);
    let answer = match outcome {
        Ok(result) => {
            let result = masks.mask_json(&String::from_utf8_lossy(&result));
            format!(r#"{{"result":{result}}}"#)
        }
        Err(refusal) => match refusal.relayed_error() {
            Some(error) => format!(r#"{{"error":{}}}"#, masks.mask_json(error)),
            None => return Err(refusal),
        },
    };
    Ok(answer.into())
}

/// The headers in which a stateless server wants arguments repeated.
fn argument_headers(
    cx: &Context,
    server: &ServerId,
    asked: &Play,
    name: Option<&str>,
) -> Vec<(String, String)> {
    let calls = asked.modern && asked.method == "tools/call";
    let tool = name.filter(|_| calls);
    let tool = tool.and_then(|name| cx.tool(&CatalogView::One(server.clone()), name));
    let arguments = asked.params.as_deref();
    let arguments = arguments.and_then(|params| member(params, "arguments"));
    let said = tool.map(|tool| {
        let said = param_headers(&tool.param_headers, arguments).into_iter();
        said.map(|(name, value)| (name.to_owned(), value)).collect()
    });
    said.unwrap_or_default()
}

fn audit_play(
    cx: &Context,
    request: &Request,
    asked: &Play,
    name: Option<&str>,
    outcome: &Outcome,
) {
    let ending = match outcome {
        Ok(_) => Ending::Success,
        Err(_) => Ending::Failure,
    };
    let calls = asked.method == "tools/call";
    cx.audit.record(new_event(
        EventType::MESSAGE_PLAYED,
        operator_actor(),
        Target {
            server_id: Some(asked.server.clone()),
            tool_name: name.filter(|_| calls).map(str::to_owned),
            agent_id: None,
        },
        &request.trace.id,
        ending,
        json!({"method": asked.method}),
    ));
}
