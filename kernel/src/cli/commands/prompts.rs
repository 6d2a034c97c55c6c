//! `mgp prompts list|get`.

use mgp_protocol::mcp::{Method, prompts};
use serde::Deserialize;
use serde_json::{Value, json};

use super::tools::arguments;
use crate::cli::args::{GetPrompt, Listing, Prompts};
use crate::cli::client::{CliContext, ConnectOptions, pages, read};
use crate::cli::failure::Failure;
use crate::cli::print::content::{self, Saver};
use crate::cli::print::{say, table};
use crate::cli::words::{indented, one_line, plain};

/// A prompt, as far as it is shown.
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

/// What a prompt asks for.
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

fn list(context: &CliContext, typed: &Listing) -> Result<(), Failure> {
    let opening = ConnectOptions::at(typed.server.as_deref());
    let found = context.with_kernel_at(opening, async |client| {
        pages::all(client, prompts::List::METHOD, "prompts").await
    })?;
    if context.json {
        return say(json!({ "prompts": found }));
    }
    if found.is_empty() {
        return say("no prompts: no server that is connected offers one");
    }
    let mut table = table(&["PROMPT", "ASKS FOR", "WHAT IT IS"]);
    for prompt in &found {
        let prompt: Prompt = read(prompt)?;
        let asks: Vec<_> = prompt.arguments.iter().map(asked).collect();
        let what = prompt.description.or(prompt.title).unwrap_or_default();
        table.add_row([plain(&prompt.name), asks.join(" "), one_line(&what, 100)]);
    }
    say(table)
}

/// As it is typed; what may be left out stands in brackets.
fn asked(argument: &Argument) -> String {
    let typed = format!("{}=…", plain(&argument.name));
    match argument.required {
        true => typed,
        false => format!("[{typed}]"),
    }
}

fn get(context: &CliContext, typed: &GetPrompt) -> Result<(), Failure> {
    let arguments = arguments::texts(&typed.arguments)?;
    let params = json!({"name": typed.name, "arguments": arguments, "_meta": {"progressToken": 1}});
    let doing = format!("asking for {}", typed.name);
    let server = typed.server.as_deref();
    let answer = context.ask_at(server, prompts::Get::METHOD, &params, doing)?;
    let saver = Saver {
        folder: &typed.out,
        tool: &typed.name,
    };
    context.show(&answer, |result: Value| {
        for message in result["messages"].as_array().into_iter().flatten() {
            let role = message["role"].as_str().unwrap_or("?");
            let said = content::one(&message["content"], &saver)?;
            let said = indented(&said, "  | ");
            say(format_args!("{}: {said}", one_line(role, 20)))?;
        }
        Ok(())
    })
}
