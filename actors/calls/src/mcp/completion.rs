//! `completion/complete`.

use mgp_engine::tools::catalog::ListKind;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::meta::progress_token;
use mgp_protocol::mcp::{self, completion};
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::quoted;

use crate::Context;
use crate::answer::{required, text};
use crate::checks::access;
use crate::checks::arrival::named_item;
use crate::mcp::prompts::prompt;
use crate::mcp::resources::{listed_owner, owner_by};
use crate::replicas::reading;
use mgp_callers::request::{Outcome, Request};
use mgp_servers::upstream::{Mirrored, Outgoing, may_be_of_mgp};

/// Completes an argument of a prompt or a template.
///
/// # Errors
/// Any refusal of a call.
pub async fn complete(cx: &Context, request: &Request) -> Outcome {
    let params = required(request)?;
    let complete: completion::Complete<'_> = mcp::read(Some(params))?;
    let (server, part, own) = Box::pin(referred(cx, request, &complete.reference)).await?;
    let gone = Refusal::BadParams("`ref` names nothing that is there".into());
    let final_check = access::admit(cx, &request.caller, &server, None, gone)?;
    let can = cx
        .shown
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
        of_mgp: may_be_of_mgp(params),
        mcpl: None,
        edit: (part, &quoted(&own)),
        token: progress_token(params)?,
        wish: None,
        mirrored: Mirrored::default(),
    };
    cx.upstream(&server).send(request, outgoing).await
}

/// The server, the part of the frame that names the prompt or template, and the server's own name for it.
async fn referred<'a>(
    cx: &Context,
    request: &Request,
    reference: &completion::Reference<'a>,
) -> Result<(ServerId, &'a str, String), Refusal> {
    let missing = |what: &str| Refusal::BadParams(format!("`ref.{what}` is missing"));
    match reference.kind.as_ref() {
        "ref/prompt" => {
            let raw = reference.name.ok_or_else(|| missing("name"))?;
            let name = text(raw, "ref.name")?;
            let route = prompt(cx, request, &name).await?;
            Ok((route.server.clone(), raw.get(), route.own_name.to_string()))
        }
        "ref/resource" => {
            let raw = reference.uri.ok_or_else(|| missing("uri"))?;
            let uri = text(raw, "ref.uri")?;
            let (server, own) = template_owner(cx, request, &uri).await?;
            Ok((server, raw.get(), own))
        }
        other => Err(Refusal::BadParams(format!(
            "`ref.type` must be ref/prompt or ref/resource, not {other:?}"
        ))),
    }
}

/// The server that has this template or resource, and its own name for it.
async fn template_owner(
    cx: &Context,
    request: &Request,
    uri: &str,
) -> Result<(ServerId, String), Refusal> {
    let caller = &request.caller;
    let template = || {
        let shown = cx.shown.load();
        let template = shown.catalog.template(&caller.view, uri);
        let template = template?;
        let it = (ListKind::Templates, &template.server, &*template.uri);
        Some((
            reading::open_place(cx, caller, it)?,
            template.uri.to_string(),
        ))
    };
    let look = || template().or_else(|| listed_owner(cx, caller, uri));
    owner_by(
        cx,
        request,
        named_item(request, ListKind::Templates, uri),
        look,
    )
    .await
}
