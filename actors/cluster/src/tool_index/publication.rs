//! Publishes the servers of the copies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::cluster::staleness::Stage;
use mgp_engine::cluster::tool_index::{RemoteEntry, RemoteIndexes};
use mgp_protocol::ids::{NodeId, NodeServer};
use mgp_runtime::time::unix_ms;
use mgp_sync::Snapshot;
use tokio_util::sync::CancellationToken;

use super::{HiddenNode, PeerServer, PeerTool, PeerTools};

/// How long a changed server may wait for the rest of its node's copy, and the factor by which that time
/// grows while the copy continues. Readers of the publication read the whole server each time, so a copy of
/// many pages is published once, or a few times if it takes long: a kernel that copies thirty nodes at once
/// would otherwise be busy with parts of them, and the copies would take longer.
const COMPLETE_TIMEOUT: Duration = Duration::from_secs(2);
const TIMEOUT_FACTOR: u32 = 4;

/// The published servers, and the stage each node was published at.
#[derive(Debug, Default)]
pub(super) struct PublishedServers {
    servers: BTreeMap<NodeServer, Arc<PeerServer>>,
    stages: BTreeMap<NodeId, Stage>,
    /// Servers that have changed since, and the latest time of their publication.
    touched: BTreeMap<NodeServer, MonotonicTime>,
    /// How often an incomplete copy was published. Bounded by the stored nodes.
    parts: BTreeMap<NodeId, u32>,
}

impl PublishedServers {
    /// Marks a server as changed.
    pub(super) fn touch(&mut self, server: NodeServer, now: MonotonicTime) {
        let parts = self.parts.get(&server.node).copied().unwrap_or_default();
        let wait = COMPLETE_TIMEOUT * 4_u32.pow(parts.min(TIMEOUT_FACTOR));
        self.touched.entry(server).or_insert(now + wait);
    }

    /// The latest time of the next publication.
    pub(super) fn next_due(&self) -> Option<MonotonicTime> {
        self.touched.values().min().copied()
    }

    /// Publishes the changes; false when there are none.
    pub(super) fn publish(
        &mut self,
        indexes: &RemoteIndexes,
        to: &Snapshot<PeerTools>,
        now: MonotonicTime,
    ) -> bool {
        self.touch_stages(indexes, now);
        let is_copied = |server: &NodeServer| {
            let indexes = indexes.get(server.node, now);
            indexes.is_none_or(|(index, _)| !index.is_copying())
        };
        let is_due =
            |server: &NodeServer, due: &mut MonotonicTime| now >= *due || is_copied(server);
        let touched: Vec<_> = self.touched.extract_if(.., is_due).collect();
        let nodes: BTreeSet<NodeId> = touched.iter().map(|(server, _)| server.node).collect();
        for node in nodes {
            match indexes.get(node, now) {
                Some((index, _)) if index.is_copying() => *self.parts.entry(node).or_default() += 1,
                Some(_) | None => drop(self.parts.remove(&node)),
            }
        }
        let mut changed = false;
        for (server, _) in touched {
            changed |= match Self::build_server(indexes, &server, now) {
                Some(built) => {
                    self.servers.insert(server, Arc::new(built));
                    true
                }
                None => self.servers.remove(&server).is_some(),
            };
        }
        if changed {
            let before = to.load();
            to.store(Arc::new(PeerTools {
                servers: self.servers.clone(),
                hidden: hidden_nodes(indexes, now),
                replaced: CancellationToken::new(),
            }));
            before.replaced.cancel();
        }
        changed
    }

    /// Marks all servers of a node whose stage changed.
    fn touch_stages(&mut self, indexes: &RemoteIndexes, now: MonotonicTime) {
        let stages: BTreeMap<NodeId, Stage> = indexes
            .iter(now)
            .map(|(node, _, stage)| (node, stage))
            .collect();
        let published = self.servers.keys();
        let removed = published.filter(|server| !stages.contains_key(&server.node));
        self.touched
            .extend(removed.map(|removed| (removed.clone(), now)));
        for (node, index, stage) in indexes.iter(now) {
            if self.stages.get(&node) != Some(&stage) {
                let servers = index.entries().filter(|(key, _)| key.tool.is_none());
                let servers = servers.map(|(key, _)| node.server(key.server.clone()));
                self.touched.extend(servers.map(|server| (server, now)));
            }
        }
        self.parts.retain(|node, _| stages.contains_key(node));
        self.stages = stages;
    }

    /// Builds the published server; `None` if it is not visible.
    fn build_server(
        indexes: &RemoteIndexes,
        server: &NodeServer,
        now: MonotonicTime,
    ) -> Option<PeerServer> {
        let (index, stage) = indexes.get(server.node, now)?;
        let mut entries = index.server_entries(&server.server);
        // Tools without a server record are dropped.
        let RemoteEntry::Server(record) = entries.next()?.1 else {
            return None;
        };
        if stage >= Stage::Hidden {
            return None;
        }
        let tools = entries.filter_map(|(key, entry)| match entry {
            RemoteEntry::Server(_) => None,
            RemoteEntry::Tool(tool) => {
                let published = PeerTool {
                    definition: Arc::clone(&tool.definition),
                    idempotent: tool.idempotent,
                    vector: tool.vector.clone(),
                };
                Some((key.tool.clone()?, published))
            }
        });
        Some(PeerServer {
            record: *record,
            tools: tools.collect(),
            stage,
        })
    }
}

