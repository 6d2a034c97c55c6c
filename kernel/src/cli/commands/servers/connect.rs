//! `mgp connect`: this kernel's entry in a client's file.

mod carried;
pub(in crate::cli::commands) mod client_file;
mod tokens;

use std::io::{self, IsTerminal};
use std::path::Path;

use mgp_clients::{Client, OwnReach, Reader, UndoneFile, files};
use serde_json::{Value, json};

use self::client_file::ClientFileEdit;
use self::tokens::Revocations;
use super::import::{USUAL_DOOR, doubled, sources};
use crate::cli::args::Connect;
use crate::cli::client::CliContext;
use crate::cli::commands::agents;
use crate::cli::commands::tools::sets;
use crate::cli::failure::Failure;
use crate::cli::print::{ask_yes, report, say};
use crate::cli::words::{plain, plain_lines};

/// What the entry is called; by the second name where the first is another server's.
pub(in crate::cli::commands) const ENTRIES: [&str; 2] = ["mgp", "mgp-kernel"];
/// What is shown in place of a token.
const UNSEEN: &str = "…";

/// Shows what would change, asks, and writes it.
pub(in crate::cli::commands) fn connect(
    context: &CliContext,
    typed: &Connect,
) -> Result<(), Failure> {
    let clients = clients(context, typed)?;
    let mut told = Vec::new();
    for client in clients {
        told.push(match typed.undo {
            true => undo(context, typed, client)?,
            false => one(context, typed, client)?,
        });
    }
    match context.json {
        true => say(Value::from(told)),
        false => Ok(()),
    }
}

/// Those that were named; with `--all` those that are here.
fn clients(context: &CliContext, typed: &Connect) -> Result<Vec<Client>, Failure> {
    let mut clients = Vec::new();
    for word in &typed.clients {
        let known = Client::parse(word);
        clients.extend(known.map_err(|unknown| Failure::Usage(unknown.to_string()))?);
    }
    if typed.all {
        let all = Client::ALL
            .into_iter()
            .map(|client| ClientFileEdit::of(context, client));
        let all = all.collect::<Result<Vec<_>, _>>()?;
        clients.extend(
            all.iter()
                .filter(|file| file.is_here())
                .map(|file| file.client),
        );
    }
    clients.sort_unstable();
    clients.dedup();
    match clients.is_empty() {
        true => Err(Failure::Usage(
            "no client was found here; name one: `mgp connect cursor`".to_owned(),
        )),
        false => Ok(clients),
    }
}

fn one(context: &CliContext, typed: &Connect, client: Client) -> Result<Value, Failure> {
    let file = ClientFileEdit::of(context, client)?;
    if let Some(set) = &typed.set {
        sets::named(context, set)?;
    }
    let reach = own_reach(context, typed)?;
    let address = running_door(context)?;
    let address = address.as_deref().unwrap_or(USUAL_DOOR);
    let own = match file.own_name(&entry(client, ENTRIES[0], &reach)?, address) {
        Err(_) if typed.print => ENTRIES[0],
        own => own?,
    };
    let entry = entry(client, own, &reach)?;
    if typed.print {
        return print(context, &file, &json!({ client.table(): { own: entry } }));
    }
    let doubled = match typed.take_out {
        true => doubled(context, &file.path, client)?,
        false => Vec::new(),
    };
    let after = file.with(own, &entry, &doubled)?;
    let limits = carried::NewRules::new(&doubled)?;
    let names: Vec<_> = doubled.iter().map(|server| &server.name).collect();
    let not_carried = carried::not_carried(&doubled);
    let told = |changed: bool| {
        json!({
            "client": client.word(), "file": file.path, "changed": changed, "taken_out": names,
            "rules": limits.to_json(), "not_carried_over": not_carried,
        })
    };
    if after == file.before() {
        if !context.json {
            say(format_args!(
                "{client} is connected already: {}",
                file.path.display()
            ))?;
        }
        return Ok(told(false));
    }
    if !context.json {
        say(plain_lines(&file.difference(&after)))?;
        let started = carried::kept_from_starting(client, &file.document()?, own);
        for line in limits.lines().iter().chain(&not_carried).chain(&started) {
            say(plain(line))?;
        }
    }
    if typed.dry_run || !agreed(context, typed, client)? {
        return Ok(told(false));
    }
    // Before the servers are gone there, they are held here to what they were held to there.
    limits.write(context)?;
    // Only now: a token that is made anew ends what the one before was good for.
    let (after, token) = match reach {
        OwnReach::Url { url, .. } => {
            let (token, made) = tokens::make(context, typed, &file)?;
            let entry = self::entry(client, own, &OwnReach::Url { url, token })?;
            (file.with(own, &entry, &doubled)?, Some(made))
        }
        OwnReach::Command { .. } => (after, None),
    };
    let kept = file.connect(own, &after, token, address)?;
    if !context.json {
        tell_connected(client, kept.as_deref())?;
        tell_foreign(&file, kept.as_deref().unwrap_or(&file.path))?;
    }
    Ok(told(true))
}

