//! `mgp grants …` and `mgp explain`: who may call what, decided and shown.

use mgp_engine::timestamps::rfc3339_ms;
use mgp_protocol::ids::AgentId;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::access::{
    Entry, Explain, Explanation, Grant, Granted, List, Listed, Permission, Revoke, Revoked,
};
use mgp_protocol::mgp::names::{Meant, Read};
use serde_json::{Value, json};

use super::nodes::{confirmed, reached};
use crate::cli::args::{self, About, Grants};
use crate::cli::client::{CliContext, KernelClient, names, read};
use crate::cli::failure::Failure;
use crate::cli::print::{say, table};
use crate::cli::words::{one_line, plain};

/// What is shown while the kernel takes its time.
const ASKING: &str = "asking the kernel";
/// Widest column of a table, in characters.
const WIDTH: usize = 60;

/// Whom and what a rule is about, as the kernel read it.
struct RuleTarget {
    agent: String,
    /// The agent, as people call it.
    called: String,
    server: String,
    tool: Option<String>,
    /// What of it is not there.
    unknown: Vec<String>,
}

impl RuleTarget {
    /// Reads what was typed.
    async fn read(client: &mut KernelClient, about: &About) -> Result<Self, Failure> {
        let place = Some(about.place.clone());
        let (server, place) = match about.whole_server {
            true => (place, None),
            false => (None, place),
        };
        let agent = Some(about.agent.clone());
        let asked = Read {
            agent,
            server,
            place,
            tool: None,
        };
        let Meant {
            agent_id,
            server_id,
            tool_name,
            unknown,
            doubts,
        } = names::meant(client, &asked).await?;
        names::tell(&doubts);
        let agent = agent_id.unwrap_or_default();
        Ok(Self {
            called: called(&agent, &about.agent),
            agent,
            server: server_id.unwrap_or_default(),
            tool: tool_name,
            unknown: match about.yet_unknown {
                true => Vec::new(),
                false => unknown,
            },
        })
    }

    /// Refuses what is not there, unless it may come.
    fn there(self) -> Result<Self, Failure> {
        match self.unknown.is_empty() {
            true => Ok(self),
            false => Err(self.missing()),
        }
    }

    fn missing(&self) -> Failure {
        let unknown = self.unknown.join("\n");
        Failure::Usage(format!(
            "{unknown}\n(add --yet-unknown for what is still to come)"
        ))
    }

    fn params(&self) -> Value {
        json!({"agent_id": self.agent, "server_id": self.server, "tool_name": self.tool})
    }

    /// The members of a request about an entry.
    fn entry(&self) -> Value {
        let mut params = self.params();
        params["entry_type"] = match self.tool {
            Some(_) => "tool_grant".into(),
            None => "server_grant".into(),
        };
        params
    }

    fn place(&self) -> String {
        names::place(&self.server, self.tool.as_deref())
    }
}

/// An agent of another node has all digits of the node in its id: it is shown as it was typed.
fn called(agent: &str, typed: &str) -> String {
    let pattern = typed.starts_with(AgentId::ALL);
    match agent.contains('@') && !typed.starts_with(AgentId::PREFIX) && !pattern {
        true => format!("{}{typed}", AgentId::PREFIX),
        false if agent.contains('@') => typed.to_owned(),
        false => agent.to_owned(),
    }
}

pub(super) fn run(context: &CliContext, typed: &Grants) -> Result<(), Failure> {
    match typed {
        Grants::List(typed) => list(context, typed.agent.as_deref()),
        Grants::Add(typed) => grant(context, typed),
        Grants::Remove(typed) => revoke(context, typed),
    }
}

fn grant(context: &CliContext, grant: &args::Grant) -> Result<(), Failure> {
    let (rule, answer) = context.with_kernel(async |client| {
        let rule = RuleTarget::read(client, &grant.about).await?.there()?;
        let mut params = rule.entry();
        let permission = match grant.deny {
            true => Permission::Deny,
            false => Permission::Allow,
        };
        params["permission"] = json!(permission);
        params["justification"] = json!(grant.because);
        params["expires_at"] = json!(grant.expires.map(rfc3339_ms));
        params["yet_unknown"] = json!(grant.about.yet_unknown);
        let answer = client.ask(Grant::METHOD, &params, ASKING).await?;
        Ok((rule, answer))
    })?;
    let verb = match grant.deny {
        true => "is denied",
        false => "may use",
    };
    let until = grant.expires.map(rfc3339_ms);
    let until = until.map(|end| format!(" until {end}")).unwrap_or_default();
    let (agent, place) = (&rule.called, rule.place());
    context.show(&answer, |granted: Granted| {
        let told = granted.confirmed.as_ref();
        let told = told.map(match grant.deny {
            true => confirmed,
            false => reached,
        });
        let (id, told) = (granted.grant_id, told.unwrap_or_default());
        say(plain(&format!(
            "{agent} {verb} {place}{until} ({id}){told}"
        )))
    })
}

