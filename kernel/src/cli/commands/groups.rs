//! `mgp groups list|show|add|remove`.

use mgp_engine::doors::suggestions::nearest_name;
use mgp_protocol::ids::AgentId;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::access::{self, AccessList, Granted, Revoked};
use mgp_protocol::mgp::kernel::groups::{Limits, List, ListedGroup, ListedGroups};
use mgp_protocol::mgp::names::Read;
use serde_json::{Value, json};

use super::access::{agent_label, render_grants};
use super::nodes::{render_confirmations, render_reach};
use crate::cli::args::{Groups, Membership};
use crate::cli::client::{CliContext, KernelClient, name_resolution, parse_result};
use crate::cli::failure::Failure;
use crate::cli::print::{new_table, print_line};
use crate::cli::text_format::sanitize_line;

/// Progress title.
const PROGRESS_TITLE: &str = "asking the kernel";

pub(super) fn run(context: &CliContext, typed: &Groups) -> Result<(), Failure> {
    match typed {
        Groups::List => list(context),
        Groups::Show(typed) => show(context, &typed.group),
        Groups::Add(typed) => add(context, typed),
        Groups::Remove(typed) => remove(context, typed),
    }
}

fn list(context: &CliContext) -> Result<(), Failure> {
    let answer = context.call(List::METHOD, &json!({}), PROGRESS_TITLE)?;
    context.print_answer(&answer, |ListedGroups { groups }| {
        if groups.is_empty() {
            return print_line("no groups: `mgp groups add GROUP AGENT` makes one");
        }
        let mut table = new_table(&["GROUP", "MEMBERS", "BY CLAIM", "ENTRIES", "LIMITS"]);
        for group in &groups {
            table.add_row([
                sanitize_line(&group.name),
                render_members(group),
                join_or_dash(&group.claims),
                group.entries.to_string(),
                render_limits(group.limits.as_ref()),
            ]);
        }
        print_line(table)
    })
}

fn show(context: &CliContext, typed: &str) -> Result<(), Failure> {
    let name = typed.strip_prefix(AgentId::GROUP_PREFIX).unwrap_or(typed);
    let (group, grants) = context.with_kernel(async |client| {
        let answer = client
            .call(List::METHOD, &json!({}), PROGRESS_TITLE)
            .await?;
        let ListedGroups { groups } = parse_result(&answer)?;
        let group = find_group(groups, name)?;
        // Those of the group of this node, and of that of the cluster.
        let params = json!({ "agent_id": format!("{}{name}", AgentId::GROUP_PREFIX) });
        let method = access::List::METHOD;
        let answer = client.call(method, &params, PROGRESS_TITLE).await?;
        Ok((group, parse_result::<AccessList>(&answer)?.entries))
    })?;
    if context.json {
        let mut shown = json!(group);
        shown["grants"] = json!(grants);
        return print_line(shown);
    }
    let used = group.used.as_ref();
    let rows = [
        ("group", sanitize_line(&group.name)),
        ("members", render_members(&group)),
        ("by claim", join_or_dash(&group.claims)),
        ("limits", render_limits(group.limits.as_ref())),
        ("used here", render_limits(used)),
    ];
    for (what, value) in rows {
        print_line(format_args!("{what:<10} {value}"))?;
    }
    if grants.is_empty() {
        print_line(format!(
            "\nnothing is granted or denied to it: `mgp grants add group.{} SERVER` does",
            sanitize_line(&group.name)
        ))
    } else {
        print_line(format!("\n{}", render_grants(&grants)))
    }
}

/// The group of this name; an unknown one is rejected with the nearest.
fn find_group(groups: Vec<ListedGroup>, name: &str) -> Result<ListedGroup, Failure> {
    let names: Vec<String> = groups.iter().map(|group| group.name.clone()).collect();
    let found = groups.into_iter().find(|group| group.name == name);
    found.ok_or_else(|| {
        let near = nearest_name(name, names.iter().map(String::as_str));
        let near = near.map(|near| format!(" (did you mean {near}?)"));
        Failure::Usage(format!(
            "there is no group.{name}{}; `mgp groups list` shows all",
            near.unwrap_or_default()
        ))
    })
}

/// The members of a request, and the names to display.
struct NamedMember {
    params: Value,
    agent: String,
    group: String,
    unknown: Vec<String>,
}

