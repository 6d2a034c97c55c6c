//! Settings in a client's entries besides the transport: they become rules here before the entries are removed, or are
//! reported.

use std::collections::BTreeMap;
use std::path::PathBuf;

use mgp_clients::Client;
use serde_json::{Value, json};

use super::super::config_file::{read_if_exists, to_failure, write};
use super::super::import::DuplicateServer;
use crate::cli::client::CliContext;
use crate::cli::failure::Failure;
use crate::config::edit;

/// Rules to add to the configuration.
pub(super) struct RuleEdits<'d> {
    servers: Vec<&'d DuplicateServer>,
    /// The current and the new text of each file.
    files: BTreeMap<PathBuf, (String, String)>,
}

impl<'d> RuleEdits<'d> {
    pub(super) fn new(doubled: &'d [DuplicateServer]) -> Result<Self, Failure> {
        let limited = doubled.iter().filter(|server| !server.tools.is_unlimited());
        let servers: Vec<_> = limited.collect();
        let mut files: BTreeMap<PathBuf, (String, String)> = BTreeMap::new();
        for server in &servers {
            let (_, text) = match files.get(&server.file) {
                Some(known) => known.clone(),
                None => {
                    let text = read_if_exists(&server.file)?.unwrap_or_default();
                    (text.clone(), text)
                }
            };
            let with = edit::set_tool_limits(&text, &server.id, &server.tools);
            let with = with.map_err(|error| to_failure(&server.file, &error))?;
            let place = files.entry(server.file.clone());
            place.or_insert_with(|| (text, String::new())).1 = with;
        }
        Ok(Self { servers, files })
    }

    pub(super) fn render_lines(&self) -> Vec<String> {
        let line = |server: &&DuplicateServer| {
            let mut parts = Vec::new();
            let names: Vec<_> = server.tools.hidden.iter().map(String::as_str).collect();
            if !names.is_empty() {
                parts.push(format!("{} hidden", names.join(", ")));
            }
            if let Some(only) = &server.tools.only {
                let names: Vec<_> = only.iter().map(String::as_str).collect();
                parts.push(format!("only_tools = [{}]", names.join(", ")));
            }
            let keys: Vec<_> = server.tools.keys.iter().map(String::as_str).collect();
            let (id, parts, keys) = (&server.id, parts.join(", "), keys.join(", "));
            format!(
                "{id}: `{keys}` becomes a rule in {}: {parts}",
                server.file.display()
            )
        };
        self.servers.iter().map(line).collect()
    }

    pub(super) fn to_json(&self) -> Value {
        let rule = |server: &&DuplicateServer| {
            json!({
                "server": server.id, "file": server.file, "hidden_tools": server.tools.hidden,
                "only_tools": server.tools.only,
            })
        };
        self.servers.iter().map(rule).collect()
    }

    /// Writes the files, and reloads a running kernel.
    pub(super) fn write(&self, context: &CliContext) -> Result<(), Failure> {
        for (file, (before, after)) in &self.files {
            write(context, file, Some(before), after, false)?;
        }
        if !self.files.is_empty() && context.status()?.is_some() {
            context.reload_kernel()?;
        }
        Ok(())
    }
}

/// Settings that are lost with the entries, and servers that do not start here.
pub(super) fn dropped_settings(doubled: &[DuplicateServer]) -> Vec<String> {
    let mut lines = Vec::new();
    for server in doubled {
        lines.extend(server.not_starting.iter().cloned());
        for left in &server.dropped_keys {
            lines.push(format!(
                "{}: `{}` is not carried over: {}",
                server.name, left.key, left.reason
            ));
        }
        if server.is_disabled_only_in_client {
            lines.push(format!(
                "{}: it is switched off there, and started here: `mgp servers stop {}`",
                server.name, server.id
            ));
        }
    }
    lines
}

/// Settings of Gemini CLI that prevent it from starting this kernel's entry.
pub(super) fn blocked_by_client(client: Client, document: &Value, own: &str) -> Option<String> {
    let names = |key: &str| -> Option<Vec<&str>> {
        let names = document.get("mcp")?.get(key)?.as_array()?;
        Some(names.iter().filter_map(Value::as_str).collect())
    };
    if client != Client::Gemini {
        return None;
    }
    if names("excluded").is_some_and(|names| names.contains(&own)) {
        return Some(format!(
            "{client} does not start {own}: take it out of mcp.excluded"
        ));
    }
    let allowed = names("allowed")?;
    (!allowed.contains(&own))
        .then(|| format!("{client} starts only what is in mcp.allowed: add {own} there"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_blocked_by_gemini_is_reported() {
        let blocked = |document: Value| blocked_by_client(Client::Gemini, &document, "mgp");
        let allowed = blocked(json!({"mcp": {"allowed": ["a"]}})).unwrap();
        assert!(allowed.contains("add mgp there"), "{allowed}");
        assert!(blocked(json!({"mcp": {"allowed": ["mgp"], "excluded": ["mgp"]}})).is_some());
        for good in [json!({}), json!({"mcp": {"allowed": ["mgp"]}})] {
            assert_eq!(blocked(good), None);
        }
    }
}
