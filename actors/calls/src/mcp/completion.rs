//! `completion/complete`.

use mgp_engine::tools::catalog::ListKind;
use mgp_json::quote;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::meta::progress_token;
use mgp_protocol::mcp::{self, completion};
use mgp_protocol::refusal::Refusal;

use crate::Context;
use crate::answer::{parse_string, require_params};
use crate::checks::access;
use crate::checks::unlisted_names::named_item;
use crate::mcp::prompts::find_prompt;
use crate::mcp::resources::{find_listed_owner, find_owner_with};
use crate::replicas::replica_reads;
use mgp_callers::request::{Outcome, Request};
use mgp_servers::upstream::{HeaderParams, Outgoing, may_hold_mgp};

/// Completes an argument of a prompt or a template.
///
/// # Errors
/// Any refusal of a call.
pub async fn complete(cx: &Context, request: &Request) -> Outcome {
    let params = require_params(request)?;
    let complete: completion::Complete<'_> = mcp::parse_params(Some(params))?;
    let (server, part, own) = Box::pin(resolve_reference(cx, request, &complete.reference)).await?;
    let gone = Refusal::BadParams("`ref` names nothing that is there".into());
    let final_check = access::admit(cx, &request.caller, &server, None, gone)?;
    let can = cx
        .catalog
        .load()
        .peers
        .get(&server)
        .is_some_and(|p| p.capabilities.completions);
    if !can {
        return Err(Refusal::UnknownMethod("completion/complete".into()));
    }
    let outgoing = Outgoing {
        tool: None,
        final_check: Some(&final_check),
        method: "completion/complete",
        params,
        may_hold_mgp: may_hold_mgp(params),
        mcpl: None,
        edit: (part, &quote(&own)),
        token: progress_token(params)?,
        stream_options: None,
        header_params: HeaderParams::default(),
    };
    cx.upstream(&server).send(request, outgoing).await
}

/// The server, the part of the frame that names the prompt or template, and the server's own name for it.
async fn resolve_reference<'a>(
    cx: &Context,
    request: &Request,
    reference: &completion::Reference<'a>,
) -> Result<(ServerId, &'a str, String), Refusal> {
    let missing = |what: &str| Refusal::BadParams(format!("`ref.{what}` is missing"));
    match reference.kind.as_ref() {
        "ref/prompt" => {
            let raw = reference.name.ok_or_else(|| missing("name"))?;
            let name = parse_string(raw, "ref.name")?;
            let route = find_prompt(cx, request, &name).await?;
            Ok((route.server.clone(), raw.get(), route.own_name.to_string()))
        }
        "ref/resource" => {
            let raw = reference.uri.ok_or_else(|| missing("uri"))?;
            let uri = parse_string(raw, "ref.uri")?;
            let (server, own) = find_template_owner(cx, request, &uri).await?;
            Ok((server, raw.get(), own))
        }
        other => Err(Refusal::BadParams(format!(
            "`ref.type` must be ref/prompt or ref/resource, not {other:?}"
        ))),
    }
}

/// The server that has this template or resource, and its own name for it.
async fn find_template_owner(
    cx: &Context,
    request: &Request,
    uri: &str,
) -> Result<(ServerId, String), Refusal> {
    let caller = &request.caller;
    let template = || {
        let shown = cx.catalog.load();
        let template = shown.catalog.template(&caller.view, uri);
        let template = template?;
        let it = (
            ListKind::Templates,
            &template.server,
            &*template.uri_template,
        );
        Some((
            replica_reads::find_open_server(cx, caller, it)?,
            template.uri_template.to_string(),
        ))
    };
    let look = || template().or_else(|| find_listed_owner(cx, caller, uri));
    find_owner_with(
        cx,
        request,
        named_item(request, ListKind::Templates, uri),
        look,
    )
    .await
}
