//! Changes of a server's tools by an update.

use std::collections::BTreeMap;

use mgp_protocol::mcp::{Method, tools};
use serde_json::{Value, json};

use crate::cli::client::{CliContext, ConnectOptions, pages, parse_result};
use crate::cli::failure::Failure;
use crate::cli::text_format::first_line;

/// Most names of each kind; the others are counted.
const NAMES_SHOWN_MAX: usize = 10;

/// The tools of a server by their names.
#[derive(Debug, Default, PartialEq)]
pub(super) struct OfferedTools(BTreeMap<String, Value>);

/// The differences.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ToolChanges {
    added: Vec<String>,
    removed: Vec<String>,
    /// With the changed members of the definition.
    changed: Vec<String>,
}

impl OfferedTools {
    /// The tools that a server offers now.
    pub(super) fn fetch(context: &CliContext, id: &str) -> Result<Self, Failure> {
        let at = ConnectOptions::for_server(Some(id));
        let listed = context.with_kernel_at(at, async |client| {
            pages::list_all(client, tools::List::METHOD, "tools").await
        })?;
        let mut offered = BTreeMap::new();
        for tool in &listed {
            let tool: Value = parse_result(tool)?;
            let name = tool["name"].as_str().unwrap_or_default().to_owned();
            offered.insert(name, tool);
        }
        Ok(Self(offered))
    }

    pub(super) fn changes_to(&self, after: &Self) -> ToolChanges {
        let mut changes = ToolChanges::default();
        for (name, tool) in &after.0 {
            match self.0.get(name) {
                None => changes.added.push(name.clone()),
                Some(before) => {
                    let members = changed_members(before, tool);
                    if !members.is_empty() {
                        changes
                            .changed
                            .push(format!("{name} ({})", members.join(", ")));
                    }
                }
            }
        }
        let gone = self.0.keys().filter(|name| !after.0.contains_key(*name));
        changes.removed.extend(gone.cloned());
        changes
    }
}

fn changed_members(before: &Value, after: &Value) -> Vec<String> {
    let keys = |tool: &Value| -> Vec<String> {
        let members = tool.as_object().into_iter().flatten();
        members.map(|(key, _)| key.clone()).collect()
    };
    let mut all = keys(before);
    all.extend(keys(after));
    all.sort();
    all.dedup();
    all.retain(|key| key != "_meta" && before.get(key) != after.get(key));
    all
}

impl ToolChanges {
    pub(super) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }

    pub(super) fn render(&self) -> String {
        if self.is_empty() {
            return "its tools are what they were".to_owned();
        }
        let kinds = [
            ("new", &self.added),
            ("gone", &self.removed),
            ("changed", &self.changed),
        ];
        let kinds = kinds.into_iter().filter(|(_, names)| !names.is_empty());
        let told = kinds.map(|(kind, names)| {
            let mut told: Vec<String> = names
                .iter()
                .take(NAMES_SHOWN_MAX)
                .map(|name| first_line(name, 120))
                .collect();
            if names.len() > NAMES_SHOWN_MAX {
                told.push(format!("{} more", names.len() - NAMES_SHOWN_MAX));
            }
            format!("{} {kind}: {}", names.len(), told.join(", "))
        });
        told.collect::<Vec<_>>().join("\n")
    }

    pub(super) fn to_json(&self) -> Value {
        json!({"new": self.added, "gone": self.removed, "changed": self.changed})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(tools: &[(&str, &str)]) -> OfferedTools {
        let tool = |(name, what): &(&str, &str)| {
            (
                (*name).to_owned(),
                json!({"name": name, "description": what, "_meta": what}),
            )
        };
        OfferedTools(tools.iter().map(tool).collect())
    }

    #[test]
    fn added_removed_and_changed_tools_are_listed() {
        let before = offered(&[("a", "1"), ("b", "1"), ("c", "1")]);
        let after = offered(&[("b", "2"), ("c", "1"), ("d", "1")]);
        let changes = before.changes_to(&after);
        assert_eq!(
            changes.render(),
            "1 new: d\n1 gone: a\n1 changed: b (description)"
        );
        assert!(before.changes_to(&before).is_empty());
        let many: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|n| (n.as_str(), "x")).collect();
        assert!(
            offered(&[])
                .changes_to(&offered(&many))
                .render()
                .ends_with("10 more")
        );
    }
}
