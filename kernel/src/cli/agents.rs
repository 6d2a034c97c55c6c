//! `mgp agents add|list|remove|token`.

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::agents::{Add, Agent, List, Made, Remove, Token};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::client::{Opening, read};
use super::command::{AddAgent, AgentToken};
use super::context::Context;
use super::failure::Failure;
use super::names;
use super::output::{report, say};
use super::paste::Entries;
use super::table::table;
use super::words::plain;

/// Answer of `mgp/agents/list`.
#[derive(Deserialize)]
struct Listed {
    agents: Vec<Agent>,
}

fn ask(context: &Context, method: &str, params: &impl Serialize) -> Result<Box<RawValue>, Failure> {
    context.ask(Opening::default(), method, params, "asking the kernel")
}

/// Refuses the name of nobody.
fn known(context: &Context, name: &str) -> Result<(), Failure> {
    context.with_kernel(Opening::default(), async |client| {
        names::agent(client, name).await.map(drop)
    })
}

pub(super) fn add(context: &Context, add: &AddAgent) -> Result<(), Failure> {
    let params = Add {
        name: add.name.clone(),
        expires_secs: add.expires,
    };
    show_once(context, &ask(context, Add::METHOD, &params)?)
}

pub(super) fn list(context: &Context) -> Result<(), Failure> {
    let answer = ask(context, List::METHOD, &json!({}))?;
    if context.json {
        return say(answer.get());
    }
    match read::<Listed>(&answer)?.agents.as_slice() {
        [] => say("no agent has a token: `mgp agents add NAME` makes one"),
        agents => {
            let mut table = table(&["AGENT", "ADDED", "TOKEN OF", "GOOD UNTIL"]);
            for agent in agents {
                table.add_row([
                    plain(&agent.id),
                    agent.added_at.clone(),
                    agent.token_made_at.clone(),
                    end(agent),
                ]);
            }
            say(table)
        }
    }
}

pub(super) fn remove(context: &Context, name: &str) -> Result<(), Failure> {
    known(context, name)?;
    let params = Remove { name: name.into() };
    let answer = ask(context, Remove::METHOD, &params)?;
    if context.json {
        return say(answer.get());
    }
    let agent: Agent = read(&answer)?;
    say(format!(
        "{} has no token any more, and what it had under way has ended",
        plain(&agent.id)
    ))
}

pub(super) fn token(context: &Context, token: AgentToken) -> Result<(), Failure> {
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
    if context.json {
        return say(answer.get());
    }
    let agent: Agent = read(&answer)?;
    say(format!(
        "{}: token of {}, good until: {}; it is kept as a hash and cannot be shown, `--rotate` makes a new one",
        plain(&agent.id),
        agent.token_made_at,
        end(&agent)
    ))
}

/// The only time a token is printed: alone on stdout, so that it can be taken from there. What to do with it
/// goes to stderr.
fn show_once(context: &Context, answer: &RawValue) -> Result<(), Failure> {
    let made: Made = read(answer)?;
    let entries = Entries::of(context, &made.agent.id, &made.token);
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
