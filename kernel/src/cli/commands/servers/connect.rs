//! `mgp connect`: this kernel's entry in a client's file.

mod carried_rules;
pub(in crate::cli::commands) mod client_file;
mod tokens;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use mgp_clients::{Client, FileScope, KernelConnection, UndoResult, through_wsl};
use serde_json::{Value, json};

use self::client_file::ClientFileEdit;
use self::tokens::Revocations;
use super::import::{DEFAULT_ENDPOINT, find_duplicates, sources};
use crate::cli::args::Connect;
use crate::cli::client::CliContext;
use crate::cli::commands::agents;
use crate::cli::commands::tools::sets;
use crate::cli::failure::Failure;
use crate::cli::print::{confirm, print_error, print_line};
use crate::cli::text_format::{sanitize_line, sanitize_lines};

/// The name of the entry; the second one if the first is another server's.
pub(in crate::cli::commands) const ENTRY_NAMES: [&str; 2] = ["mgp", "mgp-kernel"];
/// Displayed instead of a token.
const TOKEN_PLACEHOLDER: &str = "…";

/// Shows the changes, asks for confirmation, and writes them.
pub(in crate::cli::commands) fn connect(
    context: &CliContext,
    typed: &Connect,
) -> Result<(), Failure> {
    let clients = selected_clients(context, typed)?;
    let mut summary = Vec::new();
    for client in clients {
        summary.push(if typed.undo {
            undo_client(context, typed, client)?
        } else {
            connect_client(context, typed, client)?
        });
    }
    if context.json {
        print_line(Value::from(summary))
    } else {
        Ok(())
    }
}

/// The named clients; with `--all` the installed ones.
fn selected_clients(context: &CliContext, typed: &Connect) -> Result<Vec<Client>, Failure> {
    let mut clients = Vec::new();
    for word in &typed.clients {
        let known = Client::parse(word);
        clients.extend(known.map_err(|unknown| Failure::Usage(unknown.to_string()))?);
    }
    if typed.all {
        let all = Client::ALL
            .into_iter()
            .map(|client| ClientFileEdit::open_user_file(context, client));
        let all = all.collect::<Result<Vec<_>, _>>()?;
        clients.extend(
            all.iter()
                .filter(|file| file.is_client_installed())
                .map(|file| file.client),
        );
    }
    clients.sort_unstable();
    clients.dedup();
    if clients.is_empty() {
        Err(Failure::Usage(
            "no client was found here; name one: `mgp connect cursor`".to_owned(),
        ))
    } else {
        Ok(clients)
    }
}

fn connect_client(context: &CliContext, typed: &Connect, client: Client) -> Result<Value, Failure> {
    let file = ClientFileEdit::open_user_file(context, client)?;
    if let Some(set) = &typed.set {
        sets::find_set(context, set)?;
    }
    let reach = kernel_reach(context, typed, &file.path)?;
    let address = running_http_endpoint(context)?;
    let address = address.as_deref().unwrap_or(DEFAULT_ENDPOINT);
    let own = match file.entry_name(&kernel_entry(client, ENTRY_NAMES[0], &reach)?, address) {
        Err(_) if typed.print => ENTRY_NAMES[0],
        own => own?,
    };
    let entry = kernel_entry(client, own, &reach)?;
    if typed.print {
        return print_manual_edit(context, &file, &json!({ client.table(): { own: entry } }));
    }
    let doubled = if typed.take_out {
        find_duplicates(context, &file.path, client)?
    } else {
        Vec::new()
    };
    let after = file.with_entry(own, &entry, &doubled)?;
    let limits = carried_rules::RuleEdits::new(&doubled)?;
    let names: Vec<_> = doubled.iter().map(|server| &server.name).collect();
    let not_carried = carried_rules::dropped_settings(&doubled);
    let summary = |changed: bool| {
        json!({
            "client": client.cli_name(), "file": file.path, "changed": changed, "taken_out": names,
            "rules": limits.to_json(), "not_carried_over": not_carried,
        })
    };
    if after == file.text() {
        if !context.json {
            print_line(format_args!(
                "{client} is connected already: {}",
                file.path.display()
            ))?;
        }
        return Ok(summary(false));
    }
    if !context.json {
        print_line(sanitize_lines(&file.render_diff(&after)))?;
        let started = carried_rules::blocked_by_client(client, &file.document()?, own);
        for line in limits
            .render_lines()
            .iter()
            .chain(&not_carried)
            .chain(&started)
        {
            print_line(sanitize_line(line))?;
        }
    }
    if typed.dry_run || !confirm_connect(context, typed, client)? {
        return Ok(summary(false));
    }
    // Before the servers are removed there, their limits become rules here.
    limits.write(context)?;
    // Only now: a new token invalidates the previous one.
    let (after, token) = match reach {
        KernelConnection::Url { url, .. } => {
            let (token, made) = tokens::make(context, typed, &file)?;
            let entry = self::kernel_entry(client, own, &KernelConnection::Url { url, token })?;
            (file.with_entry(own, &entry, &doubled)?, Some(made))
        }
        KernelConnection::Command { .. } => (after, None),
    };
    let backup = file.write_connected(own, &after, token, address)?;
    if !context.json {
        report_connected(client, backup.as_deref())?;
        print_foreign_copy(&file, backup.as_deref().unwrap_or(&file.path))?;
    }
    Ok(summary(true))
}

