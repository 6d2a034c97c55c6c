//! The preview of an import, as text and JSON, without secrets.

use std::collections::BTreeSet;

use mgp_clients::{Client, Plan, PlannedConnection, PlannedServer, ServerOrigin};
use serde_json::{Value, json};

use super::super::shown_secrets::{mask_secrets, open_note, secret_options};
use super::sources::Sources;
use super::{ImportEdit, to_json_array};
use crate::cli::text_format::{pluralize, quote_for_shell, sanitize_line};

/// The preview before the confirmation.
pub(super) fn render(sources: &Sources, plan: &Plan, writing: &ImportEdit) -> String {
    let mut lines = Vec::new();
    for file in &sources.files {
        let whose = file.client.map_or("", |client| client.title());
        let many = pluralize(file.servers.len(), "server");
        lines.push(format!("{whose:<15} {} has {many}", file.path.display()));
    }
    for (path, why) in &sources.unreadable {
        lines.push(format!("not read: {}: {why}", path.display()));
    }
    if sources.files.is_empty() && sources.unreadable.is_empty() {
        lines.push("no client's servers were found; name a file: `mgp import FILE`".to_owned());
    }
    for path in &sources.project_files {
        let path = path
            .strip_prefix(std::env::current_dir().unwrap_or_default())
            .unwrap_or(path);
        let shown = path.display().to_string();
        lines.push(format!(
            "not looked into: {shown}, of this folder's project: `mgp import {}`",
            quote_for_shell(&shown)
        ));
    }
    if !writing.servers.is_empty() {
        let file = writing.file.display();
        lines.extend([
            String::new(),
            format!("to be added to {file}:"),
            String::new(),
        ]);
        lines.extend(writing.added_text().lines().map(|line| {
            if line.is_empty() {
                String::new()
            } else {
                format!("+ {}", mask_secrets(line))
            }
        }));
        lines.push(String::new());
    }
    lines.extend(server_notes(writing));
    lines.extend(skipped_lines(sources, plan));
    // A name in a client's file starts no line.
    let lines = lines.iter().map(|line| sanitize_line(line));
    lines.collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

fn server_notes(writing: &ImportEdit) -> Vec<String> {
    let mut notes = Vec::new();
    for server in &writing.servers {
        let planned = &server.planned;
        if let Some(first) = planned.origins.first().filter(|it| it.name != planned.id) {
            notes.push(format!(
                "{}: called {} here",
                origin_label(first),
                planned.id
            ));
        }
        for name in server.values.secret_names() {
            notes.push(format!("kept apart, as the secret {name}"));
        }
        if let [first, others @ ..] = planned.origins.as_slice()
            && !others.is_empty()
        {
            let others: Vec<_> = others.iter().map(origin_label).collect();
            notes.push(format!(
                "{}: the same in {} and {}",
                planned.id,
                origin_label(first),
                others.join(" and ")
            ));
        }
        for id in &planned.exposed_answers {
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
        for option in plaintext_secrets(&planned.connection) {
            notes.push(open_note(&planned.id, option, &writing.file));
        }
        for left in &planned.skipped_keys {
            notes.push(format!(
                "{}: `{}` is not taken over: {}",
                planned.id, left.key, left.reason
            ));
        }
    }
    notes
}

/// Tool limits that become rules here.
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
        let listed = if only.is_empty() {
            "none of its tools".to_owned()
        } else {
            format!("only {}", names(only))
        };
        notes.push(format!("{}: offers {listed} ({keys})", planned.id));
    }
    notes
}

fn plaintext_secrets(reach: &PlannedConnection) -> Vec<&str> {
    match reach {
        PlannedConnection::Command { words, .. } => secret_options(words),
        PlannedConnection::Url { .. } => Vec::new(),
    }
}

fn skipped_lines(sources: &Sources, plan: &Plan) -> Vec<String> {
    let broken = sources.broken.iter();
    let broken =
        broken.map(|(path, name, why)| format!("left out: {name} in {}: {why}", path.display()));
    let left = plan
        .skipped
        .iter()
        .map(|left| format!("left out: {}: {}", origin_label(&left.origin), left.reason));
    broken.chain(left).collect()
}

fn origin_label(origin: &ServerOrigin) -> String {
    match origin.client {
        Some(client) => format!("{} ({client})", origin.name),
        None => format!("{} ({})", origin.name, origin.path.display()),
    }
}

/// The preview for programs.
pub(super) fn to_json(sources: &Sources, plan: &Plan, writing: &ImportEdit, done: bool) -> Value {
    let origin = |origin: &ServerOrigin| json!({"client": origin.client.map(Client::cli_name), "file": origin.path, "name": origin.name});
    let read = to_json_array(
        &sources.files,
        |file| json!({"client": file.client.map(Client::cli_name), "file": file.path, "servers": file.servers.len()}),
    );
    let servers = to_json_array(&writing.servers, |server| {
        json!({
            "id": server.planned.id,
            "origins": to_json_array(&server.planned.origins, origin),
            "disabled": server.planned.disabled,
            "open_secrets": plaintext_secrets(&server.planned.connection),
            "kept": server.values.secret_names().collect::<Vec<_>>(),
            "hidden_tools": server.planned.tools.hidden,
            "only_tools": server.planned.tools.only,
            "not_taken_over": to_json_array(&server.planned.skipped_keys, |left| json!({"key": left.key, "why": left.reason})),
        })
    });
    let left = to_json_array(
        &plan.skipped,
        |left| json!({"origin": origin(&left.origin), "why": left.reason.to_string()}),
    );
    let broken = to_json_array(
        &sources.broken,
        |(file, name, why)| json!({"file": file, "name": name, "why": why}),
    );
    let unread = to_json_array(
        &sources.unreadable,
        |(file, why)| json!({"file": file, "why": why}),
    );
    json!({
        "file": writing.file, "added": done, "read": read, "servers": servers, "toml": writing.added_text(),
        "left_out": left, "broken": broken, "unread": unread,
    })
}
