//! Negotiates a new link on both sides: exchanges hellos, agrees on a version, registers the link.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mgp_protocol::federation::close_codes::LinkClose;
use mgp_protocol::federation::control::Control;
use mgp_protocol::federation::frames::{CONTROL_BODY, RelayRefusal, StreamKind};
use mgp_protocol::federation::hello::{Hello, NoCommonVersion};
use mgp_protocol::ids::NodeId;
use mgp_sync::Credit;
use quinn::ServerConfig;
use tokio::time::timeout;

use super::close_log::CloseLog;
use super::control::{ControlInput, ControlOutput};
use super::frames::{FrameReader, FrameWriter, StreamFailure, WriteFailure};
use super::handshake::{HandshakeConfig, PeerError};
use super::limits::{self, HANDSHAKE_TIMEOUT};
use super::link::{NegotiatedConnection, NewLink, export_binding, failure_kind, message_budget};
use super::packets::relay::Relay;
use super::pairing::{GuestSlot, PairingLink};
use super::pinned::close_connection;

/// How long a peer without a common version may take to close the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Makes the hello of this node at the time of a link.
pub type HelloProvider = Arc<dyn Fn() -> Hello + Send + Sync>;

/// Why there is no link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The name does not resolve at present.
    #[error("{0:?} cannot be resolved: {1}")]
    Unresolved(String, String),
    /// It is this node.
    #[error("a node does not dial itself")]
    Itself,
    /// Nobody answers, or the answer is from no node.
    #[error("no node answers at {0}: {1}")]
    Unreachable(SocketAddr, String),
    /// Its address is unknown.
    #[error("no address of the node is known")]
    NoAddress,
    /// The relay refuses to relay to it.
    #[error("the node {} relays nothing to it: {}", .relay.short_id(), .why)]
    RelayRefused {
        /// The relay.
        relay: NodeId,
        /// Its reason.
        why: RelayRefusal,
    },
    /// The node does not answer through the relay.
    #[error("no node answers through {}: {}", .relay.short_id(), .why)]
    RelaySilent {
        /// The relay.
        relay: NodeId,
        /// The error.
        why: String,
    },
    /// The peer is rejected.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// There is no common version.
    #[error(transparent)]
    Version(#[from] NoCommonVersion),
    /// The peer closed the link before its hello, or sent none.
    #[error("the node took no link: {0}")]
    HelloFailed(#[from] StreamFailure),
    /// It rejects pairing: no ticket is open there.
    #[error("the node takes no ticket now")]
    PairingRefused,
    /// The limit of links to it is reached, or it was revoked meanwhile.
    #[error("no link is made: {0}")]
    LinkRejected(LinkClose),
}

impl LinkError {
    /// A short name of the error kind, for logging.
    fn kind(&self) -> &'static str {
        match self {
            Self::Unresolved(..) => "unresolved",
            Self::Itself => "itself",
            Self::Unreachable(..) => "unreachable",
            Self::NoAddress => "no address",
            Self::RelayRefused { .. } | Self::RelaySilent { .. } => "relay",
            Self::Peer(fault) => fault.kind(),
            Self::Version(_) => "version",
            Self::HelloFailed(why) => failure_kind(why),
            Self::PairingRefused => "turned away",
            Self::LinkRejected(_) => "not entered",
        }
    }
}

/// The socket of a node, and the settings of its links.
pub(super) struct EndpointCore {
    pub(super) socket: quinn::Endpoint,
    /// For links through other nodes.
    pub(super) relayed: quinn::Endpoint,
    pub(super) relay: Arc<Relay>,
    pub(super) handshakes: HandshakeConfig,
    pub(super) server: ServerConfig,
    pub(super) hello: HelloProvider,
    pub(super) memory: Arc<Credit>,
    pub(super) log: Arc<CloseLog>,
}

impl fmt::Debug for EndpointCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EndpointCore")
            .field(&self.handshakes.identity)
            .finish()
    }
}

/// A connection after its handshake, with the proven key.
pub(super) struct HandshakenConnection {
    pub(super) connection: quinn::Connection,
    pub(super) key: [u8; 32],
    /// The relay, if it is not direct.
    pub(super) relay: Option<NodeId>,
}

