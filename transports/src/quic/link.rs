//! One link to one node.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mgp_protocol::federation::assertion::{BINDING_LABEL, LinkBinding};
use mgp_protocol::federation::call::{CallHeader, CallRefused};
use mgp_protocol::federation::ends::LinkClose;
use mgp_protocol::federation::frames::{CALL_BODY, CONTROL_BODY, PACKET, PacketHead, StreamKind};
use mgp_protocol::federation::hello::{Agreed, Hello, WireFeatures};
use mgp_protocol::ids::NodeId;
use mgp_sync::Credit;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::close_log::CloseLog;
use super::control::{ControlInput, ControlOutput};
use super::frames::{FrameReader, FrameWriter, StreamFailure, WriteFailure, in_words};
use super::inbound::InboundStreams;
use super::limits::{CALLS, FOLLOWS, IDLE, LINK_MEMORY, LISTENS, LONG_PACKETS, LOOK, SYNCS};
use super::packets::relay::{NeighborPlace, Relay};
use super::packets::{self, PacketFate, PacketHeads, PacketInput};
use super::pinned::{Entered, close};
use super::streams::{CallInput, CallOutput, SyncStream};
use crate::budget::MessageBudget;

/// A link that has lasted so long has come about: what ends it is news again.
const LASTED: Duration = Duration::from_secs(60);

/// A new link and its parts, each of which one owner reads.
#[derive(Debug)]
pub struct NewLink {
    /// For everybody.
    pub link: NodeLink,
    /// What the peer says.
    pub control_input: ControlInput,
    /// What the peer is told.
    pub control_output: ControlOutput,
    /// The calls of the peer's agents, and what it copies.
    pub inbound: InboundStreams,
    /// Packets of membership.
    pub packets: PacketInput,
}

/// A link; clones are the same one. It is closed when the last one is dropped.
#[derive(Clone, Debug)]
pub struct NodeLink(Arc<LinkCore>);

#[derive(Debug)]
struct LinkCore {
    connection: quinn::Connection,
    peer: NodeId,
    key: [u8; 32],
    hello: Hello,
    agreed: Agreed,
    binding: LinkBinding,
    dialed: bool,
    relay: Option<NodeId>,
    calls: Arc<Semaphore>,
    listens: Arc<Semaphore>,
    follows: Arc<Semaphore>,
    syncs: Arc<Semaphore>,
    long_packets: Arc<Semaphore>,
    budget: MessageBudget,
    begun: Instant,
    /// Nothing was heard of the peer for too long, and so this node closed it.
    silent: AtomicBool,
    log: Arc<CloseLog>,
    _neighbor: Option<NeighborPlace>,
    _entered: Entered,
}

/// Packets of QUIC itself, since the link began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketLoss {
    /// How many were sent.
    pub sent: u64,
    /// How many of them were lost, and sent again.
    pub lost: u64,
}

/// Why a link ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct LinkGone(pub StreamFailure);

/// Why no call was begun. Nothing of it reached the peer's servers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallNotBegun {
    /// Parameters beyond what a frame carries.
    #[error("a call of {size} bytes is too large for a link, which carries {limit}")]
    TooLarge {
        /// Bytes of the parameters.
        size: u64,
        /// Bytes a frame may have.
        limit: u64,
    },
    /// No turn came before its time was over.
    #[error("its time was over before it began")]
    Late,
    /// The link is gone.
    #[error(transparent)]
    Gone(#[from] LinkGone),
}

/// What a link is made of once its handshake is over.
pub(super) struct Greeted {
    pub(super) connection: quinn::Connection,
    pub(super) peer: NodeId,
    pub(super) key: [u8; 32],
    pub(super) hello: Hello,
    pub(super) agreed: Agreed,
    pub(super) dialed: bool,
    pub(super) relay: Option<NodeId>,
    pub(super) entered: Entered,
    pub(super) control: (ControlInput, ControlOutput),
}

