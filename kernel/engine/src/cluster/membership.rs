//! Which nodes are alive: SWIM, over links that are authenticated already.
//!
//! What a packet reports of other nodes is gossip, and an admitted node may lie. So the identity of a node comes from
//! its own link alone, and where gossip reports a node dead, its link is probed first.

mod identity;
mod packet_filter;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::time::Duration;

use foca::{AccumulatingRuntime, Foca, Member, NoCustomBroadcast, OwnedNotification, Timer};
use mgp_protocol::ids::NodeId;
use rand_core::TryRng;

pub(crate) use self::identity::MemberIdentity;
use self::identity::PacketCodec;
#[cfg(test)]
pub(crate) use self::identity::PacketCodecError;
pub(crate) use self::packet_filter::PacketError;
pub(crate) use self::settings::PACKET_MAX;
use self::settings::swim_config;
use crate::clock::MonotonicTime;

/// How long a link has to answer before gossip about its node is accepted.
const LINK_PROBE_TIMEOUT: Duration = Duration::from_millis(400);
/// Incarnations within [`INCARNATION_WINDOW`]. After that, reports that this node is dead are ignored: its links
/// prove otherwise.
const INCARNATIONS_MAX: usize = 6;
const INCARNATION_WINDOW: Duration = Duration::from_secs(60);
/// Shortest interval between attempts to contact a node named by gossip.
const CONTACT_INTERVAL: Duration = Duration::from_secs(5);

/// A timer of the protocol, to be returned when it fires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MembershipTimer(Timer<MemberIdentity>);

/// What the caller of this state machine has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipEffect {
    /// Send a packet over the link to this node; without a link it is dropped.
    Send(NodeId, Vec<u8>),
    /// Return the timer after this time.
    StartTimer(Duration, MembershipTimer),
    /// Call [`Membership::check_probes`] after this time.
    CheckProbesAfter(Duration),
    /// The node is alive.
    Up(NodeId),
    /// The node is down.
    Down(NodeId),
    /// Probe the node's link, and call [`Membership::record_activity`] when it answers.
    ProbeLink(NodeId),
    /// Gossip names an admitted node without a link: try to connect.
    Contact(NodeId),
    /// This node has a new incarnation: new links announce it.
    NewIncarnation(u64),
}

#[derive(Debug, Default)]
struct MemberState {
    /// The incarnation last announced over its own link.
    incarnation: Option<u64>,
    linked: bool,
    /// The protocol considers it dead.
    dead: bool,
    reported: bool,
    probed_at: Option<MonotonicTime>,
    contacted_at: Option<MonotonicTime>,
}

type Swim = Foca<MemberIdentity, PacketCodec, SwimRng, NoCustomBroadcast>;

/// The members of the cluster, as one node sees them.
pub struct Membership {
    swim: Swim,
    own: NodeId,
    members: BTreeMap<NodeId, MemberState>,
    incarnations: VecDeque<MonotonicTime>,
    configured_size: usize,
}

impl Membership {
    /// A node that knows no others. `renewal` is higher at each start; `seed` is random.
    #[must_use]
    pub fn new(own: NodeId, renewal: u64, seed: u64) -> Self {
        let identity = MemberIdentity {
            node: own,
            incarnation: renewal,
        };
        Self {
            swim: Foca::new(identity, swim_config(1), SwimRng(seed), PacketCodec),
            own,
            members: BTreeMap::new(),
            incarnations: VecDeque::new(),
            configured_size: 1,
        }
    }

