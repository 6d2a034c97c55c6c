use foca::{Codec, Header, Member, Message, State};
use proptest::prelude::*;

use super::*;

fn node(n: u8) -> NodeId {
    NodeId([n; 32])
}

fn at(millis: u64) -> MonotonicTime {
    MonotonicTime::new(Duration::from_millis(millis))
}

fn identity(n: u8, renewal: u64) -> MemberIdentity {
    MemberIdentity {
        node: node(n),
        incarnation: renewal,
    }
}

fn packet(
    src: MemberIdentity,
    dst: MemberIdentity,
    message: Message<MemberIdentity>,
    about: &[Member<MemberIdentity>],
) -> Vec<u8> {
    let header = Header {
        src,
        src_incarnation: 0,
        dst,
        message,
    };
    let mut bytes = Vec::new();
    PacketCodec.encode_header(&header, &mut bytes).unwrap();
    if !about.is_empty() {
        bytes.extend(u16::try_from(about.len()).unwrap().to_be_bytes());
    }
    for member in about {
        PacketCodec.encode_member(member, &mut bytes).unwrap();
    }
    bytes
}

/// Node 0, with links to 1 and 2; 3 is admitted and not linked.
fn scene() -> Membership {
    let mut membership = Membership::new(node(0), 5, 1);
    for n in 1..4 {
        membership.admit(node(n));
    }
    membership.handle_link_up(node(1), 1, at(0));
    membership.handle_link_up(node(2), 1, at(0));
    membership
}

fn reported(effects: &[MembershipEffect]) -> Vec<&MembershipEffect> {
    let is = |effect: &&MembershipEffect| {
        matches!(
            effect,
            MembershipEffect::Up(_)
                | MembershipEffect::Down(_)
                | MembershipEffect::ProbeLink(_)
                | MembershipEffect::Contact(_)
                | MembershipEffect::NewIncarnation(_)
        )
    };
    effects.iter().filter(is).collect()
}

/// PRJ-012, FED-021: the link authenticates the sender.
#[test]
fn a_packet_from_another_link_is_rejected() {
    let mut membership = scene();
    let own = identity(0, 5);
    let ping = Message::Ping(1);
    let cases = [
        (
            1,
            packet(identity(2, 1), own, ping.clone(), &[]),
            PacketError::WrongLink,
        ),
        (
            1,
            packet(identity(1, 1), identity(2, 1), ping.clone(), &[]),
            PacketError::WrongDestination,
        ),
        (
            9,
            packet(identity(9, 1), own, ping.clone(), &[]),
            PacketError::NotAdmitted,
        ),
        (1, vec![0; 40], PacketError::Malformed(PacketCodecError)),
        (
            1,
            vec![0; PACKET_MAX + 1],
            PacketError::Malformed(PacketCodecError),
        ),
    ];
    for (from, bytes, refusal) in cases {
        assert_eq!(
            membership.handle_packet(node(from), &bytes, at(1)),
            Err(refusal)
        );
    }
    let asked = Message::PingReq {
        target: identity(9, 1),
        probe_number: 1,
    };
    let bytes = packet(identity(1, 1), own, asked, &[]);
    let refusal = membership.handle_packet(node(1), &bytes, at(1));
    assert_eq!(refusal, Err(PacketError::UnknownMember));
    let good = membership.handle_packet(node(1), &packet(identity(1, 1), own, ping, &[]), at(1));
    assert!(matches!(good.unwrap()[0], MembershipEffect::Send(to, _) if to == node(1)));
}

