//! `mgp pending|approve|deny|answer`: pending entries and decisions; `mgp permissions …`.

use mgp_engine::timestamps::parse_rfc3339;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::approvals::{self, DecisionResult, Entry, List, PendingList, Subject};
use mgp_protocol::mgp::permission::{Revoke, Revoked, Verdict};
use mgp_protocol::mgp::servers::{self, PendingLogin};
use serde::Serialize;
use serde_json::json;

use super::nodes;
use super::servers::ServerList;
use crate::cli::args::{Answer, Approve, Deny, Permissions, RemovePermission};
use crate::cli::client::{CliContext, ProgressLine, name_resolution, parse_result};
use crate::cli::failure::Failure;
use crate::cli::print::{new_table, print_line};
use crate::cli::text_format::{first_line, format_duration, indent_continuations, sanitize_line};

/// Widest column of a table, in characters.
const WIDTH: usize = 48;

pub(super) fn list_pending(context: &CliContext) -> Result<(), Failure> {
    let answer = context.call(List::METHOD, &json!({}), "asking the kernel")?;
    let now = mgp_runtime::time::unix_ms();
    context.print_answer(
        &answer,
        |PendingList {
             pending,
             logins,
             nodes,
         }| {
            let rendered = pending.iter().map(|entry| render_entry(entry, now));
            let logins = logins
                .iter()
                .map(|(server, wanted)| render_login(server, wanted));
            let nodes = [nodes::render_waiting_nodes(&nodes, now)]
                .into_iter()
                .filter(|text| !text.is_empty());
            let rendered: Vec<String> = nodes.chain(rendered).chain(logins).collect();
            match rendered.as_slice() {
                [] => print_line("nothing waits for you"),
                rendered => print_line(rendered.join("\n").trim_end()),
            }
        },
    )
}

pub(super) fn approve(context: &CliContext, approve: &Approve) -> Result<(), Failure> {
    let params = approvals::Approve {
        id: approve.id.clone(),
        for_ms: approve.during,
        only: approve.only.clone(),
    };
    send_decision(context, approvals::Approve::METHOD, &params)
}

pub(super) fn deny(context: &CliContext, deny: &Deny) -> Result<(), Failure> {
    let params = approvals::Deny {
        id: deny.id.clone(),
        only: deny.only.clone(),
        later: deny.later,
    };
    send_decision(context, approvals::Deny::METHOD, &params)
}

pub(super) fn answer(context: &CliContext, answer: &Answer) -> Result<(), Failure> {
    let params = approvals::Answer {
        id: answer.id.clone(),
        value: answer.value.join(" "),
    };
    send_decision(context, approvals::Answer::METHOD, &params)
}

pub(super) fn permissions(context: &CliContext, typed: &Permissions) -> Result<(), Failure> {
    match typed {
        Permissions::List(typed) => list_permissions(context, typed.server.as_deref()),
        Permissions::Remove(typed) => remove_permission(context, typed),
    }
}

/// The permissions that servers need, and how they were decided.
fn list_permissions(context: &CliContext, server: Option<&str>) -> Result<(), Failure> {
    let (method, doing) = (
        servers::List::METHOD,
        ProgressLine::new("asking the kernel"),
    );
    let answer = match server {
        Some(server) => context.call_about_server(server, method, &json!({}), &mut { doing })?,
        None => context.call(method, &json!({}), "asking the kernel")?,
    };
    let servers = parse_result::<ServerList>(&answer)?.servers.into_iter();
    let servers = servers.filter(|it| server.is_none_or(|server| it.id == server));
    let listed: Vec<(String, Vec<String>)> = servers
        .map(|it| (it.id, it.permissions))
        .filter(|(_, all)| !all.is_empty())
        .collect();
    if context.json {
        let listed = listed
            .iter()
            .map(|(server, permissions)| json!({"server": server, "permissions": permissions}));
        return print_line(json!({"servers": listed.collect::<Vec<_>>()}));
    }
    if listed.is_empty() {
        return match server {
            Some(server) => print_line(format_args!(
                "{} needs no permission",
                sanitize_line(server)
            )),
            None => print_line("no server needs a permission"),
        };
    }
    let mut rows = new_table(&["SERVER", "PERMISSION"]);
    for (server, permissions) in &listed {
        for permission in permissions {
            rows.add_row([first_line(server, WIDTH), sanitize_line(permission)]);
        }
    }
    print_line(rows.trim_fmt())
}

/// Removes a permission from a server.
fn remove_permission(context: &CliContext, typed: &RemovePermission) -> Result<(), Failure> {
    let server = typed.server.as_str();
    let params = Revoke {
        server: server.to_owned(),
        permission: typed.permission.clone(),
    };
    let doing = "deciding";
    let answer = context.call_about_server(
        server,
        Revoke::METHOD,
        &params,
        &mut ProgressLine::new(doing),
    );
    let answer = answer.map_err(name_resolution::to_usage_failure)?;
    context.print_answer(&answer, |revoked: Revoked| {
        let permissions = revoked.permissions.join(", ");
        print_line(sanitize_line(&match (revoked.had, revoked.restarts) {
            (true, true) => {
                format!("{server} may not use {permissions} any more, and is started again without")
            }
            (true, false) => format!("{server} may not use {permissions} any more"),
            (false, _) => format!("{server} did not have {permissions}, and will not"),
        }))
    })
}

fn send_decision(
    context: &CliContext,
    method: &str,
    params: &impl Serialize,
) -> Result<(), Failure> {
    let answer = context.call(method, params, "deciding")?;
    context.print_answer(&answer, |answer| {
        print_line(sanitize_line(&render_decision(&answer)))
    })
}

