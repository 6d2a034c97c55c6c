//! One link to one node.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mgp_protocol::federation::assertion::{BINDING_LABEL, LinkBinding};
use mgp_protocol::federation::call::{CallHeader, CallRejection};
use mgp_protocol::federation::close_codes::LinkClose;
use mgp_protocol::federation::frames::{CALL_BODY, CONTROL_BODY, PACKET, PacketHeader, StreamKind};
use mgp_protocol::federation::hello::{Hello, NegotiatedWire, WireFeatures};
use mgp_protocol::ids::NodeId;
use mgp_sync::Credit;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::close_log::CloseLog;
use super::control::{ControlInput, ControlOutput};
use super::frames::{FrameReader, FrameWriter, StreamFailure, WriteFailure, describe_error};
use super::inbound::InboundStreams;
use super::limits::{
    IDLE, LINK_MEMORY, LIVENESS_INTERVAL, LONG_PACKETS, MAX_CALLS, MAX_FOLLOWS, MAX_LISTENS,
    MAX_SYNCS,
};
use super::packets::relay::{NeighborEntry, Relay};
use super::packets::{self, PacketInput, PacketOutcome, PacketRouter};
use super::pinned::{LinkEntry, close_connection};
use super::streams::{CallInput, CallOutput, SyncStream};
use crate::budget::MessageBudget;

/// A link that lasted this long was stable: its end is logged again.
const STABLE_AFTER: Duration = Duration::from_secs(60);

/// A new link and its parts, each with one owner.
#[derive(Debug)]
pub struct NewLink {
    /// A shared handle to the link.
    pub link: NodeLink,
    /// Receives control messages.
    pub control_input: ControlInput,
    /// Sends control messages.
    pub control_output: ControlOutput,
    /// The calls of the peer's agents, and its replication streams.
    pub inbound: InboundStreams,
    /// Packets of membership.
    pub packets: PacketInput,
}

/// A link; clones share it. It is closed when the last one is dropped.
#[derive(Clone, Debug)]
pub struct NodeLink(Arc<LinkCore>);

#[derive(Debug)]
struct LinkCore {
    connection: quinn::Connection,
    peer: NodeId,
    key: [u8; 32],
    hello: Hello,
    negotiated: NegotiatedWire,
    binding: LinkBinding,
    dialed: bool,
    relay: Option<NodeId>,
    calls: Arc<Semaphore>,
    listens: Arc<Semaphore>,
    follows: Arc<Semaphore>,
    syncs: Arc<Semaphore>,
    long_packets: Arc<Semaphore>,
    budget: MessageBudget,
    opened_at: Instant,
    /// The peer was silent for too long, so this node closed the link.
    is_silent: AtomicBool,
    log: Arc<CloseLog>,
    _neighbor: Option<NeighborEntry>,
    _entry: LinkEntry,
}

/// QUIC packets since the link began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketLoss {
    /// The sent packets.
    pub sent: u64,
    /// The lost packets, whose data was sent again.
    pub(crate) lost: u64,
}

/// Why a link ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct LinkGone(pub StreamFailure);

/// Why no call was started. Nothing of it reached the peer's servers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BeginCallError {
    /// The parameters exceed the frame limit.
    #[error("a call of {size} bytes is too large for a link, which carries {limit}")]
    TooLarge {
        /// Bytes of the parameters.
        size: u64,
        /// The allowed bytes.
        limit: u64,
    },
    /// No permit was free before the deadline.
    #[error("its time was over before it began")]
    DeadlineExceeded,
    /// The link has ended.
    #[error(transparent)]
    Gone(#[from] LinkGone),
}

/// The parts of a link after its negotiation.
pub(super) struct NegotiatedConnection {
    pub(super) connection: quinn::Connection,
    pub(super) peer: NodeId,
    pub(super) key: [u8; 32],
    pub(super) hello: Hello,
    pub(super) negotiated: NegotiatedWire,
    pub(super) dialed: bool,
    pub(super) relay: Option<NodeId>,
    pub(super) entry: LinkEntry,
    pub(super) control: (ControlInput, ControlOutput),
}

/// The value that only the two ends of a connection share.
pub(super) fn export_binding(connection: &quinn::Connection) -> LinkBinding {
    let mut binding = LinkBinding([0; 32]);
    connection
        .export_keying_material(&mut binding.0, BINDING_LABEL, b"")
        .expect("a session that is established exports 32 bytes");
    binding
}

