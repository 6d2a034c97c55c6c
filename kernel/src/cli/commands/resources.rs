//! `mgp resources list|read`.

use mgp_protocol::mcp::{Method, resources};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli::args::{ListArgs, ReadResource, Resources};
use crate::cli::client::{CliContext, ConnectOptions, pages, parse_result};
use crate::cli::failure::Failure;
use crate::cli::print::content::{self, Saver};
use crate::cli::print::{new_table, print_line, print_untrusted};
use crate::cli::text_format::first_line;

/// The displayed part of a resource or a template.
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

pub(super) fn run(context: &CliContext, typed: &Resources) -> Result<(), Failure> {
    match typed {
        Resources::List(typed) => list(context, typed),
        Resources::Read(typed) => show(context, typed),
    }
}

fn list(context: &CliContext, typed: &ListArgs) -> Result<(), Failure> {
    let opening = ConnectOptions::for_server(typed.server.as_deref());
    let (found, templates) = context.with_kernel_at(opening, async |client| {
        let found = pages::list_all(client, resources::List::METHOD, "resources").await?;
        let method = resources::templates::List::METHOD;
        let templates = pages::list_all(client, method, "resourceTemplates").await?;
        Ok((found, templates))
    })?;
    if context.json {
        return print_line(json!({ "resources": found, "resourceTemplates": templates }));
    }
    if found.is_empty() && templates.is_empty() {
        return print_line("no resources: no server that is connected offers one");
    }
    let mut table = new_table(&["RESOURCE", "TYPE", "WHAT IT IS"]);
    for item in found.iter().chain(&templates) {
        let item: Resource = parse_result(item)?;
        let what = item.description.or(item.title).unwrap_or(item.name);
        table.add_row([
            item.uri,
            first_line(&item.mime_type.unwrap_or_default(), 60),
            first_line(&what, 100),
        ]);
    }
    print_line(table)
}

fn show(context: &CliContext, typed: &ReadResource) -> Result<(), Failure> {
    let params = json!({"uri": typed.uri, "_meta": {"progressToken": 1}});
    let doing = format!("reading {}", typed.uri);
    let server = typed.server.as_deref();
    let answer = context.call_at(server, resources::Read::METHOD, &params, doing)?;
    let saver = Saver {
        folder: &typed.out,
        tool: &typed.uri,
    };
    context.print_answer(&answer, |result: Value| {
        for part in result["contents"].as_array().into_iter().flatten() {
            print_untrusted(&content::render_resource(part, &saver)?)?;
        }
        Ok(())
    })
}
