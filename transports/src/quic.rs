//! Links to other kernels: QUIC between nodes that know each other's keys.
//!
//! Both ends show a certificate of their node's key, and each takes exactly the keys that are pinned here,
//! at this moment. A link carries one stream of control messages, a stream for each call, streams on
//! which nodes copy from each other, and packets that may be lost. Nothing of a peer is looked at before
//! its key was proven, and a peer that is not pinned can only ask to be paired, while a ticket is open.
//!
//! Nothing here runs by itself: [`Acceptor::next`], [`InboundStreams::next`], [`ControlInput::next`] and
//! [`PacketInput::next`] have to be asked again and again by their owner, and losing one of these
//! futures half way loses nothing.

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
pub use handshake::identity::{IdentityError, NodeIdentity, NodeSigner};
pub use handshake::{NodeCertificateError, PeerError};
pub use inbound::{InboundCall, InboundStream, InboundStreams};
pub use limits::{
    DIALED_ADDRESSES, HANDSHAKE_TIMEOUT, IDLE, LINK_MEMORY, LINKS_PER_NODE, MAX_CALLS, MAX_FOLLOWS,
    MAX_HANDSHAKES, MAX_LISTENS, MAX_PAIRINGS, MAX_SYNCS,
};
pub use link::{BeginCallError, LinkGone, NewLink, NodeLink, PacketLoss};
pub use negotiation::{HelloProvider, LinkError};
pub use packets::relay::RelayedPair;
pub use packets::{PacketInput, PacketOutcome};
pub use pairing::{PairingGuard, PairingLink};
pub use streams::{CallFrame, CallInput, CallOutput, SyncStream};
