//! What was found, and what would be added, in words and in JSON. No secret is in either.

use std::collections::BTreeSet;

use mgp_clients::{Client, Plan, PlannedReach, PlannedServer, ServerOrigin};
use serde_json::{Value, json};

use super::super::secrets::{in_command, masked, open_note};
use super::sources::Sources;
use super::{EntriesToWrite, list};
use crate::cli::words::{counted, plain, shell_word};

/// The whole of it, before the question.
pub(super) fn in_words(sources: &Sources, plan: &Plan, writing: &EntriesToWrite) -> String {
    let mut lines = Vec::new();
    for file in &sources.files {
        let whose = file.client.map_or("", |client| client.title());
        let many = counted(file.servers.len(), "server");
        lines.push(format!("{whose:<15} {} has {many}", file.path.display()));
    }
    for (path, why) in &sources.unread {
        lines.push(format!("not read: {}: {why}", path.display()));
    }
    if sources.files.is_empty() && sources.unread.is_empty() {
        lines.push("no client's servers were found; name a file: `mgp import FILE`".to_owned());
    }
    for path in &sources.of_project {
        let path = path
            .strip_prefix(std::env::current_dir().unwrap_or_default())
            .unwrap_or(path);
        let shown = path.display().to_string();
        lines.push(format!(
            "not looked into: {shown}, of this folder's project: `mgp import {}`",
            shell_word(&shown)
        ));
    }
    if !writing.servers.is_empty() {
        let file = writing.file.display();
        lines.extend([
            String::new(),
            format!("to be added to {file}:"),
            String::new(),
        ]);
        lines.extend(writing.added().lines().map(|line| match line.is_empty() {
            true => String::new(),
            false => format!("+ {}", masked(line)),
        }));
        lines.push(String::new());
    }
    lines.extend(notes(writing));
    lines.extend(left_out(sources, plan));
    // A name in a client's file makes no line of its own.
    let lines = lines.iter().map(|line| plain(line));
    lines.collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

fn notes(writing: &EntriesToWrite) -> Vec<String> {
    let mut notes = Vec::new();
    for server in &writing.servers {
        let planned = &server.planned;
        if let Some(first) = planned.origins.first().filter(|it| it.name != planned.id) {
            notes.push(format!("{}: called {} here", of(first), planned.id));
        }
        for name in server.given.kept() {
            notes.push(format!("kept apart, as the secret {name}"));
        }
        if let [first, others @ ..] = planned.origins.as_slice()
            && !others.is_empty()
        {
            let others: Vec<_> = others.iter().map(of).collect();
            notes.push(format!(
                "{}: the same in {} and {}",
                planned.id,
                of(first),
                others.join(" and ")
            ));
        }
        for id in &planned.open_answers {
            notes.push(format!(
                "{}: the answer to `{id}` is a secret and stands on its command line: every user of this machine can read it while it runs",
                planned.id
            ));
        }
        notes.extend(tool_notes(planned));
        if planned.disabled
            && let Some(by) = planned.disabled_by
        {
            notes.push(format!("{}: `{by}` switches it off there", planned.id));
        }
        if planned.disabled {
            notes.push(format!(
                "{}: switched off there, and stays so: `mgp servers start {}`",
                planned.id, planned.id
            ));
        }
        for option in open_secrets(&planned.reach) {
            notes.push(open_note(&planned.id, option, &writing.file));
        }
        for left in &planned.left_out {
            notes.push(format!(
                "{}: `{}` is not taken over: {}",
                planned.id, left.key, left.why
            ));
        }
    }
    notes
}

/// The limits of tools that become rules here.
fn tool_notes(planned: &PlannedServer) -> Vec<String> {
    let tools = &planned.tools;
    let keys: Vec<_> = tools.keys.iter().map(|key| format!("`{key}`")).collect();
    let keys = keys.join(", ");
    let names = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
    let mut notes = Vec::new();
    if !tools.hidden.is_empty() {
        notes.push(format!(
            "{}: hidden from all agents: {} ({keys})",
            planned.id,
            names(&tools.hidden)
        ));
    }
    if let Some(only) = &tools.only {
        let listed = match only.is_empty() {
            true => "none of its tools".to_owned(),
            false => format!("only {}", names(only)),
        };
        notes.push(format!("{}: offers {listed} ({keys})", planned.id));
    }
    notes
}

fn open_secrets(reach: &PlannedReach) -> Vec<&str> {
    match reach {
        PlannedReach::Command { words, .. } => in_command(words),
        PlannedReach::Url { .. } => Vec::new(),
    }
}

fn left_out(sources: &Sources, plan: &Plan) -> Vec<String> {
    let broken = sources.broken.iter();
    let broken =
        broken.map(|(path, name, why)| format!("left out: {name} in {}: {why}", path.display()));
    let left = plan
        .left
        .iter()
        .map(|left| format!("left out: {}: {}", of(&left.origin), left.why));
    broken.chain(left).collect()
}

fn of(origin: &ServerOrigin) -> String {
    match origin.client {
        Some(client) => format!("{} ({client})", origin.name),
        None => format!("{} ({})", origin.name, origin.path.display()),
    }
}

/// The same for programs.
pub(super) fn to_json(
    sources: &Sources,
    plan: &Plan,
    writing: &EntriesToWrite,
    done: bool,
) -> Value {
    let origin = |origin: &ServerOrigin| json!({"client": origin.client.map(Client::word), "file": origin.path, "name": origin.name});
    let read = list(
        &sources.files,
        |file| json!({"client": file.client.map(Client::word), "file": file.path, "servers": file.servers.len()}),
    );
    let servers = list(&writing.servers, |server| {
        json!({
            "id": server.planned.id,
            "origins": list(&server.planned.origins, origin),
            "disabled": server.planned.disabled,
            "open_secrets": open_secrets(&server.planned.reach),
            "kept": server.given.kept().collect::<Vec<_>>(),
            "hidden_tools": server.planned.tools.hidden,
            "only_tools": server.planned.tools.only,
            "not_taken_over": list(&server.planned.left_out, |left| json!({"key": left.key, "why": left.why})),
        })
    });
    let left = list(
        &plan.left,
        |left| json!({"origin": origin(&left.origin), "why": left.why.to_string()}),
    );
    let broken = list(
        &sources.broken,
        |(file, name, why)| json!({"file": file, "name": name, "why": why}),
    );
    let unread = list(
        &sources.unread,
        |(file, why)| json!({"file": file, "why": why}),
    );
    json!({
        "file": writing.file, "added": done, "read": read, "servers": servers, "toml": writing.added(),
        "left_out": left, "broken": broken, "unread": unread,
    })
}
