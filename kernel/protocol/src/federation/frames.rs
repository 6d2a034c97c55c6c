//! Frames of a stream and packets of a link: their headers and size limits.

use bytes::Bytes;

use crate::ids::NodeId;

/// The bytes before each body: its kind, and its length in big-endian order.
pub const HEADER_LEN: usize = 5;

/// The longest body on the stream of a call: twice the 8 MiB limit of a call's payload, because a result
/// may be encoded with escapes. Longer answers are rejected as too large.
pub const CALL_BODY: usize = 16 << 20;

/// The longest control message: short, because they are handled before anything else.
pub const CONTROL_BODY: usize = 64 << 10;

/// The longest message between nodes that replicate; longer data is sent in several.
pub(crate) const SYNC_BODY: usize = 1 << 20;

/// The longest message between nodes that pair, one of which is unknown.
pub const PAIRING_BODY: usize = 4 << 10;

/// The longest membership packet. Those that fit are sent as datagrams, the others on streams of their own.
pub const PACKET: usize = 64 << 10;

/// The kind of a stream: its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// Control messages.
    Control,
    /// One call.
    Call,
    /// Replication between nodes: grants, indexes.
    Sync,
    /// A call that waits for notifications without a deadline: encoded like any other.
    Listen,
    /// A call that waits for the events of one channel.
    Follow,
}

impl StreamKind {
    /// The byte on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Control => 1,
            Self::Call => 2,
            Self::Sync => 3,
            Self::Listen => 4,
            Self::Follow => 5,
        }
    }

    /// Decodes a first byte.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Control),
            2 => Some(Self::Call),
            3 => Some(Self::Sync),
            4 => Some(Self::Listen),
            5 => Some(Self::Follow),
            _ => None,
        }
    }

    /// The longest body of its frames.
    #[must_use]
    pub const fn max_body(self) -> usize {
        match self {
            Self::Control => CONTROL_BODY,
            Self::Call | Self::Listen | Self::Follow => CALL_BODY,
            Self::Sync => SYNC_BODY,
        }
    }
}

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// A message of a control, sync or pairing stream.
    Message,
    /// The header of a call, its first frame.
    Header,
    /// The parameters of a call, its second one: JSON, or empty.
    Params,
    /// A JSON-RPC message of the call, in either direction: progress, chunks, callbacks, answers.
    Relayed,
    /// The result of a call, its last frame: JSON.
    Result,
    /// The error of a call, its last frame: JSON.
    Error,
    /// A rejection by the called node, the last frame of a call:
    /// [`CallRejection`](super::call::CallRejection).
    Refused,
    /// A refusal by the kernel of the called node, in place of its server, the last frame of a call:
    /// [`OwnerRefusal`](crate::refusal::owner_refusal::OwnerRefusal). Only if both agreed on
    /// `WireFeatures::REFUSALS`.
    OwnerRefusal,
    /// The timings of a call at the called node, right before its last frame:
    /// [`CallTimings`](super::call::timings::CallTimings). Ignored by nodes that do not know it.
    Times,
    /// A kind of a later version that may be ignored.
    Optional(u8),
}

impl FrameKind {
    /// Kinds from here on may be ignored.
    const OPTIONAL: u8 = 128;

    /// The first unknown optional kind.
    const UNKNOWN: u8 = Self::OPTIONAL + 1;

    /// The byte on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Message => 1,
            Self::Header => 2,
            Self::Params => 3,
            Self::Relayed => 4,
            Self::Result => 5,
            Self::Error => 6,
            Self::Refused => 7,
            Self::OwnerRefusal => 8,
            Self::Times => Self::OPTIONAL,
            Self::Optional(code) => code,
        }
    }

    /// Decodes a kind. `None` for an unknown one that must not be ignored.
    #[must_use]
    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Message),
            2 => Some(Self::Header),
            3 => Some(Self::Params),
            4 => Some(Self::Relayed),
            5 => Some(Self::Result),
            6 => Some(Self::Error),
            7 => Some(Self::Refused),
            8 => Some(Self::OwnerRefusal),
            Self::OPTIONAL => Some(Self::Times),
            Self::UNKNOWN.. => Some(Self::Optional(code)),
            _ => None,
        }
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The kind of the body.
    pub kind: FrameKind,
    /// The length of the body.
    pub len: u32,
}

