//! `[sets.*]`: named sets of servers and tools.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mgp_engine::policy::access::{ToolSet, ToolSets};
use mgp_protocol::ids::{ServerId, SetName};

use crate::config::parsing::Section;

/// Tools by their servers.
type ToolsByServer = BTreeMap<ServerId, BTreeSet<String>>;

/// Reads all `[sets.NAME]`. A set of a stronger file replaces that of a weaker one.
pub(crate) fn read_sets(root: &mut Section<'_, '_, '_>, sets: &mut ToolSets) {
    let read = root.named_tables("sets", SetName::parse, |section| {
        let servers = section.parse_each("servers", ServerId::parse_local_or_remote);
        Arc::new(ToolSet {
            servers: servers.into_iter().flatten().collect(),
            tools: read_tools_of_servers(section, "tools"),
            except: read_tools_of_servers(section, "except"),
        })
    });
    sets.by_name.extend(read);
}

fn read_tools_of_servers(section: &mut Section<'_, '_, '_>, key: &'static str) -> ToolsByServer {
    let mut tools = ToolsByServer::new();
    for typed in section.texts(key).unwrap_or_default() {
        let parts = typed.get_ref().split_once(':');
        let why = match parts.filter(|(_, tool)| !tool.is_empty()) {
            Some((id, tool)) => match ServerId::parse_local_or_remote(id) {
                Ok(id) => {
                    tools.entry(id).or_default().insert(tool.to_owned());
                    continue;
                }
                Err(why) => format!(": {why}"),
            },
            None => format!(
                " wants \"server:tool\", by the server's own name for the tool; this is {:?}",
                typed.get_ref()
            ),
        };
        section.reject_key(typed.span(), key, &why);
    }
    tools
}
