//! What other nodes share with this one, as catalog and search read it.

use std::collections::BTreeMap;
use std::sync::Arc;

use mgp_engine::cluster::staleness::Stage;
use mgp_protocol::federation::tool_index::{ServerRecord, ToolVector};
use mgp_protocol::ids::{NodeId, NodeServer, ServerId};
use tokio_util::sync::CancellationToken;

/// Everything that is held, of nodes that are not hidden.
#[derive(Debug, Default)]
pub struct PeerTools {
    /// By node and server.
    pub servers: BTreeMap<NodeServer, Arc<PeerServer>>,
    /// The nodes that are away for so long that what they share is shown to nobody.
    pub hidden: BTreeMap<NodeId, HiddenNode>,
    /// Cancelled when newer ones are published.
    pub replaced: CancellationToken,
}

/// What is known of a node that is hidden.
#[derive(Clone, Debug, Default)]
pub struct HiddenNode {
    /// When it was last heard, in milliseconds since 1970.
    pub heard_ms: u64,
    /// What it shared then, and how many tools of each.
    pub servers: BTreeMap<ServerId, usize>,
}

/// A server of another node.
#[derive(Debug)]
pub struct PeerServer {
    /// What its owner tells of it.
    pub record: ServerRecord,
    /// Its tools, by its own names for them.
    pub tools: BTreeMap<Arc<str>, PeerTool>,
    /// How fresh that is.
    pub stage: Stage,
}

/// A tool of another node's server.
#[derive(Clone, Debug)]
pub struct PeerTool {
    /// Its definition, as the server wrote it.
    pub definition: Arc<str>,
    /// Its owner's operator confirmed that calling it twice is calling it once.
    pub idempotent: bool,
    /// Its meaning.
    pub vector: Option<Arc<ToolVector>>,
}
