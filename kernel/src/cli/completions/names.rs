//! Completion of names that the running kernel knows.

use std::time::Duration;

use mgp_clients::Client;
use mgp_engine::tool_names::visible_name;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::{Method, prompts, resources, tools};
use mgp_protocol::mgp::kernel::nodes::Cluster;
use mgp_protocol::mgp::names::{Read, ToolNames};
use mgp_protocol::mgp::{agents, approvals, kernel, names, servers};
use mgp_store::secrets::Namespace;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cli::args::Options;
use crate::cli::client::{self, CliContext, ConnectOptions, KernelClient, pages, parse_result};
use crate::cli::failure::Failure;
use crate::cli::text_format::sanitize_line;

/// Limit for the kernel's answer: the user is waiting for the completion.
const KERNEL_TIMEOUT: Duration = Duration::from_millis(200);
/// Most suggestions: shells ask before they show a hundred.
pub(super) const SUGGESTIONS_MAX: usize = 500;
/// Longest suggestion, in bytes.
const SUGGESTION_BYTES_MAX: usize = 256;

/// The kind of name that a word has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameKind {
    Servers,
    Tools,
    /// Servers and tools.
    ServersAndTools,
    /// `KEY=` of the preceding tool.
    Arguments,
    Agents,
    /// All except agent.local, which has no token.
    AgentsWithToken,
    Nodes,
    /// `cluster`, or `node:NAME`.
    Audiences,
    PendingEntries,
    Prompts,
    Resources,
    Secrets,
    Clients,
}

/// The kinds of arguments of commands; `*` is every command.
pub(super) const ARGUMENT_KINDS: &[(&str, &str, NameKind)] = &[
    ("servers remove", "id", NameKind::Servers),
    ("servers start", "id", NameKind::Servers),
    ("servers stop", "id", NameKind::Servers),
    ("servers restart", "id", NameKind::Servers),
    ("servers update", "id", NameKind::Servers),
    ("servers show", "id", NameKind::Servers),
    ("servers logs", "id", NameKind::Servers),
    ("servers pins", "id", NameKind::Servers),
    ("servers scan", "id", NameKind::Servers),
    ("*", "server", NameKind::Servers),
    ("tools call", "name", NameKind::Tools),
    ("tools call", "arguments", NameKind::Arguments),
    ("audit find", "tool", NameKind::Tools),
    ("check", "tools", NameKind::ServersAndTools),
    ("*", "place", NameKind::ServersAndTools),
    ("*", "agent", NameKind::Agents),
    ("agents remove", "name", NameKind::AgentsWithToken),
    ("agents token", "name", NameKind::AgentsWithToken),
    ("*", "node", NameKind::Nodes),
    ("cluster recover", "without", NameKind::Nodes),
    ("shares add", "to", NameKind::Audiences),
    ("shares remove", "to", NameKind::Audiences),
    ("approve", "id", NameKind::PendingEntries),
    ("answer", "id", NameKind::PendingEntries),
    ("deny", "id", NameKind::PendingEntries),
    ("prompts get", "name", NameKind::Prompts),
    ("resources read", "uri", NameKind::Resources),
    ("secrets set", "name", NameKind::Secrets),
    ("secrets remove", "name", NameKind::Secrets),
    ("connect", "clients", NameKind::Clients),
    ("import", "from", NameKind::Clients),
    ("export", "to", NameKind::Clients),
    ("export", "only", NameKind::Servers),
];

impl NameKind {
    pub(super) fn for_argument(path: &str, argument: &str) -> Option<Self> {
        let fits = |at: &str| at == "*" || at == path;
        let mut kinds = ARGUMENT_KINDS.iter();
        let found = kinds.find(|(at, of, _)| fits(at) && *of == argument);
        found.map(|(_, _, kind)| *kind)
    }
}