/// A member cannot invent another one, or an incarnation of it.
#[test]
fn an_identity_is_accepted_only_from_its_own_link() {
    let mut membership = scene();
    let made_up = [
        Member::alive(identity(9, 1)),
        Member::alive(identity(2, u64::MAX)),
        Member::alive(identity(3, 7)),
    ];
    let bytes = packet(identity(1, 1), identity(0, 5), Message::Gossip, &made_up);
    let effects = membership.handle_packet(node(1), &bytes, at(1)).unwrap();
    assert_eq!(reported(&effects), [&MembershipEffect::Contact(node(3))]);
    assert_eq!(
        membership.live_nodes().collect::<Vec<_>>(),
        [node(1), node(2)]
    );
    // The same again soon after is no reason to try again.
    let effects = membership.handle_packet(node(1), &bytes, at(2)).unwrap();
    assert!(reported(&effects).is_empty());
    // The node's own link still counts.
    let bytes = packet(identity(2, 2), identity(0, 5), Message::Ping(1), &[]);
    let effects = membership.handle_packet(node(2), &bytes, at(3)).unwrap();
    assert!(
        effects
            .iter()
            .any(|effect| matches!(effect, MembershipEffect::Send(to, _) if *to == node(2)))
    );
    let effects = membership.handle_link_up(node(3), 1, at(4));
    assert_eq!(reported(&effects), [&MembershipEffect::Up(node(3))]);
}

/// FED-023: gossip alone never drops a node whose link answers.
#[test]
fn a_node_reported_dead_is_probed_first() {
    let mut membership = scene();
    let dead = [Member::down(identity(2, 1))];
    let bytes = packet(identity(1, 1), identity(0, 5), Message::Gossip, &dead);
    let effects = membership.handle_packet(node(1), &bytes, at(10)).unwrap();
    assert_eq!(reported(&effects), [&MembershipEffect::ProbeLink(node(2))]);
    assert!(membership.check_probes(at(10)).is_empty());
    membership.record_activity(node(2));
    assert!(membership.check_probes(at(10_000)).is_empty());
    // Its link is lost after all: now there is nobody to say otherwise.
    let effects = membership.handle_link_down(node(2), at(11_000));
    assert_eq!(reported(&effects), [&MembershipEffect::Down(node(2))]);
    let mut membership = scene();
    membership.handle_packet(node(1), &bytes, at(10)).unwrap();
    let effects = membership.check_probes(at(410));
    assert_eq!(reported(&effects), [&MembershipEffect::Down(node(2))]);
    assert!(membership.check_probes(at(10_000)).is_empty());
}

/// FED-024: a node reported dead renews its incarnation, but not without limit.
#[test]
fn renewals_of_the_incarnation_are_bounded() {
    let mut membership = scene();
    for n in 0..50 {
        let dead = [Member::down(identity(0, membership.incarnation()))];
        let own = identity(0, membership.incarnation());
        let bytes = packet(identity(1, 1), own, Message::Gossip, &dead);
        membership.handle_packet(node(1), &bytes, at(n)).unwrap();
        let turned = packet(identity(1, 1), own, Message::TurnUndead, &[]);
        let _refused_at_the_bound = membership.handle_packet(node(1), &turned, at(n));
    }
    for (n, incarnation) in (100..).zip([u16::MAX - 1, u16::MAX, u16::MAX]) {
        let own = identity(0, membership.incarnation());
        let suspect = [Member::new(own, incarnation, State::Suspect)];
        let bytes = packet(identity(1, 1), own, Message::Gossip, &suspect);
        membership.handle_packet(node(1), &bytes, at(n)).unwrap();
    }
    assert_eq!(membership.incarnation(), 5 + INCARNATIONS_MAX as u64);
    let dead = [Member::down(identity(0, membership.incarnation()))];
    let own = identity(0, membership.incarnation());
    let bytes = packet(identity(1, 1), own, Message::Gossip, &dead);
    let effects = membership
        .handle_packet(node(1), &bytes, at(61_000))
        .unwrap();
    assert_eq!(
        reported(&effects),
        [&MembershipEffect::NewIncarnation(own.incarnation + 1)]
    );
}

/// So a node whose clock was set back is not locked out.
#[test]
fn a_restarted_node_with_a_lower_incarnation_is_accepted() {
    let mut membership = scene();
    membership.handle_link_down(node(2), at(1));
    membership.handle_link_up(node(2), 0, at(2));
    let bytes = packet(identity(2, 0), identity(0, 5), Message::Ping(3), &[]);
    let effects = membership.handle_packet(node(2), &bytes, at(3)).unwrap();
    assert!(matches!(effects[0], MembershipEffect::Send(to, _) if to == node(2)));
    assert!(membership.live_nodes().any(|up| up == node(2)));
}

