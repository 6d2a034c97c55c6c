//! A network of nodes with a virtual clock: links that take some milliseconds, and nodes that die.

#![allow(
    dead_code,
    reason = "the test and the benchmark use different parts of it"
)]

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::cluster::membership::{Membership, MembershipEffect, MembershipTimer};
use mgp_protocol::ids::NodeId;

/// One way over a link.
const DELAY: u64 = 5;
/// From knowing of a node to a link with it.
const LINKING: u64 = 30;
/// A link that is silent for so long is lost.
const SILENCE: u64 = 5_000;

enum Happening {
    Packet { from: usize, bytes: Vec<u8> },
    Timer(MembershipTimer),
    Due,
    Linked(usize),
    Unlinked(usize),
    Heard(usize),
}

/// What was sent, and what is known, at a moment.
#[derive(Clone, Copy, Default)]
pub(crate) struct Traffic {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) largest: usize,
}

pub(crate) struct Network {
    pub(crate) now: u64,
    nodes: Vec<Option<Membership>>,
    up: Vec<BTreeSet<usize>>,
    links: BTreeSet<(usize, usize)>,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    happenings: std::collections::HashMap<u64, (usize, Happening)>,
    order: u64,
    pub(crate) traffic: Traffic,
    /// Lost packets in a thousand.
    pub(crate) loss: u64,
    chance: u64,
    pub(crate) false_deaths: u64,
    all: usize,
}

fn id(n: usize) -> NodeId {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&(n as u64).to_be_bytes());
    NodeId(bytes)
}

fn index(node: NodeId) -> usize {
    let [a, b, c, d, e, f, g, h, ..] = node.0;
    u64::from_be_bytes([a, b, c, d, e, f, g, h]) as usize
}

impl Network {
    /// Room for so many nodes, all of which are admitted everywhere.
    pub(crate) fn new(all: usize, seed: u64) -> Self {
        Self {
            now: 0,
            nodes: (0..all).map(|_| None).collect(),
            up: vec![BTreeSet::new(); all],
            links: BTreeSet::new(),
            queue: BinaryHeap::new(),
            happenings: std::collections::HashMap::new(),
            order: 0,
            traffic: Traffic::default(),
            loss: 0,
            chance: seed,
            false_deaths: 0,
            all,
        }
    }

    /// A node starts, and knows the address of one other.
    pub(crate) fn start(&mut self, n: usize, knows: Option<usize>) {
        let mut membership = Membership::new(id(n), self.now + 1, self.chance ^ n as u64);
        (0..self.all).for_each(|other| membership.admit(id(other)));
        self.nodes[n] = Some(membership);
        self.up[n].clear();
        if let Some(other) = knows {
            self.link(n, other);
        }
    }

    /// A node is gone, without a word; its links are seen to be lost only by their silence.
    pub(crate) fn kill(&mut self, n: usize) {
        self.nodes[n] = None;
        self.up[n].clear();
        let linked = self
            .links
            .iter()
            .filter_map(|(a, b)| match (*a == n, *b == n) {
                (true, _) => Some(*b),
                (_, true) => Some(*a),
                _ => None,
            });
        for peer in linked.collect::<Vec<_>>() {
            self.later(SILENCE, peer, Happening::Unlinked(n));
        }
        self.links.retain(|(a, b)| *a != n && *b != n);
    }

    /// How many nodes a living node believes to be there.
    pub(crate) fn known(&self, n: usize) -> usize {
        self.up[n].len()
    }

    /// Who still believes that a node is there.
    pub(crate) fn believers(&self, n: usize) -> usize {
        self.up.iter().filter(|up| up.contains(&n)).count()
    }

    /// Runs for so many milliseconds.
    pub(crate) fn run(&mut self, millis: u64) {
        let end = self.now + millis;
        while let Some(Reverse((when, order))) = self.queue.peek().copied() {
            if when > end {
                break;
            }
            self.queue.pop();
            self.now = when;
            let (n, happening) = self.happenings.remove(&order).expect("it is queued once");
            self.happen(n, happening);
        }
        self.now = end;
    }

