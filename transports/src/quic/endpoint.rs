//! The socket of a node, and dialing.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use mgp_protocol::federation::close_codes::LinkClose;
use mgp_protocol::ids::NodeId;
use mgp_sync::Credit;
use quinn::{ClientConfig, ServerConfig, TokioRuntime, VarInt};
use tokio::time::timeout;

use super::acceptor::Acceptor;
use super::frames::{StreamFailure, describe_error};
use super::handshake::identity::NodeIdentity;
use super::handshake::{HandshakeConfig, LinkPurpose};
use super::limits::{self, DIALED_ADDRESSES, HANDSHAKE_TIMEOUT, RESOLVE_TIMEOUT};
use super::link::NewLink;
use super::negotiation::{EndpointCore, HandshakenConnection, HelloProvider, LinkError};
use super::packets::relay::{Relay, RelayedPair};
use super::pairing::{PairingGate, PairingGuard, PairingLink, is_handshake_refused};
use super::pinned::PinnedNodes;

/// The settings of an endpoint.
pub struct LinkConfig {
    /// The key and its certificate.
    pub identity: NodeIdentity,
    /// Makes the first message of each link.
    pub hello: HelloProvider,
    /// The memory for messages of all links.
    pub memory: Arc<Credit>,
    /// Whether this node relays packets between nodes without a link to each other.
    pub relay: bool,
}

impl fmt::Debug for LinkConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LinkConfig").field(&self.identity).finish()
    }
}

/// The socket of a node; clones share it.
#[derive(Clone, Debug)]
pub struct LinkEndpoint(Arc<EndpointCore>);

impl LinkEndpoint {
    /// Uses a bound socket. No key is pinned yet.
    ///
    /// # Errors
    /// The socket cannot be used.
    pub fn new(socket: UdpSocket, config: LinkConfig) -> io::Result<(Self, Acceptor)> {
        let gate = Arc::new(PairingGate::default());
        let (here, pinned) = (config.identity.id(), PinnedNodes::new());
        let handshakes = HandshakeConfig::new(config.identity, Arc::clone(&pinned), gate);
        let mut server = ServerConfig::with_crypto(Arc::new(handshakes.server_config().0));
        server.transport_config(limits::guest_transport());
        limits::bound_incoming(&mut server);
        let runtime = Arc::new(TokioRuntime);
        let socket_config = limits::socket_config();
        let socket =
            quinn::Endpoint::new(socket_config, Some(server.clone()), socket, runtime.clone())?;
        let (relay, ends) = Relay::new(here, pinned, config.relay);
        let (relayed_config, ends) = (limits::socket_config(), Arc::new(ends));
        let relayed = quinn::Endpoint::new_with_abstract_socket(
            relayed_config,
            Some(server.clone()),
            ends,
            runtime,
        )?;
        let core = Arc::new(EndpointCore {
            socket,
            relayed,
            relay,
            handshakes,
            server,
            hello: config.hello,
            memory: config.memory,
            log: Arc::default(),
        });
        let acceptor = Acceptor::new(Arc::clone(&core));
        Ok((Self(core), acceptor))
    }