/// Shows what to write by hand.
fn print(context: &CliContext, file: &ClientFileEdit, table: &Value) -> Result<Value, Failure> {
    let client = file.client;
    if !context.json {
        report(format_args!("for {client}, in {}:", file.path.display()));
        say(file.in_form(table)?)?;
    }
    Ok(json!({"client": client.word(), "file": file.path, "entry": table}))
}

fn tell_connected(client: Client, kept: Option<&Path>) -> Result<(), Failure> {
    say(format_args!(
        "{client} is connected; start it again to see it"
    ))?;
    if let Some(kept) = kept {
        report(format_args!(
            "as it was: {}; `mgp connect --undo {}` takes the entry out again",
            kept.display(),
            client.word()
        ));
    }
    Ok(())
}

/// A file that has the name of the copy, and is its user's.
pub(super) fn tell_foreign(file: &ClientFileEdit, copy: &Path) -> Result<(), Failure> {
    if let Some(foreign) = file.foreign_copy()?.filter(|it| it != copy) {
        report(plain(&format!(
            "note: {} was there, and no record says that it is this kernel's copy: it was left alone",
            foreign.display()
        )));
    }
    Ok(())
}

/// How the client reaches this kernel; the token is made later.
fn own_reach(context: &CliContext, typed: &Connect) -> Result<OwnReach, Failure> {
    if !typed.http {
        return over_stdio(context, typed);
    }
    let door = door(context)?;
    Ok(OwnReach::Url {
        url: match &typed.set {
            Some(set) => format!("{door}/p/{set}"),
            None => door,
        },
        token: UNSEEN.to_owned(),
    })
}

fn entry(client: Client, name: &str, reach: &OwnReach) -> Result<Value, Failure> {
    let entry = client.own_entry(name, reach);
    entry.map_err(|none| Failure::Usage(none.to_string()))
}

fn undo(context: &CliContext, typed: &Connect, client: Client) -> Result<Value, Failure> {
    let file = ClientFileEdit::of(context, client)?;
    let door = running_door(context)?;
    let undone = file.undone(door.as_deref().unwrap_or(USUAL_DOOR))?;
    let exact = file.is_as_before(undone.text.as_deref())?;
    let gone = file.tokens_gone_from(undone.text.as_deref().unwrap_or_default())?;
    let revoked = Revocations::plan(context, client, gone)?;
    let blocked: Vec<_> = undone.blocked.iter().map(|entry| &entry.name).collect();
    let told = |changed: bool, copy: Option<&Path>| {
        json!({
            "client": client.word(), "file": file.path, "changed": changed,
            "as_before": changed && exact, "restored": undone.restored,
            "not_restored": blocked, "copy": copy, "tokens": revoked.to_json(),
        })
    };
    let changed = match &undone.text {
        Some(text) => !file.exists() || text != file.before(),
        None => file.exists(),
    };
    if !changed {
        if !context.json {
            say(format_args!(
                "{client} has no entry of this kernel: {}",
                file.path.display()
            ))?;
            tell_blocked(client, &undone);
            revoked.tell()?;
            tell_foreign(&file, &file.path)?;
        }
        if exact && !typed.dry_run {
            file.restore(&undone)?;
        }
        if !typed.dry_run {
            revoked.carry_out(context)?;
        }
        return Ok(told(false, None));
    }
    if !context.json {
        say(plain_lines(
            &file.difference(undone.text.as_deref().unwrap_or_default()),
        ))?;
        revoked.tell()?;
    }
    if typed.dry_run || !agreed(context, typed, client)? {
        return Ok(told(false, None));
    }
    let copy = file.restore(&undone)?;
    revoked.carry_out(context)?;
    if !context.json {
        match exact {
            true => say(format_args!("{client} is as it was before"))?,
            false => say(plain(&merged(client, &undone)))?,
        }
        tell_blocked(client, &undone);
        if let Some(copy) = &copy {
            report(format_args!("as it was: {}", copy.display()));
        }
        tell_foreign(&file, &file.path)?;
    }
    Ok(told(true, copy.as_deref()))
}

