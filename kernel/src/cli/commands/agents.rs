//! `mgp agents add|list|remove|token`.

use std::env;
use std::path::Path;

use mgp_protocol::ids::AgentId;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::agents::{Add, Agent, IssuedToken, List, Remove, Token};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::cli::args::{AddAgent, AgentToken, Agents};
use crate::cli::client::{CliContext, name_resolution, parse_result};
use crate::cli::failure::Failure;
use crate::cli::print::{new_table, print_error, print_line};
use crate::cli::text_format::sanitize_line;

/// Answer of `mgp/agents/list`.
#[derive(Deserialize)]
pub(super) struct AgentList {
    pub(super) agents: Vec<Agent>,
}

/// The id of an agent whether or not a kernel runs; a running kernel reports an unknown one with a suggestion.
pub(super) fn resolve_possible_agent(
    context: &CliContext,
    typed: &str,
    runs: bool,
) -> Result<AgentId, Failure> {
    let known = if runs {
        context.with_kernel(async |client| name_resolution::resolve_agent(client, typed).await)?
    } else {
        None
    };
    let typed = known.as_deref().unwrap_or(typed);
    // The unnamed agent may have something of its own, too.
    if [typed, typed.trim_start_matches(AgentId::PREFIX)].contains(&"local")
        || typed == AgentId::LOCAL
    {
        Ok(AgentId::new(AgentId::LOCAL))
    } else {
        AgentId::parse_or_from_subject(typed).map_err(|e| Failure::Usage(e.to_string()))
    }
}

pub(super) fn run(context: &CliContext, typed: Agents) -> Result<(), Failure> {
    match typed {
        Agents::Add(typed) => add(context, &typed),
        Agents::List => list(context),
        Agents::Remove(typed) => remove(context, &typed.name),
        Agents::Token(typed) => show_token(context, typed),
    }
}

fn call(
    context: &CliContext,
    method: &str,
    params: &impl Serialize,
) -> Result<Box<RawValue>, Failure> {
    context.call(method, params, "asking the kernel")
}

/// Rejects unknown agents. One of another authority may have a name that is none of a node's agent.
fn check_agent_exists(context: &CliContext, name: &str) -> Result<(), Failure> {
    if AgentId::parse(name).is_err() {
        return Ok(());
    }
    context.with_kernel(async |client| name_resolution::resolve_agent(client, name).await.map(drop))
}

fn add(context: &CliContext, add: &AddAgent) -> Result<(), Failure> {
    let params = Add {
        name: add.name.clone(),
        expires_secs: add.expires,
    };
    show_once(context, &call(context, Add::METHOD, &params)?)
}

fn list(context: &CliContext) -> Result<(), Failure> {
    let answer = call(context, List::METHOD, &json!({}))?;
    context.print_answer(&answer, |AgentList { agents }| {
        if agents.is_empty() {
            return print_line("no agent has a token: `mgp agents add NAME` makes one");
        }
        let mut table = new_table(&["AGENT", "ADDED", "TOKEN OF", "GOOD UNTIL", "GROUPS"]);
        for agent in agents {
            let end = render_expiry(&agent);
            table.add_row([
                sanitize_line(&agent.id),
                agent.added_at,
                agent.token_made_at,
                end,
                sanitize_line(&agent.groups.join(", ")),
            ]);
        }
        print_line(table)
    })
}

fn remove(context: &CliContext, name: &str) -> Result<(), Failure> {
    check_agent_exists(context, name)?;
    let params = Remove { name: name.into() };
    let answer = call(context, Remove::METHOD, &params)?;
    context.print_answer(&answer, |agent: Agent| {
        print_line(format!(
            "{} has no token any more, and what it had under way has ended",
            sanitize_line(&agent.id)
        ))
    })
}