impl EndpointCore {
    /// Negotiates on a connection of a pinned node, within the handshake timeout.
    pub(super) async fn negotiate(
        &self,
        handshaken: HandshakenConnection,
        dialed: bool,
    ) -> Result<NewLink, LinkError> {
        let connection = handshaken.connection;
        let ours = (self.hello)();
        let exchanged = async {
            if dialed {
                self.exchange_hellos_as_dialer(&connection, &ours).await
            } else {
                self.exchange_hellos_as_acceptor(&connection, &ours).await
            }
        };
        let exchanged = timeout(HANDSHAKE_TIMEOUT, exchanged).await;
        let exchanged = exchanged.unwrap_or(Err(StreamFailure::DeadlineExceeded));
        let (input, output, hello) = exchanged.map_err(|failure| {
            // The peer's reason is more specific than the loss of a stream.
            let ended = connection.close_reason();
            close_connection(&connection, LinkClose::Silent);
            ended.map_or(failure, |reason| {
                StreamFailure::from_connection_error(&reason)
            })
        })?;
        let agreed = match ours.negotiate(&hello) {
            Ok(agreed) => agreed,
            Err(error) => {
                // The dialer has read our hello by the time it closes the connection, and knows the reason.
                if !dialed {
                    let _hung_up = timeout(CLOSE_TIMEOUT, connection.closed()).await;
                }
                close_connection(&connection, LinkClose::NoCommonVersion);
                return Err(error.into());
            }
        };
        let peer = NodeId::from_key(&handshaken.key);
        let registered = self
            .handshakes
            .pinned
            .register(peer, &connection)
            .map_err(|why| {
                close_connection(&connection, why);
                LinkError::LinkRejected(why)
            })?;
        let negotiated = NegotiatedConnection {
            connection,
            peer,
            key: handshaken.key,
            hello,
            negotiated: agreed,
            dialed,
            relay: handshaken.relay,
            entry: registered,
            control: (input, output),
        };
        Ok(NewLink::new(
            negotiated,
            &self.relay,
            message_budget(&self.memory),
            Arc::clone(&self.log),
        ))
    }

    async fn exchange_hellos_as_dialer(
        &self,
        connection: &quinn::Connection,
        ours: &Hello,
    ) -> Result<(ControlInput, ControlOutput, Hello), StreamFailure> {
        let opened = connection.open_bi().await;
        let (send, receive) = opened.map_err(|gone| StreamFailure::from_connection_error(&gone))?;
        let mut writer = FrameWriter::new(send, CONTROL_BODY);
        writer
            .write_stream_kind(StreamKind::Control)
            .await
            .map_err(to_stream_failure)?;
        let mut output = ControlOutput::new(writer, connection.clone());
        let said = output.send(&Control::Hello(ours.clone())).await;
        said.map_err(to_stream_failure)?;
        let reader = FrameReader::new(receive, CONTROL_BODY, message_budget(&self.memory));
        let mut input = ControlInput::new(reader, connection.clone());
        let theirs = input.read_hello().await?;
        Ok((input, output, theirs))
    }

    async fn exchange_hellos_as_acceptor(
        &self,
        connection: &quinn::Connection,
        ours: &Hello,
    ) -> Result<(ControlInput, ControlOutput, Hello), StreamFailure> {
        let opened = connection.accept_bi().await;
        let (send, receive) = opened.map_err(|gone| StreamFailure::from_connection_error(&gone))?;
        let mut reader = FrameReader::new(receive, CONTROL_BODY, message_budget(&self.memory));
        if reader.read_stream_kind().await? != Some(StreamKind::Control) {
            close_connection(connection, LinkClose::Malformed);
            return Err(StreamFailure::Malformed(
                "a link that does not begin with a hello",
            ));
        }
        let mut input = ControlInput::new(reader, connection.clone());
        let theirs = input.read_hello().await?;
        // Whoever has our hello may call, and needs the larger windows.
        limits::raise_limits(connection);
        let writer = FrameWriter::new(send, CONTROL_BODY);
        let mut output = ControlOutput::new(writer, connection.clone());
        let said = output.send(&Control::Hello(ours.clone())).await;
        said.map_err(to_stream_failure)?;
        Ok((input, output, theirs))
    }

    pub(super) fn new_pairing_link(
        &self,
        handshaken: HandshakenConnection,
        (send, receive): (quinn::SendStream, quinn::RecvStream),
        guest: Option<GuestSlot>,
    ) -> PairingLink {
        let longest = PairingLink::MESSAGE_BYTES_MAX;
        PairingLink {
            binding: export_binding(&handshaken.connection),
            connection: handshaken.connection,
            key: handshaken.key,
            reader: FrameReader::new(receive, longest, message_budget(&self.memory)),
            writer: FrameWriter::new(send, longest),
            deadline: PairingLink::deadline(),
            guest,
        }
    }

    /// Logs why there is no link, once for each reason and pinned node; all other nodes count as one.
    pub(super) fn log_failure(&self, node: Option<NodeId>, why: &LinkError) {
        let node = node.filter(|node| self.handshakes.pinned.contains(node));
        let name = node.map(|node| node.short_id());
        if self.log.should_log(node, why.kind()) {
            tracing::info!(node = name, %why, "no link to another node")
        } else {
            tracing::debug!(node = name, %why, "no link to another node")
        }
    }
}

fn to_stream_failure(failure: WriteFailure) -> StreamFailure {
    match failure {
        WriteFailure::Gone(failure) => failure,
        WriteFailure::Stopped(why) => StreamFailure::Reset(why),
        WriteFailure::TooLarge { .. } => StreamFailure::Malformed("a hello beyond the limit"),
    }
}