fn tell_blocked(client: Client, undone: &UndoneFile) {
    for entry in &undone.blocked {
        report(plain(&format!(
            "{}: {client} has another server of this name now; the one that was taken out did not come back",
            entry.name
        )));
    }
}

/// What undoing did where the client had changed its file.
fn merged(client: Client, undone: &UndoneFile) -> String {
    let back = match undone.restored.as_slice() {
        [] => String::new(),
        [one] => format!("; {one} is back"),
        many => format!("; {} are back", many.join(", ")),
    };
    if !undone.is_own_known {
        return format!(
            "{client}: no entry of this kernel was found{back}; if one is there in other words, take it out by hand"
        );
    }
    format!(
        "{client} has no entry of this kernel any more{back}; what was changed there since stays"
    )
}

fn agreed(context: &CliContext, typed: &Connect, client: Client) -> Result<bool, Failure> {
    if typed.yes {
        return Ok(true);
    }
    if context.json || !io::stdin().is_terminal() {
        return Err(Failure::Usage(format!(
            "there is no terminal to ask on: `mgp connect --yes {}` writes it",
            client.word()
        )));
    }
    ask_yes("Write this?")
}

/// The program stands with its whole path: a client started from a desktop may have another PATH.
fn over_stdio(context: &CliContext, typed: &Connect) -> Result<OwnReach, Failure> {
    let entry = agents::stdio(context, typed.agent.as_deref(), typed.set.as_deref());
    if let Some(agent) = &typed.agent {
        context.with_kernel(async |client| {
            crate::cli::client::names::agent(client, agent)
                .await
                .map(drop)
        })?;
    }
    let words = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(OwnReach::Command {
        program: words(&entry["command"]),
        args: entry["args"]
            .as_array()
            .into_iter()
            .flatten()
            .map(words)
            .collect(),
    })
}

/// Where the kernel that runs is reached over HTTP.
fn door(context: &CliContext) -> Result<String, Failure> {
    let url = running_door(context)?;
    url.ok_or_else(|| {
        let none = "no kernel with an HTTP door is running: `mgp up --detach` starts one";
        Failure::Other(none.to_owned())
    })
}

fn running_door(context: &CliContext) -> Result<Option<String>, Failure> {
    let status = context.status()?;
    let mut doors = status.iter().flat_map(|status| &status.doors);
    Ok(doors.find_map(|door| agents::url(door)).map(str::to_owned))
}

/// The user's file of a client.
fn user_file(context: &CliContext, client: Client) -> Result<std::path::PathBuf, Failure> {
    let all = files(&sources::folders(context)?, None);
    let own = all
        .into_iter()
        .filter(|file| file.client == client && file.reader == Reader::User);
    let paths: Vec<_> = own.map(|file| file.path).collect();
    let there = paths.iter().find(|path| path.exists());
    let path = there.or_else(|| paths.first()).cloned();
    path.ok_or_else(|| Failure::Other(format!("{client} has no file of its user")))
}
