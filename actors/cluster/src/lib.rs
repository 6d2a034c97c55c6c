//! The cluster actors: links to other nodes, membership, the replicated logs of grants, and the tools each
//! node shares.
//!
//! Nothing here names a server's process or an agent's connection. Calls of other nodes' agents are passed
//! up as [`links::InboundNodeCall`]; a server of another node is reached through [`links::LinkTable`] and
//! [`tool_index::PeerTools`], both published, so that a call asks no actor.

pub mod agent_limits;
pub mod lan;
pub mod links;
pub mod pairing;
pub mod replication;
pub mod shares;
pub mod tool_index;
