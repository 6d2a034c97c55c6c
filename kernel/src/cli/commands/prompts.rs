//! `mgp prompts list|get`.

use mgp_protocol::mcp::{Method, prompts};
use serde::Deserialize;
use serde_json::{Value, json};

use super::tools::arguments;
use crate::cli::args::{GetPrompt, ListArgs, Prompts};
use crate::cli::client::{CliContext, ConnectOptions, pages, parse_result};
use crate::cli::failure::Failure;
use crate::cli::print::content::{self, Saver};
use crate::cli::print::{new_table, print_line};
use crate::cli::text_format::{first_line, indent_continuations, sanitize_line};

/// The displayed part of a prompt.
#[derive(Deserialize)]
struct Prompt {
    name: String,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    arguments: Vec<Argument>,
}

/// An argument of a prompt.
#[derive(Deserialize)]
struct Argument {
    name: String,
    #[serde(default)]
    required: bool,
}

pub(super) fn run(context: &CliContext, typed: &Prompts) -> Result<(), Failure> {
    match typed {
        Prompts::List(typed) => list(context, typed),
        Prompts::Get(typed) => get(context, typed),
    }
}

fn list(context: &CliContext, typed: &ListArgs) -> Result<(), Failure> {
    let opening = ConnectOptions::for_server(typed.server.as_deref());
    let found = context.with_kernel_at(opening, async |client| {
        pages::list_all(client, prompts::List::METHOD, "prompts").await
    })?;
    if context.json {
        return print_line(json!({ "prompts": found }));
    }
    if found.is_empty() {
        return print_line("no prompts: no server that is connected offers one");
    }
    let mut table = new_table(&["PROMPT", "ASKS FOR", "WHAT IT IS"]);
    for prompt in &found {
        let prompt: Prompt = parse_result(prompt)?;
        let asks: Vec<_> = prompt.arguments.iter().map(render_argument).collect();
        let what = prompt.description.or(prompt.title).unwrap_or_default();
        table.add_row([
            sanitize_line(&prompt.name),
            asks.join(" "),
            first_line(&what, 100),
        ]);
    }
    print_line(table)
}

/// As typed; optional arguments are in brackets.
fn render_argument(argument: &Argument) -> String {
    let typed = format!("{}=…", sanitize_line(&argument.name));
    if argument.required {
        typed
    } else {
        format!("[{typed}]")
    }
}

fn get(context: &CliContext, typed: &GetPrompt) -> Result<(), Failure> {
    let arguments = arguments::parse_text_pairs(&typed.arguments)?;
    let params = json!({"name": typed.name, "arguments": arguments, "_meta": {"progressToken": 1}});
    let doing = format!("asking for {}", typed.name);
    let server = typed.server.as_deref();
    let answer = context.call_at(server, prompts::Get::METHOD, &params, doing)?;
    let saver = Saver {
        folder: &typed.out,
        tool: &typed.name,
    };
    context.print_answer(&answer, |result: Value| {
        for message in result["messages"].as_array().into_iter().flatten() {
            let role = message["role"].as_str().unwrap_or("?");
            let rendered = content::render_block(&message["content"], &saver)?;
            let rendered = indent_continuations(&rendered, "  | ");
            print_line(format_args!("{}: {rendered}", first_line(role, 20)))?;
        }
        Ok(())
    })
}
