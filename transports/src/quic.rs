//! Links to other kernels: QUIC between nodes with pinned keys.
//!
//! Both ends present a certificate of their node's key, and each accepts exactly the keys that are pinned at this moment.
//! A link carries one stream of control messages, a stream for each call, streams for replication, and packets that may
//! be lost. Nothing of a peer is read before its key was proven, and an unpinned peer can only request pairing, while a
//! ticket is open.
//!
//! There are no background tasks here: owners poll [`Acceptor::next`], [`InboundStreams::next`], [`ControlInput::next`]
//! and [`PacketInput::next`] repeatedly; these futures are cancel safe.

mod acceptor;
mod close_log;
mod control;
mod endpoint;
mod frames;
mod handshake;
mod inbound;
mod limits;
mod link;
mod negotiation;
mod packets;
mod pairing;
mod pinned;
mod streams;

#[cfg(test)]
mod tests;

pub use acceptor::{AcceptedPeer, Acceptor};
pub use control::{ControlInput, ControlOutput};
pub use endpoint::{LinkConfig, LinkEndpoint};
pub use frames::{StreamFailure, WriteFailure};
#[cfg(test)]
pub(crate) use handshake::NodeCertificateError;
pub use handshake::PeerError;
pub use handshake::identity::{IdentityError, NodeIdentity, NodeSigner};
pub use inbound::{InboundCall, InboundStream, InboundStreams};
pub use limits::MAX_FOLLOWS;
#[cfg(test)]
pub(crate) use limits::{
    IDLE, LINKS_PER_NODE, MAX_CALLS, MAX_HANDSHAKES, MAX_LISTENS, MAX_PAIRINGS,
};
pub use link::{BeginCallError, LinkGone, NewLink, NodeLink, PacketLoss};
pub use negotiation::{HelloProvider, LinkError};
pub use packets::PacketInput;
#[cfg(test)]
pub(crate) use packets::PacketOutcome;
pub use packets::relay::RelayedPair;
pub use pairing::{PairingGuard, PairingLink};
pub use streams::{CallFrame, CallInput, CallOutput, SyncStream};
