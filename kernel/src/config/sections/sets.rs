//! `[sets.*]`: named sets of servers and tools.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mgp_engine::policy::access::{ToolSet, ToolSets};
use mgp_protocol::ids::{ServerId, SetName};
use toml::Spanned;

use crate::config::parsing::Section;

/// Tools by their servers.
type ToolsByServer = BTreeMap<ServerId, BTreeSet<String>>;

/// Reads all `[sets.NAME]`. A set of a stronger file replaces that of a weaker one.
pub(crate) fn read_sets(root: &mut Section<'_, '_, '_>, sets: &mut ToolSets) {
    root.for_each_table("sets", "sets.*", |name, section| {
        let mut set = ToolSet::default();
        for id in section.texts("servers").unwrap_or_default() {
            set.servers
                .extend(parse_server(section, "servers", &id, id.get_ref()));
        }
        set.tools = read_tools_of_servers(section, "tools");
        set.except = read_tools_of_servers(section, "except");
        match SetName::parse(name) {
            Ok(name) => drop(sets.by_name.insert(name, Arc::new(set))),
            // `each` reads an absent table, so that its keys are known.
            Err(_) if name.is_empty() => {}
            Err(why) => {
                let whole = section.start_span();
                section.reject(whole, format!("[sets]: {why}"));
            }
        }
    });
}

fn read_tools_of_servers(section: &mut Section<'_, '_, '_>, key: &'static str) -> ToolsByServer {
    let mut tools = ToolsByServer::new();
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
            section.reject(typed.span(), words);
            continue;
        };
        if let Some(id) = parse_server(section, key, &typed, id) {
            tools.entry(id).or_default().insert(tool.to_owned());
        }
    }
    tools
}

fn parse_server(
    section: &mut Section<'_, '_, '_>,
    key: &str,
    typed: &Spanned<&str>,
    id: &str,
) -> Option<ServerId> {
    match ServerId::parse_local_or_remote(id) {
        Ok(id) => Some(id),
        Err(why) => {
            let words = format!("`{key}` in {}: {why}", section.name());
            section.reject(typed.span(), words);
            None
        }
    }
}
