//! Recognizes this kernel's entries in clients' files, under any name.

use std::path::Path;

use serde_json::Value;

use crate::windows::inner_of_wsl;

/// Whether an entry starts this kernel's program, or has a URL at its endpoint.
#[must_use]
pub fn is_kernel_entry(entry: &Value, door: &str) -> bool {
    if let Some(address) = entry_url(entry) {
        return origin(address).is_some_and(|origin| Some(origin) == self::origin(door));
    }
    let mut words = command_words(entry);
    // From Windows it is started through WSL.
    if let Some(inner) = inner_of_wsl(&words) {
        words.drain(..inner);
    }
    let program = words.first().and_then(|word| Path::new(word).file_name());
    program.is_some_and(|program| program == "mgp") && words[1..].contains(&"stdio")
}

/// The words of its command, in any client's form.
#[must_use]
pub fn command_words(entry: &Value) -> Vec<&str> {
    let command = entry.get("command").or_else(|| entry.get("cmd"));
    // Zed had the words in a separate table.
    let (command, args) = match command.filter(|command| command.is_object()) {
        Some(table) => (table.get("path"), table.get("args")),
        None => (command, entry.get("args")),
    };
    [string_values(command), string_values(args)].concat()
}

fn string_values(value: Option<&Value>) -> Vec<&str> {
    match value {
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        Some(_) | None => Vec::new(),
    }
}

/// The scheme, host and port of a URL; the names of this machine count as equal.
fn origin(address: &str) -> Option<(&str, String)> {
    let (scheme, rest) = address.split_once("://")?;
    let host = rest.split(['/', '?', '#']).next()?.to_ascii_lowercase();
    let local = ["localhost", "[::1]"].iter();
    let local = local.filter_map(|name| host.strip_prefix(name));
    let mut ports = local.filter(|port| port.is_empty() || port.starts_with(':'));
    let host = match ports.next() {
        Some(port) => format!("127.0.0.1{port}"),
        None => host,
    };
    Some((scheme, host))
}

/// The URL of an entry that starts no program.
#[must_use]
pub fn entry_url(entry: &Value) -> Option<&str> {
    let keys = ["url", "serverUrl", "httpUrl", "uri"];
    keys.iter().find_map(|key| entry.get(key)?.as_str())
}
