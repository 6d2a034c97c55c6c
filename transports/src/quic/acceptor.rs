//! Who dials this node: handshakes under way, bounded, each within its time.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use mgp_protocol::federation::ends::LinkClose;
use mgp_protocol::ids::NodeId;
use quinn::{Connecting, Incoming};
use tokio::time::timeout;

use super::frames::{StreamFailure, in_words};
use super::greeting::{EndpointCore, NoLink, Shaken};
use super::handshake::{LinkPurpose, PeerFindings};
use super::limits::{HANDSHAKE, HANDSHAKES, HANDSHAKES_OF_ONE};
use super::link::NewLink;
use super::pairing::PairingLink;
use super::pinned::close;

/// Who dialed.
#[derive(Debug)]
pub enum AcceptedPeer {
    /// A pinned node.
    Link(Box<NewLink>),
    /// A node that asks to become one; it has shown a key, and nothing else.
    Pairing(Box<PairingLink>),
}

/// Takes links. Nothing that a peer does ends it: it ends with the endpoint.
pub struct Acceptor {
    core: Arc<EndpointCore>,
    under_way: FuturesUnordered<BoxFuture<'static, (IpAddr, Option<AcceptedPeer>)>>,
    from: Vec<IpAddr>,
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
            under_way: FuturesUnordered::new(),
            from: Vec::new(),
        }
    }

    /// The next one who dialed and was taken. `None` when the endpoint was closed.
    pub async fn next(&mut self) -> Option<AcceptedPeer> {
        loop {
            tokio::select! {
                incoming = self.core.socket.accept() => self.begin_direct(incoming?),
                incoming = self.core.relayed.accept() => self.begin_relayed(incoming?),
                Some((from, accepted)) = self.under_way.next() => {
                    if let Some(at) = self.from.iter().position(|other| *other == from) {
                        self.from.swap_remove(at);
                    }
                    if let Some(accepted) = accepted {
                        return Some(accepted);
                    }
                }
            }
        }
    }

    /// Handshakes under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    fn begin_direct(&mut self, incoming: Incoming) {
        // Whoever has not shown that it is where it says gets one small packet, whatever it sends:
        // nobody is flooded with our answers.
        if !incoming.remote_address_validated() {
            if let Err(error) = incoming.retry() {
                error.into_incoming().ignore();
            }
            return;
        }
        self.begin(incoming, None);
    }

    /// Where the packets come from is said by the relay, a node that was let in.
    fn begin_relayed(&mut self, incoming: Incoming) {
        match self.core.relay.ends(incoming.remote_address()) {
            Some((_, relay)) => self.begin(incoming, Some(relay)),
            None => incoming.ignore(),
        }
    }

    fn begin(&mut self, incoming: Incoming, relay: Option<NodeId>) {
        let from = incoming.remote_address().ip();
        let of_one = self.from.iter().filter(|other| **other == from).count();
        if self.from.len() >= HANDSHAKES || of_one >= HANDSHAKES_OF_ONE {
            incoming.refuse();
            return;
        }
        let (crypto, findings) = self.core.handshakes.server();
        let mut config = self.core.server.clone();
        config.crypto = Arc::new(crypto);
        // One that cannot be taken any more was lost meanwhile.
        let Ok(connecting) = incoming.accept_with(Arc::new(config)) else {
            return;
        };
        self.from.push(from);
        let core = Arc::clone(&self.core);
        self.under_way.push(Box::pin(async move {
            let accepted = take(&core, connecting, &findings, relay).await;
            let accepted = accepted.inspect_err(|why| {
                let peer = findings.peer().map(|(_, key)| NodeId::of_key(&key));
                core.told(peer, why);
            });
            (from, accepted.ok())
        }));
    }
}

async fn take(
    core: &EndpointCore,
    connecting: Connecting,
    findings: &PeerFindings,
    relay: Option<NodeId>,
) -> Result<AcceptedPeer, NoLink> {
    let address = connecting.remote_address();
    let failed = |why: String| match findings.fault() {
        Some(fault) => NoLink::Peer(fault),
        None => match relay {
            Some(relay) => NoLink::RelaySilent { relay, why },
            None => NoLink::Unreachable(address, why),
        },
    };
    let connected = timeout(HANDSHAKE, connecting).await;
    let connected = connected.map_err(|_| failed("it took too long".to_owned()))?;
    let connection = connected.map_err(|error| failed(in_words(&error)))?;
    let shaken = |key| Shaken {
        connection: connection.clone(),
        key,
        relay,
    };
    match findings.peer() {
        Some((LinkPurpose::Link, key)) => {
            let linked = core.greet(shaken(key), false).await?;
            Ok(AcceptedPeer::Link(Box::new(linked)))
        }
        // Only nodes that are in the cluster already are reached through others.
        Some((LinkPurpose::Pair, _)) if relay.is_some() => {
            close(&connection, LinkClose::NotPinned);
            Err(NoLink::NotEntered(LinkClose::NotPinned))
        }
        Some((LinkPurpose::Pair, key)) => {
            let paired = pair(core, shaken(key)).await?;
            Ok(AcceptedPeer::Pairing(Box::new(paired)))
        }
        None => Err(failed("it has shown no key".to_owned())),
    }
}

async fn pair(core: &EndpointCore, shaken: Shaken) -> Result<PairingLink, NoLink> {
    let guest = core
        .handshakes
        .door
        .enter(&shaken.connection)
        .map_err(|why| {
            close(&shaken.connection, why);
            NoLink::NotEntered(why)
        })?;
    let opened = timeout(HANDSHAKE, shaken.connection.accept_bi()).await;
    let opened = match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(gone)) => return Err(StreamFailure::of_link(&gone).into()),
        Err(_) => {
            close(&shaken.connection, LinkClose::Silent);
            return Err(StreamFailure::Late.into());
        }
    };
    Ok(core.pairing(shaken, opened, Some(guest)))
}
