//! What of a packet is handed to the protocol: that which its sender can know.

use bytes::Buf;
use foca::{Codec, Header, Member, Message, State};
use mgp_protocol::ids::NodeId;

use super::identity::{MemberIdentity, NotAPacket, PacketCodec, STATEMENT, about};
use super::{MEET_AGAIN, Membership, MembershipEffect, PACKET_MAX, RENEWAL_TIME, RENEWALS_MAX};
use crate::clock::MonotonicTime;

/// Why nothing of a packet is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketRefusal {
    /// Not a packet.
    #[error(transparent)]
    NotAPacket(#[from] NotAPacket),
    /// From somebody who was not admitted.
    #[error("its sender is no node of this cluster")]
    Stranger,
    /// It came over one node's link and says that it is another's.
    #[error("it came over another node's link")]
    NotItsLink,
    /// For somebody else.
    #[error("it is for another node")]
    NotForUs,
    /// It asks something about a member that is not known here in this renewal.
    #[error("it is about a member that is not known here")]
    AboutUnknown,
}

impl Membership {
    /// The packet without what its sender cannot know: who other nodes are is told by their own links.
    pub(super) fn sift(
        &mut self,
        from: NodeId,
        bytes: &[u8],
        now: MonotonicTime,
    ) -> Result<(Vec<u8>, Vec<MembershipEffect>), PacketRefusal> {
        let (header, statements) = read(bytes)?;
        if header.src.node != from {
            return Err(PacketRefusal::NotItsLink);
        }
        if header.dst.node != self.own {
            return Err(PacketRefusal::NotForUs);
        }
        let sender = self.members.get_mut(&from).ok_or(PacketRefusal::Stranger)?;
        sender.renewal = sender.renewal.max(Some(header.src.renewal));
        if about(&header.message).is_some_and(|about| !self.knows(&about)) {
            return Err(PacketRefusal::AboutUnknown);
        }
        if header.message == Message::TurnUndead && !self.may_renew(now) {
            return Err(PacketRefusal::AboutUnknown);
        }
        let mut effects = Vec::new();
        let mut kept = Vec::new();
        for statement in statements {
            if statement.id().node == self.own {
                // Who is suspected often enough has to renew itself, too.
                let alive = statement.state() == State::Alive;
                let current = statement.id() == self.swim.identity();
                if current && (alive || self.may_renew(now)) {
                    kept.push(statement);
                }
            } else if self.knows(statement.id()) {
                kept.push(statement);
            } else {
                effects.extend(self.meet(statement.id().node, now));
            }
        }
        Ok((write(&header, &kept), effects))
    }

    /// Whether a node's own link told of it in this renewal.
    fn knows(&self, identity: &MemberIdentity) -> bool {
        let member = self.members.get(&identity.node);
        let own = identity.node == self.own;
        own || member.is_some_and(|member| member.renewal == Some(identity.renewal))
    }

    /// Gossip names an admitted node that is not known so: its own link is to tell.
    fn meet(&mut self, node: NodeId, now: MonotonicTime) -> Vec<MembershipEffect> {
        let Some(member) = self.members.get_mut(&node) else {
            return Vec::new();
        };
        if member.met.is_some_and(|met| now < met + MEET_AGAIN) {
            return Vec::new();
        }
        member.met = Some(now);
        if !member.linked {
            return vec![MembershipEffect::Meet(node)];
        }
        let renewal = member.renewal.unwrap_or_default();
        let identity = MemberIdentity { node, renewal };
        // Answered in whatever renewal it is.
        self.run(now, |swim, runtime| swim.announce(identity, runtime))
    }

    fn may_renew(&mut self, now: MonotonicTime) -> bool {
        while self
            .renewals
            .front()
            .is_some_and(|first| now >= *first + RENEWAL_TIME)
        {
            self.renewals.pop_front();
        }
        self.renewals.len() < RENEWALS_MAX
    }
}

type Packet = (Header<MemberIdentity>, Vec<Member<MemberIdentity>>);

fn read(mut bytes: &[u8]) -> Result<Packet, NotAPacket> {
    if bytes.len() > PACKET_MAX {
        return Err(NotAPacket);
    }
    let header = PacketCodec.decode_header(&mut bytes)?;
    let mut statements = Vec::new();
    if !bytes.is_empty() {
        let count = usize::from(bytes.try_get_u16().map_err(|_| NotAPacket)?);
        if bytes.len() != count * STATEMENT || header.message == Message::Announce {
            return Err(NotAPacket);
        }
        for _ in 0..count {
            statements.push(PacketCodec.decode_member(&mut bytes)?);
        }
    }
    Ok((header, statements))
}

fn write(header: &Header<MemberIdentity>, statements: &[Member<MemberIdentity>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let written = PacketCodec.encode_header(header, &mut bytes);
    written.expect("a vector has room");
    if !statements.is_empty() {
        let count = u16::try_from(statements.len());
        bytes.extend(count.expect("a packet holds fewer").to_be_bytes());
        for statement in statements {
            let written = PacketCodec.encode_member(statement, &mut bytes);
            written.expect("a vector has room");
        }
    }
    bytes
}