/// A rejected header. It ends the stream, because the start of the next frame is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFrameHeader {
    /// An unknown kind that must not be ignored.
    #[error("a frame of the unknown kind {0}")]
    Kind(u8),
    /// A body longer than the limit of its stream.
    #[error("a frame of {size} bytes, where {limit} are allowed")]
    Oversized {
        /// The declared bytes.
        size: u64,
        /// The most bytes.
        limit: u64,
    },
}

impl FrameHeader {
    /// The header of a body; `None` when the body is longer than the limit.
    #[must_use]
    pub fn new(kind: FrameKind, body: usize, limit: usize) -> Option<Self> {
        let len = u32::try_from(body).ok().filter(|_| body <= limit)?;
        Some(Self { kind, len })
    }

    /// Encodes the header.
    #[must_use]
    pub fn to_bytes(self) -> [u8; HEADER_LEN] {
        let [a, b, c, d] = self.len.to_be_bytes();
        [self.kind.code(), a, b, c, d]
    }

    /// Decodes a header.
    ///
    /// # Errors
    /// [`BadFrameHeader`].
    pub fn parse(
        [kind, a, b, c, d]: [u8; HEADER_LEN],
        limit: usize,
    ) -> Result<Self, BadFrameHeader> {
        let len = u32::from_be_bytes([a, b, c, d]);
        if len as usize > limit {
            let (size, limit) = (u64::from(len), limit as u64);
            return Err(BadFrameHeader::Oversized { size, limit });
        }
        let kind = FrameKind::from_code(kind).ok_or(BadFrameHeader::Kind(kind))?;
        Ok(Self { kind, len })
    }
}

/// The header of a packet, if both ends of a link have `WireFeatures::RELAY`: its first byte, and the node
/// that a relayed packet goes to or comes from. On other links each packet is a membership packet without a
/// header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketHeader {
    /// A membership packet.
    Membership,
    /// Relay the payload to this node.
    RelayTo(NodeId),
    /// The payload was relayed, and comes from this node.
    RelayedFrom(NodeId),
    /// Packets to this node are not relayed, with the reason.
    RelayRefused(NodeId, RelayRefusal),
}

/// Why a node does not relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RelayRefusal {
    /// Its operator disabled relaying.
    #[error("[cluster] relay is off there")]
    Off,
    /// It has no link to the other node itself.
    #[error("it has no link to the node either")]
    Unlinked,
    /// Its limit of relayed traffic is reached.
    #[error("it relays for as many nodes as it may")]
    Full,
    /// A reason of a later version.
    #[error("for a reason that this version does not know")]
    Unknown,
}

impl PacketHeader {
    /// The longest header: a byte, a node, and a byte.
    pub const MAX_LEN: usize = 1 + 32 + 1;

    /// Creates a packet with this header.
    #[must_use]
    pub fn to_packet(self, payload: &[u8]) -> Bytes {
        let mut packet = Vec::with_capacity(Self::MAX_LEN + payload.len());
        let (code, node) = match self {
            Self::Membership => (0, None),
            Self::RelayTo(node) => (1, Some(node)),
            Self::RelayedFrom(node) => (2, Some(node)),
            Self::RelayRefused(node, _) => (3, Some(node)),
        };
        packet.push(code);
        packet.extend(node.into_iter().flat_map(|node| node.0));
        if let Self::RelayRefused(_, why) = self {
            packet.push(why.code());
        }
        packet.extend_from_slice(payload);
        packet.into()
    }

