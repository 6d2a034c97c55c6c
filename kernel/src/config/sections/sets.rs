//! `[sets.*]`: named sets of servers and tools.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mgp_engine::policy::access::{ToolSet, ToolSets};
use mgp_protocol::ids::{ServerId, SetName};
use toml::Spanned;

use crate::config::reading::Section;

/// Tools by their servers.
type ToolsOfServers = BTreeMap<ServerId, BTreeSet<String>>;

/// Reads `[sets.NAME]` of all names. A set of a stronger file stands for that of a weaker one as a whole.
pub(crate) fn read_sets(root: &mut Section<'_, '_, '_>, sets: &mut ToolSets) {
    root.each("sets", "sets.*", |name, section| {
        let mut set = ToolSet::default();
        for id in section.texts("servers").unwrap_or_default() {
            set.servers
                .extend(server(section, "servers", &id, id.get_ref()));
        }
        set.tools = tools(section, "tools");
        set.except = tools(section, "except");
        match SetName::parse(name) {
            Ok(name) => drop(sets.named.insert(name, Arc::new(set))),
            // `each` reads an absent table, so that its keys are known.
            Err(_) if name.is_empty() => {}
            Err(why) => {
                let whole = section.whole();
                section.refuse(whole, format!("[sets]: {why}"));
            }
        }
    });
}

fn tools(section: &mut Section<'_, '_, '_>, key: &'static str) -> ToolsOfServers {
    let mut tools = ToolsOfServers::new();
    for typed in section.texts(key).unwrap_or_default() {
        let Some((id, tool)) = typed
            .get_ref()
            .split_once(':')
            .filter(|(_, tool)| !tool.is_empty())
        else {
            let words = format!(
                "`{key}` in {} wants \"server:tool\", by the server's own name for the tool; this is {:?}",
                section.name(),
                typed.get_ref()
            );
            section.refuse(typed.span(), words);
            continue;
        };
        if let Some(id) = server(section, key, &typed, id) {
            tools.entry(id).or_default().insert(tool.to_owned());
        }
    }
    tools
}

fn server(
    section: &mut Section<'_, '_, '_>,
    key: &str,
    typed: &Spanned<&str>,
    id: &str,
) -> Option<ServerId> {
    match ServerId::parse_of_any_node(id) {
        Ok(id) => Some(id),
        Err(why) => {
            let words = format!("`{key}` in {}: {why}", section.name());
            section.refuse(typed.span(), words);
            None
        }
    }
}
