//! What is published of the copies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytestring::ByteString;
use mgp_engine::clock::MonotonicTime;
use mgp_engine::cluster::staleness::Stage;
use mgp_engine::cluster::tool_index::{HeldEntry, HeldIndexes, ReadTool};
use mgp_protocol::ids::{NodeId, NodeServer};
use mgp_sync::Snapshot;
use tokio_util::sync::CancellationToken;

use super::{HeldServer, HeldTool, HeldTools};

/// The servers that are published, and the stage each node was published at.
#[derive(Debug, Default)]
pub(super) struct ShownServers {
    servers: BTreeMap<NodeServer, Arc<HeldServer>>,
    stages: BTreeMap<NodeId, Stage>,
    /// Servers that have changed since.
    touched: BTreeSet<NodeServer>,
}

impl ShownServers {
    /// Something of the server is other than before.
    pub(super) fn touch(&mut self, server: NodeServer) {
        self.touched.insert(server);
    }

    /// Publishes what has changed; false when nothing has.
    pub(super) fn publish(
        &mut self,
        held: &HeldIndexes,
        to: &Snapshot<HeldTools>,
        now: MonotonicTime,
    ) -> bool {
        self.touch_stages(held, now);
        let touched = std::mem::take(&mut self.touched);
        let mut changed = false;
        for server in touched {
            changed |= match self.made(held, &server, now) {
                Some(made) => {
                    self.servers.insert(server, Arc::new(made));
                    true
                }
                None => self.servers.remove(&server).is_some(),
            };
        }
        if changed {
            let before = to.load();
            to.store(Arc::new(HeldTools {
                servers: self.servers.clone(),
                replaced: CancellationToken::new(),
            }));
            before.replaced.cancel();
        }
        changed
    }

    /// All servers of a node change with its stage.
    fn touch_stages(&mut self, held: &HeldIndexes, now: MonotonicTime) {
        let stages: BTreeMap<NodeId, Stage> = held
            .all(now)
            .map(|(node, _, stage)| (node, stage))
            .collect();
        let shown = self.servers.keys();
        let gone = shown.filter(|server| !stages.contains_key(&server.node));
        self.touched.extend(gone.cloned());
        for (node, index, stage) in held.all(now) {
            if self.stages.get(&node) != Some(&stage) {
                let servers = index.entries().filter(|(key, _)| key.tool.is_none());
                let servers = servers.map(|(key, _)| node.server(key.server.clone()));
                self.touched.extend(servers);
            }
        }
        self.stages = stages;
    }

    /// The server as it is to be shown; `None` when it is not. What has not changed is taken over.
    fn made(
        &self,
        held: &HeldIndexes,
        server: &NodeServer,
        now: MonotonicTime,
    ) -> Option<HeldServer> {
        let (index, stage) = held.get(server.node, now)?;
        let mut entries = index.of_server(&server.server);
        // Tools of a server that is not told of are nobody's.
        let HeldEntry::Server(record) = entries.next()?.1 else {
            return None;
        };
        if stage >= Stage::Hidden {
            return None;
        }
        let before = self.servers.get(server);
        let tools = entries.filter_map(|(key, entry)| match entry {
            HeldEntry::Server(_) => None,
            HeldEntry::Tool(tool) => {
                let name = key.tool.clone()?;
                let before = before.and_then(|before| before.tools.get(&name));
                let made = shown_tool(tool, before);
                Some((name, made))
            }
        });
        Some(HeldServer {
            record: *record,
            tools: tools.collect(),
            stage,
        })
    }
}

fn shown_tool(tool: &ReadTool, before: Option<&HeldTool>) -> HeldTool {
    let definition = before.filter(|before| *before.definition == *tool.definition);
    let vector = before.and_then(|before| before.vector.clone());
    let vector = vector.filter(|vector| tool.vector.as_ref() == Some(&**vector));
    HeldTool {
        definition: definition.map_or_else(
            || ByteString::from(&*tool.definition),
            |before| before.definition.clone(),
        ),
        idempotent: tool.idempotent,
        vector: vector.or_else(|| tool.vector.clone().map(Arc::new)),
    }
}
