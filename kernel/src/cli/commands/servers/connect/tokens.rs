//! Tokens created by connecting, and their revocation.

use std::collections::BTreeMap;

use mgp_clients::{Client, command_words, entry_url, is_kernel_entry};
use mgp_protocol::ids::AgentId;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::agents::{Add, Agent, IssuedToken, List, Remove, Token};
use serde_json::{Value, json};

use super::client_file::{ClientFileEdit, ConnectToken};
use crate::cli::args::Connect;
use crate::cli::client::{CliContext, parse_result};
use crate::cli::commands::agents::AgentList;
use crate::cli::failure::Failure;
use crate::cli::print::print_line;
use crate::cli::text_format::sanitize_line;

const DOING: &str = "asking the kernel";

/// Each client has its own agent and token; a previous token becomes invalid.
pub(super) fn make(
    context: &CliContext,
    typed: &Connect,
    file: &ClientFileEdit,
) -> Result<(String, ConnectToken), Failure> {
    let name = typed.agent.as_deref().unwrap_or(file.client.cli_name());
    let name = name.strip_prefix(AgentId::PREFIX).unwrap_or(name);
    let id = format!("{}{name}", AgentId::PREFIX);
    let known = listed(context)?.remove(&id);
    let made = match known {
        Some(_) => context.call(Token::METHOD, &json!({"name": name, "rotate": true}), DOING)?,
        None => context.call(Add::METHOD, &json!({"name": name}), DOING)?,
    };
    let IssuedToken { agent, token } = parse_result(&made)?;
    // The client's previous agent still has the token created by connecting.
    let is_own = |known: &Agent| {
        let tokens = file.tokens().unwrap_or_default();
        let mut own = tokens
            .iter()
            .filter(|own| own.agent == id && own.is_new_agent);
        own.any(|own| own.made_at == known.token_made_at)
    };
    let is_new_agent = known.as_ref().is_none_or(is_own);
    let made = ConnectToken {
        agent: id,
        made_at: agent.token_made_at,
        is_new_agent,
    };
    Ok((token, made))
}

fn listed(context: &CliContext) -> Result<BTreeMap<String, Agent>, Failure> {
    let answer = context.call(List::METHOD, &json!({}), DOING)?;
    let AgentList { agents } = parse_result(&answer)?;
    Ok(agents.into_iter().map(|it| (it.id.clone(), it)).collect())
}

/// What happens to a token on undo.
enum TokenEnd {
    /// The agent is removed, too: connecting created it.
    Removed,
    /// Only the token is revoked: the agent existed before.
    Revoked,
    /// The token is used by others.
    Stays(String),
}

/// The revocations of an undo.
pub(super) struct Revocations(Vec<(String, TokenEnd)>);

impl Revocations {
    pub(super) fn plan(
        context: &CliContext,
        client: Client,
        tokens: Vec<ConnectToken>,
    ) -> Result<Self, Failure> {
        if tokens.is_empty() {
            return Ok(Self(Vec::new()));
        }
        let agents = match listed(context) {
            Ok(agents) => Some(agents),
            Err(Failure::NotRunning(_)) => None,
            Err(other) => return Err(other),
        };
        let mut ends = Vec::new();
        for token in tokens {
            let known = agents.as_ref().map(|agents| agents.get(&token.agent));
            let end = match known {
                None => TokenEnd::Stays(format!(
                    "no kernel is running: `mgp up --detach && mgp agents remove {}` takes it back",
                    token.agent
                )),
                // The agent was removed or has another token: this one is already invalid.
                Some(None) => continue,
                Some(Some(agent)) if agent.token_made_at != token.made_at => continue,
                Some(Some(_)) => match other_users(context, client, &token.agent) {
                    users if !users.is_empty() => {
                        TokenEnd::Stays(format!("{} uses it, too", users.join(" and ")))
                    }
                    _ if token.is_new_agent => TokenEnd::Removed,
                    _ => TokenEnd::Revoked,
                },
            };
            ends.push((token.agent, end));
        }
        Ok(Self(ends))
    }

    pub(super) fn tell(&self) -> Result<(), Failure> {
        for (agent, end) in &self.0 {
            print_line(sanitize_line(&match end {
                TokenEnd::Removed => {
                    format!("removes {agent} and its token, which connecting made")
                }
                TokenEnd::Revoked => format!(
                    "revokes the token of {agent} that connecting made; the agent stays, and \
                     `mgp agents token --rotate {agent}` makes another one"
                ),
                TokenEnd::Stays(why) => format!("{agent} and its token stay: {why}"),
            }))?;
        }
        Ok(())
    }

    pub(super) fn apply(&self, context: &CliContext) -> Result<(), Failure> {
        for (agent, end) in &self.0 {
            let name = agent.strip_prefix(AgentId::PREFIX).unwrap_or(agent);
            match end {
                TokenEnd::Removed => {
                    context.call(Remove::METHOD, &json!({ "name": name }), DOING)?
                }
                // The new token is not shown.
                TokenEnd::Revoked => {
                    context.call(Token::METHOD, &json!({"name": name, "rotate": true}), DOING)?
                }
                TokenEnd::Stays(_) => continue,
            };
        }
        Ok(())
    }

    pub(super) fn to_json(&self) -> Value {
        let end = |(agent, end): &(String, TokenEnd)| match end {
            TokenEnd::Removed => json!({"agent": agent, "end": "agent_removed"}),
            TokenEnd::Revoked => json!({"agent": agent, "end": "revoked"}),
            TokenEnd::Stays(why) => json!({"agent": agent, "end": "stays", "why": why}),
        };
        self.0.iter().map(end).collect()
    }
}

/// The other clients that use this agent.
fn other_users(context: &CliContext, client: Client, agent: &str) -> Vec<&'static str> {
    let name = agent.strip_prefix(AgentId::PREFIX).unwrap_or(agent);
    let names_it = |entry: &Value| {
        let words = command_words(entry);
        let mut pairs = words.windows(2);
        let is_agent = |pair: &[&str]| pair == ["--agent", name] || pair == ["--agent", agent];
        entry_url(entry).is_none() && is_kernel_entry(entry, "") && pairs.any(is_agent)
    };
    let uses = |other: &Client| {
        let Ok(file) = ClientFileEdit::open_user_file(context, *other) else {
            return false;
        };
        let document = file.document().unwrap_or_default();
        let table = other.table_path(&document);
        let table = table
            .iter()
            .try_fold(&document, |value, key| value.get(key));
        let entries = table.map(Client::entries).unwrap_or_default();
        let mut entries = entries.into_iter();
        let tokens = file.tokens().unwrap_or_default();
        tokens.iter().any(|token| token.agent == agent) || entries.any(|(_, entry)| names_it(entry))
    };
    let others = Client::ALL.into_iter().filter(|other| *other != client);
    others.filter(uses).map(Client::title).collect()
}
