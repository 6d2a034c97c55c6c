//! `mgp resources list|read`.

use mgp_protocol::mcp::{Method, resources};
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::{Opening, read};
use super::command::reading::{List, Read};
use super::content::{self, Saver};
use super::context::Context;
use super::failure::Failure;
use super::output::say;
use super::pages;
use super::table::table;
use super::words::{one_line, plain};

/// A resource or a template, as far as it is shown.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    #[serde(alias = "uriTemplate")]
    uri: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    mime_type: Option<String>,
}

pub(super) fn list(context: &Context, typed: &List) -> Result<(), Failure> {
    let opening = Opening::at(typed.server.as_deref());
    let (found, templates) = context.with_kernel(opening, async |client| {
        let found = pages::all(client, resources::List::METHOD, "resources").await?;
        let method = resources::templates::List::METHOD;
        let templates = pages::all(client, method, "resourceTemplates").await?;
        Ok((found, templates))
    })?;
    if context.json {
        return say(json!({ "resources": found, "resourceTemplates": templates }));
    }
    if found.is_empty() && templates.is_empty() {
        return say("no resources: no server that is connected offers one");
    }
    let mut table = table(&["RESOURCE", "TYPE", "WHAT IT IS"]);
    for item in found.iter().chain(&templates) {
        let item: Resource = read(item)?;
        let what = item.description.or(item.title).unwrap_or(item.name);
        table.add_row([
            plain(&item.uri),
            plain(&item.mime_type.unwrap_or_default()),
            one_line(&what, 100),
        ]);
    }
    say(table)
}

pub(super) fn show(context: &Context, typed: &Read) -> Result<(), Failure> {
    let params = json!({"uri": typed.uri, "_meta": {"progressToken": 1}});
    let opening = Opening::at(typed.server.as_deref());
    let doing = format!("reading {}", typed.uri);
    let answer = context.ask(opening, resources::Read::METHOD, &params, doing)?;
    if context.json {
        return say(answer.get());
    }
    let result: Value = read(&answer)?;
    let saver = Saver {
        folder: &typed.out,
        tool: &typed.uri,
    };
    for part in result["contents"].as_array().into_iter().flatten() {
        say(content::resource(part, &saver)?)?;
    }
    Ok(())
}
