//! Events of servers, for other crates.

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
    /// The server's lists changed.
    Offered {
        /// The lists.
        offer: Box<ServerOffer>,
        /// The server's declaration.
        peer: Box<Peer>,
        /// When the lists were fetched.
        fetched: FetchTimes,
        /// Answered when the offer is visible to agents.
        published: Reply<()>,
    },
    /// The stored lists of a server that has not been connected yet.
    Restored(Box<ServerOffer>),
    /// The lists were withdrawn.
    Withdrawn(ServerId),
    /// The server is connected again. A replaced generation stays until the guard is dropped.
    Connected(ServerId, ResubscriptionGuard),
    /// The server is disconnected.
    Disconnected(ServerId),
    /// The server was removed from the configuration.
    Removed(ServerId),
    /// The server sent an event.
    Reported {
        /// The server.
        server: ServerId,
        /// The event as sent.
        event: Box<ReportedEvent>,
    },
    /// The server sent an MCPL message.
    McplReceived {
        /// The server.
        server: ServerId,
        /// The message as sent.
        message: McplMessage,
    },
    /// The handshake with a server that speaks MCPL is complete, and nothing was sent since.
    McplConnected {
        /// The server.
        server: ServerId,
        /// The connection.
        link: Arc<Link>,
    },
    /// The state of the server changed.
    StateChanged(Lifecycle),
    /// A resource of the server changed.
    ResourceUpdated {
        /// The server.
        server: ServerId,
        /// The server's own URI.
        uri: String,
        /// `params` as the server sent them.
        params: String,
    },
}

/// Held while subscriptions are restored at a new generation. The replaced generation ends when it is dropped,
/// so that no notification is lost.
#[derive(Clone, Debug, Default)]
pub struct ResubscriptionGuard {
    _sender: Option<mpsc::Sender<Infallible>>,
}

/// Waits for subscriptions to be restored.
#[derive(Debug)]
pub(super) struct PendingResubscriptions(mpsc::Receiver<Infallible>);

impl ResubscriptionGuard {
    pub(super) fn new() -> (Self, PendingResubscriptions) {
        let (sender, renewals) = mpsc::channel(1);
        (
            Self {
                _sender: Some(sender),
            },
            PendingResubscriptions(renewals),
        )
    }
}

impl PendingResubscriptions {
    /// Resolves when the guard was dropped.
    pub(super) async fn wait(&mut self) {
        let _ = self.0.recv().await;
    }
}
