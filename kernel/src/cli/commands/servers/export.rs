//! `mgp export`: writes this kernel's servers to a client's file.

mod entries;

use std::io::{self, IsTerminal};
use std::path::Path;

use mgp_clients::{Client, EntryLocation, ExportedServer, append_to_list, put_entry};
use serde_json::{Map, Value, json};

use self::entries::{ExportEntries, SkippedServer};
use super::connect::client_file::ClientFileEdit;
use super::connect::print_foreign_copy;
use super::import::sources;
use crate::cli::args::Export;
use crate::cli::client::CliContext;
use crate::cli::failure::Failure;
use crate::cli::print::{confirm, print_error, print_line};
use crate::cli::text_format::{sanitize_line, sanitize_lines};

/// The form that most clients understand.
const DEFAULT_CLIENT: Client = Client::ClaudeCode;

/// Shows the result, asks for confirmation, and writes it; without a target only prints it.
pub(in crate::cli::commands) fn export(
    context: &CliContext,
    typed: &Export,
) -> Result<(), Failure> {
    let file = match &typed.to {
        Some(to) => Some(target_file(context, to)?),
        None => None,
    };
    let client = file.as_ref().map_or(DEFAULT_CLIENT, |file| file.client);
    let mut entries = ExportEntries::collect(context, typed, client)?;
    let Some(file) = file else {
        let table: Map<String, Value> = entries.to_table();
        let document = json!({ client.table(): table });
        return if context.json {
            print_line(to_json(&entries, client, None, false))
        } else {
            print_line(serde_json::to_string_pretty(&document).expect("a document is JSON"))?;
            print_notes(&entries);
            Ok(())
        };
    };
    let after = apply_entries(&file, &mut entries, typed.replace)?;
    let changed = after != file.text();
    if !context.json {
        if changed {
            print_line(sanitize_lines(&file.render_diff(&after)))?
        } else {
            print_line(format_args!(
                "nothing to write into {}",
                file.path.display()
            ))?
        }
        print_notes(&entries);
    }
    let written = changed && !typed.dry_run && confirm_export(context, typed, &file.path)?;
    let backup = if written {
        file.write(&after, typed.with_values)?
    } else {
        None
    };
    if context.json {
        return print_line(to_json(&entries, client, Some(&file.path), written));
    }
    match (written, changed && !typed.dry_run) {
        (true, _) => {
            let many = match entries.servers.len() {
                1 => "1 server".to_owned(),
                many => format!("{many} servers"),
            };
            print_line(format_args!("{many} written into {}", file.path.display()))?;
            if let Some(backup) = backup {
                print_error(format_args!("as it was: {}", backup.display()));
                print_foreign_copy(&file, &backup)?;
            }
            Ok(())
        }
        (false, true) => Err(Failure::Other("nothing was changed".to_owned())),
        (false, false) => Ok(()),
    }
}

/// The file of a client, or the named one, in the form of its client.
fn target_file(context: &CliContext, to: &str) -> Result<ClientFileEdit, Failure> {
    let path = context.look_up.current_dir.join(to);
    if !(path.is_file() || to.contains(['/', '.'])) {
        let clients = Client::parse(to).map_err(|unknown| Failure::Usage(unknown.to_string()))?;
        return match clients[..] {
            [client] => ClientFileEdit::open_user_file(context, client),
            _ => {
                let words: Vec<_> = clients.iter().map(|client| client.cli_name()).collect();
                let words = words.join(" or ");
                Err(Failure::Usage(format!("which one: {words}?")))
            }
        };
    }
    let known = sources::known_client_files(context, Some(&context.look_up.current_dir))?;
    let known = known.into_iter().find(|file| file.path == path);
    let client = known.map(|file| file.client);
    let client = client
        .or_else(|| Client::from_path(&path))
        .unwrap_or(DEFAULT_CLIENT);
    if client.document_form() != mgp_clients::DocumentForm::from_path(&path) {
        return Err(Failure::Usage(format!(
            "{} is no file of a client that is known; clients write JSON, Codex TOML into config.toml, \
             and Goose YAML into its own file: name the client",
            path.display()
        )));
    }
    ClientFileEdit::open(client, path)
}

