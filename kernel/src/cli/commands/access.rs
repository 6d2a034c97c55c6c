//! `mgp grants …` and `mgp explain`.

use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_protocol::ids::AgentId;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::access::{
    AccessList, Entry, Explain, Explanation, Grant, Granted, List, Permission, Revoke, Revoked,
};
use mgp_protocol::mgp::names::{Read, ResolvedNames};
use serde_json::{Value, json};

use super::nodes::{render_confirmations, render_reach};
use crate::cli::args::{self, Grants, RuleSubject};
use crate::cli::client::{CliContext, KernelClient, name_resolution, parse_result};
use crate::cli::failure::Failure;
use crate::cli::print::{new_table, print_line};
use crate::cli::text_format::{first_line, sanitize_line};

/// Progress title.
const PROGRESS_TITLE: &str = "asking the kernel";
/// Widest column of a table, in characters.
const COLUMN_WIDTH_MAX: usize = 60;

/// The agent and target of a rule, resolved by the kernel.
struct RuleTarget {
    agent: String,
    /// The agent, for display.
    agent_label: String,
    server: String,
    tool: Option<String>,
    /// Unknown names among them.
    unknown_names: Vec<String>,
}

impl RuleTarget {
    /// Resolves the typed names.
    async fn resolve(client: &mut KernelClient, about: &RuleSubject) -> Result<Self, Failure> {
        let place = Some(about.place.clone());
        let (server, place) = if about.whole_server {
            (place, None)
        } else {
            (None, place)
        };
        let agent = Some(about.agent.clone());
        let query = Read {
            agent,
            server,
            place,
            tool: None,
        };
        let ResolvedNames {
            agent_id,
            server_id,
            tool_name,
            unknown,
            doubts,
        } = name_resolution::resolve(client, &query).await?;
        name_resolution::print_notes(&doubts);
        let agent = agent_id.unwrap_or_default();
        Ok(Self {
            agent_label: agent_label(&agent, &about.agent),
            agent,
            server: server_id.unwrap_or_default(),
            tool: tool_name,
            unknown_names: if about.yet_unknown {
                Vec::new()
            } else {
                unknown
            },
        })
    }

    /// Rejects unknown names, unless they are marked as future ones.
    fn require_existing(self) -> Result<Self, Failure> {
        if self.unknown_names.is_empty() {
            Ok(self)
        } else {
            Err(self.unknown_names_failure())
        }
    }

    fn unknown_names_failure(&self) -> Failure {
        let unknown = self.unknown_names.join("\n");
        Failure::Usage(format!(
            "{unknown}\n(add --yet-unknown for what is still to come)"
        ))
    }

    fn query_params(&self) -> Value {
        json!({"agent_id": self.agent, "server_id": self.server, "tool_name": self.tool})
    }

    /// The members of a request about an entry.
    fn entry_params(&self) -> Value {
        let mut params = self.query_params();
        params["entry_type"] = match self.tool {
            Some(_) => "tool_grant".into(),
            None => "server_grant".into(),
        };
        params
    }

    fn target_label(&self) -> String {
        name_resolution::render_target(&self.server, self.tool.as_deref())
    }
}

/// The id of another node's agent contains the whole node id: it is displayed as typed.
pub(super) fn agent_label(agent: &str, typed: &str) -> String {
    let pattern = typed.starts_with(AgentId::ALL) || typed.starts_with(AgentId::GROUP_PREFIX);
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
        let rule = RuleTarget::resolve(client, &grant.about)
            .await?
            .require_existing()?;
        let mut params = rule.entry_params();
        let permission = if grant.deny {
            Permission::Deny
        } else {
            Permission::Allow
        };
        params["permission"] = json!(permission);
        params["justification"] = json!(grant.because);
        params["expires_at"] = json!(grant.expires.map(render_rfc3339_ms));
        if let Some(when) = &grant.when {
            params["when"] = json!(when);
        }
        params["yet_unknown"] = json!(grant.about.yet_unknown);
        let answer = client.call(Grant::METHOD, &params, PROGRESS_TITLE).await?;
        Ok((rule, answer))
    })?;
    let verb = if grant.deny { "is denied" } else { "may use" };
    let until = grant.expires.map(render_rfc3339_ms);
    let until = until.map(|end| format!(" until {end}")).unwrap_or_default();
    let when = grant.when.as_deref().map(|when| format!(" when {when}"));
    let when = when.unwrap_or_default();
    let (agent, place) = (&rule.agent_label, rule.target_label());
    context.print_answer(&answer, |granted: Granted| {
        let confirmations = granted.confirmed.as_ref();
        let confirmations = confirmations.map(if grant.deny {
            render_confirmations
        } else {
            render_reach
        });
        let (id, confirmations) = (granted.grant_id, confirmations.unwrap_or_default());
        print_line(sanitize_line(&format!(
            "{agent} {verb} {place}{when}{until} ({id}){confirmations}"
        )))
    })
}

fn revoke(context: &CliContext, revoke: &args::Revoke) -> Result<(), Failure> {
    let (rule, answer, revoked) = context.with_kernel(async |client| {
        let rule = RuleTarget::resolve(client, &revoke.about).await?;
        let answer = client
            .call(Revoke::METHOD, &rule.entry_params(), PROGRESS_TITLE)
            .await?;
        let revoked: Revoked = parse_result(&answer)?;
        // Removed agents and servers can still have entries, which can be removed.
        if revoked.revoked.is_empty() && !rule.unknown_names.is_empty() {
            Err(rule.unknown_names_failure())
        } else {
            Ok((rule, answer, revoked))
        }
    })?;
    if context.json {
        return print_line(answer.get());
    }
    name_resolution::print_notes(&revoked.notes);
    let (agent, place) = (&rule.agent_label, rule.target_label());
    let confirmations = revoked.confirmed.as_ref().map(render_confirmations);
    let confirmations = confirmations.unwrap_or_default();
    print_line(sanitize_line(&if revoked.revoked.is_empty() {
        format!(
            "{agent} has no entry for {place}; `mgp grants list --agent {agent}` shows what there is"
        )
    } else {
        format!("taken back: the entry of {agent} for {place}{confirmations}")
    }))
}

