//! `mgp tools list`.

use std::collections::HashMap;

use mgp_protocol::mcp::{Method, tools};
use mgp_protocol::mgp::door;
use mgp_protocol::mgp::names::{List, Named};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::client::{Client, Opening, read};
use super::context::Context;
use super::failure::Failure;
use super::names;
use super::output::say;
use super::progress::Progress;
use super::table::table;
use super::words::{one_line, plain};

/// Pages asked for before the list is taken to have no end.
const MAX_PAGES: usize = 1000;

/// One page of `tools/list`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    tools: Vec<Box<RawValue>>,
    #[serde(default)]
    next_cursor: Option<String>,
}

/// Answer of `mgp/names/list`.
#[derive(Deserialize)]
struct Names {
    tools: Vec<Named>,
}

/// A tool, as far as it is shown or called.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tool {
    pub(super) name: String,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    pub(super) input_schema: Value,
}

pub(super) fn list(context: &Context, server: Option<&str>) -> Result<(), Failure> {
    let opening = Opening {
        door: server.map(|server| door::Open {
            server: Some(server.to_owned()),
            agent: None,
        }),
        person: false,
    };
    if let Some(server) = server {
        context.with_kernel(Opening::default(), async |client| {
            names::server(client, server).await
        })?;
    }
    let (tools, names) = context.with_kernel(opening, async |client| {
        let tools = all(client).await?;
        Ok((tools, canonical_names(client, server).await?))
    })?;
    if context.json {
        return say(json!({ "tools": tools }));
    }
    match tools.is_empty() {
        true => say("no tools: `mgp servers list` shows which servers are connected"),
        false => say(rows(&tools, &names)?),
    }
}

/// All tools of the connection, as the kernel wrote them.
pub(super) async fn all(client: &mut Client) -> Result<Vec<Box<RawValue>>, Failure> {
    let (mut tools, mut cursor) = (Vec::new(), None);
    let mut progress = Progress::of("listing tools");
    for _ in 0..MAX_PAGES {
        let params = match cursor {
            Some(cursor) => json!({ "cursor": cursor }),
            None => json!({}),
        };
        let answer = client
            .request(tools::List::METHOD, &params, &mut progress)
            .await?;
        let page: Page = read(&answer)?;
        tools.extend(page.tools);
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => return Ok(tools),
        }
    }
    Err(Failure::Other(format!(
        "the list of tools has more than {MAX_PAGES} pages"
    )))
}

/// What each tool of the connection is called everywhere, by the name that is listed there: a server of
/// its own lists its own names.
async fn canonical_names(
    client: &mut Client,
    server: Option<&str>,
) -> Result<HashMap<String, Named>, Failure> {
    let answer = client.request(List::METHOD, &json!({}), &mut ()).await?;
    let tools = read::<Names>(&answer)?.tools.into_iter();
    Ok(match server {
        None => tools.map(|named| (named.shown.clone(), named)).collect(),
        Some(server) => {
            let own = tools.filter_map(|named| {
                let own = named.tool_id.strip_prefix(server)?.strip_prefix(':')?;
                Some((own.to_owned(), named))
            });
            own.collect()
        }
    })
}

fn rows(
    tools: &[Box<RawValue>],
    names: &HashMap<String, Named>,
) -> Result<comfy_table::Table, Failure> {
    let mut table = table(&["TOOL", "SERVER", "WHAT IT DOES"]);
    for tool in tools {
        let tool: Tool = read(tool)?;
        // The kernel's own tools stand in no server's list.
        let (name, server) = match names.get(&tool.name) {
            Some(named) => (&named.tool_id, named.server_id.as_str()),
            None => (&tool.name, "mgp"),
        };
        let what = tool.description.or(tool.title).unwrap_or_default();
        table.add_row([plain(name), plain(server), one_line(&what, 100)]);
    }
    Ok(table)
}
