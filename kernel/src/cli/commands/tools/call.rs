//! `mgp tools call`.

use std::io::IsTerminal;

use mgp_engine::tool_names::{canonical_name, visible_name};
use mgp_protocol::ids::ServerId;
use mgp_protocol::jsonrpc::INVALID_PARAMS;
use mgp_protocol::mcp::{Method, tools};
use mgp_protocol::mgp::names::{Read, ResolvedNames};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::arguments::{self, TypedArguments};
use super::{ListedTool, list_all, result_pages};
use crate::cli::args::Call;
use crate::cli::client::{
    CliContext, ConnectOptions, KernelClient, has_promptable_missing, name_resolution,
    parse_result, prompt_missing_arguments,
};
use crate::cli::failure::Failure;
use crate::cli::print::content::{Saver, render};
use crate::cli::print::{print_error, print_line, print_untrusted};
use crate::cli::text_format::indent_continuations;

pub(super) fn call(context: &CliContext, call: &Call) -> Result<(), Failure> {
    let typed = arguments::parse(&call.arguments, call.json_args.as_deref())?;
    let opening = ConnectOptions {
        endpoint: None,
        is_interactive: std::io::stdin().is_terminal(),
        ..ConnectOptions::default()
    };
    // A program that reads the answer is not prompted.
    let asks = !context.json && opening.is_interactive && std::io::stdout().is_terminal();
    let answer = context.with_kernel_at(opening, async |client| {
        let resolved = resolve_tool(client, &call.name).await;
        // Unlisted tools may be the kernel's own, or of a starting server.
        let (name, listed) = match &resolved {
            Ok((server, tool)) => (canonical_name(server, tool), visible_name(server, tool)),
            Err(_) => (call.name.clone(), call.name.clone()),
        };
        let arguments = match typed {
            TypedArguments::Object(object) => object,
            TypedArguments::Pairs(pairs) if pairs.is_empty() && !asks => Map::new(),
            TypedArguments::Pairs(pairs) => {
                let schema = fetch_schema(client, &listed).await?;
                let given = arguments::parse_by_schema(pairs, schema.as_ref())?;
                match schema.filter(|schema| asks && has_promptable_missing(schema, &given)) {
                    Some(schema) => prompt_missing(call.name.clone(), schema, given).await?,
                    None => given,
                }
            }
        };
        let answer = call_over(client, &name, &arguments).await;
        let answer = answer.map_err(|failure| match resolved {
            Err(unread @ Failure::Usage(_)) if is_unknown_tool(&failure) => unread,
            Ok(_) | Err(_) => failure,
        })?;
        if call.all {
            result_pages::read_all_pages(client, answer).await
        } else {
            Ok(answer)
        }
    })?;
    show(context, call, &answer)
}

/// Prompts for missing arguments, while the connection stays open.
async fn prompt_missing(
    name: String,
    schema: Value,
    given: Map<String, Value>,
) -> Result<Map<String, Value>, Failure> {
    let asked =
        tokio::task::spawn_blocking(move || prompt_missing_arguments(&name, &schema, &given));
    let interrupted = tokio::signal::ctrl_c();
    let filled = tokio::select! {
        filled = asked => filled.ok().flatten(),
        _ = interrupted => return Err(Failure::Interrupted),
    };
    filled.ok_or_else(|| Failure::Usage("arguments are missing; nothing was called".to_owned()))
}

/// Resolves the tool: its server, and that server's own name for it.
pub(super) async fn resolve_tool(
    client: &mut KernelClient,
    typed: &str,
) -> Result<(ServerId, String), Failure> {
    let asked = Read {
        tool: Some(typed.to_owned()),
        ..Read::default()
    };
    let ResolvedNames {
        server_id,
        tool_name,
        ..
    } = name_resolution::resolve_existing(client, &asked).await?;
    let resolved = server_id.map(ServerId::new).zip(tool_name);
    let whole = || format!("{typed} is a server; a tool is written SERVER:TOOL");
    resolved.ok_or_else(|| Failure::Usage(whole()))
}

/// Whether the kernel reports an unknown tool.
fn is_unknown_tool(failure: &Failure) -> bool {
    matches!(failure, Failure::ErrorResponse { code, message, .. }
        if *code == INVALID_PARAMS && message.starts_with("Unknown tool: "))
}

/// The `inputSchema` of the tool listed under this name, if any.
pub(super) async fn fetch_schema(
    client: &mut KernelClient,
    name: &str,
) -> Result<Option<Value>, Failure> {
    let tools: Vec<ListedTool> = list_all(client)
        .await?
        .iter()
        .map(|t| parse_result(t))
        .collect::<Result<_, _>>()?;
    let resolved = tools.into_iter().find(|tool| tool.name == name);
    Ok(resolved.map(|tool| tool.input_schema))
}

async fn call_over(
    client: &mut KernelClient,
    name: &str,
    arguments: &Map<String, Value>,
) -> Result<Box<RawValue>, Failure> {
    let params = json!({"name": name, "arguments": arguments, "_meta": {"progressToken": 1}});
    let doing = format!("calling {name}");
    client.call(tools::Call::METHOD, &params, doing).await
}

/// Prints the result; a tool's error is printed on stderr.
fn show(context: &CliContext, call: &Call, answer: &RawValue) -> Result<(), Failure> {
    let result: Value = parse_result(answer)?;
    let failed = result["isError"] == true;
    let saver = Saver {
        folder: &call.out,
        tool: &call.name,
    };
    match (context.json, failed) {
        (true, _) => print_line(answer.get())?,
        (false, false) => print_untrusted(&render(&result, &saver)?)?,
        (false, true) => print_error(indent_continuations(&render(&result, &saver)?, "  | ")),
    }
    if failed {
        Err(Failure::ToolError)
    } else {
        Ok(())
    }
}
