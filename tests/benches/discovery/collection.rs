//! The tools and the tasks, as they lie on disk.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use mgp_engine::tools::index::{Index, IndexDraft, ServerIndex};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::discovery::security::RiskLevel;
use serde::Deserialize;
use serde_json::{Value, json};

use super::vectors::VectorCache;

#[derive(Deserialize)]
pub(crate) struct Tool {
    pub(crate) server_id: String,
    pub(crate) server_description: String,
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) title: Option<String>,
    pub(crate) description: String,
    #[serde(rename = "inputSchema")]
    pub(crate) schema: Value,
}

#[derive(Deserialize)]
pub(crate) struct Task {
    pub(crate) query: String,
    pub(crate) steps: Vec<String>,
    /// The names of the tools that people found were needed.
    pub(crate) gold: Vec<String>,
}

pub(crate) struct Collection {
    pub(crate) tools: Vec<Tool>,
    pub(crate) tasks: Vec<Task>,
}

impl Collection {
    pub(crate) fn read(folder: &Path) -> io::Result<Self> {
        let file = |name| fs::read_to_string(folder.join(name));
        Ok(Self {
            tools: serde_json::from_str(&file("tools.json")?)?,
            tasks: serde_json::from_str(&file("tasks.json")?)?,
        })
    }

    /// All its tools with all their vectors.
    pub(crate) fn index(&self, vectors: &mut VectorCache<'_>) -> Index {
        let shelves = self.shelves("", 0..1, |tool, _| tool.description.clone());
        shelves.into_iter().fold(Index::default(), |index, shelf| {
            index.with_server(Arc::new(
                shelf.with_vectors(&mut |text| vectors.text_vector(text)),
            ))
        })
    }

    /// Its servers under other names, each with all its tools so many times, with descriptions told
    /// anew.
    pub(crate) fn shelves(
        &self,
        suffix: &str,
        copies: Range<usize>,
        tell: impl Fn(&Tool, usize) -> String,
    ) -> Vec<ServerIndex> {
        let mut servers: BTreeMap<&str, Vec<&Tool>> = BTreeMap::new();
        for tool in &self.tools {
            servers.entry(&tool.server_id).or_default().push(tool);
        }
        let shelf = |(id, tools): (&str, Vec<&Tool>)| {
            let server = ServerId::new(format!("{id}{suffix}"));
            let copies = copies.clone().flat_map(|copy| {
                let named = tools.iter().map(move |tool| (tool, copy));
                named.map(|(tool, copy)| draft(&server, tool, copy, tell(tool, copy)))
            });
            ServerIndex::new(&server, &tools[0].server_description, copies.collect())
        };
        servers.into_iter().map(shelf).collect()
    }
}

fn draft(server: &ServerId, tool: &Tool, copy: usize, description: String) -> IndexDraft {
    let name = match copy {
        0 => tool.name.clone(),
        copy => format!("{}_{copy}", tool.name),
    };
    let raw = json!({"name": name, "title": tool.title, "description": description, "inputSchema": tool.schema});
    let (name, raw) = (Arc::from(name.as_str()), Arc::from(raw.to_string()));
    IndexDraft::parse(server, &name, &raw, None, RiskLevel::Moderate)
}