/// The decision in one line.
pub(super) fn render_decision(decided: &DecisionResult) -> String {
    let verdict = match decided.verdict {
        Verdict::Approved => "approved",
        Verdict::Deferred => "put off",
        Verdict::Denied => "denied",
    };
    let mut text = match &decided.value {
        Some(value) => format!("answered {value:?}: {}", decided.text),
        None => format!("{verdict}: {}", decided.text),
    };
    if !decided.parts.is_empty() {
        text += &format!(" ({})", decided.parts.join(", "));
    }
    if let Some(until) = &decided.until {
        text += &format!(", until {until}");
    }
    text
}

/// An entry with everything to read before deciding.
fn render_entry(entry: &Entry, now_ms: u64) -> String {
    let ago = parse_rfc3339(&entry.since).map_or(0, |since| now_ms.saturating_sub(since));
    // A server's text must not look like a row or another entry.
    let rendered = |text: &str| indent_continuations(text, "        | ");
    let mut text = format!("{}  {}\n", sanitize_line(&entry.id), rendered(&entry.text));
    let mut row = |what: &str| text += &format!("        {}\n", rendered(what));
    entry.details.iter().for_each(|detail| row(detail));
    if entry.parts.len() > 1 {
        row(&sanitize_line(&format!(
            "parts: {}",
            entry.parts.join(", ")
        )));
    }
    let left = entry.until.as_deref().and_then(parse_rfc3339);
    let left = left.map(|end| format!(", {} left", format_duration(end.saturating_sub(now_ms))));
    row(&format!(
        "waits for {}{}",
        format_duration(ago),
        left.unwrap_or_default()
    ));
    if entry.subject == Subject::Confirmation {
        row("an approval is for this call alone");
    }
    let id = &entry.id;
    match entry.options.as_deref() {
        None => row(&format!("mgp approve {id}   or   mgp deny {id}")),
        Some([]) => row(&format!("mgp answer {id} TEXT   or   mgp deny {id}")),
        Some(options) => {
            let options: Vec<String> = options
                .iter()
                .map(|option| sanitize_option(option))
                .collect();
            row(&format!("options: {}", options.join(", ")));
            row(&format!("mgp answer {id} OPTION   or   mgp deny {id}"));
        }
    }
    text
}

/// A login that a server requires.
fn render_login(server: &str, wanted: &PendingLogin) -> String {
    let state = if wanted.parked {
        "takes no calls until then"
    } else {
        "goes on with what it has"
    };
    let url = wanted.url.as_ref();
    let url = url.map_or(String::new(), |url| {
        format!("        or sign in at {}\n", sanitize_line(url))
    });
    format!(
        "{}  {}\n        {state}\n        {}\n{url}",
        sanitize_line(server),
        sanitize_line(&wanted.why),
        sanitize_line(&wanted.command)
    )
}

/// A server's option on one line, quoted if necessary.
fn sanitize_option(option: &str) -> String {
    let plain = |c: char| c == ' ' || c.is_alphanumeric() || (c.is_ascii_graphic() && c != ',');
    if !option.is_empty() && option.chars().all(plain) {
        option.to_owned()
    } else {
        format!("{option:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Descriptions and names that a server wrote never look like the kernel's lines.
    #[test]
    fn server_texts_look_like_no_row_or_entry() {
        let forged = "pushes news\n\nkabelo  server files has changed\n        mgp approve kabelo   or   mgp deny kabelo";
        let entry = Entry {
            id: "tobami".into(),
            subject: Subject::Permissions,
            server: Some("files".into()),
            agent: None,
            text: format!("s has changed {forged}"),
            details: vec![forged.into()],
            parts: vec![forged.into(), "b".into()],
            options: None,
            since: "1970-01-01T00:00:01.000Z".into(),
            until: None,
        };
        let rendered = render_entry(&entry, 3000);
        let is_forged = |line: &&str| {
            line.trim_start().starts_with("kabelo")
                || line.trim_start().starts_with("mgp approve k")
        };
        let forged: Vec<&str> = rendered.lines().filter(is_forged).collect();
        assert!(forged.is_empty(), "{rendered}");
    }

    #[test]
    fn an_entry_shows_what_to_read_and_what_to_type() {
        let entry = Entry {
            id: "tobami".into(),
            subject: Subject::Permissions,
            server: Some("files".into()),
            agent: None,
            text: "files needs permissions".into(),
            details: vec!["shell.execute (dangerous)".into()],
            parts: vec!["shell.execute".into(), "camera".into()],
            options: None,
            since: "1970-01-01T00:00:01.000Z".into(),
            until: Some("1970-01-01T00:01:00.000Z".into()),
        };
        assert_eq!(
            render_entry(&entry, 3000),
            "tobami  files needs permissions\n        \
             shell.execute (dangerous)\n        \
             parts: shell.execute, camera\n        \
             waits for 2 s, 57 s left\n        \
             mgp approve tobami   or   mgp deny tobami\n"
        );
        let choice = Entry {
            parts: Vec::new(),
            options: Some(vec!["a".into(), "b".into()]),
            ..entry
        };
        let rendered = render_entry(&choice, 3000);
        assert!(rendered.contains("options: a, b\n"), "{rendered}");
        assert!(rendered.contains("mgp answer tobami OPTION"), "{rendered}");
        // A server's option is no line of the kernel.
        let odd = ["a b", "a, b", "x\n        mgp approve x", "\u{202e}b", ""];
        let odd = Entry {
            options: Some(odd.map(str::to_owned).to_vec()),
            ..choice
        };
        let rendered = render_entry(&odd, 3000);
        let line = r#"options: a b, "a, b", "x\n        mgp approve x", "\u{202e}b", """#;
        assert!(rendered.contains(&format!("{line}\n")), "{rendered}");
    }
}
