//! Which nodes are there: SWIM, over links that are authenticated already.
//!
//! What a packet says of others is gossip, and an admitted node may lie. So who a node is comes from its own
//! link alone; and where gossip says that a node is dead, its link is asked before it is believed.

mod identity;
mod settings;
mod sift;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::time::Duration;

use foca::{AccumulatingRuntime, Foca, Member, NoCustomBroadcast, OwnedNotification, Timer};
use mgp_protocol::ids::NodeId;
use rand_core::TryRng;

use self::identity::PacketCodec;
pub use self::identity::{MemberIdentity, NotAPacket};
pub use self::settings::PACKET_MAX;
use self::settings::settings;
pub use self::sift::PacketRefusal;
use crate::clock::MonotonicTime;

/// How long a link has to answer before gossip about its node is believed.
const ASKED: Duration = Duration::from_millis(400);
/// Renewals within [`RENEWAL_TIME`]. Beyond, who says that this node is dead is not listened to: its links
/// say otherwise.
const RENEWALS_MAX: usize = 6;
const RENEWAL_TIME: Duration = Duration::from_secs(60);
/// A node that gossip names is met at most so often.
const MEET_AGAIN: Duration = Duration::from_secs(5);

/// A timer of the protocol: comes back when its time is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MembershipTimer(Timer<MemberIdentity>);

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipEffect {
    /// Send a packet over the link to this node; without a link it is lost.
    Send(NodeId, Vec<u8>),
    /// Bring the timer back after this time.
    Timer(Duration, MembershipTimer),
    /// Ask [`Membership::due`] after this time.
    Due(Duration),
    /// The node is there.
    Up(NodeId),
    /// It is not there any more.
    Down(NodeId),
    /// Ask its link whether it answers, and tell [`Membership::heard`].
    Ask(NodeId),
    /// Gossip names an admitted node to which there is no link: try to link.
    Meet(NodeId),
    /// This node goes on in this renewal: links that begin say so.
    Renewed(u64),
}

#[derive(Debug, Default)]
struct KnownMember {
    /// The renewal that its own link told last.
    renewal: Option<u64>,
    linked: bool,
    /// The protocol takes it for dead.
    dead: bool,
    reported: bool,
    asked: Option<MonotonicTime>,
    met: Option<MonotonicTime>,
}

type Swim = Foca<MemberIdentity, PacketCodec, SwimChance, NoCustomBroadcast>;

/// The members of the cluster, as one node sees them.
pub struct Membership {
    swim: Swim,
    own: NodeId,
    members: BTreeMap<NodeId, KnownMember>,
    renewals: VecDeque<MonotonicTime>,
    sized: usize,
}

impl Membership {
    /// A node that knows nobody. `renewal` is higher at each start; `seed` is random.
    #[must_use]
    pub fn new(own: NodeId, renewal: u64, seed: u64) -> Self {
        let identity = MemberIdentity { node: own, renewal };
        Self {
            swim: Foca::new(identity, settings(1), SwimChance(seed), PacketCodec),
            own,
            members: BTreeMap::new(),
            renewals: VecDeque::new(),
            sized: 1,
        }
    }

    /// This node's renewal, for its links to tell.
    #[must_use]
    pub fn renewal(&self) -> u64 {
        self.swim.identity().renewal
    }

