//! Frames: how a stream of a link is cut into pieces, and how long a piece may be. And what a packet holds.

use bytes::Bytes;

use crate::ids::NodeId;

/// Bytes before each body: its kind, and its length with the highest byte first.
pub const HEADER_LEN: usize = 5;

/// Longest body on the stream of a call: twice the 8 MiB that a call's payload may have, since a result may
/// be written with escapes. Longer answers are refused as too large.
pub const CALL_BODY: usize = 16 << 20;

/// Longest control message: they are read before anything else is, so one must be read in no time.
pub const CONTROL_BODY: usize = 64 << 10;

/// Longest piece of what nodes copy from each other; what is longer comes in several.
pub(crate) const SYNC_BODY: usize = 1 << 20;

/// Longest message between nodes that are being paired, one of which nobody knows yet.
pub const PAIRING_BODY: usize = 4 << 10;

/// Longest packet of membership. Those that fit go as datagrams, the others on streams of their own.
pub const PACKET: usize = 64 << 10;

/// What a stream is for: its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// The one of control messages.
    Control,
    /// One call.
    Call,
    /// What nodes copy from each other: grants, indexes.
    Sync,
    /// A call that waits for news for as long as it may: written as any other.
    Listen,
    /// The same for the events of one channel.
    Follow,
}

impl StreamKind {
    /// As on the wire.
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

    /// Reads a first byte.
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

    /// Longest body of its frames.
    #[must_use]
    pub const fn max_body(self) -> usize {
        match self {
            Self::Control => CONTROL_BODY,
            Self::Call | Self::Listen | Self::Follow => CALL_BODY,
            Self::Sync => SYNC_BODY,
        }
    }
}

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// A message of the stream's own: control, sync, pairing.
    Message,
    /// The header of a call, its first frame.
    Header,
    /// The parameters of a call, its second one: JSON, or empty.
    Params,
    /// A JSON-RPC message that belongs to the call, either way: progress, chunks, questions, answers.
    Relayed,
    /// The result of a call, its last frame: JSON.
    Result,
    /// The error of a call, its last frame: JSON.
    Error,
    /// The node that was called answers by itself, its last frame: `CallRefused`.
    Refused,
    /// The kernel of the node that was called refuses the call, in the place of its server; its last frame:
    /// `OwnerRefusal`. Only where both agreed on `WireFeatures::REFUSALS`.
    OwnerRefusal,
    /// How long the parts of a call took at the node that was called, right before its last frame: `PartTimes`. Of no
    /// matter to who does not know it.
    Times,
    /// Of a later version, and of no matter to who does not know it.
    Optional(u8),
}

impl FrameKind {
    /// Kinds from here on may be passed over.
    const OPTIONAL: u8 = 128;

    /// The first of them that nobody knows yet.
    const UNKNOWN: u8 = Self::OPTIONAL + 1;

    /// As on the wire.
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

    /// Reads a kind. `None` for one that would have to be understood.
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

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// What follows.
    pub kind: FrameKind,
    /// How many bytes of it.
    pub len: u32,
}

/// Why a head is refused. Both ends the stream: where the next frame begins cannot be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFrameHeader {
    /// A kind that would have to be understood.
    #[error("a frame of the unknown kind {0}")]
    Kind(u8),
    /// A body longer than its stream allows.
    #[error("a frame of {size} bytes, where {limit} are allowed")]
    Oversized {
        /// Bytes announced.
        size: u64,
        /// Bytes allowed.
        limit: u64,
    },
}

impl FrameHeader {
    /// The head of a body. `None` when it is longer than the limit.
    #[must_use]
    pub fn new(kind: FrameKind, body: usize, limit: usize) -> Option<Self> {
        let len = u32::try_from(body).ok().filter(|_| body <= limit)?;
        Some(Self { kind, len })
    }

    /// As on the wire.
    #[must_use]
    pub fn to_bytes(self) -> [u8; HEADER_LEN] {
        let [a, b, c, d] = self.len.to_be_bytes();
        [self.kind.code(), a, b, c, d]
    }

    /// Reads a head.
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

/// What a packet holds, where both ends of a link have `WireFeatures::RELAY`: its first byte, and the node that a
/// packet of a third one goes to or comes from. On other links each packet is one of membership, without a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketHeader {
    /// A packet of membership.
    Membership,
    /// Pass what follows on to this node.
    RelayTo(NodeId),
    /// What follows was passed on, and comes from this node.
    RelayedFrom(NodeId),
    /// Nothing is passed on to this node, and why.
    RelayRefused(NodeId, RelayRefusal),
}

/// Why a node passes nothing on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RelayRefusal {
    /// Its operator switched it off.
    #[error("[cluster] relay is off there")]
    Off,
    /// It has no link to the other node itself.
    #[error("it has no link to the node either")]
    Unlinked,
    /// It relays as much as it may.
    #[error("it relays for as many nodes as it may")]
    Full,
    /// A reason of a later version.
    #[error("for a reason that this version does not know")]
    Unknown,
}

impl PacketHeader {
    /// Longest head: a byte, a node, and a byte.
    pub const MAX_LEN: usize = 1 + 32 + 1;

    /// A packet with this head.
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

    /// The head of a packet and what follows it; `None` for one of a later version.
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

    /// A packet reads as it was written, and one that is cut short is none.
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
    fn every_code_means_what_was_written_or_is_refused() {
        for code in 0..=u8::MAX {
            match FrameKind::from_code(code) {
                Some(kind) => assert_eq!(kind.code(), code),
                None => assert!(code == 0 || (9..128).contains(&code), "{code}"),
            }
            let stream = StreamKind::from_code(code);
            assert!(stream.is_none_or(|stream| stream.code() == code));
        }
    }

    /// 8 MiB of payload fit, and a length is judged before anything is read for it.
    #[test]
    fn a_body_at_the_limit_passes_and_one_beyond_is_refused_at_both_ends() {
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
        // A version that does not know them passes over them.
        assert!(FrameKind::Times.code() >= FrameKind::OPTIONAL);
    }
}