fn revoke(context: &CliContext, revoke: &args::Revoke) -> Result<(), Failure> {
    let (rule, answer, revoked) = context.with_kernel(async |client| {
        let rule = RuleTarget::read(client, &revoke.about).await?;
        let answer = client.ask(Revoke::METHOD, &rule.entry(), ASKING).await?;
        let revoked: Revoked = read(&answer)?;
        // What is gone can still have entries, and be rid of them.
        match revoked.revoked.is_empty() && !rule.unknown.is_empty() {
            true => Err(rule.missing()),
            false => Ok((rule, answer, revoked)),
        }
    })?;
    if context.json {
        return say(answer.get());
    }
    names::tell(&revoked.notes);
    let (agent, place) = (&rule.called, rule.place());
    let told = revoked.confirmed.as_ref().map(confirmed);
    let told = told.unwrap_or_default();
    say(plain(&match revoked.revoked.is_empty() {
        true => format!(
            "{agent} has no entry for {place}; `mgp grants list --agent {agent}` shows what there is"
        ),
        false => format!("taken back: the entry of {agent} for {place}{told}"),
    }))
}

fn list(context: &CliContext, agent: Option<&str>) -> Result<(), Failure> {
    let answer = context.with_kernel(async |client| {
        let asked = Read {
            agent: agent.map(str::to_owned),
            ..Read::default()
        };
        // An agent that was removed is unknown, and may have entries.
        let meant = names::meant(client, &asked).await?;
        let params = json!({"agent_id": meant.agent_id});
        let answer = client.ask(List::METHOD, &params, ASKING).await?;
        match read::<Listed>(&answer)?.entries.is_empty() && !meant.unknown.is_empty() {
            true => Err(Failure::Usage(meant.unknown.join("\n"))),
            false => Ok(answer),
        }
    })?;
    context.show(&answer, |Listed { entries, notes }| {
        names::tell(&notes);
        match entries.as_slice() {
            [] => say(
                "nothing is granted or denied; the default policy decides: see [access] in mgp.toml",
            ),
            entries => say(listed(entries)),
        }
    })
}

fn listed(entries: &[Entry]) -> String {
    let mut table = table(&["AGENT", "WHAT", "PERMISSION", "UNTIL", "BY", "BECAUSE"]);
    for entry in entries {
        let place = names::place(&entry.server_id, entry.tool_name.as_deref());
        let permission = match (entry.permission, &entry.conflict) {
            (Permission::Allow, Some(_)) => "closed",
            (Permission::Allow, None) => "allow",
            (Permission::Deny, _) => "deny",
        };
        let because = entry.justification.as_deref().unwrap_or_default();
        table.add_row(vec![
            one_line(&entry.agent_id, WIDTH),
            one_line(&place, WIDTH),
            permission.into(),
            entry.expires_at.clone().unwrap_or_default(),
            one_line(&entry.granted_by, WIDTH),
            one_line(because, WIDTH),
        ]);
    }
    let closed = entries.iter().filter_map(conflict);
    let closed: String = closed.map(|line| format!("\n{line}")).collect();
    match closed.is_empty() {
        true => table.trim_fmt(),
        false => format!("{}\n{closed}", table.trim_fmt()),
    }
}

/// Which revoke closes an entry, where one does.
fn conflict(entry: &Entry) -> Option<String> {
    let why = entry.conflict.as_ref()?;
    let place = names::place(&entry.server_id, entry.tool_name.as_deref());
    Some(plain(&format!("{} for {place}: {why}", entry.agent_id)))
}

pub(super) fn explain(context: &CliContext, explain: &args::Explain) -> Result<(), Failure> {
    let (rule, answer) = context.with_kernel(async |client| {
        let rule = RuleTarget::read(client, &explain.about).await?.there()?;
        let answer = client.ask(Explain::METHOD, &rule.params(), ASKING).await?;
        Ok((rule, answer))
    })?;
    context.show(&answer, |explained| say(in_words(&rule, &explained)))
}

fn in_words(rule: &RuleTarget, explained: &Explanation) -> String {
    let may = match (&explained.permission, &explained.waits) {
        (Permission::Allow, None) => "may use",
        (Permission::Allow, Some(_)) => "may not use yet",
        (Permission::Deny, _) => "may not use",
    };
    let (agent, place) = (plain(&rule.called), plain(&rule.place()));
    let why = plain(&explained.rule);
    let mut text = match &explained.waits {
        Some(waits) => format!(
            "{agent} {may} {place}: {} (`mgp pending` shows it); once it is approved: {why}",
            plain(waits)
        ),
        None => format!("{agent} {may} {place}: {why}"),
    };
    text += "\n\nlooked at:";
    for sentence in &explained.considered {
        text += &format!("\n  {}", plain(sentence));
    }
    text += "\n\n";
    text += &match explained.notes.as_slice() {
        [] => format!("it would run at server {} of this kernel", rule.server),
        notes => {
            let notes = notes.iter().map(|note| plain(note));
            notes.collect::<Vec<_>>().join("\n")
        }
    };
    text
}