    fn happen(&mut self, n: usize, happening: Happening) {
        let now = MonotonicTime::new(Duration::from_millis(self.now));
        let renewals: Vec<_> = match &happening {
            Happening::Linked(other) => self.renewal(*other).into_iter().collect(),
            Happening::Packet { .. }
            | Happening::Timer(_)
            | Happening::Due
            | Happening::Unlinked(_)
            | Happening::Heard(_) => Vec::new(),
        };
        let Some(membership) = &mut self.nodes[n] else {
            return;
        };
        let effects = match happening {
            Happening::Packet { from, bytes } => membership
                .handle_packet(id(from), &bytes, now)
                .unwrap_or_default(),
            Happening::Timer(timer) => membership.handle_timer(timer, now),
            Happening::Due => membership.check_probes(now),
            Happening::Linked(other) => match renewals.first() {
                Some(renewal) => membership.handle_link_up(id(other), *renewal, now),
                None => Vec::new(),
            },
            // Unless there is another link by now.
            Happening::Unlinked(other) if self.links.contains(&(n.min(other), n.max(other))) => {
                Vec::new()
            }
            Happening::Unlinked(other) => membership.handle_link_down(id(other), now),
            Happening::Heard(other) => {
                membership.record_activity(id(other));
                Vec::new()
            }
        };
        effects
            .into_iter()
            .for_each(|effect| self.perform(n, effect));
    }

    fn renewal(&self, n: usize) -> Option<u64> {
        self.nodes[n].as_ref().map(Membership::incarnation)
    }

    fn perform(&mut self, n: usize, effect: MembershipEffect) {
        match effect {
            MembershipEffect::Send(to, bytes) => self.send(n, index(to), bytes),
            MembershipEffect::StartTimer(after, timer) => {
                let after = u64::try_from(after.as_millis()).expect("short");
                self.later(after, n, Happening::Timer(timer));
            }
            MembershipEffect::CheckProbesAfter(after) => {
                let after = u64::try_from(after.as_millis()).expect("short");
                self.later(after, n, Happening::Due);
            }
            MembershipEffect::Up(node) => {
                self.up[n].insert(index(node));
            }
            MembershipEffect::Down(node) => {
                self.up[n].remove(&index(node));
                self.false_deaths += u64::from(self.nodes[index(node)].is_some());
            }
            MembershipEffect::ProbeLink(node) => {
                if self.nodes[index(node)].is_some() && !self.is_lost() {
                    self.later(2 * DELAY, n, Happening::Heard(index(node)));
                }
            }
            MembershipEffect::Contact(node) => self.link(n, index(node)),
            MembershipEffect::NewIncarnation(_) => {}
        }
    }

    fn link(&mut self, a: usize, b: usize) {
        if self.nodes[b].is_some() && self.links.insert((a.min(b), a.max(b))) {
            self.later(LINKING, a, Happening::Linked(b));
            self.later(LINKING, b, Happening::Linked(a));
        }
    }

    fn send(&mut self, from: usize, to: usize, bytes: Vec<u8>) {
        self.traffic.packets += 1;
        self.traffic.bytes += bytes.len() as u64;
        self.traffic.largest = self.traffic.largest.max(bytes.len());
        let linked = self.links.contains(&(from.min(to), from.max(to)));
        if linked && !self.is_lost() {
            self.later(DELAY, to, Happening::Packet { from, bytes });
        }
    }

    fn later(&mut self, after: u64, n: usize, happening: Happening) {
        self.order += 1;
        self.happenings.insert(self.order, (n, happening));
        self.queue.push(Reverse((self.now + after, self.order)));
    }

    fn is_lost(&mut self) -> bool {
        self.chance = self
            .chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.chance >> 33) % 1000 < self.loss
    }
}
