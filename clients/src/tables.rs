//! Finds the servers in a client's file.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::client::Client;
use crate::client_servers::{ClientDocument, ClientInput, ClientServer};
use crate::entry::EntryReader;

/// The servers of a document. One of an unknown client may have any client's form.
#[must_use]
pub fn read_document(document: &Value, client: Option<Client>) -> ClientDocument {
    let mut found = ClientDocument::default();
    let client = client.or_else(|| Client::from_document(document));
    for path in entry_tables(document, client) {
        let Some(table) = value_at(document, &path) else {
            continue;
        };
        let project = project_folder(&path);
        for (name, entry) in Client::entries(table) {
            let read = EntryReader::new(entry, client);
            match read.and_then(|reader| reader.read_server(name, project)) {
                Ok(server) => found.servers.push(server),
                Err(why) => found.invalid.push((name.to_owned(), why)),
            }
        }
    }
    for server in &mut found.servers {
        apply_outer_limits(document, client, server);
    }
    let inputs = [
        &["inputs"][..],
        &["mcp", "inputs"],
        &["settings", "mcp", "inputs"],
    ];
    for path in inputs {
        let path: Vec<String> = path.iter().map(|key| (*key).to_owned()).collect();
        let asked = value_at(document, &path).and_then(Value::as_array);
        found
            .inputs
            .extend(asked.into_iter().flatten().filter_map(parse_input));
    }
    found
}

/// The paths of the tables of servers in a document.
pub(crate) fn entry_tables(document: &Value, client: Option<Client>) -> Vec<Vec<String>> {
    let owned = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
    let known: [&[&str]; 7] = [
        &["mcpServers"],
        &["servers"],
        &["context_servers"],
        &["mcp_servers"],
        // opencode's newer form, also in VS Code's settings.
        &["mcp", "servers"],
        // A VS Code workspace.
        &["settings", "mcp", "servers"],
        &["extensions"],
    ];
    let is_table = |keys: &Vec<String>| {
        value_at(document, keys).is_some_and(|table| table.is_object() || table.is_array())
    };
    // Settings of other clients have keys of these names with other meanings.
    let means = |keys: &&&[&str]| {
        keys != &&&["extensions"][..] || client.is_none_or(|c| c == Client::Goose)
    };
    let mut tables: Vec<Vec<String>> = known.iter().filter(means).map(|keys| owned(keys)).collect();
    tables.retain(is_table);
    // In the newer form `mcp` contains tables, not servers.
    if client == Some(Client::OpenCode) && !tables.contains(&owned(&["mcp", "servers"])) {
        tables.extend([owned(&["mcp"])].into_iter().filter(is_table));
    }
    let projects = document.get("projects").and_then(Value::as_object);
    let projects = projects.into_iter().flat_map(Map::keys);
    let projects = projects.map(|folder| owned(&["projects", folder, "mcpServers"]));
    tables.extend(projects.filter(is_table));
    tables
}

pub(crate) fn value_at<'d>(document: &'d Value, path: &[String]) -> Option<&'d Value> {
    path.iter().try_fold(document, |value, key| value.get(key))
}

fn project_folder(path: &[String]) -> Option<&str> {
    match path {
        [projects, folder, _] if projects == "projects" => Some(folder),
        _ => None,
    }
}

/// Settings about a server outside of its entry.
fn apply_outer_limits(document: &Value, client: Option<Client>, server: &mut ClientServer) {
    let list = |path: &[&str]| -> Option<BTreeSet<&str>> {
        let value = path.iter().try_fold(document, |value, key| value.get(*key));
        Some(
            value?
                .as_array()?
                .iter()
                .filter_map(Value::as_str)
                .collect(),
        )
    };
    let mut switch_off = |by| {
        server.disabled = true;
        server.disabled_by = Some(by);
    };
    let name = server.name.as_str();
    // Gemini CLI; the file of an unknown client may be its own.
    if list(&["mcp", "excluded"]).is_some_and(|names| names.contains(name)) {
        switch_off("mcp.excluded");
    } else if list(&["mcp", "allowed"]).is_some_and(|names| !names.contains(name)) {
        switch_off("mcp.allowed");
    }
    if let Some(folder) = server.project.as_deref()
        && list(&["projects", folder, "disabledMcpServers"])
            .is_some_and(|names| names.contains(name))
    {
        switch_off("disabledMcpServers");
    }
    if client != Some(Client::OpenCode) {
        return;
    }
    // opencode names a tool SERVER_TOOL.
    let tools = document.get("tools").and_then(Value::as_object);
    let off = tools
        .into_iter()
        .flatten()
        .filter(|(_, on)| on.as_bool() == Some(false));
    for (pattern, _) in off {
        match pattern.strip_prefix(name) {
            Some("*" | "_*") => {
                server.disabled = true;
                server.disabled_by = Some("tools");
            }
            Some(rest) if rest.starts_with('_') && !rest.contains('*') => {
                server.tools.hidden.insert(rest[1..].to_owned());
                server.tools.keys.insert("tools".to_owned());
            }
            Some(_) | None => {}
        }
    }
}

fn parse_input(input: &Value) -> Option<ClientInput> {
    let text = |key: &str| Some(input.get(key)?.as_str()?.to_owned());
    let options = input.get("options").and_then(Value::as_array);
    let options = options.into_iter().flatten();
    let option = |option: &Value| {
        let value = option.as_str().or_else(|| option.get("value")?.as_str());
        value.map(str::to_owned)
    };
    Some(ClientInput {
        id: text("id")?,
        description: text("description").unwrap_or_default(),
        secret: input.get("password").and_then(Value::as_bool) == Some(true),
        default: text("default"),
        options: options.filter_map(option).collect(),
    })
}
