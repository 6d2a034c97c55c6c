//! What servers tell the rooms above them.

use mgp_engine::clock::MonotonicTime;
use mgp_engine::tools::catalog::ServerOffer;
use mgp_protocol::ids::ServerId;

use crate::link::Peer;
use mgp_runtime::mailbox::Reply;

/// When the lists of a server were fetched, in the order of [`mgp_engine::tools::catalog::ListKind`].
pub type Fetched = [MonotonicTime; 4];

/// What happened to one server, or what it said. `server` is its own name or that of an instance.
#[derive(Debug)]
pub enum ServerEvent {
    /// It offers this from now on.
    Offered {
        /// Its lists.
        offer: Box<ServerOffer>,
        /// What it said of itself.
        peer: Box<Peer>,
        /// When its lists were fetched.
        fetched: Fetched,
        /// Answered when agents see it.
        seen: Reply<()>,
    },
    /// It offers nothing any more.
    Withdrawn(ServerId),
    /// It is connected again.
    Connected(ServerId),
    /// It is not connected any more.
    Disconnected(ServerId),
    /// One of its resources changed.
    Updated {
        /// Whose it is.
        server: ServerId,
        /// By the server's own URI.
        uri: String,
        /// As the server sent them.
        params: String,
    },
}
