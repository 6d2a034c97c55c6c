//! The other kernels of the cluster: links to them, membership, the logs of grants, and the tools each node shares.
//!
//! Nothing here names a server's process or an agent's connection. What other nodes' agents call goes up as
//! [`links::InboundNodeCall`]; how a server of another node is reached is [`links::LinkTable`] and
//! [`tool_index::PeerTools`], both published, so that a call asks no actor.

pub mod agent_limits;
pub mod lan;
pub mod links;
pub mod pairing;
pub mod replication;
pub mod shares;
pub mod tool_index;