/// One link's share of the memory of all links.
pub(super) fn message_budget(all: &Arc<Credit>) -> MessageBudget {
    MessageBudget::new(Arc::clone(all), Credit::new(LINK_MEMORY))
}

impl NewLink {
    pub(super) fn new(
        negotiated: NegotiatedConnection,
        relay: &Arc<Relay>,
        budget: MessageBudget,
        log: Arc<CloseLog>,
    ) -> Self {
        let (control_input, control_output) = negotiated.control;
        let connection = negotiated.connection;
        let inbound = InboundStreams::new(connection.clone(), budget.clone());
        let has_heads = negotiated.negotiated.features.contains(WireFeatures::RELAY);
        let (neighbor, heads) = match (has_heads, negotiated.relay) {
            (false, _) => (None, None),
            (true, Some(_)) => (None, Some(PacketRouter::new(negotiated.peer))),
            (true, None) => {
                let (neighbor, to_stream) = relay.add_neighbor(negotiated.peer, connection.clone());
                let relay = Arc::clone(relay);
                let heads = PacketRouter::with_relay(negotiated.peer, relay, to_stream);
                (Some(neighbor), Some(heads))
            }
        };
        let packets = PacketInput::new(connection.clone(), heads);
        let link = NodeLink(Arc::new(LinkCore {
            binding: export_binding(&connection),
            connection,
            peer: negotiated.peer,
            key: negotiated.key,
            hello: negotiated.hello,
            negotiated: negotiated.negotiated,
            dialed: negotiated.dialed,
            relay: negotiated.relay,
            calls: Arc::new(Semaphore::new(MAX_CALLS)),
            listens: Arc::new(Semaphore::new(MAX_LISTENS)),
            follows: Arc::new(Semaphore::new(MAX_FOLLOWS)),
            syncs: Arc::new(Semaphore::new(MAX_SYNCS)),
            long_packets: Arc::new(Semaphore::new(LONG_PACKETS)),
            budget,
            opened_at: Instant::now(),
            is_silent: AtomicBool::new(false),
            log,
            _neighbor: neighbor,
            _entry: negotiated.entry,
        }));
        Self {
            link,
            control_input,
            control_output,
            inbound,
            packets,
        }
    }
}

impl NodeLink {
    /// The node at the other end.
    #[must_use]
    pub fn peer(&self) -> NodeId {
        self.0.peer
    }

    /// Its public key.
    #[must_use]
    pub fn peer_key(&self) -> [u8; 32] {
        self.0.key
    }

    /// Its hello.
    #[must_use]
    pub fn hello(&self) -> &Hello {
        &self.0.hello
    }

    /// The negotiated version and features.
    #[must_use]
    pub fn negotiated(&self) -> NegotiatedWire {
        self.0.negotiated
    }

    /// Binds an assertion to this link.
    #[must_use]
    pub fn binding(&self) -> LinkBinding {
        self.0.binding
    }

    /// Whether this node dialed.
    #[must_use]
    pub fn is_dialer(&self) -> bool {
        self.0.dialed
    }