fn show_token(context: &CliContext, token: AgentToken) -> Result<(), Failure> {
    check_agent_exists(context, &token.name)?;
    let rotate = token.rotate;
    let params = Token {
        name: token.name,
        rotate,
        expires_secs: token.expires,
    };
    let answer = call(context, Token::METHOD, &params)?;
    if rotate {
        return show_once(context, &answer);
    }
    context.print_answer(&answer, |agent: Agent| {
        print_line(format!(
            "{}: token of {}, good until: {}; it is kept as a hash and cannot be shown, `--rotate` makes a new one",
            sanitize_line(&agent.id),
            agent.token_made_at,
            render_expiry(&agent)
        ))
    })
}

/// The only time a token is printed: alone on stdout, so that scripts can read it. Instructions are printed on
/// stderr.
fn show_once(context: &CliContext, answer: &RawValue) -> Result<(), Failure> {
    let issued: IssuedToken = parse_result(answer)?;
    let entries = ClientEntries::new(context, &issued.agent.id, &issued.token);
    if context.json {
        let mut whole: Value = parse_result(answer)?;
        whole["entries"] = json!({ "stdio": entries.stdio, "http": entries.http });
        return print_line(whole);
    }
    print_error(format_args!(
        "{}, good until: {}; this is the only time the token is shown:",
        sanitize_line(&issued.agent.id),
        render_expiry(&issued.agent)
    ));
    print_line(&issued.token)?;
    print_error(format_args!(
        "\nfor a client that starts programs (it needs no token):\n{}",
        entries.stdio
    ));
    if let Some(http) = entries.http {
        print_error(format_args!("\nfor a client that speaks HTTP:\n{http}"));
    }
    Ok(())
}

fn render_expiry(agent: &Agent) -> String {
    match (&agent.expires_at, agent.expired) {
        (None, _) => "removed or rotated".into(),
        (Some(at), false) => at.clone(),
        (Some(at), true) => format!("{at} (expired)"),
    }
}

/// Entries for the configuration of a client, so that it finds this kernel.
struct ClientEntries {
    /// For a client that starts programs: it needs no token.
    stdio: Value,
    /// For a client that uses HTTP; `None` if HTTP is disabled.
    http: Option<Value>,
}

impl ClientEntries {
    /// The entries of an agent with `token`.
    fn new(context: &CliContext, agent: &str, token: &str) -> Self {
        let status = context.status().ok().flatten();
        let doors = status.map(|status| status.doors).unwrap_or_default();
        let url = doors.iter().find_map(|door| endpoint_url(door));
        let http = url.map(|url| {
            let headers = json!({"Authorization": format!("Bearer {token}")});
            named_entry(json!({"type": "http", "url": url, "headers": headers}))
        });
        Self {
            stdio: named_entry(stdio_entry(context, Some(agent), None)),
            http,
        }
    }
}

/// The program has an absolute path: a client started from a desktop may have another PATH.
pub(super) fn stdio_entry(context: &CliContext, agent: Option<&str>, set: Option<&str>) -> Value {
    let program = env::current_exe().map_or_else(|_| "mgp".into(), |exe| path_text(&exe));
    let mut args = vec!["stdio".to_owned()];
    if let Some(agent) = agent {
        let name = agent.strip_prefix(AgentId::PREFIX).unwrap_or(agent);
        args.extend(["--agent", name].map(str::to_owned));
    }
    if let Some(set) = set {
        args.extend(["--set", set].map(str::to_owned));
    }
    for (option, path) in context.named_path_options() {
        args.extend([option.to_owned(), path_text(path)]);
    }
    json!({ "command": program, "args": args })
}

fn named_entry(entry: Value) -> Value {
    json!({ "mcpServers": { "mgp": entry } })
}

fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The URL in the description of an endpoint, such as `http://127.0.0.1:7332/mcp, token in …`.
pub(super) fn endpoint_url(door: &str) -> Option<&str> {
    let url = door.split(',').next()?;
    url.starts_with("http").then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_is_parsed_from_the_endpoint_description() {
        let door = "http://127.0.0.1:7332/mcp, token in /data/token";
        assert_eq!(endpoint_url(door), Some("http://127.0.0.1:7332/mcp"));
        assert_eq!(endpoint_url("socket /run/mgp.sock"), None);
    }
}
