//! Events of servers, for the crates above this one.

use std::convert::Infallible;
use std::sync::Arc;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::tools::catalog::ServerOffer;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::Lifecycle;
use tokio::sync::mpsc;

use crate::link::{Link, McplMessage, Peer, ToldEvent};
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
    /// Its tools as they were listed before, of a server that has not been connected yet.
    Restored(Box<ServerOffer>),
    /// Its offer is gone.
    Withdrawn(ServerId),
    /// It is connected again. A life that it replaces waits for who holds the second.
    Connected(ServerId, RenewalHold),
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
    /// It says something of MCPL.
    Mcpl {
        /// The server.
        server: ServerId,
        /// As sent.
        message: McplMessage,
    },
    /// It speaks MCPL, and the handshake is done: nothing was said to it since.
    McplMet {
        /// The server.
        server: ServerId,
        /// The connection.
        link: Arc<Link>,
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

/// Held while subscriptions are made again at a new life of a server: the life it replaces goes when nobody
/// holds this any more, so that no news falls between the two.
#[derive(Clone, Debug, Default)]
pub struct RenewalHold {
    _held: Option<mpsc::Sender<Infallible>>,
}

/// Whether subscriptions are still being made again.
#[derive(Debug)]
pub(super) struct Renewals(mpsc::Receiver<Infallible>);

impl RenewalHold {
    pub(super) fn new() -> (Self, Renewals) {
        let (held, renewals) = mpsc::channel(1);
        (Self { _held: Some(held) }, Renewals(renewals))
    }
}

impl Renewals {
    /// Resolves when nobody holds them.
    pub(super) async fn over(&mut self) {
        let _ = self.0.recv().await;
    }
}
