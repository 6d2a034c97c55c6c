//! `mgp servers pins`.

use mgp_engine::policy::pins::{INSTRUCTIONS_NAME, PROMPT_PREFIX};
use mgp_protocol::mgp::servers::pins::PinnedTool;
use serde_json::json;

use crate::cli::client::pins::{Pinned, list_all};
use crate::cli::client::{CliContext, name_resolution};
use crate::cli::failure::Failure;
use crate::cli::print::{new_table, print_line};
use crate::cli::text_format::{first_line, sanitize_line};

pub(super) fn list(context: &CliContext, server: &str) -> Result<(), Failure> {
    let (tools, skills) = context.with_kernel(async |client| {
        name_resolution::resolve_server(client, server).await?;
        let tools = list_all(client, server, Pinned::Tools).await?;
        Ok((tools, list_all(client, server, Pinned::Skills).await?))
    })?;
    if context.json {
        return print_line(json!({ "tools": tools, "skills": skills }));
    }
    if tools.is_empty() && skills.is_empty() {
        let server = sanitize_line(server);
        return print_line(format_args!("nothing of {server} is pinned"));
    }
    let mut table = new_table(&["PINNED", "NAME", "STATE", "HASH", "APPROVED BY"]);
    for (kind, pins) in [("tool", &tools), ("skill", &skills)] {
        for pin in pins {
            table.add_row([
                describe_kind(kind, &pin.tool).to_owned(),
                first_line(&pin.tool, 200),
                describe_state(pin),
                sanitize_line(&pin.pin),
                pin.approved_by
                    .as_deref()
                    .map_or_else(String::new, sanitize_line),
            ]);
        }
    }
    print_line(table)
}

/// Prompts and instructions are pinned beside tools, under names that tools do not have.
fn describe_kind(listed: &'static str, name: &str) -> &'static str {
    match name {
        INSTRUCTIONS_NAME => "instructions",
        _ if name.starts_with(PROMPT_PREFIX) => "prompt",
        _ => listed,
    }
}

fn describe_state(pin: &PinnedTool) -> String {
    match (pin.denied, &pin.now) {
        (true, _) => "denied".to_owned(),
        (false, Some(_)) => "changed".to_owned(),
        (false, None) => "as approved".to_owned(),
    }
}
