//! `mgp export`: this kernel's servers become a client's.

mod entries;

use std::io::{self, IsTerminal};
use std::path::Path;

use mgp_clients::{Client, EntryPlace, ExportedServer, append, files, put};
use serde_json::{Map, Value, json};

use self::entries::{ExportEntries, LeftThere};
use super::connect::client_file::ClientFileEdit;
use super::connect::tell_foreign;
use super::import::sources;
use crate::cli::args::Export;
use crate::cli::client::CliContext;
use crate::cli::failure::Failure;
use crate::cli::print::{ask_yes, report, say};
use crate::cli::words::{plain, plain_lines};

/// Whose way of writing most clients understand.
const COMMON: Client = Client::ClaudeCode;

/// Shows what would be written, asks, and writes it; without a client or a file only prints it.
pub(in crate::cli::commands) fn export(
    context: &CliContext,
    typed: &Export,
) -> Result<(), Failure> {
    let file = match &typed.to {
        Some(to) => Some(target(context, to)?),
        None => None,
    };
    let client = file.as_ref().map_or(COMMON, |file| file.client);
    let mut entries = ExportEntries::of(context, typed, client)?;
    let Some(file) = file else {
        let table: Map<String, Value> = entries.table();
        let document = json!({ client.table(): table });
        return match context.json {
            true => say(told(&entries, client, None, false)),
            false => {
                say(serde_json::to_string_pretty(&document).expect("a document is JSON"))?;
                tell(&entries);
                Ok(())
            }
        };
    };
    let after = edited(&file, &mut entries, typed.replace)?;
    let changed = after != file.before();
    if !context.json {
        match changed {
            true => say(plain_lines(&file.difference(&after)))?,
            false => say(format_args!(
                "nothing to write into {}",
                file.path.display()
            ))?,
        }
        tell(&entries);
    }
    let written = changed && !typed.dry_run && agreed(context, typed, &file.path)?;
    let kept = match written {
        true => file.write(&after, typed.with_values)?,
        false => None,
    };
    if context.json {
        return say(told(&entries, client, Some(&file.path), written));
    }
    match (written, changed && !typed.dry_run) {
        (true, _) => {
            let many = match entries.servers.len() {
                1 => "1 server".to_owned(),
                many => format!("{many} servers"),
            };
            say(format_args!("{many} written into {}", file.path.display()))?;
            if let Some(kept) = kept {
                report(format_args!("as it was: {}", kept.display()));
                tell_foreign(&file, &kept)?;
            }
            Ok(())
        }
        (false, true) => Err(Failure::Other("nothing was changed".to_owned())),
        (false, false) => Ok(()),
    }
}

/// The file of a client, or the one that was named, in the form of the client it belongs to.
fn target(context: &CliContext, to: &str) -> Result<ClientFileEdit, Failure> {
    let path = context.look_up.folder.join(to);
    if !(path.is_file() || to.contains(['/', '.'])) {
        let clients = Client::parse(to).map_err(|unknown| Failure::Usage(unknown.to_string()))?;
        return match clients[..] {
            [client] => ClientFileEdit::of(context, client),
            _ => {
                let words: Vec<_> = clients.iter().map(|client| client.word()).collect();
                let words = words.join(" or ");
                Err(Failure::Usage(format!("which one: {words}?")))
            }
        };
    }
    let known = files(&sources::folders(context)?, Some(&context.look_up.folder));
    let known = known.into_iter().find(|file| file.path == path);
    let client = known.map(|file| file.client);
    let client = client.or_else(|| Client::of_file(&path)).unwrap_or(COMMON);
    if client.form() != mgp_clients::DocumentForm::of(&path) {
        return Err(Failure::Usage(format!(
            "{} is no file of a client that is known; clients write JSON, Codex TOML into config.toml, \
             and Goose YAML into its own file: name the client",
            path.display()
        )));
    }
    ClientFileEdit::at(client, path)
}