    /// This node's incarnation, which its links announce.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.swim.identity().incarnation
    }

    /// The nodes that are alive.
    #[cfg(test)]
    pub(crate) fn live_nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        let up = self.members.iter().filter(|(_, member)| member.reported);
        up.map(|(node, _)| *node)
    }

    /// Admits a node. Nothing is accepted about others.
    pub fn admit(&mut self, node: NodeId) {
        if node != self.own {
            self.members.entry(node).or_default();
        }
    }

    /// Removes a node from the cluster: reports about it and packets from it are ignored.
    pub fn forget(&mut self, node: NodeId, now: MonotonicTime) -> Vec<MembershipEffect> {
        let Some(mut member) = self.members.remove(&node) else {
            return Vec::new();
        };
        let mut effects = self.forget_incarnation(node, member.incarnation.take(), now);
        effects.extend(member.reported.then_some(MembershipEffect::Down(node)));
        effects
    }

    /// A link to the node was established; `renewal` is what the node announced over it. The link overrides
    /// everything known before, even if the number is lower.
    pub fn handle_link_up(
        &mut self,
        node: NodeId,
        renewal: u64,
        now: MonotonicTime,
    ) -> Vec<MembershipEffect> {
        let Some(member) = self.members.get_mut(&node) else {
            return Vec::new();
        };
        let before = member.incarnation.replace(renewal);
        (member.linked, member.probed_at) = (true, None);
        let mut effects = match before.filter(|before| *before > renewal) {
            Some(_) => self.forget_incarnation(node, before, now),
            None => Vec::new(),
        };
        let identity = MemberIdentity {
            node,
            incarnation: renewal,
        };
        let alive = std::iter::once(Member::alive(identity));
        effects.extend(self.run_swim(now, |swim, runtime| swim.apply_many(alive, true, runtime)));
        effects.extend(self.run_swim(now, |swim, runtime| swim.announce(identity, runtime)));
        effects
    }

    /// The link to the node is lost. The protocol finds out whether the node is.
    pub fn handle_link_down(&mut self, node: NodeId, now: MonotonicTime) -> Vec<MembershipEffect> {
        let Some(member) = self.members.get_mut(&node) else {
            return Vec::new();
        };
        (member.linked, member.probed_at) = (false, None);
        if member.dead {
            self.mark_down(node, now)
        } else {
            Vec::new()
        }
    }

    /// Something arrived over the node's link.
    pub fn record_activity(&mut self, node: NodeId) {
        if let Some(member) = self.members.get_mut(&node) {
            member.probed_at = None;
        }
    }

    /// A packet arrived over the link of `from`.
    ///
    /// # Errors
    /// [`PacketError`]: the packet was ignored.
    pub fn handle_packet(
        &mut self,
        from: NodeId,
        bytes: &[u8],
        now: MonotonicTime,
    ) -> Result<Vec<MembershipEffect>, PacketError> {
        let (bytes, mut effects) = self.filter_packet(from, bytes, now)?;
        self.record_activity(from);
        effects.extend(self.run_swim(now, |swim, runtime| swim.handle_data(&bytes, runtime)));
        Ok(effects)
    }

    /// A timer fired.
    pub fn handle_timer(
        &mut self,
        timer: MembershipTimer,
        now: MonotonicTime,
    ) -> Vec<MembershipEffect> {
        self.run_swim(now, |swim, runtime| swim.handle_timer(timer.0, runtime))
    }

    /// Handles links that did not answer their probe.
    pub fn check_probes(&mut self, now: MonotonicTime) -> Vec<MembershipEffect> {
        let silent = self.members.iter().filter(|(_, member)| {
            let asked = member
                .probed_at
                .is_some_and(|asked| now >= asked + LINK_PROBE_TIMEOUT);
            asked && member.dead
        });
        let silent: Vec<_> = silent.map(|(node, _)| *node).collect();
        let down = silent.into_iter().flat_map(|node| {
            let member = self.members.get_mut(&node)?;
            member.probed_at = None;
            std::mem::take(&mut member.reported).then_some(MembershipEffect::Down(node))
        });
        down.collect()
    }

    /// This node leaves: the others need not detect it.
    pub fn leave(&mut self, now: MonotonicTime) -> Vec<MembershipEffect> {
        self.run_swim(now, |swim, runtime| swim.leave_cluster(runtime))
    }

    /// Makes the protocol forget an incarnation of a node.
    fn forget_incarnation(
        &mut self,
        node: NodeId,
        renewal: Option<u64>,
        now: MonotonicTime,
    ) -> Vec<MembershipEffect> {
        let Some(renewal) = renewal else {
            return Vec::new();
        };
        let identity = MemberIdentity {
            node,
            incarnation: renewal,
        };
        let down = std::iter::once(Member::down(identity));
        let mut effects = self.run_swim(now, |swim, runtime| swim.apply_many(down, false, runtime));
        let forget = MembershipTimer(Timer::RemoveDown(identity));
        effects.extend(self.handle_timer(forget, now));
        effects
    }

    /// Runs the protocol. Its errors concern rejected packets and timers that fired too late.
    fn run_swim(
        &mut self,
        now: MonotonicTime,
        act: impl FnOnce(&mut Swim, &mut AccumulatingRuntime<MemberIdentity>) -> Result<(), foca::Error>,
    ) -> Vec<MembershipEffect> {
        let mut runtime = AccumulatingRuntime::new();
        let _of_no_consequence = act(&mut self.swim, &mut runtime);
        let mut effects = Vec::new();
        while let Some((to, packet)) = runtime.to_send() {
            effects.push(MembershipEffect::Send(to.node, packet.to_vec()));
        }
        while let Some((after, timer)) = runtime.to_schedule() {
            effects.push(MembershipEffect::StartTimer(after, MembershipTimer(timer)));
        }
        while let Some(notification) = runtime.to_notify() {
            match notification {
                OwnedNotification::MemberUp(identity) => {
                    effects.extend(self.mark_alive(identity.node))
                }
                OwnedNotification::MemberDown(identity) => {
                    effects.extend(self.mark_down(identity.node, now))
                }
                OwnedNotification::Rejoin(identity) => {
                    self.incarnations.push_back(now);
                    effects.push(MembershipEffect::NewIncarnation(identity.incarnation));
                }
                OwnedNotification::Rename(..)
                | OwnedNotification::Active
                | OwnedNotification::Idle
                | OwnedNotification::Defunct => {}
            }
        }
        self.update_config();
        effects
    }

    fn mark_alive(&mut self, node: NodeId) -> Option<MembershipEffect> {
        let member = self.members.get_mut(&node)?;
        (member.dead, member.probed_at) = (false, None);
        let before = std::mem::replace(&mut member.reported, true);
        (!before).then_some(MembershipEffect::Up(node))
    }

    /// The protocol considers the node dead; its link is probed first.
    fn mark_down(&mut self, node: NodeId, now: MonotonicTime) -> Vec<MembershipEffect> {
        let Some(member) = self.members.get_mut(&node) else {
            return Vec::new();
        };
        member.dead = true;
        if !member.linked {
            let was = std::mem::take(&mut member.reported);
            return was
                .then_some(MembershipEffect::Down(node))
                .into_iter()
                .collect();
        }
        member.probed_at = Some(now);
        vec![
            MembershipEffect::ProbeLink(node),
            MembershipEffect::CheckProbesAfter(LINK_PROBE_TIMEOUT),
        ]
    }

    fn update_config(&mut self) {
        let members = self.swim.num_members() + 1;
        if members != self.configured_size {
            self.configured_size = members;
            // The probe intervals stay the same, so the settings are always accepted.
            let _taken = self.swim.set_config(swim_config(members));
        }
    }
}

/// The choice of the next member to probe need not be unpredictable, only different on each node.
struct SwimRng(u64);

impl SwimRng {
    fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl TryRng for SwimRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.next_number() >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.next_number())
    }

    fn try_fill_bytes(&mut self, to: &mut [u8]) -> Result<(), Infallible> {
        for part in to.chunks_mut(8) {
            let bytes = self.next_number().to_le_bytes();
            part.copy_from_slice(&bytes[..part.len()]);
        }
        Ok(())
    }
}
