//! `prompts/get`.

use std::sync::Arc;

use mgp_engine::tool_names::canonical_name;
use mgp_engine::tools::catalog::{CatalogPrompt, ListKind};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::meta::progress_token;
use mgp_protocol::mcp::{self, prompts};
use mgp_protocol::refusal::Refusal;

use crate::Context;
use crate::answer::{parse_string, require_params};
use crate::checks::schema;
use crate::checks::unlisted_names::{self, named_item};
use crate::mcp::apps::visible_app_uris;
use crate::replicas::replica_reads::{self, ReadRequest};
use mgp_callers::request::{Caller, Outcome, Request};

/// Gets a prompt.
///
/// # Errors
/// Any refusal of a call.
pub async fn get(cx: &Context, request: &Request) -> Outcome {
    let params = require_params(request)?;
    let get: prompts::Get<'_> = mcp::parse_params(Some(params))?;
    let name = parse_string(get.name, "name")?;
    let route = Box::pin(find_prompt(cx, request, &name)).await?;
    schema::check_prompt_arguments(&name, &route, get.arguments)?;
    let reading = ReadRequest {
        kind: ListKind::Prompts,
        server: &route.server,
        server_name: &route.own_name,
        method: "prompts/get",
        params,
        edit: (get.name.get(), &route.own_name_json),
        token: progress_token(params)?,
        skill: None,
        unknown: Refusal::UnknownPrompt(name.clone()),
    };
    let result = replica_reads::read(cx, request, &reading).await?;
    Ok(visible_app_uris(&request.caller, &route.server, result))
}

/// The prompt of that name, of a server that is open to the caller.
pub(crate) async fn find_prompt(
    cx: &Context,
    request: &Request,
    name: &str,
) -> Result<Arc<CatalogPrompt>, Refusal> {
    let caller = &request.caller;
    let look = || {
        let shown = cx.catalog.load();
        let prompt = shown.catalog.prompt(&caller.view, name)?;
        let server = find_open_server(cx, caller, prompt)?;
        if server == prompt.server {
            Some(prompt.clone())
        } else {
            let there = canonical_name(&server, &prompt.own_name);
            shown.catalog.prompt(&caller.view, &there).cloned()
        }
    };
    if let Some(prompt) = look() {
        return Ok(prompt);
    }
    let named = named_item(request, ListKind::Prompts, name);
    let found = unlisted_names::wait_for_item(cx, request, named, look).await?;
    found.ok_or_else(|| {
        let away = unlisted_names::unavailable_refusal(cx, caller, named);
        away.unwrap_or_else(|| Refusal::UnknownPrompt(name.to_owned()))
    })
}

/// Its server, or where that is closed to the caller another one that has the same.
fn find_open_server(cx: &Context, caller: &Caller, prompt: &CatalogPrompt) -> Option<ServerId> {
    let it = (ListKind::Prompts, &prompt.server, &*prompt.own_name);
    replica_reads::find_open_server(cx, caller, it)
}

/// Whether a request that waited for its client may continue.
///
/// # Errors
/// [`Refusal::UnknownPrompt`] for one that is closed to the caller by now.
pub fn recheck(cx: &Context, caller: &Caller, params: &str) -> Result<(), Refusal> {
    let get: prompts::Get<'_> = mcp::parse_params(Some(params))?;
    let name = parse_string(get.name, "name")?;
    let shown = cx.catalog.load();
    let hidden = shown.catalog.prompt(&caller.view, &name);
    if hidden.is_some_and(|prompt| find_open_server(cx, caller, prompt).is_none()) {
        Err(Refusal::UnknownPrompt(name))
    } else {
        Ok(())
    }
}
