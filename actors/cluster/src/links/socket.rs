//! The UDP socket, and the task that accepts connections.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use mgp_protocol::federation::close_codes::LinkClose;
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::{AskError, Mailbox, Reply, task};
use mgp_transports::quic::{AcceptedPeer, Acceptor, LinkEndpoint, PairingGuard};

use super::live_link::AcceptedLink;
use super::parts::LinksShared;
use super::{LinksEvent, LinksMsg};

/// How long closing the socket waits for peers; after it they detect the absence by themselves.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Errors of opening the socket.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address cannot be used.
    #[error(
        "no links to other nodes: cannot listen on UDP {0}: {1}; look for another program there, or name another address"
    )]
    Listen(SocketAddr, #[source] io::Error),
    /// The actor is not reachable.
    #[error("links to other nodes: {0}")]
    Actor(#[from] AskError),
}

/// An open socket. Closed on drop.
#[derive(Debug)]
pub(super) struct OpenSocket {
    pub(super) number: u64,
    pub(super) endpoint: LinkEndpoint,
    pub(super) pairing: Option<PairingGuard>,
    _accepting: SupervisedTask<()>,
}

impl OpenSocket {
    pub(super) fn open(
        number: u64,
        listen: SocketAddr,
        parts: &Arc<LinksShared>,
        mailbox: Mailbox<LinksMsg>,
    ) -> Result<Self, OpenError> {
        let failed = |error| OpenError::Listen(listen, error);
        let socket = UdpSocket::bind(listen).map_err(failed)?;
        let (endpoint, acceptor) = LinkEndpoint::new(socket, parts.config()).map_err(failed)?;
        let parts = Arc::clone(parts);
        let accepting = async move {
            let accepted = accept(acceptor, &parts, &mailbox);
            let _broken = task::catch_panic("links.accept", accepted).await;
            let _over = mailbox.send_to_self(LinksMsg::SocketLost(number));
        };
        Ok(Self {
            number,
            endpoint,
            pairing: None,
            _accepting: task::spawn_supervised("links.accept", accepting),
        })
    }

    /// Closes the socket and notifies all peers.
    pub(super) async fn close(self, reason: LinkClose) {
        self.endpoint.close(reason);
        let _late = tokio::time::timeout(CLOSE_TIMEOUT, self.endpoint.wait_closed()).await;
    }
}

impl Drop for OpenSocket {
    fn drop(&mut self) {
        self.endpoint.close(LinkClose::Done);
    }
}

async fn accept(mut acceptor: Acceptor, parts: &LinksShared, mailbox: &Mailbox<LinksMsg>) {
    while let Some(accepted) = acceptor.next().await {
        match accepted {
            AcceptedPeer::Pairing(pairing) => parts.events.send(LinksEvent::Pairing(pairing)),
            AcceptedPeer::Link(link) => {
                let (reply, handled) = Reply::new();
                let accepted = LinksMsg::Accepted(AcceptedLink { link, done: reply });
                if mailbox.send_to_self(accepted).is_ok() {
                    let _looked_at = handled.await;
                }
            }
        }
    }
}
