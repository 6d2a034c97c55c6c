//! Where in a client's file its servers are.

#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use crate::client::Client;
use crate::entry::EntryReader;
use crate::found::{FoundDocument, FoundInput};

/// The servers a document names. A document that is nobody's in particular may name them as any client does.
#[must_use]
pub fn read(document: &Value, client: Option<Client>) -> FoundDocument {
    let mut found = FoundDocument::default();
    let Some(document) = document.as_object() else {
        return found;
    };
    for (table, project) in tables(document) {
        for (name, entry) in table {
            let read = EntryReader::new(entry, client);
            match read.and_then(|reader| reader.server(name, project)) {
                Ok(server) => found.servers.push(server),
                Err(why) => found.broken.push((name.clone(), why)),
            }
        }
    }
    let inputs = document.get("inputs").and_then(Value::as_array);
    found.inputs = inputs.into_iter().flatten().filter_map(input).collect();
    found
}

type Entries = Map<String, Value>;

/// Where in a document servers are, with the project each table is for.
fn tables(document: &Entries) -> Vec<(&Entries, Option<&str>)> {
    let table = |keys: &[&str]| {
        let (last, above) = keys.split_last()?;
        let mut place = document;
        for key in above {
            place = place.get(*key)?.as_object()?;
        }
        place.get(*last)?.as_object()
    };
    let known: [&[&str]; 7] = [
        &["mcpServers"],
        &["servers"],
        &["context_servers"],
        &["mcp_servers"],
        &["extensions"],
        // opencode's newer form, which VS Code's settings once had, too.
        &["mcp", "servers"],
        &["mcp"],
    ];
    let mut tables = Vec::new();
    for keys in known {
        // In the newer form `mcp` holds tables, and not servers.
        if keys == ["mcp"] && table(&["mcp", "servers"]).is_some() {
            continue;
        }
        tables.extend(table(keys).map(|table| (table, None)));
    }
    let projects = document.get("projects").and_then(Value::as_object);
    for (folder, project) in projects.into_iter().flatten() {
        let servers = project.get("mcpServers").and_then(Value::as_object);
        tables.extend(servers.map(|servers| (servers, Some(folder.as_str()))));
    }
    tables
}

fn input(input: &Value) -> Option<FoundInput> {
    let text = |key: &str| Some(input.get(key)?.as_str()?.to_owned());
    let options = input.get("options").and_then(Value::as_array);
    let options = options.into_iter().flatten();
    let option = |option: &Value| {
        let value = option.as_str().or_else(|| option.get("value")?.as_str());
        value.map(str::to_owned)
    };
    Some(FoundInput {
        id: text("id")?,
        description: text("description").unwrap_or_default(),
        secret: input.get("password").and_then(Value::as_bool) == Some(true),
        default: text("default"),
        options: options.filter_map(option).collect(),
    })
}