    /// The nodes that are there.
    pub fn up(&self) -> impl Iterator<Item = NodeId> + '_ {
        let up = self.members.iter().filter(|(_, member)| member.reported);
        up.map(|(node, _)| *node)
    }

    /// The node was admitted. Nothing is known of any other.
    pub fn admit(&mut self, node: NodeId) {
        if node != self.own {
            self.members.entry(node).or_default();
        }
    }

    /// The node is no longer of the cluster: whatever is said of it or by it is nothing.
    pub fn forget(&mut self, node: NodeId, now: MonotonicTime) -> Vec<MembershipEffect> {
        let Some(mut member) = self.members.remove(&node) else {
            return Vec::new();
        };
        let mut effects = self.bury(node, member.renewal.take(), now);
        effects.extend(member.reported.then_some(MembershipEffect::Down(node)));
        effects
    }

    /// A link to the node stands; `renewal` is what the node told over it. The link is believed over
    /// everything that was known, also when the number is lower than before.
    pub fn linked(
        &mut self,
        node: NodeId,
        renewal: u64,
        now: MonotonicTime,
    ) -> Vec<MembershipEffect> {
        let Some(member) = self.members.get_mut(&node) else {
            return Vec::new();
        };
        let before = member.renewal.replace(renewal);
        (member.linked, member.asked) = (true, None);
        let mut effects = match before.filter(|before| *before > renewal) {
            Some(_) => self.bury(node, before, now),
            None => Vec::new(),
        };
        let identity = MemberIdentity { node, renewal };
        let alive = std::iter::once(Member::alive(identity));
        effects.extend(self.run(now, |swim, runtime| swim.apply_many(alive, true, runtime)));
        effects.extend(self.run(now, |swim, runtime| swim.announce(identity, runtime)));
        effects
    }

    /// The link to the node is lost. Whether the node is, the protocol finds out.
    pub fn unlinked(&mut self, node: NodeId, now: MonotonicTime) -> Vec<MembershipEffect> {
        let Some(member) = self.members.get_mut(&node) else {
            return Vec::new();
        };
        (member.linked, member.asked) = (false, None);
        match member.dead {
            true => self.down(node, now),
            false => Vec::new(),
        }
    }

    /// Something came over the node's link.
    pub fn heard(&mut self, node: NodeId) {
        if let Some(member) = self.members.get_mut(&node) {
            member.asked = None;
        }
    }

    /// A packet came over the link of `from`.
    ///
    /// # Errors
    /// [`PacketRefusal`]: nothing of it was taken.
    pub fn packet(
        &mut self,
        from: NodeId,
        bytes: &[u8],
        now: MonotonicTime,
    ) -> Result<Vec<MembershipEffect>, PacketRefusal> {
        let (bytes, mut effects) = self.sift(from, bytes, now)?;
        self.heard(from);
        effects.extend(self.run(now, |swim, runtime| swim.handle_data(&bytes, runtime)));
        Ok(effects)
    }

    /// A timer came back.
    pub fn timer(&mut self, timer: MembershipTimer, now: MonotonicTime) -> Vec<MembershipEffect> {
        self.run(now, |swim, runtime| swim.handle_timer(timer.0, runtime))
    }

    /// Nodes whose links were asked and did not answer.
    pub fn due(&mut self, now: MonotonicTime) -> Vec<MembershipEffect> {
        let silent = self.members.iter().filter(|(_, member)| {
            let asked = member.asked.is_some_and(|asked| now >= asked + ASKED);
            asked && member.dead
        });
        let silent: Vec<_> = silent.map(|(node, _)| *node).collect();
        let down = silent.into_iter().flat_map(|node| {
            let member = self.members.get_mut(&node)?;
            member.asked = None;
            std::mem::take(&mut member.reported).then_some(MembershipEffect::Down(node))
        });
        down.collect()
    }

    /// This node leaves: others need not find out by themselves.
    pub fn leave(&mut self, now: MonotonicTime) -> Vec<MembershipEffect> {
        self.run(now, |swim, runtime| swim.leave_cluster(runtime))
    }

    /// Makes the protocol forget a renewal of a node.
    fn bury(
        &mut self,
        node: NodeId,
        renewal: Option<u64>,
        now: MonotonicTime,
    ) -> Vec<MembershipEffect> {
        let Some(renewal) = renewal else {
            return Vec::new();
        };
        let identity = MemberIdentity { node, renewal };
        let down = std::iter::once(Member::down(identity));
        let mut effects = self.run(now, |swim, runtime| swim.apply_many(down, false, runtime));
        let forget = MembershipTimer(Timer::RemoveDown(identity));
        effects.extend(self.timer(forget, now));
        effects
    }

    /// Lets the protocol act. Its errors are about packets that it takes nothing of, and timers that came
    /// too late.
    fn run(
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
            effects.push(MembershipEffect::Timer(after, MembershipTimer(timer)));
        }
        while let Some(notification) = runtime.to_notify() {
            match notification {
                OwnedNotification::MemberUp(identity) => effects.extend(self.alive(identity.node)),
                OwnedNotification::MemberDown(identity) => {
                    effects.extend(self.down(identity.node, now))
                }
                OwnedNotification::Rejoin(identity) => {
                    self.renewals.push_back(now);
                    effects.push(MembershipEffect::Renewed(identity.renewal));
                }
                OwnedNotification::Rename(..)
                | OwnedNotification::Active
                | OwnedNotification::Idle
                | OwnedNotification::Defunct => {}
            }
        }
        self.resize();
        effects
    }

    fn alive(&mut self, node: NodeId) -> Option<MembershipEffect> {
        let member = self.members.get_mut(&node)?;
        (member.dead, member.asked) = (false, None);
        let before = std::mem::replace(&mut member.reported, true);
        (!before).then_some(MembershipEffect::Up(node))
    }

    /// The protocol takes the node for dead; its link is asked first.
    fn down(&mut self, node: NodeId, now: MonotonicTime) -> Vec<MembershipEffect> {
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
        member.asked = Some(now);
        vec![MembershipEffect::Ask(node), MembershipEffect::Due(ASKED)]
    }

    fn resize(&mut self) {
        let members = self.swim.num_members() + 1;
        if members != self.sized {
            self.sized = members;
            // The probe's times stay, so it is always taken.
            let _taken = self.swim.set_config(settings(members));
        }
    }
}

/// Whom to ask next need not be hard to guess, only different from node to node.
struct SwimChance(u64);

impl SwimChance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl TryRng for SwimChance {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.next() >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.next())
    }

    fn try_fill_bytes(&mut self, to: &mut [u8]) -> Result<(), Infallible> {
        for part in to.chunks_mut(8) {
            let bytes = self.next().to_le_bytes();
            part.copy_from_slice(&bytes[..part.len()]);
        }
        Ok(())
    }
}
