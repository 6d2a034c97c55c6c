//! `mgp tools list`, and the dispatch of other commands about tools.

pub(super) mod arguments;
mod call;
mod confirm;
mod curl;
mod find;
pub(super) mod mcpl;
mod result_pages;
pub(super) mod sets;
pub(super) mod state;
pub(super) mod unavailable_nodes;

use std::collections::{HashMap, HashSet};

use mgp_protocol::mcp::{Method, tools};
use mgp_protocol::mgp::door;
use mgp_protocol::mgp::names::{List, ToolNames};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use self::unavailable_nodes::UnavailableNode;
use crate::cli::args::{ListTools, Tools};
use crate::cli::client::{
    CliContext, ConnectOptions, KernelClient, name_resolution, pages, parse_result,
};
use crate::cli::failure::Failure;
use crate::cli::print::{PlainTable, new_table, print_error, print_line};
use crate::cli::text_format::{first_line, sanitize_line};

/// Answer of `mgp/names/list`.
#[derive(Deserialize)]
struct NameList {
    tools: Vec<ToolNames>,
}

/// The displayed or called part of a tool.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedTool {
    name: String,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    input_schema: Value,
}

pub(super) fn run(context: &CliContext, typed: &Tools) -> Result<(), Failure> {
    match typed {
        Tools::List(typed) => list(context, typed),
        Tools::Call(typed) if typed.curl => curl::show(context, typed),
        Tools::Call(typed) => call::call(context, typed),
        Tools::Find(typed) => find::find(context, typed),
        Tools::Confirm(typed) => confirm::confirm(context, typed),
    }
}

fn list(context: &CliContext, typed: &ListTools) -> Result<(), Failure> {
    let server = typed.server.as_deref();
    let (agent, names, away, hidden) = context.with_kernel(async |client| {
        if let Some(server) = server {
            name_resolution::resolve_server(client, server).await?;
        }
        let agent = match &typed.agent {
            Some(agent) => name_resolution::resolve_agent(client, agent).await?,
            None => None,
        };
        let names = canonical_names(client, server, agent.clone()).await?;
        let away = unavailable_nodes::list_unavailable(client, &names).await?;
        let listed: Vec<String> = names.values().map(|tool| tool.server_id.clone()).collect();
        let hidden = match server {
            None => unavailable_nodes::hidden_shares(client, &listed).await?,
            Some(_) => Vec::new(),
        };
        Ok((agent, names, away, hidden))
    })?;
    let opening = ConnectOptions {
        endpoint: (server.is_some() || agent.is_some()).then(|| door::Open {
            server: typed.server.clone(),
            set: None,
            agent: agent.clone(),
            folder: None,
        }),
        ..ConnectOptions::default()
    };
    let mut tools = context.with_kernel_at(opening, list_all)?;
    // Another node decides by the grants of the cluster, whatever is shown here.
    let is_granted = |tool: &ListedTool| {
        let named = names.get(&tool.name);
        named.is_none_or(|named| named.granted != Some(false))
    };
    tools.retain(|tool| parse_result(tool).is_ok_and(|tool| is_granted(&tool)));
    let unlisted = agent.as_ref().map_or(0, |_| count_unlisted(&tools, &names));
    if context.json {
        return print_line(json!({ "tools": tools, "away": away, "unlisted": unlisted }));
    }
    for line in hidden {
        print_error(sanitize_line(&line));
    }
    match (tools.is_empty(), &agent) {
        (true, None) => {
            print_line("no tools: `mgp servers list` shows which servers are connected")?
        }
        (true, Some(agent)) => print_line(format_args!(
            "{agent} sees no tools: `mgp grants list --agent {agent}` shows what it was granted and denied"
        ))?,
        (false, _) => print_line(tool_table(&tools, &names, &away)?)?,
    }
    if let (1.., Some(agent)) = (unlisted, &agent) {
        let tools = match unlisted {
            1 => "1 more tool".to_owned(),
            unlisted => format!("{unlisted} more tools"),
        };
        print_error(format_args!(
            "{agent} may call {tools} that its list does not show: it finds them with mgp_tools_discover, as `mgp tools find --agent {agent}` does (`exposure` in [discovery])"
        ));
    }
    Ok(())
}

/// The number of tools that an agent may call and that are not in its list.
fn count_unlisted(tools: &[Box<RawValue>], names: &HashMap<String, ToolNames>) -> usize {
    let listed = tools.iter().filter_map(|tool| {
        let tool: ListedTool = parse_result(tool).ok()?;
        Some(tool.name)
    });
    let listed: HashSet<String> = listed.collect();
    let granted = names
        .iter()
        .filter(|(_, named)| named.granted != Some(false));
    granted
        .filter(|(shown, _)| !listed.contains(*shown))
        .count()
}

/// All tools of the connection, as the kernel wrote them.
async fn list_all(client: &mut KernelClient) -> Result<Vec<Box<RawValue>>, Failure> {
    pages::list_all(client, tools::List::METHOD, "tools").await
}

/// The canonical name of each listed tool: the endpoint of one server lists the server's own names.
async fn canonical_names(
    client: &mut KernelClient,
    server: Option<&str>,
    agent: Option<String>,
) -> Result<HashMap<String, ToolNames>, Failure> {
    let answer = client
        .request(List::METHOD, &List { agent }, &mut ())
        .await?;
    let tools = parse_result::<NameList>(&answer)?.tools.into_iter();
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

fn tool_table(
    tools: &[Box<RawValue>],
    names: &HashMap<String, ToolNames>,
    away: &[UnavailableNode],
) -> Result<PlainTable, Failure> {
    let mut table = new_table(&["TOOL", "SERVER", "WHAT IT DOES"]);
    for tool in tools {
        let tool: ListedTool = parse_result(tool)?;
        // The kernel's own tools are in no server's list.
        let (name, server) = match names.get(&tool.name) {
            Some(named) => (
                &named.tool_id,
                unavailable_nodes::server_label(&named.server_id, away),
            ),
            None => (&tool.name, "mgp".to_owned()),
        };
        let what = tool.description.or(tool.title).unwrap_or_default();
        table.add_row([
            sanitize_line(name),
            sanitize_line(&server),
            first_line(&what, 100),
        ]);
    }
    Ok(table)
}
