//! The identity of a member in a packet, and the encoding of packets.
//!
//! A member is a node and its incarnation, without an address: links lead to nodes. So a packet cannot direct anyone
//! to an address.

use bytes::{Buf, BufMut};
use foca::{Codec, Header, Identity, Member, Message, State};
use mgp_protocol::ids::NodeId;

/// Bytes of an identity.
const IDENTITY_LEN: usize = 32 + 8;
/// Bytes of a member update.
pub(super) const STATEMENT_LEN: usize = IDENTITY_LEN + 2 + 1;

/// A node in one of its incarnations. A node that is reported dead continues with the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct MemberIdentity {
    /// The node.
    pub(crate) node: NodeId,
    /// Its incarnation; a later start has a higher one.
    pub(crate) incarnation: u64,
}

impl Identity for MemberIdentity {
    type Addr = NodeId;

    fn renew(&self) -> Option<Self> {
        let renewal = self.incarnation.checked_add(1)?;
        Some(Self {
            incarnation: renewal,
            ..*self
        })
    }

    fn addr(&self) -> NodeId {
        self.node
    }

    fn win_addr_conflict(&self, adversary: &Self) -> bool {
        self.incarnation > adversary.incarnation
    }
}

/// Bytes that are no packet, or do not fit into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a packet of the membership protocol")]
pub struct PacketCodecError;

/// Encodes and decodes packets: numbers are big-endian, and every item has a fixed length.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PacketCodec;

impl Codec<MemberIdentity> for PacketCodec {
    type Error = PacketCodecError;

    fn encode_header(
        &mut self,
        header: &Header<MemberIdentity>,
        mut to: impl BufMut,
    ) -> Result<(), PacketCodecError> {
        let (tag, about, number) = message_parts(&header.message);
        let tail = about.map_or(0, |_| IDENTITY_LEN) + number.map_or(0, |_| 1);
        if to.remaining_mut() < 2 * IDENTITY_LEN + 3 + tail {
            return Err(PacketCodecError);
        }
        encode_identity(&mut to, &header.src);
        to.put_u16(header.src_incarnation);
        encode_identity(&mut to, &header.dst);
        to.put_u8(tag);
        if let Some(about) = about {
            encode_identity(&mut to, &about);
        }
        if let Some(number) = number {
            to.put_u8(number);
        }
        Ok(())
    }

    fn decode_header(
        &mut self,
        mut from: impl Buf,
    ) -> Result<Header<MemberIdentity>, PacketCodecError> {
        let src = decode_identity(&mut from)?;
        let src_incarnation = from.try_get_u16().map_err(|_| PacketCodecError)?;
        let dst = decode_identity(&mut from)?;
        let message = decode_message(&mut from)?;
        Ok(Header {
            src,
            src_incarnation,
            dst,
            message,
        })
    }

    fn encode_member(
        &mut self,
        member: &Member<MemberIdentity>,
        mut to: impl BufMut,
    ) -> Result<(), PacketCodecError> {
        if to.remaining_mut() < STATEMENT_LEN {
            return Err(PacketCodecError);
        }
        encode_identity(&mut to, member.id());
        to.put_u16(member.incarnation());
        to.put_u8(match member.state() {
            State::Alive => 0,
            State::Suspect => 1,
            State::Down => 2,
        });
        Ok(())
    }

    fn decode_member(
        &mut self,
        mut from: impl Buf,
    ) -> Result<Member<MemberIdentity>, PacketCodecError> {
        let id = decode_identity(&mut from)?;
        let incarnation = from.try_get_u16().map_err(|_| PacketCodecError)?;
        let state = match from.try_get_u8().map_err(|_| PacketCodecError)? {
            0 => State::Alive,
            1 => State::Suspect,
            2 => State::Down,
            _ => return Err(PacketCodecError),
        };
        Ok(Member::new(id, incarnation, state))
    }
}

/// A message as its type, its subject, and the number of a probe.
fn message_parts(message: &Message<MemberIdentity>) -> (u8, Option<MemberIdentity>, Option<u8>) {
    match *message {
        Message::Ping(number) => (0, None, Some(number)),
        Message::Ack(number) => (1, None, Some(number)),
        Message::PingReq {
            target,
            probe_number,
        } => (2, Some(target), Some(probe_number)),
        Message::IndirectPing {
            origin,
            probe_number,
        } => (3, Some(origin), Some(probe_number)),
        Message::IndirectAck {
            target,
            probe_number,
        } => (4, Some(target), Some(probe_number)),
        Message::ForwardedAck {
            origin,
            probe_number,
        } => (5, Some(origin), Some(probe_number)),
        Message::Announce => (6, None, None),
        Message::Feed => (7, None, None),
        Message::Gossip => (8, None, None),
        Message::Broadcast => (9, None, None),
        Message::TurnUndead => (10, None, None),
    }
}

/// The subject of a message, besides its sender and receiver.
pub(super) fn message_subject(message: &Message<MemberIdentity>) -> Option<MemberIdentity> {
    message_parts(message).1
}

fn decode_message(from: &mut impl Buf) -> Result<Message<MemberIdentity>, PacketCodecError> {
    let tag = from.try_get_u8().map_err(|_| PacketCodecError)?;
    let number = |from: &mut _| Buf::try_get_u8(from).map_err(|_| PacketCodecError);
    Ok(match tag {
        0 => Message::Ping(number(from)?),
        1 => Message::Ack(number(from)?),
        2..=5 => {
            let (member, probe_number) = (decode_identity(from)?, number(from)?);
            match tag {
                2 => Message::PingReq {
                    target: member,
                    probe_number,
                },
                3 => Message::IndirectPing {
                    origin: member,
                    probe_number,
                },
                4 => Message::IndirectAck {
                    target: member,
                    probe_number,
                },
                _ => Message::ForwardedAck {
                    origin: member,
                    probe_number,
                },
            }
        }
        6 => Message::Announce,
        7 => Message::Feed,
        8 => Message::Gossip,
        10 => Message::TurnUndead,
        // Broadcasts are not used.
        _ => return Err(PacketCodecError),
    })
}

fn encode_identity(to: &mut impl BufMut, identity: &MemberIdentity) {
    to.put_slice(&identity.node.0);
    to.put_u64(identity.incarnation);
}

fn decode_identity(from: &mut impl Buf) -> Result<MemberIdentity, PacketCodecError> {
    let mut node = [0; 32];
    from.try_copy_to_slice(&mut node)
        .map_err(|_| PacketCodecError)?;
    let renewal = from.try_get_u64().map_err(|_| PacketCodecError)?;
    Ok(MemberIdentity {
        node: NodeId(node),
        incarnation: renewal,
    })
}
