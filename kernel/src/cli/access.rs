//! `mgp grant|revoke|grants|explain`: who may call what, decided and shown.

use mgp_engine::calendar::{parse_rfc3339, rfc3339_ms};
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::access::{
    Entry, Explain, Explanation, Grant, Granted, List, Permission, Revoke, Revoked,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::{Opening, read};
use super::command;
use super::context::Context;
use super::failure::Failure;
use super::output::say;
use super::progress::Progress;
use super::table::table;
use super::words::{one_line, plain};

/// Widest column of a table, in characters.
const WIDTH: usize = 60;

/// Answer of `mgp/access/list`.
#[derive(Deserialize)]
struct Listed {
    entries: Vec<Entry>,
}

/// `SERVER` or `SERVER/TOOL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    server: String,
    tool: Option<String>,
}

impl Place {
    /// The members of a request that name it.
    fn named(&self, agent: &str) -> Value {
        let entry_type = match self.tool {
            Some(_) => "tool_grant",
            None => "server_grant",
        };
        json!({"agent_id": agent, "server_id": self.server, "tool_name": self.tool,
            "entry_type": entry_type})
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.tool {
            Some(tool) => write!(f, "{}/{tool}", self.server),
            None => f.write_str(&self.server),
        }
    }
}

/// Reads what is typed for a server or one of its tools.
pub(super) fn place(typed: &str) -> Result<Place, String> {
    let (server, tool) = match typed.split_once('/') {
        Some((server, tool)) => (server, Some(tool.to_owned())),
        None => (typed, None),
    };
    if server.is_empty() || tool.as_deref() == Some("") {
        return Err(format!("`{typed}`: write SERVER or SERVER/TOOL"));
    }
    Ok(Place {
        server: server.to_owned(),
        tool,
    })
}

/// Reads an end: a time from now, or a moment.
pub(super) fn end(typed: &str) -> Result<u64, String> {
    let from_now = super::approvals::duration(typed);
    let from_now = from_now.map(|ms| mgp_actors::time::unix_ms().saturating_add(ms));
    from_now.or_else(|_| {
        parse_rfc3339(typed).ok_or_else(|| {
            format!("`{typed}` is no time; write 90s, 30m, 1h, 7d or 2026-03-01T00:00:00Z")
        })
    })
}

pub(super) fn grant(context: &Context, grant: &command::Grant) -> Result<(), Failure> {
    let mut params = grant.place.named(&grant.agent);
    let permission = match grant.deny {
        true => Permission::Deny,
        false => Permission::Allow,
    };
    params["permission"] = json!(permission);
    params["justification"] = json!(grant.because);
    params["expires_at"] = json!(grant.expires.map(rfc3339_ms));
    let Some(answer) = asked(context, Grant::METHOD, &params)? else {
        return Ok(());
    };
    let granted: Granted = read(&answer)?;
    let verb = match grant.deny {
        true => "is denied",
        false => "may use",
    };
    let until = grant.expires.map(rfc3339_ms);
    let until = until.map(|end| format!(" until {end}")).unwrap_or_default();
    let (agent, place) = (&grant.agent, &grant.place);
    say(plain(&format!(
        "{agent} {verb} {place}{until} ({})",
        granted.grant_id
    )))
}

pub(super) fn revoke(context: &Context, revoke: &command::Revoke) -> Result<(), Failure> {
    let params = revoke.place.named(&revoke.agent);
    let Some(answer) = asked(context, Revoke::METHOD, &params)? else {
        return Ok(());
    };
    let revoked: Revoked = read(&answer)?;
    let (agent, place) = (&revoke.agent, &revoke.place);
    say(plain(&match revoked.revoked.len() {
        0 => format!(
            "{agent} has no entry for {place}; `mgp grants --agent {agent}` shows what there is"
        ),
        _ => format!("taken back: the entry of {agent} for {place}"),
    }))
}

pub(super) fn grants(context: &Context, agent: Option<&str>) -> Result<(), Failure> {
    let params = json!({"agent_id": agent});
    let Some(answer) = asked(context, List::METHOD, &params)? else {
        return Ok(());
    };
    match read::<Listed>(&answer)?.entries.as_slice() {
        [] => say(
            "nothing is granted or denied; the default policy decides: see [access] in mgp.toml",
        ),
        entries => say(listed(entries)),
    }
}

fn listed(entries: &[Entry]) -> String {
    let mut table = table(&["AGENT", "WHAT", "PERMISSION", "UNTIL", "BY", "BECAUSE"]);
    for entry in entries {
        let place = Place {
            server: entry.server_id.clone(),
            tool: entry.tool_name.clone(),
        };
        let permission = match entry.permission {
            Permission::Allow => "allow",
            Permission::Deny => "deny",
        };
        let because = entry.justification.as_deref().unwrap_or_default();
        table.add_row(vec![
            one_line(&entry.agent_id, WIDTH),
            one_line(&place.to_string(), WIDTH),
            permission.into(),
            entry.expires_at.clone().unwrap_or_default(),
            one_line(&entry.granted_by, WIDTH),
            one_line(because, WIDTH),
        ]);
    }
    table.trim_fmt()
}

pub(super) fn explain(context: &Context, explain: &command::Explain) -> Result<(), Failure> {
    let (agent, place) = (&explain.agent, &explain.place);
    let params = json!({"agent_id": agent, "server_id": place.server, "tool_name": place.tool});
    let Some(answer) = asked(context, Explain::METHOD, &params)? else {
        return Ok(());
    };
    let explained: Explanation = read(&answer)?;
    let may = match explained.permission {
        Permission::Allow => "may use",
        Permission::Deny => "may not use",
    };
    let mut text = format!("{agent} {may} {place}: {}\n\nlooked at:", explained.rule);
    for sentence in &explained.considered {
        text += &format!("\n  {sentence}");
    }
    text += &format!("\n\nit would run at server {} of this kernel", place.server);
    say(plain(&text))
}

/// Asks the kernel; with `--json` the answer is printed, and there is none to go on with.
fn asked(
    context: &Context,
    method: &str,
    params: &Value,
) -> Result<Option<Box<serde_json::value::RawValue>>, Failure> {
    let answer = context.with_kernel(Opening::default(), async |client| {
        let mut progress = Progress::of("asking the kernel");
        client.request(method, params, &mut progress).await
    })?;
    if context.json {
        say(answer.get())?;
        return Ok(None);
    }
    Ok(Some(answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_server_or_one_of_its_tools() {
        let tool = place("files/read/all").unwrap();
        assert_eq!(
            (tool.server.as_str(), tool.tool.as_deref()),
            ("files", Some("read/all"))
        );
        assert_eq!(tool.to_string(), "files/read/all");
        assert_eq!(place("files").unwrap().tool, None);
        for bad in ["", "/read", "files/"] {
            assert!(place(bad).unwrap_err().contains("SERVER/TOOL"), "{bad}");
        }
    }

    #[test]
    fn an_end_is_a_time_from_now_or_a_moment() {
        assert_eq!(end("2001-09-09T01:46:40Z"), Ok(1_000_000_000_000));
        assert!(end("1h").unwrap() > 3_600_000);
        assert!(end("soon").unwrap_err().contains("2026-03-01"));
    }
}
