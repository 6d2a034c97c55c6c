//! Events of servers, for the crates above this one.

use std::convert::Infallible;
use std::sync::Arc;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::tools::catalog::ServerOffer;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::Lifecycle;
use tokio::sync::mpsc;

use crate::link::{Link, McplMessage, Peer, ReportedEvent};
use mgp_runtime::Reply;

/// When the lists of a server were fetched, in the order of [`mgp_engine::tools::catalog::ListKind`].
pub type FetchTimes = [MonotonicTime; 4];

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
        fetched: FetchTimes,
        /// Answered when agents can see the offer.
        published: Reply<()>,
    },
    /// Its tools as they were listed before, of a server that has not been connected yet.
    Restored(Box<ServerOffer>),
    /// Its offer is gone.
    Withdrawn(ServerId),
    /// It is connected again. A life that it replaces waits for who holds the second.
    Connected(ServerId, ResubscriptionGuard),
    /// It is not connected any more.
    Disconnected(ServerId),
    /// It was taken out for good.
    Removed(ServerId),
    /// It tells an event.
    Reported {
        /// The server.
        server: ServerId,
        /// As sent.
        event: Box<ReportedEvent>,
    },
    /// It says something of MCPL.
    McplReceived {
        /// The server.
        server: ServerId,
        /// As sent.
        message: McplMessage,
    },
    /// It speaks MCPL, and the handshake is done: nothing was said to it since.
    McplConnected {
        /// The server.
        server: ServerId,
        /// The connection.
        link: Arc<Link>,
    },
    /// It went from one state to another.
    StateChanged(Lifecycle),
    /// One of its resources changed.
    ResourceUpdated {
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
pub struct ResubscriptionGuard {
    _sender: Option<mpsc::Sender<Infallible>>,
}

/// Whether subscriptions are still being made again.
#[derive(Debug)]
pub(super) struct PendingResubscriptions(mpsc::Receiver<Infallible>);

impl ResubscriptionGuard {
    pub(super) fn new() -> (Self, PendingResubscriptions) {
        let (held, renewals) = mpsc::channel(1);
        (
            Self {
                _sender: Some(held),
            },
            PendingResubscriptions(renewals),
        )
    }
}

impl PendingResubscriptions {
    /// Resolves when nobody holds them.
    pub(super) async fn wait(&mut self) {
        let _ = self.0.recv().await;
    }
}
