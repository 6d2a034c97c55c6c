//! The limits of a link, and their reasons.

use std::sync::Arc;
use std::time::Duration;

use quinn::{EndpointConfig, IdleTimeout, ServerConfig, TransportConfig, VarInt};

/// Calls in flight from one node to another: ten times the most that a busy agent ever had. Further ones are queued within
/// their own deadline; a peer that opens more is answered `Busy`.
pub(crate) const MAX_CALLS: usize = 256;

/// Concurrent replication streams. They do not share permits with calls, so that no number of calls delays a revocation.
pub(crate) const MAX_SYNCS: usize = 7;

/// Open listens from one node to another: one for each of the at most 128 shared servers, as many that replace them, and a
/// quarter of that for agents that follow their tasks. They are long-lived and do not share permits with calls, so that no
/// number of shared servers delays a call.
pub(crate) const MAX_LISTENS: usize = 320;

/// Event subscriptions from one node to another, each of one channel for one agent: as many as two agents may name channels
/// in one subscription. They are long-lived, too, with their own permits. A further channel is not followed until another
/// one ends.
pub const MAX_FOLLOWS: usize = 128;

/// Streams that may buffer much: calls, syncs, and the control stream.
const LOADED: u32 = (MAX_CALLS + MAX_SYNCS + 1) as u32;

/// Streams that each side may open.
const STREAMS: u32 = LOADED + (MAX_LISTENS + MAX_FOLLOWS) as u32;

/// Packets in flight that are too long for a datagram. Further ones are lost, as packets may be.
pub(super) const LONG_PACKETS: usize = 16;

/// The share of them for relayed packets: the other half is for those of membership.
pub(super) const RELAY_STREAMS: usize = LONG_PACKETS / 2;

/// The unread bytes of a stream. A stream transfers this much in each round trip: 25 MB/s at 10 ms, and 8 MiB between
/// continents in ten seconds.
const STREAM_WINDOW: u32 = 256 << 10;

/// The unread bytes of all streams of a link: the sum of their windows, so that no number of slow readers blocks a stream.
/// Listens and events are read as they arrive, and buffer nothing.
const WINDOW: u32 = (LOADED + LONG_PACKETS as u32) * STREAM_WINDOW;

/// The receive window before a peer's key is known to be pinned: enough for a hello.
const GUEST_WINDOW: u32 = 16 << 10;

/// Unacknowledged bytes: two round trips of 50 ms at a gigabit.
const SEND_WINDOW: u64 = 12 << 20;

/// The memory for messages of a link, until they are handled: eight calls with the largest payload. A message for which
/// there is no memory is rejected as `Busy`.
pub(crate) const LINK_MEMORY: u64 = 128 << 20;

/// The buffers for incoming and for outgoing packets, in bytes. The oldest are dropped: membership repeats its messages.
const PACKETS: usize = 64 << 10;

/// A peer that is silent this long counts as lost. Keep-alives are sent every [`KEEP_ALIVE`], so a killed peer is detected
/// within three seconds, and a live one is lost only if three of them in a row are lost.
pub(crate) const IDLE: Duration = Duration::from_millis(2200);

/// The interval between checks for received packets.
pub(super) const LIVENESS_INTERVAL: Duration = Duration::from_millis(200);

const KEEP_ALIVE: Duration = Duration::from_millis(500);

/// Concurrent handshakes of peers that have proven their address. Each is a few milliseconds of work and 100 KiB. Further
/// ones are refused, and retried by their peers.
pub(crate) const MAX_HANDSHAKES: usize = 64;

/// Those of one address, so that one machine does not starve others.
pub(super) const HANDSHAKES_PER_ADDRESS: usize = 8;

/// The time limit of a handshake, both hellos included.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Concurrent links to one node: one, and those that replace it before its loss is detected.
pub(crate) const LINKS_PER_NODE: usize = 4;

/// Addresses of one name that are tried.
pub(crate) const DIALED_ADDRESSES: usize = 8;

/// The time limit of name resolution.
pub(super) const RESOLVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Concurrent pairings: one for each ticket that may be open.
pub(crate) const MAX_PAIRINGS: usize = 16;

/// Those of one address without a proven ticket, so that one machine does not starve others.
pub(super) const PAIRINGS_PER_ADDRESS: usize = 2;

/// The time limit of a pairing: a person compares three words.
pub(super) const PAIRING_TIMEOUT: Duration = Duration::from_secs(120);

/// The time limit for a guest to prove its ticket: its slot is for those who have one.
pub(super) const TICKET_TIMEOUT: Duration = Duration::from_secs(5);

/// The time limit from a stream's first byte to the end of its header, or of a packet.
pub(super) const STREAM_OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// First packets of peers that wait to be accepted.
const INCOMING: usize = 256;
const INCOMING_BYTES: u64 = 64 << 10;
const INCOMING_BYTES_ALL: u64 = 4 << 20;

/// For an unverified peer, which may open the control stream and send a hello.
pub(super) fn guest_transport() -> Arc<TransportConfig> {
    let mut transport = base_transport();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .receive_window(VarInt::from_u32(GUEST_WINDOW))
        .send_window(u64::from(GUEST_WINDOW));
    Arc::new(transport)
}

/// For a link whose peer is known from the beginning.
pub(super) fn peer_transport() -> Arc<TransportConfig> {
    let mut transport = base_transport();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(STREAMS))
        .max_concurrent_uni_streams(VarInt::from_u32(LONG_PACKETS as u32))
        .receive_window(VarInt::from_u32(WINDOW))
        .send_window(SEND_WINDOW);
    Arc::new(transport)
}

/// Raises the limits of a guest that turned out to be pinned.
pub(super) fn raise_limits(connection: &quinn::Connection) {
    connection.set_receive_window(VarInt::from_u32(WINDOW));
    connection.set_send_window(SEND_WINDOW);
    connection.set_max_concurrent_bi_streams(VarInt::from_u32(STREAMS));
    connection.set_max_concurrent_uni_streams(VarInt::from_u32(LONG_PACKETS as u32));
}

fn base_transport() -> TransportConfig {
    let mut transport = TransportConfig::default();
    let idle = IdleTimeout::try_from(IDLE).expect("two seconds are a number of QUIC");
    transport
        .max_idle_timeout(Some(idle))
        .keep_alive_interval(Some(KEEP_ALIVE))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .datagram_receive_buffer_size(Some(PACKETS))
        .datagram_send_buffer_size(PACKETS);
    transport
}

/// Bounds connections that are not accepted yet.
pub(super) fn bound_incoming(config: &mut ServerConfig) {
    config
        .max_incoming(INCOMING)
        .incoming_buffer_size(INCOMING_BYTES)
        .incoming_buffer_size_total(INCOMING_BYTES_ALL)
        // A peer whose address changes dials again: a link keeps its proven address.
        .migration(false);
}

pub(super) fn socket_config() -> EndpointConfig {
    EndpointConfig::default()
}
