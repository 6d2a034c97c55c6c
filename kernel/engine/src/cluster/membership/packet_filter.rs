//! Filters packets before the protocol handles them: only what the sender can know is passed on.

use bytes::Buf;
use foca::{Codec, Header, Member, Message, State};
use mgp_protocol::ids::NodeId;

use super::identity::{
    MemberIdentity, PacketCodec, PacketCodecError, STATEMENT_LEN, message_subject,
};
use super::{
    CONTACT_INTERVAL, INCARNATION_WINDOW, INCARNATIONS_MAX, Membership, MembershipEffect,
    PACKET_MAX,
};
use crate::clock::MonotonicTime;

/// Why a whole packet is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// It is not a packet.
    #[error(transparent)]
    Malformed(#[from] PacketCodecError),
    /// Its sender is not admitted.
    #[error("its sender is no node of this cluster")]
    NotAdmitted,
    /// It arrived over the link of another node than its sender.
    #[error("it came over another node's link")]
    WrongLink,
    /// It is for another node.
    #[error("it is for another node")]
    WrongDestination,
    /// It refers to a member that is not known here in this incarnation.
    #[error("it is about a member that is not known here")]
    UnknownMember,
}

impl Membership {
    /// The packet without what its sender cannot know: the identities of other nodes come from their own links.
    pub(super) fn filter_packet(
        &mut self,
        from: NodeId,
        bytes: &[u8],
        now: MonotonicTime,
    ) -> Result<(Vec<u8>, Vec<MembershipEffect>), PacketError> {
        let (header, statements) = decode_packet(bytes)?;
        if header.src.node != from {
            return Err(PacketError::WrongLink);
        }
        if header.dst.node != self.own {
            return Err(PacketError::WrongDestination);
        }
        let sender = self
            .members
            .get_mut(&from)
            .ok_or(PacketError::NotAdmitted)?;
        sender.incarnation = sender.incarnation.max(Some(header.src.incarnation));
        if message_subject(&header.message).is_some_and(|subject| !self.is_known(&subject)) {
            return Err(PacketError::UnknownMember);
        }
        if header.message == Message::TurnUndead && !self.can_renew(now) {
            return Err(PacketError::UnknownMember);
        }
        let mut effects = Vec::new();
        let mut accepted = Vec::new();
        for statement in statements {
            if statement.id().node == self.own {
                // A member that is suspected often enough has to renew its incarnation, too.
                let is_alive = statement.state() == State::Alive;
                let is_current = statement.id() == self.swim.identity();
                if is_current && (is_alive || self.can_renew(now)) {
                    accepted.push(statement);
                }
            } else if self.is_known(statement.id()) {
                accepted.push(statement);
            } else {
                effects.extend(self.contact(statement.id().node, now));
            }
        }
        Ok((encode_packet(&header, &accepted), effects))
    }

    /// Whether a node's own link announced this incarnation.
    fn is_known(&self, identity: &MemberIdentity) -> bool {
        let member = self.members.get(&identity.node);
        let is_local = identity.node == self.own;
        is_local || member.is_some_and(|member| member.incarnation == Some(identity.incarnation))
    }

    /// Gossip names an admitted node not known in this incarnation: contact it, so that its own link announces it.
    fn contact(&mut self, node: NodeId, now: MonotonicTime) -> Vec<MembershipEffect> {
        let Some(member) = self.members.get_mut(&node) else {
            return Vec::new();
        };
        if member
            .contacted_at
            .is_some_and(|contacted| now < contacted + CONTACT_INTERVAL)
        {
            return Vec::new();
        }
        member.contacted_at = Some(now);
        if !member.linked {
            return vec![MembershipEffect::Contact(node)];
        }
        let incarnation = member.incarnation.unwrap_or_default();
        let identity = MemberIdentity { node, incarnation };
        // It is answered in any incarnation.
        self.run_swim(now, |swim, runtime| swim.announce(identity, runtime))
    }

    fn can_renew(&mut self, now: MonotonicTime) -> bool {
        while self
            .incarnations
            .front()
            .is_some_and(|first| now >= *first + INCARNATION_WINDOW)
        {
            self.incarnations.pop_front();
        }
        self.incarnations.len() < INCARNATIONS_MAX
    }
}

type Packet = (Header<MemberIdentity>, Vec<Member<MemberIdentity>>);

fn decode_packet(mut bytes: &[u8]) -> Result<Packet, PacketCodecError> {
    if bytes.len() > PACKET_MAX {
        return Err(PacketCodecError);
    }
    let header = PacketCodec.decode_header(&mut bytes)?;
    let mut statements = Vec::new();
    if !bytes.is_empty() {
        let count = usize::from(bytes.try_get_u16().map_err(|_| PacketCodecError)?);
        if bytes.len() != count * STATEMENT_LEN || header.message == Message::Announce {
            return Err(PacketCodecError);
        }
        for _ in 0..count {
            statements.push(PacketCodec.decode_member(&mut bytes)?);
        }
    }
    Ok((header, statements))
}

fn encode_packet(
    header: &Header<MemberIdentity>,
    statements: &[Member<MemberIdentity>],
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let written = PacketCodec.encode_header(header, &mut bytes);
    written.expect("writing to a vector succeeds");
    if !statements.is_empty() {
        let count = u16::try_from(statements.len());
        bytes.extend(count.expect("a packet holds fewer").to_be_bytes());
        for statement in statements {
            let written = PacketCodec.encode_member(statement, &mut bytes);
            written.expect("writing to a vector succeeds");
        }
    }
    bytes
}