    /// The peer's address, proven by the handshake and constant for the link's lifetime. `None` for a relayed link.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        let direct = self.0.relay.is_none();
        direct.then(|| self.0.connection.remote_address())
    }

    /// The node that relays this link's packets, if it is not direct.
    #[must_use]
    pub fn relay(&self) -> Option<NodeId> {
        self.0.relay
    }

    /// The latest measured round trip time.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.0.connection.rtt()
    }

    /// Packets lost on the way to the peer.
    #[must_use]
    pub fn packet_loss(&self) -> PacketLoss {
        let path = self.0.connection.stats().path;
        PacketLoss {
            sent: path.sent_packets,
            lost: path.lost_packets,
        }
    }

    /// Whether it is the same link, not only the same peer.
    #[must_use]
    pub fn is_same_link(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Why it ended, if it has.
    #[must_use]
    pub fn end_reason(&self) -> Option<LinkGone> {
        let reason = self.0.connection.close_reason()?;
        Some(LinkGone(self.0.to_stream_failure(&reason)))
    }

    /// Waits for its end.
    pub async fn wait_closed(&self) -> LinkGone {
        let reason = self.0.connection.closed().await;
        LinkGone(self.0.to_stream_failure(&reason))
    }

    /// Closes the link after the peer was silent for [`IDLE`]. QUIC itself waits for three probe timeouts, which are seconds on
    /// a link whose first packets were lost. A pause of this machine counts as one check.
    pub async fn close_when_silent(&self) {
        let received = || self.0.connection.stats().udp_rx.datagrams;
        let (mut before, mut silent) = (received(), Duration::ZERO);
        while silent < IDLE {
            tokio::time::sleep(LIVENESS_INTERVAL).await;
            let now = received();
            silent = if now == before {
                silent + LIVENESS_INTERVAL
            } else {
                Duration::ZERO
            };
            before = now;
        }
        self.0.is_silent.store(true, Ordering::Release);
        self.close(LinkClose::Silent);
    }

    /// Closes the link with a reason for the peer.
    pub fn close(&self, why: LinkClose) {
        close_connection(&self.0.connection, why);
    }

    /// Starts a call with a deadline that includes its wait for a permit. Sets the header's `left_ms`.
    ///
    /// # Errors
    /// [`BeginCallError`]: the call did not reach a server.
    pub async fn open_call(
        &self,
        header: CallHeader,
        params: Bytes,
        deadline: Instant,
    ) -> Result<(CallInput, CallOutput), BeginCallError> {
        let permits_and_kind = (&self.0.calls, StreamKind::Call);
        self.begin_call(permits_and_kind, header, params, deadline)
            .await
    }

    /// Starts a long-lived call that listens for notifications, with permits of its own kind.
    ///
    /// # Errors
    /// [`BeginCallError`].
    pub async fn open_listen(
        &self,
        header: CallHeader,
        params: Bytes,
        deadline: Instant,
    ) -> Result<(CallInput, CallOutput), BeginCallError> {
        let permits_and_kind = (&self.0.listens, StreamKind::Listen);
        self.begin_call(permits_and_kind, header, params, deadline)
            .await
    }

    /// Starts a call for the events of one channel.
    ///
    /// # Errors
    /// [`BeginCallError`].
    pub async fn open_follow(
        &self,
        header: CallHeader,
        params: Bytes,
        deadline: Instant,
    ) -> Result<(CallInput, CallOutput), BeginCallError> {
        let permits_and_kind = (&self.0.follows, StreamKind::Follow);
        self.begin_call(permits_and_kind, header, params, deadline)
            .await
    }

    async fn begin_call(
        &self,
        (permits, kind): (&Arc<Semaphore>, StreamKind),
        mut header: CallHeader,
        params: Bytes,
        deadline: Instant,
    ) -> Result<(CallInput, CallOutput), BeginCallError> {
        if params.len() > CALL_BODY {
            let (size, limit) = (params.len() as u64, CALL_BODY as u64);
            return Err(BeginCallError::TooLarge { size, limit });
        }
        let (reader, mut writer, permit) = self.open_stream(permits, kind, deadline).await?;
        let left = deadline.saturating_duration_since(Instant::now());
        header.left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        if header.left_ms == 0 {
            return Err(BeginCallError::DeadlineExceeded);
        }
        let head = Bytes::from(header.encode());
        if head.len() > CONTROL_BODY {
            let (size, limit) = (head.len() as u64, CONTROL_BODY as u64);
            return Err(BeginCallError::TooLarge { size, limit });
        }
        let written = timeout_at(deadline, writer.begin_call(kind, head, params))
            .await
            .map_err(|_| BeginCallError::DeadlineExceeded)?;
        let input = CallInput::new_caller(reader, deadline, permit);
        match written {
            // A peer that stopped reading has sent an answer.
            Ok(()) | Err(WriteFailure::Stopped(_)) => {
                Ok((input, CallOutput::new_caller(writer, deadline)))
            }
            Err(WriteFailure::TooLarge { size, limit }) => {
                Err(BeginCallError::TooLarge { size, limit })
            }
            Err(WriteFailure::Gone(failure)) => Err(BeginCallError::Gone(LinkGone(failure))),
        }
    }

    /// Opens a replication stream with a deadline.
    ///
    /// # Errors
    /// [`BeginCallError`].
    pub async fn open_sync(&self, deadline: Instant) -> Result<SyncStream, BeginCallError> {
        let (reader, mut writer, permit) = self
            .open_stream(&self.0.syncs, StreamKind::Sync, deadline)
            .await?;
        let begun = timeout_at(deadline, writer.write_stream_kind(StreamKind::Sync)).await;
        let begun = begun.map_err(|_| BeginCallError::DeadlineExceeded)?;
        begun.map_err(|_| {
            self.end_reason()
                .unwrap_or(LinkGone(StreamFailure::Unfinished))
        })?;
        Ok(SyncStream::new(reader, writer, deadline, permit))
    }

    async fn open_stream(
        &self,
        permits: &Arc<Semaphore>,
        kind: StreamKind,
        deadline: Instant,
    ) -> Result<(FrameReader, FrameWriter, OwnedSemaphorePermit), BeginCallError> {
        let opened = async {
            let permit = Arc::clone(permits).acquire_owned().await;
            let permit = permit.expect("the semaphore is never closed");
            let opened = self.0.connection.open_bi().await;
            let (send, receive) =
                opened.map_err(|gone| LinkGone(StreamFailure::from_connection_error(&gone)))?;
            let limit = kind.max_body();
            let writer = FrameWriter::new(send, limit);
            let reader = FrameReader::new(receive, limit, self.0.budget.clone());
            Ok((reader, writer, permit))
        };
        let gone = async { Err(BeginCallError::Gone(self.wait_closed().await)) };
        tokio::select! {
            opened = timeout_at(deadline, opened) => opened.map_err(|_| BeginCallError::DeadlineExceeded)?,
            gone = gone => gone,
        }
    }

    #[cfg(test)]
    pub(super) fn connection(&self) -> &quinn::Connection {
        &self.0.connection
    }

    /// Sends a packet, which may be lost.
    pub async fn send_packet(&self, packet: Bytes) -> PacketOutcome {
        if packet.len() > PACKET {
            return PacketOutcome::TooLong;
        }
        let packet = if self.0.negotiated.features.contains(WireFeatures::RELAY) {
            PacketHeader::Membership.to_packet(&packet)
        } else {
            packet
        };
        packets::send(&self.0.connection, &self.0.long_packets, packet).await
    }
}