/// Shows what to write by hand.
fn print_manual_edit(
    context: &CliContext,
    file: &ClientFileEdit,
    table: &Value,
) -> Result<Value, Failure> {
    let client = file.client;
    if !context.json {
        print_error(format_args!("for {client}, in {}:", file.path.display()));
        print_line(file.render_table(table)?)?;
    }
    Ok(json!({"client": client.cli_name(), "file": file.path, "entry": table}))
}

fn report_connected(client: Client, backup: Option<&Path>) -> Result<(), Failure> {
    print_line(format_args!(
        "{client} is connected; start it again to see it"
    ))?;
    if let Some(backup) = backup {
        print_error(format_args!(
            "as it was: {}; `mgp connect --undo {}` takes the entry out again",
            backup.display(),
            client.cli_name()
        ));
    }
    Ok(())
}

/// Reports a file of the user that has the name of the copy.
pub(super) fn print_foreign_copy(file: &ClientFileEdit, copy: &Path) -> Result<(), Failure> {
    if let Some(foreign) = file.foreign_copy()?.filter(|it| it != copy) {
        print_error(sanitize_line(&format!(
            "note: {} was there, and no record says that it is this kernel's copy: it was left alone",
            foreign.display()
        )));
    }
    Ok(())
}

/// How the client reaches this kernel; the token is created later.
fn kernel_reach(
    context: &CliContext,
    typed: &Connect,
    file: &Path,
) -> Result<KernelConnection, Failure> {
    if !typed.http {
        let reach = stdio_reach(context, typed)?;
        return Ok(match (reach, context.windows_host()) {
            (KernelConnection::Command { program, args }, Some(host)) if host.has(file) => {
                let (program, args) = through_wsl(&host.distribution, program.as_ref(), &args);
                KernelConnection::Command { program, args }
            }
            (reach, _) => reach,
        });
    }
    let door = http_endpoint(context)?;
    Ok(KernelConnection::Url {
        url: match &typed.set {
            Some(set) => format!("{door}/p/{set}"),
            None => door,
        },
        token: TOKEN_PLACEHOLDER.to_owned(),
    })
}

fn kernel_entry(client: Client, name: &str, reach: &KernelConnection) -> Result<Value, Failure> {
    let entry = client.kernel_entry(name, reach);
    entry.map_err(|none| Failure::Usage(none.to_string()))
}

fn undo_client(context: &CliContext, typed: &Connect, client: Client) -> Result<Value, Failure> {
    let file = ClientFileEdit::open_user_file(context, client)?;
    let door = running_http_endpoint(context)?;
    let undone = file.plan_undo(door.as_deref().unwrap_or(DEFAULT_ENDPOINT))?;
    let exact = file.matches_backup(undone.text.as_deref())?;
    let revoked_tokens = file.tokens_gone_from(undone.text.as_deref().unwrap_or_default())?;
    let revoked = Revocations::plan(context, client, revoked_tokens)?;
    let blocked: Vec<_> = undone.blocked.iter().map(|entry| &entry.name).collect();
    let summary = |changed: bool, copy: Option<&Path>| {
        json!({
            "client": client.cli_name(), "file": file.path, "changed": changed,
            "as_before": changed && exact, "restored": undone.restored,
            "not_restored": blocked, "copy": copy, "tokens": revoked.to_json(),
        })
    };
    let changed = match &undone.text {
        Some(text) => !file.exists() || text != file.text(),
        None => file.exists(),
    };
    if !changed {
        if !context.json {
            print_line(format_args!(
                "{client} has no entry of this kernel: {}",
                file.path.display()
            ))?;
            report_blocked(client, &undone);
            revoked.tell()?;
            print_foreign_copy(&file, &file.path)?;
        }
        if exact && !typed.dry_run {
            file.restore(&undone)?;
        }
        if !typed.dry_run {
            revoked.apply(context)?;
        }
        return Ok(summary(false, None));
    }
    if !context.json {
        print_line(sanitize_lines(
            &file.render_diff(undone.text.as_deref().unwrap_or_default()),
        ))?;
        revoked.tell()?;
    }
    if typed.dry_run || !confirm_connect(context, typed, client)? {
        return Ok(summary(false, None));
    }
    let copy = file.restore(&undone)?;
    revoked.apply(context)?;
    if !context.json {
        if exact {
            print_line(format_args!("{client} is as it was before"))?
        } else {
            print_line(sanitize_line(&describe_merge(client, &undone)))?
        }
        report_blocked(client, &undone);
        if let Some(copy) = &copy {
            print_error(format_args!("as it was: {}", copy.display()));
        }
        print_foreign_copy(&file, &file.path)?;
    }
    Ok(summary(true, copy.as_deref()))
}