impl NamedMember {
    async fn resolve(client: &mut KernelClient, typed: &Membership) -> Result<Self, Failure> {
        let query = Read {
            agent: Some(typed.agent.clone()),
            ..Read::default()
        };
        let resolved = name_resolution::resolve(client, &query).await?;
        name_resolution::print_notes(&resolved.doubts);
        let agent = resolved.agent_id.unwrap_or_default();
        let name = typed.group.strip_prefix(AgentId::GROUP_PREFIX);
        let group = format!("{}{}", AgentId::GROUP_PREFIX, name.unwrap_or(&typed.group));
        Ok(Self {
            params: json!({"entry_type": "group_member", "agent_id": agent, "server_id": group}),
            agent: agent_label(&agent, &typed.agent),
            group,
            unknown: resolved.unknown,
        })
    }

    fn unknown_failure(&self) -> Failure {
        let unknown = self.unknown.join("\n");
        Failure::Usage(format!(
            "{unknown}\n(add --yet-unknown for what is still to come)"
        ))
    }
}

fn add(context: &CliContext, typed: &Membership) -> Result<(), Failure> {
    let (member, answer) = context.with_kernel(async |client| {
        let mut member = NamedMember::resolve(client, typed).await?;
        if !member.unknown.is_empty() && !typed.yet_unknown {
            return Err(member.unknown_failure());
        }
        member.params["permission"] = json!("allow");
        member.params["yet_unknown"] = json!(typed.yet_unknown);
        let method = access::Grant::METHOD;
        let answer = client.call(method, &member.params, PROGRESS_TITLE).await?;
        Ok((member, answer))
    })?;
    context.print_answer(&answer, |granted: Granted| {
        name_resolution::print_notes(&granted.notes);
        let confirmations = granted.confirmed.as_ref().map(render_reach);
        print_line(sanitize_line(&format!(
            "{} is in {} ({}){}",
            member.agent,
            member.group,
            granted.grant_id,
            confirmations.unwrap_or_default()
        )))
    })
}

fn remove(context: &CliContext, typed: &Membership) -> Result<(), Failure> {
    let (member, answer, revoked) = context.with_kernel(async |client| {
        let member = NamedMember::resolve(client, typed).await?;
        let method = access::Revoke::METHOD;
        let answer = client.call(method, &member.params, PROGRESS_TITLE).await?;
        let revoked: Revoked = parse_result(&answer)?;
        // Removed agents can still be members.
        if revoked.revoked.is_empty() && !member.unknown.is_empty() && !typed.yet_unknown {
            Err(member.unknown_failure())
        } else {
            Ok((member, answer, revoked))
        }
    })?;
    if context.json {
        return print_line(answer.get());
    }
    name_resolution::print_notes(&revoked.notes);
    let (agent, group) = (&member.agent, &member.group);
    let confirmations = revoked.confirmed.as_ref().map(render_confirmations);
    print_line(sanitize_line(&if revoked.revoked.is_empty() {
        format!("no entry puts {agent} into {group}; `mgp groups list` shows what there is")
    } else {
        let confirmations = confirmations.unwrap_or_default();
        format!("{agent} is not in {group} any more{confirmations}")
    }))
}

fn render_members(group: &ListedGroup) -> String {
    let members = group.members.iter().map(|member| {
        let closed = member.conflict.as_ref().map(|_| " (closed)");
        let cluster = member.is_cluster.then_some(" (cluster)");
        let state = closed.or(cluster).unwrap_or_default();
        format!("{}{state}", member.agent_id)
    });
    let default = group.is_default.then(|| "agents in no other".to_owned());
    let all: Vec<String> = members.chain(default).collect();
    join_or_dash(&all)
}

fn render_limits(limits: Option<&Limits>) -> String {
    let Some(limits) = limits else {
        return "-".into();
    };
    let parts = [
        (limits.calls_per_minute, "calls a minute"),
        (limits.calls_per_day, "calls a day"),
        (limits.bytes_per_day, "bytes a day"),
    ];
    let parts = parts.iter().filter(|(number, _)| *number > 0);
    let parts: Vec<String> = parts.map(|(number, of)| format!("{number} {of}")).collect();
    join_or_dash(&parts)
}

fn join_or_dash(all: &[String]) -> String {
    if all.is_empty() {
        "-".into()
    } else {
        sanitize_line(&all.join(", "))
    }
}
