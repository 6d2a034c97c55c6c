//! `mgp tools confirm`: which tools only read, or destroy nothing.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::servers::pins::{self, Confirmed, PinnedTool};
use serde_json::json;

use crate::cli::args::ConfirmTools;
use crate::cli::client::pins::{Pinned, list_all};
use crate::cli::client::{CliContext, name_resolution, parse_result};
use crate::cli::failure::Failure;
use crate::cli::print::{self, new_table, print_error, print_line};
use crate::cli::text_format::{first_line, pluralize, sanitize_line};

pub(super) fn confirm(context: &CliContext, typed: &ConfirmTools) -> Result<(), Failure> {
    let server = typed.server.as_str();
    let all = context.with_kernel(async |client| {
        name_resolution::resolve_server(client, server).await?;
        list_all(client, server, Pinned::Tools).await
    })?;
    check_names(typed, &all)?;
    let is_wanted = |tool: &&PinnedTool| {
        let is_named = typed.only.is_empty() || typed.only.contains(&tool.tool);
        is_named && new_effect(typed, tool) != tool.effect
    };
    let wanted: Vec<&PinnedTool> = all.iter().filter(is_wanted).collect();
    if wanted.is_empty() {
        return finish(context, typed, &Confirmed::default());
    }
    if !context.json && !typed.yes {
        print_error(render_tools(&wanted));
    }
    if !typed.yes && !is_confirmed(typed, wanted.len())? {
        return Err(Failure::Other("nothing was confirmed".to_owned()));
    }
    let effects = wanted
        .iter()
        .map(|tool| (tool.tool.clone(), new_effect(typed, tool)));
    let params = pins::Confirm {
        id: server.to_owned(),
        effects: effects.collect::<BTreeMap<_, _>>(),
    };
    let answer = context.call(pins::Confirm::METHOD, &params, "confirming")?;
    finish(context, typed, &parse_result(&answer)?)
}

/// What the tool will be confirmed to do.
fn new_effect(typed: &ConfirmTools, tool: &PinnedTool) -> Option<String> {
    if typed.remove {
        None
    } else {
        // What its annotations do not say any more stays as it is.
        tool.declared_effect.clone().or_else(|| tool.effect.clone())
    }
}

/// Names that no tool has, or whose tools say nothing that could be confirmed.
fn check_names(typed: &ConfirmTools, all: &[PinnedTool]) -> Result<(), Failure> {
    let server = sanitize_line(&typed.server);
    for name in &typed.only {
        let Some(tool) = all.iter().find(|tool| tool.tool == *name) else {
            return Err(Failure::Usage(format!(
                "{server} has no tool {name:?}; `mgp tools list --server {server}` lists them"
            )));
        };
        if tool.declared_effect.is_none() && !typed.remove {
            return Err(Failure::Usage(format!(
                "the annotations of {name:?} do not say that it only reads (`readOnlyHint`) or destroys nothing (`destructiveHint: false`)"
            )));
        }
        if tool.now.is_some() && !typed.remove {
            return Err(Failure::Usage(format!(
                "{name:?} has changed since it was approved; `mgp pending` shows how"
            )));
        }
    }
    Ok(())
}

fn render_tools(wanted: &[&PinnedTool]) -> String {
    let mut table = new_table(&["TOOL", "SAYS THAT IT", "WHAT IT DOES"]);
    for tool in wanted {
        let says = match tool.declared_effect.as_deref() {
            Some("read") => "only reads",
            Some(_) => "destroys nothing",
            None => "nothing",
        };
        let does = tool.description.as_deref().unwrap_or_default();
        table.add_row([
            sanitize_line(&tool.tool),
            says.to_owned(),
            first_line(does, 80),
        ]);
    }
    table.trim_fmt()
}

fn is_confirmed(typed: &ConfirmTools, count: usize) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "there is no terminal to ask on: what is shown above is confirmed with --yes"
                .to_owned(),
        ));
    }
    let tools = pluralize(count, "tool");
    print::confirm(&if typed.remove {
        format!("Take back what was confirmed of {tools}?")
    } else {
        format!("Is that true of {tools}?")
    })
}

fn finish(
    context: &CliContext,
    typed: &ConfirmTools,
    confirmed: &Confirmed,
) -> Result<(), Failure> {
    if context.json {
        return print_line(json!(confirmed));
    }
    let (tools, server) = (&confirmed.tools, sanitize_line(&typed.server));
    print_line(match (tools.is_empty(), typed.remove) {
        (true, false) => format!("nothing of {server} is left to confirm"),
        (true, true) => format!("nothing of {server} was confirmed"),
        (false, false) => format!("confirmed: {}", sanitize_line(&tools.join(", "))),
        (false, true) => format!(
            "not confirmed any more: {}",
            sanitize_line(&tools.join(", "))
        ),
    })
}