fn report_blocked(client: Client, undone: &UndoResult) {
    for entry in &undone.blocked {
        print_error(sanitize_line(&format!(
            "{}: {client} has another server of this name now; the one that was taken out did not come back",
            entry.name
        )));
    }
}

/// Describes an undo of a file that the client had changed.
fn describe_merge(client: Client, undone: &UndoResult) -> String {
    let back = match undone.restored.as_slice() {
        [] => String::new(),
        [one] => format!("; {one} is back"),
        many => format!("; {} are back", many.join(", ")),
    };
    if !undone.is_kernel_entry_known {
        return format!(
            "{client}: no entry of this kernel was found{back}; if one is there in other words, take it out by hand"
        );
    }
    format!(
        "{client} has no entry of this kernel any more{back}; what was changed there since stays"
    )
}

fn confirm_connect(context: &CliContext, typed: &Connect, client: Client) -> Result<bool, Failure> {
    if typed.yes {
        return Ok(true);
    }
    if context.json || !io::stdin().is_terminal() {
        return Err(Failure::Usage(format!(
            "there is no terminal to ask on: `mgp connect --yes {}` writes it",
            client.cli_name()
        )));
    }
    confirm("Write this?")
}

/// The program has an absolute path: a client started from a desktop may have another PATH.
fn stdio_reach(context: &CliContext, typed: &Connect) -> Result<KernelConnection, Failure> {
    let entry = agents::stdio_entry(context, typed.agent.as_deref(), typed.set.as_deref());
    if let Some(agent) = &typed.agent {
        context.with_kernel(async |client| {
            crate::cli::client::name_resolution::resolve_agent(client, agent)
                .await
                .map(drop)
        })?;
    }
    let words = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(KernelConnection::Command {
        program: words(&entry["command"]),
        args: entry["args"]
            .as_array()
            .into_iter()
            .flatten()
            .map(words)
            .collect(),
    })
}

/// The HTTP endpoint of the running kernel.
fn http_endpoint(context: &CliContext) -> Result<String, Failure> {
    let url = running_http_endpoint(context)?;
    url.ok_or_else(|| {
        let none = "no kernel with an HTTP door is running: `mgp up --detach` starts one";
        Failure::Other(none.to_owned())
    })
}

fn running_http_endpoint(context: &CliContext) -> Result<Option<String>, Failure> {
    let status = context.status()?;
    let mut doors = status.iter().flat_map(|status| &status.doors);
    Ok(doors
        .find_map(|door| agents::endpoint_url(door))
        .map(str::to_owned))
}

/// The user's file of a client.
fn client_user_file(context: &CliContext, client: Client) -> Result<std::path::PathBuf, Failure> {
    let all = sources::known_client_files(context, None)?;
    let own = all
        .into_iter()
        .filter(|file| file.client == client && file.scope == FileScope::User);
    let paths: Vec<_> = own.map(|file| file.path).collect();
    let home = context.base_dirs.home.as_deref();
    // A client that was not used yet has only its folder.
    let folder = |path: &&PathBuf| {
        path.parent()
            .is_some_and(|it| it.is_dir() && Some(it) != home)
    };
    let there = paths.iter().find(|path| path.exists());
    let there = there.or_else(|| paths.iter().find(folder));
    let path = there.or_else(|| paths.first()).cloned();
    path.ok_or_else(|| Failure::Other(format!("{client} has no file of its user")))
}
