//! `mgp tools call`.

use std::io::IsTerminal;

use mgp_protocol::mcp::{Method, tools};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::arguments::{self, Typed};
use super::client::{Client, Opening, read};
use super::command::Call;
use super::content::{Saver, render};
use super::context::Context;
use super::failure::Failure;
use super::output::{report, say};
use super::progress::Progress;
use super::tools::{Tool, all, is_meant};

pub(super) fn call(context: &Context, call: &Call) -> Result<(), Failure> {
    let typed = arguments::read(&call.arguments, call.json_args.as_deref())?;
    let opening = Opening {
        door: None,
        person: std::io::stdin().is_terminal(),
    };
    let answer = context.with_kernel(opening, async |client| {
        let arguments = match typed {
            Typed::Object(object) => object,
            Typed::Pairs(pairs) => {
                let schema = schema(client, &call.name).await?;
                arguments::typed(pairs, schema.as_ref())?
            }
        };
        ask(client, &call.name, &arguments).await
    })?;
    show(context, call, &answer)
}

/// The `inputSchema` of the tool that is meant; none when it is not certain which one.
async fn schema(client: &mut Client, name: &str) -> Result<Option<Value>, Failure> {
    let tools: Vec<Tool> = all(client)
        .await?
        .iter()
        .map(|t| read(t))
        .collect::<Result<_, _>>()?;
    let mut meant = tools.into_iter().filter(|tool| is_meant(&tool.name, name));
    Ok(match (meant.next(), meant.next()) {
        (Some(tool), None) => Some(tool.input_schema),
        _ => None,
    })
}

async fn ask(
    client: &mut Client,
    name: &str,
    arguments: &Map<String, Value>,
) -> Result<Box<RawValue>, Failure> {
    let params = json!({"name": name, "arguments": arguments, "_meta": {"progressToken": 1}});
    let mut progress = Progress::of(format!("calling {name}"));
    client
        .request(tools::Call::METHOD, &params, &mut progress)
        .await
}

/// Prints the result; what a tool says about its failure goes to stderr.
fn show(context: &Context, call: &Call, answer: &RawValue) -> Result<(), Failure> {
    let result: Value = read(answer)?;
    let failed = result["isError"] == true;
    let saver = Saver {
        folder: &call.out,
        tool: &call.name,
    };
    match (context.json, failed) {
        (true, _) => say(answer.get())?,
        (false, false) => say(render(&result, &saver)?)?,
        (false, true) => report(render(&result, &saver)?),
    }
    match failed {
        true => Err(Failure::ToolError),
        false => Ok(()),
    }
}