/// The text with the entries. Existing entries and others of the same name are left.
fn apply_entries(
    file: &ClientFileEdit,
    entries: &mut ExportEntries,
    replace: bool,
) -> Result<String, Failure> {
    let client = file.client;
    let failed = |why: String| Failure::Other(format!("{}: {why}", file.path.display()));
    let form = client.document_form();
    let document = form
        .parse(file.text())
        .map_err(|why| failed(why.to_string()))?;
    let table = client.table_path(&document);
    let (mut text, mut inputs) = (file.text().to_owned(), Vec::new());
    for (id, server) in std::mem::take(&mut entries.servers) {
        let here = table
            .iter()
            .try_fold(&document, |value, key| value.get(key));
        let named = here.map(Client::entries).unwrap_or_default();
        let named = named.into_iter().find(|(name, _)| *name == id);
        let there = named.map_or(&Value::Null, |(_, entry)| entry);
        if *there == server.entry {
            entries.skip(&id, format!("{} has it already", file.path.display()));
            continue;
        }
        if !there.is_null() && !replace {
            let why = format!(
                "{} has another entry of this name; --replace writes over it",
                file.path.display()
            );
            entries.skip(&id, why);
            continue;
        }
        let place = EntryLocation {
            table: &table,
            shape: client.table_form(),
            name: &id,
        };
        let with = put_entry(form, &text, place, &server.entry);
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
            text =
                append_to_list(&text, "inputs", &input).map_err(|why| failed(why.to_string()))?;
        }
    }
    Ok(text)
}

fn confirm_export(context: &CliContext, typed: &Export, file: &Path) -> Result<bool, Failure> {
    if typed.yes {
        return Ok(true);
    }
    if context.json || !io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "there is no terminal to ask on: `mgp export --yes` writes what is shown".to_owned(),
        ));
    }
    confirm(&format!("Write this into {}?", file.display()))
}

/// Prints on stderr what could not be expressed, and what to set.
fn print_notes(entries: &ExportEntries) {
    for (id, server) in &entries.servers {
        for (key, why) in &server.skipped {
            print_error(sanitize_line(&format!("{id}: left out {key}: {why}")));
        }
        for (name, place) in &server.required_variables {
            let note = format!("{id}: set {name} where the client is started; here it is {place}");
            print_error(sanitize_line(&note));
        }
        for input in &server.inputs {
            let id_of = input["id"].as_str().unwrap_or_default();
            print_error(sanitize_line(&format!("{id}: the client asks for {id_of}")));
        }
    }
    for SkippedServer { id, reason: why } in &entries.skipped {
        print_error(sanitize_line(&format!("left out: {id}: {why}")));
    }
}

fn to_json(entries: &ExportEntries, client: Client, file: Option<&Path>, written: bool) -> Value {
    let server = |(id, server): &(String, ExportedServer)| {
        let left = server.skipped.iter();
        let left: Vec<_> = left
            .map(|(key, why)| json!({"key": key, "why": why}))
            .collect();
        let to_set = server.required_variables.iter();
        let to_set: Vec<_> = to_set
            .map(|(name, place)| json!({"variable": name, "here": place}))
            .collect();
        json!({"id": id, "entry": server.entry, "inputs": server.inputs, "left_out": left, "to_set": to_set})
    };
    let left = entries.skipped.iter();
    let left: Vec<_> = left
        .map(|left| json!({"id": left.id, "why": left.reason}))
        .collect();
    json!({
        "client": client.cli_name(), "table": client.table(), "file": file, "written": written,
        "servers": entries.servers.iter().map(server).collect::<Vec<_>>(), "left": left,
    })
}
