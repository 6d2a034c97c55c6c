//! Accepts connections: bounded handshakes, each with a timeout.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use mgp_protocol::federation::close_codes::LinkClose;
use mgp_protocol::ids::NodeId;
use quinn::{Connecting, Incoming};
use tokio::time::timeout;

use super::frames::{StreamFailure, describe_error};
use super::handshake::{LinkPurpose, PeerFindings};
use super::limits::{HANDSHAKE_TIMEOUT, HANDSHAKES_PER_ADDRESS, MAX_HANDSHAKES};
use super::link::NewLink;
use super::negotiation::{EndpointCore, HandshakenConnection, LinkError};
use super::pairing::PairingLink;
use super::pinned::close_connection;

/// An accepted peer.
#[derive(Debug)]
pub enum AcceptedPeer {
    /// A pinned node.
    Link(Box<NewLink>),
    /// A node that requests pairing; it has proven a key, and nothing else.
    Pairing(Box<PairingLink>),
}

/// Accepts links. No peer can end it: it ends with the endpoint.
pub struct Acceptor {
    core: Arc<EndpointCore>,
    handshakes: FuturesUnordered<BoxFuture<'static, (IpAddr, Option<AcceptedPeer>)>>,
    sources: Vec<IpAddr>,
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Acceptor").field(&self.core).finish()
    }
}

impl Acceptor {
    pub(super) fn new(core: Arc<EndpointCore>) -> Self {
        Self {
            core,
            handshakes: FuturesUnordered::new(),
            sources: Vec::new(),
        }
    }

    /// The next accepted peer; `None` when the endpoint was closed.
    pub async fn next(&mut self) -> Option<AcceptedPeer> {
        loop {
            tokio::select! {
                incoming = self.core.socket.accept() => self.begin_direct(incoming?),
                incoming = self.core.relayed.accept() => self.begin_relayed(incoming?),
                Some((from, accepted)) = self.handshakes.next() => {
                    if let Some(index) = self.sources.iter().position(|other| *other == from) {
                        self.sources.swap_remove(index);
                    }
                    if let Some(accepted) = accepted {
                        return Some(accepted);
                    }
                }
            }
        }
    }

    /// The number of handshakes in flight.
    #[must_use]
    #[cfg(test)]
    pub(crate) fn pending_handshakes(&self) -> usize {
        self.handshakes.len()
    }

    fn begin_direct(&mut self, incoming: Incoming) {
        // A peer that has not proven its address gets one small packet, whatever it sends: we cannot be used to flood
        // anybody.
        if !incoming.remote_address_validated() {
            if let Err(error) = incoming.retry() {
                error.into_incoming().ignore();
            }
            return;
        }
        self.begin_handshake(incoming, None);
    }

    // The relay, which is a pinned node, names the origin of the packets.
    fn begin_relayed(&mut self, incoming: Incoming) {
        match self.core.relay.resolve_address(incoming.remote_address()) {
            Some((_, relay)) => self.begin_handshake(incoming, Some(relay)),
            None => incoming.ignore(),
        }
    }

    fn begin_handshake(&mut self, incoming: Incoming, relay: Option<NodeId>) {
        let from = incoming.remote_address().ip();
        let from_address = self.sources.iter().filter(|other| **other == from).count();
        if self.sources.len() >= MAX_HANDSHAKES || from_address >= HANDSHAKES_PER_ADDRESS {
            incoming.refuse();
            return;
        }
        let (crypto, findings) = self.core.handshakes.server_config();
        let mut config = self.core.server.clone();
        config.crypto = Arc::new(crypto);
        // One that cannot be accepted any more was lost meanwhile.
        let Ok(connecting) = incoming.accept_with(Arc::new(config)) else {
            return;
        };
        self.sources.push(from);
        let core = Arc::clone(&self.core);
        self.handshakes.push(Box::pin(async move {
            let accepted = accept_peer(&core, connecting, &findings, relay).await;
            let accepted = accepted.inspect_err(|why| {
                let peer = findings.peer().map(|(_, key)| NodeId::from_key(&key));
                core.log_failure(peer, why);
            });
            (from, accepted.ok())
        }));
    }
}

async fn accept_peer(
    core: &EndpointCore,
    connecting: Connecting,
    findings: &PeerFindings,
    relay: Option<NodeId>,
) -> Result<AcceptedPeer, LinkError> {
    let address = connecting.remote_address();
    let failed = |why: String| match findings.error() {
        Some(fault) => LinkError::Peer(fault),
        None => match relay {
            Some(relay) => LinkError::RelaySilent { relay, why },
            None => LinkError::Unreachable(address, why),
        },
    };
    let connected = timeout(HANDSHAKE_TIMEOUT, connecting).await;
    let connected = connected.map_err(|_| failed("it took too long".to_owned()))?;
    let connection = connected.map_err(|error| failed(describe_error(&error)))?;
    let handshaken = |key| HandshakenConnection {
        connection: connection.clone(),
        key,
        relay,
    };
    match findings.peer() {
        Some((LinkPurpose::Link, key)) => {
            let linked = core.negotiate(handshaken(key), false).await?;
            Ok(AcceptedPeer::Link(Box::new(linked)))
        }
        // Only cluster members are reached through others.
        Some((LinkPurpose::Pair, _)) if relay.is_some() => {
            close_connection(&connection, LinkClose::NotPinned);
            Err(LinkError::LinkRejected(LinkClose::NotPinned))
        }
        Some((LinkPurpose::Pair, key)) => {
            let paired = accept_pairing(core, handshaken(key)).await?;
            Ok(AcceptedPeer::Pairing(Box::new(paired)))
        }
        None => Err(failed("it has shown no key".to_owned())),
    }
}

async fn accept_pairing(
    core: &EndpointCore,
    handshaken: HandshakenConnection,
) -> Result<PairingLink, LinkError> {
    let guest = core
        .handshakes
        .pairing_gate
        .admit_guest(&handshaken.connection)
        .map_err(|why| {
            close_connection(&handshaken.connection, why);
            LinkError::LinkRejected(why)
        })?;
    let opened = timeout(HANDSHAKE_TIMEOUT, handshaken.connection.accept_bi()).await;
    let opened = match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) => return Err(StreamFailure::from_connection_error(&error).into()),
        Err(_) => {
            close_connection(&handshaken.connection, LinkClose::Silent);
            return Err(StreamFailure::DeadlineExceeded.into());
        }
    };
    Ok(core.new_pairing_link(handshaken, opened, Some(guest)))
}
