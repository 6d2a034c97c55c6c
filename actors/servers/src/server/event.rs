//! Events of servers, for the crates above this one.

use mgp_engine::clock::MonotonicTime;
use mgp_engine::tools::catalog::ServerOffer;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::Lifecycle;

use crate::link::{Peer, ToldEvent};
use mgp_runtime::mailbox::Reply;

/// When the lists of a server were fetched, in the order of [`mgp_engine::tools::catalog::ListKind`].
pub type Fetched = [MonotonicTime; 4];

/// An event of one server. `server` is the server's own id or that of an instance.
#[derive(Debug)]
pub enum ServerEvent {
    /// Its offer changed.
    Offered {
        /// Its lists.
        offer: Box<ServerOffer>,
        /// What it declared.
        peer: Box<Peer>,
        /// When its lists were fetched.
        fetched: Fetched,
        /// Answered when agents can see the offer.
        seen: Reply<()>,
    },
    /// Its offer is gone.
    Withdrawn(ServerId),
    /// It is connected again.
    Connected(ServerId),
    /// It is not connected any more.
    Disconnected(ServerId),
    /// It was taken out for good.
    Removed(ServerId),
    /// It tells an event.
    Told {
        /// The server.
        server: ServerId,
        /// As sent.
        event: Box<ToldEvent>,
    },
    /// It went from one state to another.
    Stepped(Lifecycle),
    /// One of its resources changed.
    Updated {
        /// The server.
        server: ServerId,
        /// The server's own URI.
        uri: String,
        /// `params` as the server sent them.
        params: String,
    },
}