/// MGP-082: whatever gossip reports.
#[test]
fn a_forgotten_node_stays_down() {
    let mut membership = scene();
    let effects = membership.forget(node(2), at(1));
    assert_eq!(reported(&effects), [&MembershipEffect::Down(node(2))]);
    let alive = [Member::alive(identity(2, 9))];
    let bytes = packet(identity(1, 1), identity(0, 5), Message::Gossip, &alive);
    let effects = membership.handle_packet(node(1), &bytes, at(2)).unwrap();
    assert!(reported(&effects).is_empty());
    assert!(membership.handle_link_up(node(2), 10, at(3)).is_empty());
    assert_eq!(membership.live_nodes().collect::<Vec<_>>(), [node(1)]);
}

fn any_identity() -> impl Strategy<Value = MemberIdentity> {
    (0..4_u8, 0..3_u64).prop_map(|(n, renewal)| identity(n, renewal))
}

fn any_message() -> impl Strategy<Value = Message<MemberIdentity>> {
    prop_oneof![
        any::<u8>().prop_map(Message::Ping),
        any::<u8>().prop_map(Message::Ack),
        (any_identity(), any::<u8>()).prop_map(|(target, probe_number)| Message::PingReq {
            target,
            probe_number
        }),
        (any_identity(), any::<u8>()).prop_map(|(origin, probe_number)| Message::IndirectPing {
            origin,
            probe_number
        }),
        (any_identity(), any::<u8>()).prop_map(|(target, probe_number)| Message::IndirectAck {
            target,
            probe_number
        }),
        (any_identity(), any::<u8>()).prop_map(|(origin, probe_number)| Message::ForwardedAck {
            origin,
            probe_number
        }),
        Just(Message::Announce),
        Just(Message::Feed),
        Just(Message::Gossip),
        Just(Message::TurnUndead),
    ]
}

fn any_statement() -> impl Strategy<Value = Member<MemberIdentity>> {
    let state = prop_oneof![Just(State::Alive), Just(State::Suspect), Just(State::Down)];
    (any_identity(), any::<u16>(), state)
        .prop_map(|(id, incarnation, state)| Member::new(id, incarnation, state))
}

proptest! {
    /// No panic, bounded renewals, no node up without its own link, and no node down whose link answers.
    #[test]
    fn no_packet_exceeds_the_authority_of_its_sender(
        packets in proptest::collection::vec(
            (any_identity(), any_message(), proptest::collection::vec(any_statement(), 0..6), any::<bool>()), 0..40)
    ) {
        let mut membership = scene();
        for (n, (src, message, about, to_us)) in packets.into_iter().enumerate() {
            let dst = MemberIdentity { node: node(0), incarnation: membership.incarnation() };
            let dst = if to_us { dst } else { src };
            let bytes = packet(src, dst, message, &about);
            if src.node == node(3) {
                // It has no link, so nothing comes over it.
                continue;
            }
            let now = at(n as u64 * 10);
            let effects = membership.handle_packet(src.node, &bytes, now).unwrap_or_default();
            for effect in effects {
                prop_assert!(!matches!(effect, MembershipEffect::Down(_)), "{effect:?}");
                if let MembershipEffect::ProbeLink(node) = effect {
                    membership.record_activity(node);
                }
            }
            prop_assert!(membership.check_probes(now + LINK_PROBE_TIMEOUT).is_empty());
        }
        prop_assert!(membership.incarnation() <= 5 + INCARNATIONS_MAX as u64);
        let up: Vec<_> = membership.live_nodes().collect();
        prop_assert_eq!(up, [node(1), node(2)]);
    }

    #[test]
    fn malformed_packets_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut membership = scene();
        let whole = packet(identity(1, 1), identity(0, 5), Message::Feed, &[Member::alive(identity(2, 1))]);
        let _refused = membership.handle_packet(node(1), &bytes, at(0));
        for cut in 0..whole.len() {
            let _refused = membership.handle_packet(node(1), &whole[..cut], at(0));
        }
        let more = [whole.as_slice(), &[0, 1, 0]].concat();
        prop_assert!(membership.handle_packet(node(1), &more, at(0)).is_err());
    }
}