/// The value that both ends of a connection have, and nobody else.
pub(super) fn binding(connection: &quinn::Connection) -> LinkBinding {
    let mut binding = LinkBinding([0; 32]);
    connection
        .export_keying_material(&mut binding.0, BINDING_LABEL, b"")
        .expect("a session that is established exports 32 bytes");
    binding
}

/// What one link may take of the memory of all.
pub(super) fn budget(all: &Arc<Credit>) -> MessageBudget {
    MessageBudget::new(Arc::clone(all), Credit::new(LINK_MEMORY))
}

impl NewLink {
    pub(super) fn new(
        greeted: Greeted,
        relay: &Arc<Relay>,
        budget: MessageBudget,
        log: Arc<CloseLog>,
    ) -> Self {
        let (control_input, control_output) = greeted.control;
        let connection = greeted.connection;
        let inbound = InboundStreams::new(connection.clone(), budget.clone());
        let has_heads = greeted.agreed.features.contains(WireFeatures::RELAY);
        let (neighbor, heads) = match (has_heads, greeted.relay) {
            (false, _) => (None, None),
            (true, Some(_)) => (None, Some(PacketHeads::new(greeted.peer))),
            (true, None) => {
                let (place, to_stream) = relay.enter(greeted.peer, connection.clone());
                let relay = Arc::clone(relay);
                let heads = PacketHeads::with_relay(greeted.peer, relay, to_stream);
                (Some(place), Some(heads))
            }
        };
        let packets = PacketInput::new(connection.clone(), heads);
        let link = NodeLink(Arc::new(LinkCore {
            binding: binding(&connection),
            connection,
            peer: greeted.peer,
            key: greeted.key,
            hello: greeted.hello,
            agreed: greeted.agreed,
            dialed: greeted.dialed,
            relay: greeted.relay,
            calls: Arc::new(Semaphore::new(CALLS)),
            listens: Arc::new(Semaphore::new(LISTENS)),
            follows: Arc::new(Semaphore::new(FOLLOWS)),
            syncs: Arc::new(Semaphore::new(SYNCS)),
            long_packets: Arc::new(Semaphore::new(LONG_PACKETS)),
            budget,
            begun: Instant::now(),
            silent: AtomicBool::new(false),
            log,
            _neighbor: neighbor,
            _entered: greeted.entered,
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

    /// What it said of itself.
    #[must_use]
    pub fn hello(&self) -> &Hello {
        &self.0.hello
    }

    /// What both speak.
    #[must_use]
    pub fn agreed(&self) -> Agreed {
        self.0.agreed
    }

    /// What binds an assertion to this link.
    #[must_use]
    pub fn binding(&self) -> LinkBinding {
        self.0.binding
    }

    /// True when this node dialed.
    #[must_use]
    pub fn dialed(&self) -> bool {
        self.0.dialed
    }

    /// Where the other end is: proven by the handshake, and the same for as long as the link lives. `None` for a link
    /// through another node.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        let direct = self.0.relay.is_none();
        direct.then(|| self.0.connection.remote_address())
    }

    /// The node that passes the packets of this link on, if it is not direct.
    #[must_use]
    pub fn relay(&self) -> Option<NodeId> {
        self.0.relay
    }

    /// How long a packet takes there and back, as it was measured last.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.0.connection.rtt()
    }

    /// What got lost on the way to the peer.
    #[must_use]
    pub fn loss(&self) -> PacketLoss {
        let path = self.0.connection.stats().path;
        PacketLoss {
            sent: path.sent_packets,
            lost: path.lost_packets,
        }
    }

    /// True for the same link, not only the same peer.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Why it ended, if it has.
    #[must_use]
    pub fn gone(&self) -> Option<LinkGone> {
        let reason = self.0.connection.close_reason()?;
        Some(LinkGone(self.0.why(&reason)))
    }

    /// Waits for its end.
    pub async fn ended(&self) -> LinkGone {
        let reason = self.0.connection.closed().await;
        LinkGone(self.0.why(&reason))
    }

    /// Waits until nothing was heard of the peer for [`IDLE`], and closes the link. QUIC itself waits for three times
    /// as long as it gives a packet, which is seconds on a link whose first packets were lost. A time in which this
    /// machine stands still counts as one look.
    pub async fn falls_silent(&self) {
        let heard = || self.0.connection.stats().udp_rx.datagrams;
        let (mut before, mut silent) = (heard(), Duration::ZERO);
        while silent < IDLE {
            tokio::time::sleep(LOOK).await;
            let now = heard();
            silent = match now == before {
                true => silent + LOOK,
                false => Duration::ZERO,
            };
            before = now;
        }
        self.0.silent.store(true, Ordering::Release);
        self.close(LinkClose::Silent);
    }

    /// Ends it, for a reason that the peer is told.
    pub fn close(&self, why: LinkClose) {
        close(&self.0.connection, why);
    }

    /// Begins a call, which takes at most until then, its wait for a turn included. The header's
    /// `left_ms` is filled in here.
    ///
    /// # Errors
    /// [`CallNotBegun`]: the call did not reach a server.
    pub async fn call(
        &self,
        header: CallHeader,
        params: Bytes,
        until: Instant,
    ) -> Result<(CallInput, CallOutput), CallNotBegun> {
        let way = (&self.0.calls, StreamKind::Call);
        self.begin(way, header, params, until).await
    }

    /// The same for a call that waits for news as long as it may. These have turns of their own.
    ///
    /// # Errors
    /// [`CallNotBegun`].
    pub async fn listen(
        &self,
        header: CallHeader,
        params: Bytes,
        until: Instant,
    ) -> Result<(CallInput, CallOutput), CallNotBegun> {
        let way = (&self.0.listens, StreamKind::Listen);
        self.begin(way, header, params, until).await
    }

    /// The same for the events of one channel.
    ///
    /// # Errors
    /// [`CallNotBegun`].
    pub async fn follow(
        &self,
        header: CallHeader,
        params: Bytes,
        until: Instant,
    ) -> Result<(CallInput, CallOutput), CallNotBegun> {
        let way = (&self.0.follows, StreamKind::Follow);
        self.begin(way, header, params, until).await
    }

    async fn begin(
        &self,
        (turns, kind): (&Arc<Semaphore>, StreamKind),
        mut header: CallHeader,
        params: Bytes,
        until: Instant,
    ) -> Result<(CallInput, CallOutput), CallNotBegun> {
        if params.len() > CALL_BODY {
            let (size, limit) = (params.len() as u64, CALL_BODY as u64);
            return Err(CallNotBegun::TooLarge { size, limit });
        }
        let (reader, mut writer, turn) = self.open(turns, kind, until).await?;
        let left = until.saturating_duration_since(Instant::now());
        header.left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        if header.left_ms == 0 {
            return Err(CallNotBegun::Late);
        }
        let head = Bytes::from(header.encode());
        if head.len() > CONTROL_BODY {
            let (size, limit) = (head.len() as u64, CONTROL_BODY as u64);
            return Err(CallNotBegun::TooLarge { size, limit });
        }
        let written = timeout_at(until, writer.begin_call(kind, head, params))
            .await
            .map_err(|_| CallNotBegun::Late)?;
        let input = CallInput::calling(reader, until, turn);
        match written {
            // A peer that reads no more has an answer, and it is on its way.
            Ok(()) | Err(WriteFailure::Stopped(_)) => {
                Ok((input, CallOutput::calling(writer, until)))
            }
            Err(WriteFailure::TooLarge { size, limit }) => {
                Err(CallNotBegun::TooLarge { size, limit })
            }
            Err(WriteFailure::Gone(failure)) => Err(CallNotBegun::Gone(LinkGone(failure))),
        }
    }

    /// Begins to copy, within a time.
    ///
    /// # Errors
    /// [`CallNotBegun`].
    pub async fn sync(&self, until: Instant) -> Result<SyncStream, CallNotBegun> {
        let (reader, mut writer, turn) = self.open(&self.0.syncs, StreamKind::Sync, until).await?;
        let begun = timeout_at(until, writer.begin(StreamKind::Sync)).await;
        let begun = begun.map_err(|_| CallNotBegun::Late)?;
        begun.map_err(|_| self.gone().unwrap_or(LinkGone(StreamFailure::Unfinished)))?;
        Ok(SyncStream::new(reader, writer, until, turn))
    }

    async fn open(
        &self,
        turns: &Arc<Semaphore>,
        kind: StreamKind,
        until: Instant,
    ) -> Result<(FrameReader, FrameWriter, OwnedSemaphorePermit), CallNotBegun> {
        let opened = async {
            let turn = Arc::clone(turns).acquire_owned().await;
            let turn = turn.expect("turns are never closed");
            let opened = self.0.connection.open_bi().await;
            let (send, receive) = opened.map_err(|gone| LinkGone(StreamFailure::of_link(&gone)))?;
            let limit = kind.longest();
            let writer = FrameWriter::new(send, limit);
            let reader = FrameReader::new(receive, limit, self.0.budget.clone());
            Ok((reader, writer, turn))
        };
        let gone = async { Err(CallNotBegun::Gone(self.ended().await)) };
        tokio::select! {
            opened = timeout_at(until, opened) => opened.map_err(|_| CallNotBegun::Late)?,
            gone = gone => gone,
        }
    }

    #[cfg(test)]
    pub(super) fn connection(&self) -> &quinn::Connection {
        &self.0.connection
    }

    /// Sends a packet, which may be lost.
    pub async fn packet(&self, packet: Bytes) -> PacketFate {
        if packet.len() > PACKET {
            return PacketFate::TooLong;
        }
        let packet = match self.0.agreed.features.contains(WireFeatures::RELAY) {
            true => PacketHead::Membership.packet(&packet),
            false => packet,
        };
        packets::send(&self.0.connection, &self.0.long_packets, packet).await
    }
}

impl CallNotBegun {
    /// The same as a node that was called would say it, where it could.
    #[must_use]
    pub fn refused(&self) -> Option<CallRefused> {
        match self {
            Self::TooLarge { size, limit } => Some(CallRefused::CallTooLarge {
                size: *size,
                limit: *limit,
            }),
            Self::Late => Some(CallRefused::Late),
            Self::Gone(_) => None,
        }
    }
}

impl LinkCore {
    fn why(&self, reason: &quinn::ConnectionError) -> StreamFailure {
        let by_us = matches!(reason, quinn::ConnectionError::LocallyClosed);
        match by_us && self.silent.load(Ordering::Acquire) {
            true => StreamFailure::LinkLost(in_words(&quinn::ConnectionError::TimedOut)),
            false => StreamFailure::of_link(reason),
        }
    }
}

impl Drop for LinkCore {
    fn drop(&mut self) {
        close(&self.connection, LinkClose::Done);
        if self.begun.elapsed() >= LASTED {
            self.log.lasted(self.peer);
        }
        let Some(reason) = self.connection.close_reason() else {
            return;
        };
        let why = self.why(&reason);
        let node = self.peer.short();
        match self.log.is_news(Some(self.peer), kind(&why)) {
            true => tracing::info!(node, %why, "a link to another node ended"),
            false => tracing::debug!(node, %why, "a link to another node ended"),
        }
    }
}

/// One word for each kind of end, whatever the details.
pub(super) fn kind(why: &StreamFailure) -> &'static str {
    match why {
        StreamFailure::LinkLost(_) => "lost",
        StreamFailure::LinkClosed(LinkClose::Revoked) => "revoked",
        StreamFailure::LinkClosed(LinkClose::Oversized | LinkClose::Malformed) => "malformed",
        StreamFailure::LinkClosed(_) | StreamFailure::ClosedHere => "closed",
        StreamFailure::Late => "late",
        StreamFailure::Reset(_)
        | StreamFailure::Unfinished
        | StreamFailure::Oversized { .. }
        | StreamFailure::Malformed(_)
        | StreamFailure::NoRoom => "malformed",
    }
}
