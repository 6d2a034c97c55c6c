//! `prompts/get`.

use std::sync::Arc;

use mgp_engine::tools::catalog::{CatalogPrompt, ListKind};
use mgp_protocol::mcp::meta::progress_token;
use mgp_protocol::mcp::{self, prompts};
use mgp_protocol::refusal::Refusal;

use crate::Context;
use crate::answer::{required, text};
use crate::checks::arrival::{self, named_item};
use crate::checks::{access, schema};
use mgp_callers::request::{Caller, Outcome, Request};
use mgp_servers::upstream::{Mirrored, Outgoing, may_be_of_mgp};

/// Gets a prompt.
///
/// # Errors
/// Any refusal of a call.
pub async fn get(cx: &Context, request: &Request) -> Outcome {
    let params = required(request)?;
    let get: prompts::Get<'_> = mcp::read(Some(params))?;
    let name = text(get.name, "name")?;
    let route = Box::pin(prompt(cx, request, &name)).await?;
    let unknown = Refusal::UnknownPrompt(name.clone());
    let final_check = access::admit(cx, &request.caller, &route.server, None, unknown)?;
    schema::prompt_arguments(&name, &route, get.arguments)?;
    let outgoing = Outgoing {
        tool: None,
        final_check: Some(&final_check),
        method: "prompts/get",
        params,
        of_mgp: may_be_of_mgp(params),
        edit: (get.name.get(), &route.own_name_json),
        token: progress_token(params)?,
        wish: None,
        mirrored: Mirrored::named(&route.own_name),
    };
    cx.upstream(&route.server).send(request, outgoing).await
}

/// The prompt of that name, of a server that is open to the caller.
pub(crate) async fn prompt(
    cx: &Context,
    request: &Request,
    name: &str,
) -> Result<Arc<CatalogPrompt>, Refusal> {
    let caller = &request.caller;
    let look = || {
        let prompt = cx.shown.load().catalog.prompt(&caller.view, name).cloned();
        prompt.filter(|prompt| access::opens(cx, caller, &prompt.server))
    };
    if let Some(prompt) = look() {
        return Ok(prompt);
    }
    let named = named_item(request, ListKind::Prompts, name);
    let found = arrival::arrived(cx, request, named, look).await?;
    found.ok_or_else(|| {
        let away = arrival::standing(cx, caller, named);
        away.unwrap_or_else(|| Refusal::UnknownPrompt(name.to_owned()))
    })
}

/// Whether a request that waited for its client may go on.
///
/// # Errors
/// [`Refusal::UnknownPrompt`] for one that is closed to the caller by now.
pub fn still(cx: &Context, caller: &Caller, params: &str) -> Result<(), Refusal> {
    let get: prompts::Get<'_> = mcp::read(Some(params))?;
    let name = text(get.name, "name")?;
    let shown = cx.shown.load();
    let hidden = shown.catalog.prompt(&caller.view, &name);
    match hidden.is_some_and(|prompt| !access::opens(cx, caller, &prompt.server)) {
        true => Err(Refusal::UnknownPrompt(name)),
        false => Ok(()),
    }
}