    /// The id of this node.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.0.handshakes.identity.id()
    }

    /// The local address.
    ///
    /// # Errors
    /// The socket is gone.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.socket.local_addr()
    }

    /// When this returns, exactly these nodes may have links: those of others are closed.
    pub fn set_pinned_nodes(&self, nodes: HashSet<NodeId>) {
        self.0.handshakes.pinned.replace(nodes);
    }

    /// Keeps a ticket open until the guard is dropped.
    #[must_use]
    pub fn open_pairing(&self) -> PairingGuard {
        PairingGuard::new(Arc::clone(&self.0.handshakes.pairing_gate))
    }

    /// Dials a pinned node. Resolves the name each time, since it may have changed, and tries each of its addresses.
    ///
    /// # Errors
    /// [`LinkError`], that of the last address.
    pub async fn dial(&self, node: NodeId, address_text: &str) -> Result<NewLink, LinkError> {
        let linked = async {
            let handshaken = self.connect(node, address_text, LinkPurpose::Link).await?;
            self.0.negotiate(handshaken, true).await
        };
        let linked = linked.await;
        linked.inspect_err(|why| self.0.log_failure(Some(node), why))
    }

    /// Dials a pinned node through another one with a direct link.
    ///
    /// # Errors
    /// [`LinkError`].
    pub async fn dial_through(&self, node: NodeId, relay: NodeId) -> Result<NewLink, LinkError> {
        let linked = async {
            let handshaken = self.connect_through(node, relay).await?;
            self.0.negotiate(handshaken, true).await
        };
        let linked = linked.await;
        // A relay refuses each time, which changes nothing.
        linked.inspect_err(|why| {
            if !matches!(why, LinkError::RelayRefused { .. }) {
                self.0.log_failure(Some(node), why);
            }
        })
    }

    /// The pairs of nodes that this node currently relays for.
    #[must_use]
    pub fn relayed_pairs(&self) -> Vec<RelayedPair> {
        self.0.relay.relayed_pairs()
    }

    /// Dials a node for pairing: the one that made the ticket.
    ///
    /// # Errors
    /// [`LinkError`].
    pub async fn dial_pairing(
        &self,
        node: NodeId,
        address_text: &str,
    ) -> Result<PairingLink, LinkError> {
        let handshaken = self.connect(node, address_text, LinkPurpose::Pair).await?;
        let opened = handshaken.connection.open_bi().await;
        let opened = opened.map_err(|gone| {
            if is_handshake_refused(&handshaken.connection) {
                LinkError::PairingRefused
            } else {
                StreamFailure::from_connection_error(&gone).into()
            }
        })?;
        Ok(self.0.new_pairing_link(handshaken, opened, None))
    }

    /// Ends all links, and accepts no more. Links that have ended keep their reason.
    pub fn close(&self, why: LinkClose) {
        let code = VarInt::from_u64(why.code()).unwrap_or(VarInt::MAX);
        self.0.relayed.close(code, &[]);
        self.0.socket.close(code, &[]);
    }

    /// Waits until all peers were notified.
    pub async fn wait_closed(&self) {
        self.0.socket.wait_idle().await;
    }

    #[cfg(test)]
    pub(super) fn core(&self) -> &EndpointCore {
        &self.0
    }

    #[cfg(test)]
    pub(super) fn links(&self) -> usize {
        self.0.handshakes.pinned.links()
    }

    #[cfg(test)]
    pub(super) fn connections(&self) -> usize {
        self.0.socket.open_connections() + self.0.relayed.open_connections()
    }

    async fn connect(
        &self,
        node: NodeId,
        address_text: &str,
        purpose: LinkPurpose,
    ) -> Result<HandshakenConnection, LinkError> {
        if node == self.id() {
            return Err(LinkError::Itself);
        }
        let mut last =
            LinkError::Unresolved(address_text.to_owned(), "it has no address".to_owned());
        for address in resolve(address_text).await? {
            match self.handshake(node, address, purpose).await {
                Ok(handshaken) => return Ok(handshaken),
                Err(why) => last = why,
            }
        }
        Err(last)
    }

    async fn connect_through(
        &self,
        node: NodeId,
        relay: NodeId,
    ) -> Result<HandshakenConnection, LinkError> {
        if node == self.id() || node == relay {
            return Err(LinkError::Itself);
        }
        let silent = |why: &dyn fmt::Display| LinkError::RelaySilent {
            relay,
            why: describe_error(why),
        };
        let Some(mut dial) = self.0.relay.register_dial(node, relay) else {
            return Err(silent(&"it is not linked itself"));
        };
        let (crypto, findings) = self.0.handshakes.client_config(node, LinkPurpose::Link);
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(limits::peer_transport());
        let failed = |why: &dyn fmt::Display| match findings.error() {
            Some(fault) => LinkError::Peer(fault),
            None => silent(why),
        };
        let relayed = &self.0.relayed;
        let connecting = relayed.connect_with(config, dial.address, "node.invalid");
        let connecting = connecting.map_err(|error| failed(&error))?;
        let connected = tokio::select! {
            connected = timeout(HANDSHAKE_TIMEOUT, connecting) => connected,
            Ok(why) = &mut dial.refused => return Err(LinkError::RelayRefused { relay, why }),
        };
        let connected = connected.map_err(|_| failed(&"it took too long"))?;
        let connection = connected.map_err(|error| failed(&error))?;
        match findings.peer() {
            Some((_, key)) => Ok(HandshakenConnection {
                connection,
                key,
                relay: Some(relay),
            }),
            None => Err(failed(&"it has shown no key")),
        }
    }

    async fn handshake(
        &self,
        node: NodeId,
        address: SocketAddr,
        purpose: LinkPurpose,
    ) -> Result<HandshakenConnection, LinkError> {
        let (crypto, findings) = self.0.handshakes.client_config(node, purpose);
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(match purpose {
            LinkPurpose::Link => limits::peer_transport(),
            LinkPurpose::Pair => limits::guest_transport(),
        });
        let failed = |why: &dyn fmt::Display| match findings.error() {
            Some(fault) => LinkError::Peer(fault),
            None => LinkError::Unreachable(address, describe_error(why)),
        };
        // The name is neither sent nor read.
        let connecting = self.0.socket.connect_with(config, address, "node.invalid");
        let connecting = connecting.map_err(|error| failed(&error))?;
        let connected = timeout(HANDSHAKE_TIMEOUT, connecting).await;
        let connected = connected.map_err(|_| failed(&"it took too long"))?;
        let connection = connected.map_err(|error| failed(&error))?;
        match findings.peer() {
            Some((_, key)) => Ok(HandshakenConnection {
                connection,
                key,
                relay: None,
            }),
            None => Err(failed(&"it has shown no key")),
        }
    }
}

/// The addresses that a name currently resolves to.
async fn resolve(address_text: &str) -> Result<Vec<SocketAddr>, LinkError> {
    let failed = |why: String| LinkError::Unresolved(address_text.to_owned(), why);
    let found = timeout(RESOLVE_TIMEOUT, tokio::net::lookup_host(address_text)).await;
    let found = found.map_err(|_| failed("it took too long".to_owned()))?;
    let found = found.map_err(|error| failed(error.to_string()))?;
    Ok(found.take(DIALED_ADDRESSES).collect())
}