    /// Splits a packet into header and payload; `None` for one of a later version.
    #[must_use]
    pub fn parse(packet: &Bytes) -> Option<(Self, Bytes)> {
        let node = |at: usize| {
            let node = packet.get(1..33)?.try_into().ok().map(NodeId)?;
            Some((node, packet.slice(at..)))
        };
        match packet.first()? {
            0 => Some((Self::Membership, packet.slice(1..))),
            1 => node(33).map(|(node, rest)| (Self::RelayTo(node), rest)),
            2 => node(33).map(|(node, rest)| (Self::RelayedFrom(node), rest)),
            3 => {
                let why = RelayRefusal::from_code(*packet.get(33)?);
                node(34).map(|(node, rest)| (Self::RelayRefused(node, why), rest))
            }
            _ => None,
        }
    }
}

impl RelayRefusal {
    const fn code(self) -> u8 {
        match self {
            Self::Unknown => 0,
            Self::Off => 1,
            Self::Unlinked => 2,
            Self::Full => 3,
        }
    }

    const fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Off,
            2 => Self::Unlinked,
            3 => Self::Full,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet round-trips, and a torn header is rejected.
    #[test]
    fn packet_heads_round_trip_and_torn_ones_are_rejected() {
        let node = NodeId([7; 32]);
        for head in [
            PacketHeader::Membership,
            PacketHeader::RelayTo(node),
            PacketHeader::RelayedFrom(node),
            PacketHeader::RelayRefused(node, RelayRefusal::Off),
            PacketHeader::RelayRefused(node, RelayRefusal::Unlinked),
            PacketHeader::RelayRefused(node, RelayRefusal::Full),
            PacketHeader::RelayRefused(node, RelayRefusal::Unknown),
        ] {
            for payload in [&b""[..], b"payload"] {
                let packet = head.to_packet(payload);
                assert!(packet.len() <= PacketHeader::MAX_LEN + payload.len());
                let read = PacketHeader::parse(&packet);
                assert_eq!(read, Some((head, Bytes::copy_from_slice(payload))));
            }
            let whole = head.to_packet(b"");
            for len in 0..whole.len() {
                assert_eq!(PacketHeader::parse(&whole.slice(..len)), None, "{head:?}");
            }
        }
        assert_eq!(PacketHeader::parse(&Bytes::from_static(&[4; 40])), None);
    }

    #[test]
    fn codes_round_trip_or_are_rejected() {
        for code in 0..=u8::MAX {
            match FrameKind::from_code(code) {
                Some(kind) => assert_eq!(kind.code(), code),
                None => assert!(code == 0 || (9..128).contains(&code), "{code}"),
            }
            let stream = StreamKind::from_code(code);
            assert!(stream.is_none_or(|stream| stream.code() == code));
        }
    }

    /// 8 MiB of payload fit, and a length is checked before anything is allocated for it.
    #[test]
    fn body_limit_is_inclusive_at_both_ends() {
        let limit = StreamKind::Call.max_body();
        for body in [0, 1, 8 << 20, limit] {
            let head = FrameHeader::new(FrameKind::Result, body, limit).unwrap();
            assert_eq!(FrameHeader::parse(head.to_bytes(), limit), Ok(head));
        }
        assert_eq!(FrameHeader::new(FrameKind::Result, limit + 1, limit), None);
        let over = [5, 0x01, 0, 0, 1];
        let (size, limit) = ((16 << 20) + 1, limit as u64);
        assert_eq!(
            FrameHeader::parse(over, CALL_BODY),
            Err(BadFrameHeader::Oversized { size, limit })
        );
        assert_eq!(
            FrameHeader::parse([9, 0, 0, 0, 0], CALL_BODY),
            Err(BadFrameHeader::Kind(9))
        );
        let optional = FrameHeader::parse([200, 0, 0, 0, 2], CALL_BODY).unwrap();
        assert_eq!(optional.kind, FrameKind::Optional(200));
        // An older version ignores it.
        assert!(FrameKind::Times.code() >= FrameKind::OPTIONAL);
    }
}
