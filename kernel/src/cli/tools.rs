//! `mgp tools list`.

use mgp_engine::names::shown;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::{Method, tools};
use mgp_protocol::mgp::door;
use mgp_protocol::mgp::servers;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::client::{Client, Opening, read};
use super::command::ListTools;
use super::context::Context;
use super::failure::Failure;
use super::output::say;
use super::pages;
use super::servers::Listed;
use super::table::table;
use super::words::{one_line, plain};

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

pub(super) fn list(context: &Context, typed: &ListTools) -> Result<(), Failure> {
    let server = typed.server.as_deref();
    let servers = match server {
        Some(server) => vec![server.to_owned()],
        None => context.with_kernel(Opening::default(), server_ids)?,
    };
    let opening = Opening {
        door: (typed.server.is_some() || typed.agent.is_some()).then(|| door::Open {
            server: typed.server.clone(),
            agent: typed.agent.clone(),
        }),
        person: false,
    };
    let tools = context.with_kernel(opening, all)?;
    if context.json {
        return say(json!({ "tools": tools }));
    }
    match (tools.is_empty(), &typed.agent) {
        (true, None) => say("no tools: `mgp servers list` shows which servers are connected"),
        (true, Some(agent)) => say(format_args!(
            "{0} sees no tools: `mgp grants --agent {0}` shows what it was granted and denied",
            plain(agent)
        )),
        (false, _) => say(rows(&tools, &servers, server.is_some())?),
    }
}

/// All tools of the connection, as the kernel wrote them.
pub(super) async fn all(client: &mut Client) -> Result<Vec<Box<RawValue>>, Failure> {
    pages::all(client, tools::List::METHOD, "tools").await
}

async fn server_ids(client: &mut Client) -> Result<Vec<String>, Failure> {
    let answer = client
        .request(servers::List::METHOD, &json!({}), &mut ())
        .await?;
    Ok(read::<Listed>(&answer)?
        .servers
        .into_iter()
        .map(|server| server.id)
        .collect())
}

fn rows(
    tools: &[Box<RawValue>],
    servers: &[String],
    own_names: bool,
) -> Result<comfy_table::Table, Failure> {
    let mut table = table(&["TOOL", "SERVER", "WHAT IT DOES"]);
    for tool in tools {
        let tool: Tool = read(tool)?;
        let (name, server) = match (own_names, servers) {
            (true, [server]) => (format!("{server}:{}", tool.name), server.as_str()),
            _ => (
                tool.name.clone(),
                owner(&tool.name, servers).unwrap_or("mgp"),
            ),
        };
        let what = tool.description.or(tool.title).unwrap_or_default();
        table.add_row([plain(&name), plain(server), one_line(&what, 100)]);
    }
    Ok(table)
}

/// The server a shown name belongs to: exactly, or by its beginning when the name was cut.
fn owner<'s>(name: &str, servers: &'s [String]) -> Option<&'s str> {
    let exact = |server: &&String| {
        let own = name
            .strip_prefix(server.as_str())
            .and_then(|rest| rest.strip_prefix("__"));
        own.is_some_and(|own| shown(&ServerId::new(server.as_str()), own) == name)
    };
    let begins = |server: &&String| {
        let beginning = format!("{}__", server.replace('.', "_"));
        name.starts_with(&beginning)
    };
    let cut = || {
        servers
            .iter()
            .filter(begins)
            .max_by_key(|server| server.len())
    };
    servers.iter().find(exact).or_else(cut).map(String::as_str)
}

/// Whether a tool that is shown as `shown_name` is meant by what was typed.
pub(super) fn is_meant(shown_name: &str, typed: &str) -> bool {
    let canonical = |(server, tool)| shown(&ServerId::new(server), tool) == shown_name;
    shown_name == typed
        || typed.split_once(':').is_some_and(canonical)
        || shown_name
            .split_once("__")
            .is_some_and(|(_, bare)| bare == typed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tools_server_is_found_by_its_shown_name() {
        let servers = ["a", "a.b", "files"].map(str::to_owned);
        let of = |server: &str, tool: &str| {
            let name = shown(&ServerId::new(server), tool);
            owner(&name, &servers).map(str::to_owned)
        };
        assert_eq!(of("files", "read").as_deref(), Some("files"));
        assert_eq!(of("a.b", "c").as_deref(), Some("a.b"));
        assert_eq!(of("a", "with space").as_deref(), Some("a"));
        assert_eq!(owner("mgp_tools_discover", &servers), None);
    }

    #[test]
    fn a_tool_is_meant_by_any_of_its_names() {
        for typed in ["demo__time", "demo:time", "time"] {
            assert!(is_meant("demo__time", typed), "{typed}");
        }
        assert!(!is_meant("demo__time", "other:time"));
    }
}
