//! The cluster actors: links to other nodes, membership, the replicated logs of grants, and the tools each
//! node shares.
//!
//! Nothing here names a server's process or an agent's connection. What other nodes' agents call goes up as
//! [`links::InboundNodeCall`]; how a server of another node is reached is [`links::LinkTable`] and
//! [`PeerTools`], both published, so that a call asks no actor.

mod agent_limits;
mod lan;
pub mod links;
pub mod pairing;
pub mod replication;
mod shares;
mod tool_index;

// The permits that agents have on one link: no agent of a node takes those of its others.
pub use self::agent_limits::{AgentPermit, CALLS_PER_AGENT, needs_permit};

// Local network discovery: announces this node and receives announcements of others.
pub use self::lan::{LanAnnouncement, LanError, LanHandle, LanMsg, LanStart, LanStatus};

// What this node shares with others, persisted and published.
pub use self::shares::{ShareChangeError, ShareSpec, SharesHandle, SharesMsg, SharesStart};

// The tools of all nodes: each peer gets what this node shares with it.
pub use self::tool_index::{
    IndexedNode, PeerServer, PeerTool, PeerTools, PublishedNames, ToolIndexEvent, ToolIndexHandle,
    ToolIndexMsg, ToolIndexStart,
};