/// The names of a kind; none if they are not available in time.
pub(super) fn list_names(
    kind: NameKind,
    options: &Options,
    given: &[String],
    typed: &str,
) -> Vec<String> {
    let options = Options {
        config: options.config.clone(),
        socket: options.socket.clone(),
        data_dir: options.data_dir.clone(),
        ..*options
    };
    match kind {
        NameKind::Clients => Client::ALL
            .map(|client| client.cli_name().to_owned())
            .into(),
        NameKind::Secrets => list_secrets(options).unwrap_or_default(),
        NameKind::Servers
        | NameKind::Tools
        | NameKind::ServersAndTools
        | NameKind::Arguments
        | NameKind::Agents
        | NameKind::AgentsWithToken
        | NameKind::Nodes
        | NameKind::Audiences
        | NameKind::PendingEntries
        | NameKind::Prompts
        | NameKind::Resources => query_kernel(kind, options, given, typed).unwrap_or_default(),
    }
}

/// Whether a name has no control characters, so that a shell can show it.
pub(super) fn is_printable(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= SUGGESTION_BYTES_MAX
        && !name.chars().any(char::is_control)
        && sanitize_line(name) == name
}

fn list_secrets(options: Options) -> Option<Vec<String>> {
    let store = CliContext::new(options).ok()?.secret_store().ok()?;
    let kept = store.list(Namespace::Named).ok()?;
    Some(kept.into_iter().map(|kept| kept.name).collect())
}

fn query_kernel(
    kind: NameKind,
    options: Options,
    given: &[String],
    typed: &str,
) -> Result<Vec<String>, Failure> {
    let context = CliContext::new(options)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let socket = context.running_socket()?;
    let query = async {
        let open = ConnectOptions::default();
        let mut client = KernelClient::connect(&socket, || None, open).await?;
        list_kind(&mut client, kind, given, typed).await
    };
    let names = runtime.block_on(async { tokio::time::timeout(KERNEL_TIMEOUT, query).await });
    runtime.shutdown_background();
    names.map_err(|_| Failure::ConnectionClosed)?
}

async fn list_kind(
    client: &mut KernelClient,
    kind: NameKind,
    given: &[String],
    typed: &str,
) -> Result<Vec<String>, Failure> {
    match kind {
        NameKind::Servers => list_servers(client).await,
        NameKind::Tools => list_tools(client).await,
        NameKind::ServersAndTools => {
            let mut places = list_servers(client).await?;
            places.extend(list_tools(client).await?);
            Ok(places)
        }
        NameKind::Arguments => list_arguments(client, given, typed).await,
        NameKind::Agents => {
            let mut all = list_agents(client, typed).await?;
            all.push("agent.local".to_owned());
            Ok(all)
        }
        NameKind::AgentsWithToken => list_agents(client, typed).await,
        NameKind::Nodes => list_nodes(client).await,
        NameKind::Audiences => {
            let nodes = list_nodes(client).await?.into_iter();
            let nodes = nodes.map(|node| format!("node:{node}"));
            Ok(std::iter::once("cluster".to_owned()).chain(nodes).collect())
        }
        NameKind::PendingEntries => {
            let waiting: approvals::PendingList = call(client, approvals::List::METHOD).await?;
            let nodes = waiting.nodes.into_iter().map(|node| node.words);
            Ok(waiting
                .pending
                .into_iter()
                .map(|entry| entry.id)
                .chain(nodes)
                .collect())
        }
        NameKind::Prompts => list_mcp_items(client, prompts::List::METHOD, "prompts", "name").await,
        NameKind::Resources => {
            list_mcp_items(client, resources::List::METHOD, "resources", "uri").await
        }
        NameKind::Secrets | NameKind::Clients => Ok(Vec::new()),
    }
}

async fn call<T: DeserializeOwned>(client: &mut KernelClient, method: &str) -> Result<T, Failure> {
    parse_result(&client.request(method, &json!({}), &mut ()).await?)
}

async fn list_servers(client: &mut KernelClient) -> Result<Vec<String>, Failure> {
    #[derive(Deserialize)]
    struct ServerList {
        servers: Vec<servers::Server>,
    }
    let there: ServerList = call(client, servers::List::METHOD).await?;
    Ok(there.servers.into_iter().map(|server| server.id).collect())
}

async fn list_tools(client: &mut KernelClient) -> Result<Vec<String>, Failure> {
    #[derive(Deserialize)]
    struct ToolList {
        tools: Vec<ToolNames>,
    }
    let there: ToolList = call(client, names::List::METHOD).await?;
    Ok(there.tools.into_iter().map(|tool| tool.tool_id).collect())
}

