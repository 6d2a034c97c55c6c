//! The tools that other nodes share with this one, as read by catalog and search.

use std::collections::BTreeMap;
use std::sync::Arc;

use mgp_engine::cluster::staleness::Stage;
use mgp_protocol::federation::tool_index::{ServerRecord, ToolVector};
use mgp_protocol::ids::{NodeId, NodeServer, ServerId};
use tokio_util::sync::CancellationToken;

/// The published tools of all nodes that are not hidden.
#[derive(Debug, Default)]
pub struct PeerTools {
    /// By node and server.
    pub servers: BTreeMap<NodeServer, Arc<PeerServer>>,
    /// The nodes that are unreachable for so long that their tools are hidden.
    pub hidden: BTreeMap<NodeId, HiddenNode>,
    /// Cancelled when a newer version is published.
    pub replaced: CancellationToken,
}

/// The last known state of a hidden node.
#[derive(Clone, Debug, Default)]
pub struct HiddenNode {
    /// When its last message arrived, in milliseconds since 1970.
    pub heard_ms: u64,
    /// The servers it shared then, with the number of tools of each.
    pub servers: BTreeMap<ServerId, usize>,
}

/// A server of another node.
#[derive(Debug)]
pub struct PeerServer {
    /// The record from its owner.
    pub record: ServerRecord,
    /// Its tools, by the server's own names.
    pub tools: BTreeMap<Arc<str>, PeerTool>,
    /// How fresh the data is.
    pub stage: Stage,
}

/// A tool of another node's server.
#[derive(Clone, Debug)]
pub struct PeerTool {
    /// Its definition, as the server wrote it.
    pub definition: Arc<str>,
    /// Its owner's operator confirmed that it is idempotent.
    pub idempotent: bool,
    /// Its embedding.
    pub vector: Option<Arc<ToolVector>>,
}