fn list(context: &CliContext, agent: Option<&str>) -> Result<(), Failure> {
    let answer = context.with_kernel(async |client| {
        let query = Read {
            agent: agent.map(str::to_owned),
            ..Read::default()
        };
        // A removed agent is unknown, and may have entries.
        let resolved_agent = name_resolution::resolve(client, &query).await?;
        let params = json!({"agent_id": resolved_agent.agent_id});
        let answer = client.call(List::METHOD, &params, PROGRESS_TITLE).await?;
        if parse_result::<AccessList>(&answer)?.entries.is_empty()
            && !resolved_agent.unknown.is_empty()
        {
            Err(Failure::Usage(resolved_agent.unknown.join("\n")))
        } else {
            Ok(answer)
        }
    })?;
    context.print_answer(&answer, |AccessList { entries, notes }| {
        name_resolution::print_notes(&notes);
        match entries.as_slice() {
            [] => print_line(
                "nothing is granted or denied; the default policy decides: see [access] in mgp.toml",
            ),
            entries => print_line(render_grants(entries)),
        }
    })
}

pub(super) fn render_grants(entries: &[Entry]) -> String {
    let mut table = new_table(&["AGENT", "WHAT", "PERMISSION", "UNTIL", "BY", "BECAUSE"]);
    for entry in entries {
        let place = name_resolution::render_target(&entry.server_id, entry.tool_name.as_deref());
        let permission = match (entry.permission, &entry.conflict) {
            (Permission::Allow, Some(_)) => "closed",
            (Permission::Allow, None) if entry.when.is_some() => "on a condition",
            (Permission::Allow, None) => "allow",
            (Permission::Deny, _) => "deny",
        };
        let because = entry.justification.as_deref().unwrap_or_default();
        table.add_row(vec![
            first_line(&entry.agent_id, COLUMN_WIDTH_MAX),
            first_line(&place, COLUMN_WIDTH_MAX),
            permission.into(),
            entry.expires_at.clone().unwrap_or_default(),
            first_line(&entry.granted_by, COLUMN_WIDTH_MAX),
            first_line(because, COLUMN_WIDTH_MAX),
        ]);
    }
    let closed = entries.iter().filter_map(closing_revoke);
    let conditions = entries.iter().filter_map(condition);
    let closed = closed.chain(conditions);
    let closed: String = closed.map(|line| format!("\n{line}")).collect();
    if closed.is_empty() {
        table.trim_fmt()
    } else {
        format!("{}\n{closed}", table.trim_fmt())
    }
}

/// The condition of an entry, if it has one.
fn condition(entry: &Entry) -> Option<String> {
    let when = entry.when.as_ref()?;
    let place = name_resolution::render_target(&entry.server_id, entry.tool_name.as_deref());
    Some(sanitize_line(&format!(
        "{} for {place}: when {when}",
        entry.agent_id
    )))
}

/// The revoke that closes an entry, if any.
fn closing_revoke(entry: &Entry) -> Option<String> {
    let why = entry.conflict.as_ref()?;
    let place = name_resolution::render_target(&entry.server_id, entry.tool_name.as_deref());
    Some(sanitize_line(&format!(
        "{} for {place}: {why}",
        entry.agent_id
    )))
}

pub(super) fn explain(context: &CliContext, explain: &args::Explain) -> Result<(), Failure> {
    let (rule, answer) = context.with_kernel(async |client| {
        let rule = RuleTarget::resolve(client, &explain.about)
            .await?
            .require_existing()?;
        let mut params = rule.query_params();
        if !explain.arguments.is_empty() {
            params["arguments"] = explain.arguments.iter().cloned().collect();
        }
        let answer = client
            .call(Explain::METHOD, &params, PROGRESS_TITLE)
            .await?;
        Ok((rule, answer))
    })?;
    context.print_answer(&answer, |explained| {
        print_line(render_explanation(&rule, &explained))
    })
}

fn render_explanation(rule: &RuleTarget, explained: &Explanation) -> String {
    // Without arguments, a condition has not been evaluated.
    let mut conditions = explained.conditions.iter();
    let is_open = conditions.any(|condition| condition.holds.is_none());
    let may = match (&explained.permission, &explained.waits) {
        (Permission::Allow, None) => "may use",
        (Permission::Allow, Some(_)) => "may not use yet",
        (Permission::Deny, _) if is_open => "may use",
        (Permission::Deny, _) => "may not use",
    };
    let condition = if is_open { " on a condition" } else { "" };
    let (agent, place) = (
        sanitize_line(&rule.agent_label),
        sanitize_line(&rule.target_label()) + condition,
    );
    let why = sanitize_line(&explained.rule);
    let mut text = match &explained.waits {
        Some(waits) => format!(
            "{agent} {may} {place}: {} (`mgp pending` shows it); once it is approved: {why}",
            sanitize_line(waits)
        ),
        None => format!("{agent} {may} {place}: {why}"),
    };
    text += "\n\nlooked at:";
    for sentence in &explained.considered {
        text += &format!("\n  {}", sanitize_line(sentence));
    }
    text += "\n\n";
    text += &match explained.notes.as_slice() {
        [] => format!("it would run at server {} of this kernel", rule.server),
        notes => {
            let notes = notes.iter().map(|note| sanitize_line(note));
            notes.collect::<Vec<_>>().join("\n")
        }
    };
    text
}
