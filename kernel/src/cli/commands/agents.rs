//! `mgp agents add|list|remove|token`.

use std::env;
use std::path::Path;

use mgp_protocol::ids::AgentId;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::agents::{Add, Agent, List, Made, Remove, Token};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::cli::args::{AddAgent, AgentToken, Agents};
use crate::cli::client::{CliContext, names, read};
use crate::cli::failure::Failure;
use crate::cli::print::{report, say, table};
use crate::cli::words::plain;

/// Answer of `mgp/agents/list`.
#[derive(Deserialize)]
pub(super) struct ListedAgents {
    pub(super) agents: Vec<Agent>,
}

pub(super) fn run(context: &CliContext, typed: Agents) -> Result<(), Failure> {
    match typed {
        Agents::Add(typed) => add(context, &typed),
        Agents::List => list(context),
        Agents::Remove(typed) => remove(context, &typed.name),
        Agents::Token(typed) => token(context, typed),
    }
}

fn ask(
    context: &CliContext,
    method: &str,
    params: &impl Serialize,
) -> Result<Box<RawValue>, Failure> {
    context.ask(method, params, "asking the kernel")
}

/// Refuses the name of nobody.
fn known(context: &CliContext, name: &str) -> Result<(), Failure> {
    context.with_kernel(async |client| names::agent(client, name).await.map(drop))
}

fn add(context: &CliContext, add: &AddAgent) -> Result<(), Failure> {
    let params = Add {
        name: add.name.clone(),
        expires_secs: add.expires,
    };
    show_once(context, &ask(context, Add::METHOD, &params)?)
}

fn list(context: &CliContext) -> Result<(), Failure> {
    let answer = ask(context, List::METHOD, &json!({}))?;
    context.show(&answer, |ListedAgents { agents }| {
        if agents.is_empty() {
            return say("no agent has a token: `mgp agents add NAME` makes one");
        }
        let mut table = table(&["AGENT", "ADDED", "TOKEN OF", "GOOD UNTIL"]);
        for agent in agents {
            let end = end(&agent);
            table.add_row([plain(&agent.id), agent.added_at, agent.token_made_at, end]);
        }
        say(table)
    })
}

fn remove(context: &CliContext, name: &str) -> Result<(), Failure> {
    known(context, name)?;
    let params = Remove { name: name.into() };
    let answer = ask(context, Remove::METHOD, &params)?;
    context.show(&answer, |agent: Agent| {
        say(format!(
            "{} has no token any more, and what it had under way has ended",
            plain(&agent.id)
        ))
    })
}

fn token(context: &CliContext, token: AgentToken) -> Result<(), Failure> {
    known(context, &token.name)?;
    let rotate = token.rotate;
    let params = Token {
        name: token.name,
        rotate,
        expires_secs: token.expires,
    };
    let answer = ask(context, Token::METHOD, &params)?;
    if rotate {
        return show_once(context, &answer);
    }
    context.show(&answer, |agent: Agent| {
        say(format!(
            "{}: token of {}, good until: {}; it is kept as a hash and cannot be shown, `--rotate` makes a new one",
            plain(&agent.id),
            agent.token_made_at,
            end(&agent)
        ))
    })
}

/// The only time a token is printed: alone on stdout, so that it can be taken from there. What to do with it
/// goes to stderr.
fn show_once(context: &CliContext, answer: &RawValue) -> Result<(), Failure> {
    let made: Made = read(answer)?;
    let entries = ClientEntries::of(context, &made.agent.id, &made.token);
    if context.json {
        let mut whole: Value = read(answer)?;
        whole["entries"] = json!({ "stdio": entries.stdio, "http": entries.http });
        return say(whole);
    }
    report(format_args!(
        "{}, good until: {}; this is the only time the token is shown:",
        plain(&made.agent.id),
        end(&made.agent)
    ));
    say(&made.token)?;
    report(format_args!(
        "\nfor a client that starts programs (it needs no token):\n{}",
        entries.stdio
    ));
    if let Some(http) = entries.http {
        report(format_args!("\nfor a client that speaks HTTP:\n{http}"));
    }
    Ok(())
}

fn end(agent: &Agent) -> String {
    match (&agent.expires_at, agent.expired) {
        (None, _) => "removed or rotated".into(),
        (Some(at), false) => at.clone(),
        (Some(at), true) => format!("{at} (expired)"),
    }
}

/// What goes into the configuration of a client, so that it finds this kernel.
struct ClientEntries {
    /// For a client that starts programs: it needs no token.
    stdio: Value,
    /// For a client that speaks HTTP; `None` where that door is closed.
    http: Option<Value>,
}

impl ClientEntries {
    /// Those of an agent that shows `token`.
    fn of(context: &CliContext, agent: &str, token: &str) -> Self {
        let status = context.status().ok().flatten();
        let doors = status.map(|status| status.doors).unwrap_or_default();
        let url = doors.iter().find_map(|door| url(door));
        let http = url.map(|url| {
            let headers = json!({"Authorization": format!("Bearer {token}")});
            named(json!({"type": "http", "url": url, "headers": headers}))
        });
        Self {
            stdio: named(stdio(context, Some(agent), None)),
            http,
        }
    }
}

/// The program stands with its whole path: a client started from a desktop may have another PATH.
pub(super) fn stdio(context: &CliContext, agent: Option<&str>, set: Option<&str>) -> Value {
    let program = env::current_exe().map_or_else(|_| "mgp".into(), |exe| text(&exe));
    let mut args = vec!["stdio".to_owned()];
    if let Some(agent) = agent {
        let name = agent.strip_prefix(AgentId::PREFIX).unwrap_or(agent);
        args.extend(["--agent", name].map(str::to_owned));
    }
    if let Some(set) = set {
        args.extend(["--set", set].map(str::to_owned));
    }
    for (option, path) in context.named_paths() {
        args.extend([option.to_owned(), text(path)]);
    }
    json!({ "command": program, "args": args })
}

fn named(entry: Value) -> Value {
    json!({ "mcpServers": { "mgp": entry } })
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The address in the words of a door, as in `http://127.0.0.1:7332/mcp, token in …`.
pub(super) fn url(door: &str) -> Option<&str> {
    let url = door.split(',').next()?;
    url.starts_with("http").then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_from_the_words_of_the_door() {
        let door = "http://127.0.0.1:7332/mcp, token in /data/token";
        assert_eq!(url(door), Some("http://127.0.0.1:7332/mcp"));
        assert_eq!(url("socket /run/mgp.sock"), None);
    }
}
