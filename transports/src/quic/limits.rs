//! What a link may take, and why so much.

use std::sync::Arc;
use std::time::Duration;

use quinn::{EndpointConfig, IdleTimeout, ServerConfig, TransportConfig, VarInt};

/// Calls that one node has under way at another: as many as a busy agent ever had, ten times. The next
/// ones wait for their turn within their own time; a peer that opens more is answered `Busy`.
pub const MAX_CALLS: usize = 256;

/// Streams at a time on which one node copies from another. They are beside those of calls, so that no
/// number of calls keeps a revocation waiting.
pub const MAX_SYNCS: usize = 7;

/// Listens that one node has open at another: one for each of the 128 servers that one shares at most, as many
/// that take their place, and a quarter of that for agents that follow their tasks. They last, and are beside
/// calls, so that no number of shared servers keeps a call waiting.
pub const MAX_LISTENS: usize = 320;

/// Event subscriptions that one node has at another, each of one channel for one agent: as many as two agents may name
/// channels in one subscription. They last, too, and take the turns of nothing else. A channel beyond is not followed until
/// another one ends.
pub const MAX_FOLLOWS: usize = 128;

/// Streams that may have much to hold: calls, syncs, and the one of control messages.
const LOADED: u32 = (MAX_CALLS + MAX_SYNCS + 1) as u32;

/// Streams each side may open.
const STREAMS: u32 = LOADED + (MAX_LISTENS + MAX_FOLLOWS) as u32;

/// Packets under way that are too long for a datagram. The next ones are lost, as packets may be.
pub(super) const LONG_PACKETS: usize = 16;

/// And of those, what packets that are passed on for others take: the other half is for those of membership.
pub(super) const RELAY_STREAMS: usize = LONG_PACKETS / 2;

/// What a stream holds that nobody reads. A stream gets through so much in each round trip: 25 MB/s at
/// 10 ms, and 8 MiB between continents in ten seconds.
const STREAM_WINDOW: u32 = 256 << 10;

/// What all streams of a link hold: their windows together, so that no number of slow readers
/// leaves a stream without room. Listens and events are read as they come, and hold nothing.
const WINDOW: u32 = (LOADED + LONG_PACKETS as u32) * STREAM_WINDOW;

/// What a peer may send before its key is known to be pinned: a hello.
const GUEST_WINDOW: u32 = 16 << 10;

/// What is sent and not yet confirmed: two round trips of 50 ms at a gigabit.
const SEND_WINDOW: u64 = 12 << 20;

/// What messages of a link take while they are put together, and until they were handled: eight calls with
/// the largest payload. A message for which there is no room is refused as `Busy`.
pub const LINK_MEMORY: u64 = 128 << 20;

/// Packets waiting to be read, and those waiting to be sent, in bytes. The oldest make room:
/// membership says the same again.
const PACKETS: usize = 64 << 10;

/// Without a sign of the peer for so long, it is gone. A question is asked after [`KEEP_ALIVE`], so a
/// peer that was killed is missed within three seconds, and three questions in a row must be lost before
/// one that lives is.
pub const IDLE: Duration = Duration::from_millis(2200);

/// Between two looks at whether something was heard of the peer.
pub(super) const LIVENESS_INTERVAL: Duration = Duration::from_millis(200);

const KEEP_ALIVE: Duration = Duration::from_millis(500);

/// Handshakes under way at a time, for all who have shown that they are at their address. Each is a
/// few milliseconds of work and 100 KiB. The next ones are refused, and come again.
pub const MAX_HANDSHAKES: usize = 64;

/// And for one address, so that one machine does not take the turns of the others.
pub(super) const HANDSHAKES_PER_ADDRESS: usize = 8;

/// Longest a handshake may take, both hellos included.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Links to one node at a time: one, and those that take its place while it is not yet known to be gone.
pub const LINKS_PER_NODE: usize = 4;

/// Addresses of one name that are tried.
pub const DIALED_ADDRESSES: usize = 8;

/// Longest a name server may take.
pub(super) const RESOLVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Nodes that are being paired at a time: one for each ticket that may be out.
pub const MAX_PAIRINGS: usize = 16;

/// And those of one address that have not shown a ticket yet: one machine does not take the places of the others.
pub(super) const PAIRINGS_PER_ADDRESS: usize = 2;

/// Longest a pairing may take: a person compares three words.
pub(super) const PAIRING_TIMEOUT: Duration = Duration::from_secs(120);

/// Longest until a guest has shown its ticket: its place is for those who have one.
pub(super) const TICKET_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest from a stream's first byte to the end of its header, or of a packet.
pub(super) const STREAM_OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// First packets of peers that wait to be looked at.
const INCOMING: usize = 256;
const INCOMING_BYTES: u64 = 64 << 10;
const INCOMING_BYTES_ALL: u64 = 4 << 20;

/// Before a peer is known: it may open the control stream and say hello.
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

/// A guest turned out to be pinned: it gets the room of a peer.
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

/// Bounds on what nobody has accepted yet.
pub(super) fn bound_incoming(config: &mut ServerConfig) {
    config
        .max_incoming(INCOMING)
        .incoming_buffer_size(INCOMING_BYTES)
        .incoming_buffer_size_total(INCOMING_BYTES_ALL)
        // A peer whose address changes dials again: a link stays where it was proven to be.
        .migration(false);
}

/// Of the socket.
pub(super) fn socket_config() -> EndpointConfig {
    EndpointConfig::default()
}