/// The nodes that are hidden.
fn hidden_nodes(indexes: &RemoteIndexes, now: MonotonicTime) -> BTreeMap<NodeId, HiddenNode> {
    let hidden = indexes
        .iter(now)
        .filter(|(_, _, stage)| *stage == Stage::Hidden);
    let hidden = hidden.map(|(node, index, _)| {
        let age = indexes.age(node, now).unwrap_or_default().as_millis();
        let mut servers = BTreeMap::new();
        for (key, _) in index.entries() {
            let tools: &mut usize = servers.entry(key.server.clone()).or_default();
            *tools += usize::from(key.tool.is_some());
        }
        let heard_ms = unix_ms().saturating_sub(u64::try_from(age).unwrap_or(u64::MAX));
        (node, HiddenNode { heard_ms, servers })
    });
    hidden.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use mgp_engine::cluster::shares::{Share, ShareAudience, ShareChange, Shares, ToolPattern};
    use mgp_engine::cluster::tool_index::{IndexEffect, LocalIndex, OfferedServer, hash_schemas};
    use mgp_protocol::federation::tool_index::{PullIndex, ServerRecord, ToolRecord};
    use mgp_protocol::ids::ServerId;
    use mgp_protocol::mgp::discovery::Status;

    use super::*;

    /// An index of several pages.
    fn index(tools: usize) -> LocalIndex {
        let tool = |n: usize| {
            let text = "x".repeat(600);
            let definition = format!(r#"{{"name":"tool_{n}","description":"{text}"}}"#);
            let record = ToolRecord {
                schemas: hash_schemas(&definition).unwrap(),
                definition,
                idempotent: false,
                vector: None,
            };
            (Arc::from(format!("tool_{n}")), record)
        };
        let offered = OfferedServer {
            record: ServerRecord {
                state: Status::Connected,
                specification: None,
                replica: false,
                stateful: false,
                starting: false,
            },
            tools: (0..tools).map(tool).collect::<BTreeMap<_, _>>(),
        };
        let server = ServerId::new("demo");
        let mut shares = Shares::default();
        shares.apply(&ShareChange::Share(Share {
            server: server.clone(),
            to: ShareAudience::Cluster,
            tools: ToolPattern::all(),
        }));
        let mut own = LocalIndex::new(1);
        own.offer(&server, Some(&offered));
        own.set_shares(shares);
        own
    }

    fn pull(effects: &[IndexEffect]) -> Option<PullIndex> {
        effects.iter().find_map(|effect| match effect {
            IndexEffect::Pull(pull) => Some(*pull),
            IndexEffect::Set(_) | IndexEffect::Removed(_) | IndexEffect::Report(_) => None,
        })
    }

    /// Each publication is read as a whole by many readers: one for each page would take quadratic time in
    /// the number of tools. A slow copy is published in part.
    #[test]
    fn copy_of_many_pages_is_published_rarely() {
        let (here, node) = (NodeId([1; 32]), NodeId([2; 32]));
        let server = node.server(ServerId::new("demo"));
        let mut own = index(3_000);
        let (mut indexes, mut servers) = (RemoteIndexes::default(), PublishedServers::default());
        let published = Snapshot::new(PeerTools::default());
        let tools = || {
            published
                .load()
                .servers
                .get(&server)
                .map(|server| server.tools.len())
        };
        let mut now = MonotonicTime::START;
        let mut effects = indexes.handle_digest(node, own.digest(here), now);
        assert!(
            !servers.publish(&indexes, &published, now),
            "nothing is there yet"
        );
        let (mut pages, mut times) = (0, 0);
        while let Some(asked) = pull(&effects) {
            // The fourth and the sixth page are equally late; the wait is longer the second time.
            let late = if [3, 5].contains(&pages) {
                COMPLETE_TIMEOUT
            } else {
                Duration::ZERO
            };
            now = now + late + Duration::from_millis(10);
            effects = indexes.handle_page(node, own.page(here, &asked), now);
            servers.touch(server.clone(), now);
            pages += 1;
            let changed = servers.publish(&indexes, &published, now);
            times += usize::from(changed);
            let whole = pull(&effects).is_none();
            assert_eq!(changed, pages == 4 || whole, "page {pages}");
            assert_eq!(servers.next_due().is_some(), !changed, "page {pages}");
            if pages == 4 {
                assert!((1..3_000).contains(&tools().unwrap()));
            }
        }
        assert!(pages > 6, "{pages}");
        assert_eq!((times, tools()), (2, Some(3_000)));
        assert!(!servers.publish(&indexes, &published, now + Duration::from_secs(1)));
    }
}