/// The text with the entries in it. What is there already, or another one of the name, is left.
fn edited(
    file: &ClientFileEdit,
    entries: &mut ExportEntries,
    replace: bool,
) -> Result<String, Failure> {
    let client = file.client;
    let failed = |why: String| Failure::Other(format!("{}: {why}", file.path.display()));
    let form = client.form();
    let document = form
        .read(file.before())
        .map_err(|why| failed(why.to_string()))?;
    let table = client.table_in(&document);
    let (mut text, mut inputs) = (file.before().to_owned(), Vec::new());
    for (id, server) in std::mem::take(&mut entries.servers) {
        let here = table
            .iter()
            .try_fold(&document, |value, key| value.get(key));
        let named = here.map(Client::entries).unwrap_or_default();
        let named = named.into_iter().find(|(name, _)| *name == id);
        let there = named.map_or(&Value::Null, |(_, entry)| entry);
        if *there == server.entry {
            entries.left(&id, format!("{} has it already", file.path.display()));
            continue;
        }
        if !there.is_null() && !replace {
            let why = format!(
                "{} has another entry of this name; --replace writes over it",
                file.path.display()
            );
            entries.left(&id, why);
            continue;
        }
        let place = EntryPlace {
            table: &table,
            shape: client.shape(),
            name: &id,
        };
        let with = put(form, &text, place, &server.entry);
        text = with.map_err(|why| failed(why.to_string()))?;
        inputs.extend(server.inputs.iter().cloned());
        entries.servers.push((id, server));
    }
    let there = document["inputs"].as_array();
    let mut known: Vec<Value> = there
        .into_iter()
        .flatten()
        .map(|i| i["id"].clone())
        .collect();
    for input in inputs {
        if !known.contains(&input["id"]) {
            known.push(input["id"].clone());
            text = append(&text, "inputs", &input).map_err(|why| failed(why.to_string()))?;
        }
    }
    Ok(text)
}

fn agreed(context: &CliContext, typed: &Export, file: &Path) -> Result<bool, Failure> {
    if typed.yes {
        return Ok(true);
    }
    if context.json || !io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "there is no terminal to ask on: `mgp export --yes` writes what is shown".to_owned(),
        ));
    }
    ask_yes(&format!("Write this into {}?", file.display()))
}

/// Says on stderr what could not be said, and what is to be set.
fn tell(entries: &ExportEntries) {
    for (id, server) in &entries.servers {
        for (key, why) in &server.left_out {
            report(plain(&format!("{id}: left out {key}: {why}")));
        }
        for (name, place) in &server.to_set {
            let told = format!("{id}: set {name} where the client is started; here it is {place}");
            report(plain(&told));
        }
        for input in &server.inputs {
            let id_of = input["id"].as_str().unwrap_or_default();
            report(plain(&format!("{id}: the client asks for {id_of}")));
        }
    }
    for LeftThere { id, why } in &entries.left {
        report(plain(&format!("left out: {id}: {why}")));
    }
}

fn told(entries: &ExportEntries, client: Client, file: Option<&Path>, written: bool) -> Value {
    let server = |(id, server): &(String, ExportedServer)| {
        let left = server.left_out.iter();
        let left: Vec<_> = left
            .map(|(key, why)| json!({"key": key, "why": why}))
            .collect();
        let to_set = server.to_set.iter();
        let to_set: Vec<_> = to_set
            .map(|(name, place)| json!({"variable": name, "here": place}))
            .collect();
        json!({"id": id, "entry": server.entry, "inputs": server.inputs, "left_out": left, "to_set": to_set})
    };
    let left = entries.left.iter();
    let left: Vec<_> = left
        .map(|left| json!({"id": left.id, "why": left.why}))
        .collect();
    json!({
        "client": client.word(), "table": client.table(), "file": file, "written": written,
        "servers": entries.servers.iter().map(server).collect::<Vec<_>>(), "left": left,
    })
}