impl BeginCallError {
    /// The rejection that a called node would send in this case, if there is one.
    #[must_use]
    pub fn to_call_refused(&self) -> Option<CallRejection> {
        match self {
            Self::TooLarge { size, limit } => Some(CallRejection::CallTooLarge {
                size: *size,
                limit: *limit,
            }),
            Self::DeadlineExceeded => Some(CallRejection::Late),
            Self::Gone(_) => None,
        }
    }
}

impl LinkCore {
    fn to_stream_failure(&self, reason: &quinn::ConnectionError) -> StreamFailure {
        let by_us = matches!(reason, quinn::ConnectionError::LocallyClosed);
        if by_us && self.is_silent.load(Ordering::Acquire) {
            StreamFailure::LinkLost(describe_error(&quinn::ConnectionError::TimedOut))
        } else {
            StreamFailure::from_connection_error(reason)
        }
    }
}

impl Drop for LinkCore {
    fn drop(&mut self) {
        close_connection(&self.connection, LinkClose::Done);
        if self.opened_at.elapsed() >= STABLE_AFTER {
            self.log.reset_peer(self.peer);
        }
        let Some(reason) = self.connection.close_reason() else {
            return;
        };
        let why = self.to_stream_failure(&reason);
        let node = self.peer.short_id();
        if self.log.should_log(Some(self.peer), failure_kind(&why)) {
            tracing::info!(node, %why, "a link to another node ended")
        } else {
            tracing::debug!(node, %why, "a link to another node ended")
        }
    }
}

/// A short name of the failure kind, for logging.
pub(super) fn failure_kind(why: &StreamFailure) -> &'static str {
    match why {
        StreamFailure::LinkLost(_) => "lost",
        StreamFailure::LinkClosed(LinkClose::Revoked) => "revoked",
        StreamFailure::LinkClosed(LinkClose::Oversized | LinkClose::Malformed) => "malformed",
        StreamFailure::LinkClosed(_) | StreamFailure::ClosedHere => "closed",
        StreamFailure::DeadlineExceeded => "late",
        StreamFailure::Reset(_)
        | StreamFailure::Unfinished
        | StreamFailure::Oversized { .. }
        | StreamFailure::Malformed(_)
        | StreamFailure::OverBudget => "malformed",
    }
}