/// With or without `agent.`, as typed.
async fn list_agents(client: &mut KernelClient, typed: &str) -> Result<Vec<String>, Failure> {
    #[derive(Deserialize)]
    struct AgentList {
        agents: Vec<agents::Agent>,
    }
    let there: AgentList = call(client, agents::List::METHOD).await?;
    let whole = typed.starts_with("agent.");
    let named = there.agents.into_iter().map(|agent| {
        if whole {
            agent.id
        } else {
            agent.id.trim_start_matches("agent.").to_owned()
        }
    });
    Ok(named.collect())
}

async fn list_nodes(client: &mut KernelClient) -> Result<Vec<String>, Failure> {
    let cluster: Cluster = call(client, kernel::nodes::List::METHOD).await?;
    Ok(cluster.nodes.into_iter().map(|node| node.name).collect())
}

async fn list_mcp_items(
    client: &mut KernelClient,
    method: &str,
    member: &str,
    name: &str,
) -> Result<Vec<String>, Failure> {
    let listed = pages::list_all(client, method, member).await?;
    let named = listed.iter().filter_map(|item| {
        let item: Value = parse_result(item).ok()?;
        Some(item[name].as_str()?.to_owned())
    });
    Ok(named.collect())
}

/// `KEY=` for each argument of the tool without a value, or the possible values after it.
async fn list_arguments(
    client: &mut KernelClient,
    given: &[String],
    typed: &str,
) -> Result<Vec<String>, Failure> {
    let asked = Read {
        tool: given.first().cloned(),
        ..Read::default()
    };
    let meant = client::name_resolution::resolve_existing(client, &asked).await?;
    let (Some(server), Some(tool)) = (meant.server_id, meant.tool_name) else {
        return Ok(Vec::new());
    };
    let name = visible_name(&ServerId::new(server), &tool);
    let listed = pages::list_all(client, tools::List::METHOD, "tools").await?;
    let mut listed = listed
        .iter()
        .filter_map(|tool| parse_result::<Value>(tool).ok());
    let tool = listed.find(|tool| tool["name"] == *name);
    let schema = tool.map(|tool| tool["inputSchema"]["properties"].clone());
    let schema = schema.unwrap_or_default();
    let keys = schema.as_object().into_iter().flatten();
    if let Some((key, _)) = typed.split_once('=') {
        let of_key = keys.filter(|(name, _)| *name == key);
        let values = of_key.flat_map(|(_, schema)| list_values(schema));
        return Ok(values.map(|value| format!("{key}={value}")).collect());
    }
    let begins = |word: &String, key: &str| word.split_once('=').is_some_and(|(k, _)| k == key);
    let open = keys.filter(|(key, _)| !given.iter().any(|word| begins(word, key)));
    Ok(open.map(|(key, _)| format!("{key}=")).collect())
}

fn list_values(schema: &Value) -> Vec<String> {
    match (&schema["enum"], schema["type"].as_str()) {
        (Value::Array(values), _) => {
            let texts = values.iter().filter_map(Value::as_str);
            texts.map(str::to_owned).collect()
        }
        (_, Some("boolean")) => vec!["true".to_owned(), "false".to_owned()],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unprintable_names_are_not_offered() {
        for good in ["it:echo", "$(touch x)", "`x`", "a'b\"c", "über"] {
            assert!(is_printable(good), "{good}");
        }
        for bad in ["", "a\nb", "a\tb", "\u{1b}[2J", "a\u{202e}b", "a\u{0}b"] {
            assert!(!is_printable(bad), "{bad:?}");
        }
        assert!(!is_printable(&"x".repeat(SUGGESTION_BYTES_MAX + 1)));
    }

    #[test]
    fn values_of_an_argument_come_from_its_schema() {
        assert_eq!(list_values(&json!({"enum": ["a", 1, "b"]})), ["a", "b"]);
        assert_eq!(list_values(&json!({"type": "boolean"})), ["true", "false"]);
        assert!(list_values(&json!({"type": "string"})).is_empty());
    }
}
