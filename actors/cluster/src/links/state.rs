//! The state of the links actor: the socket, the members, and the links to them.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::cluster::address_hints::AddressHints;
use mgp_engine::cluster::link_plan::{DialPlan, takes_over};
use mgp_engine::cluster::membership::Membership;
use mgp_protocol::federation::control::Control;
use mgp_protocol::federation::ends::LinkClose;
use mgp_protocol::federation::hello::ToldRole;
use mgp_protocol::ids::NodeId;
use mgp_runtime::mailbox::Mailbox;
use mgp_runtime::randomness;
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::time::{moment, unix_ms};
use mgp_transports::quic::{LinkGone, NewLink, StreamFailure};
use tokio_util::sync::CancellationToken;

use super::alarms::{Alarms, Due};
use super::failures::LinkRefusal;
use super::live::LiveLink;
use super::parts::LinksParts;
use super::socket::OpenSocket;
use super::{LinkPins, LinkTable, LinksEvent, LinksMsg, PinnedPeer, failures};

/// A member, and the links to it.
#[derive(Debug)]
pub(super) struct MemberLinks {
    pub(super) pinned: PinnedPeer,
    pub(super) plan: DialPlan,
    pub(super) due: Option<MonotonicTime>,
    pub(super) dialing: Option<SupervisedTask<()>>,
    pub(super) live: Option<LiveLink>,
    pub(super) since: Option<Instant>,
    /// Links whose place another one took; the transport bounds them.
    pub(super) draining: Vec<LiveLink>,
    pub(super) failure: Option<String>,
    /// When its last link ended, because the node was shut down gracefully.
    pub(super) shut_down: Option<Instant>,
    pub(super) refusal: Option<LinkRefusal>,
    pub(super) lost_ms: Option<u64>,
    pub(super) present: bool,
}

/// The state of the actor.
pub struct LinksState {
    pub(super) parts: Arc<LinksParts>,
    pub(super) mailbox: Mailbox<LinksMsg>,
    pub(super) socket: Option<OpenSocket>,
    pub(super) members: BTreeMap<NodeId, MemberLinks>,
    pub(super) hints: AddressHints,
    pub(super) membership: Membership,
    pub(super) alarms: Alarms,
    /// Nodes whose dial waits for a turn, each once.
    pub(super) turns: VecDeque<NodeId>,
    numbers: u64,
}

impl LinksState {
    pub(super) fn new(parts: Arc<LinksParts>, mailbox: Mailbox<LinksMsg>) -> Self {
        let seed = u64::from_le_bytes(randomness::bytes());
        Self {
            membership: Membership::new(parts.own, unix_ms(), seed),
            alarms: Alarms::new(mailbox.clone()),
            parts,
            mailbox,
            socket: None,
            members: BTreeMap::new(),
            hints: AddressHints::default(),
            turns: VecDeque::new(),
            numbers: 0,
        }
    }

    /// Goes on where the actor before stopped.
    pub(super) fn go_on(&mut self) {
        // Whoever still held its socket would keep the port.
        self.parts.endpoint.store(Arc::new(None));
        self.publish();
        let kept = self.parts.kept();
        self.pin(kept.pins);
        if kept.listen.is_some() {
            self.reopen();
        }
    }

    pub(super) fn pinned(&self) -> HashSet<NodeId> {
        self.members.keys().copied().collect()
    }

    pub(super) fn pin(&mut self, mut pins: LinkPins) {
        pins.peers.remove(&self.parts.own);
        self.parts.keep(|kept| kept.pins = pins.clone());
        // Cut first: whatever else this does, those links carry nothing any more.
        if let Some(socket) = &self.socket {
            socket.endpoint.pin(pins.peers.keys().copied().collect());
        }
        self.hints.pin(pins.peers.keys().copied());
        self.hints.name(pins.names.into_iter());
        let before = std::mem::take(&mut self.members);
        let (mut stayed, mut left) = (BTreeMap::new(), Vec::new());
        for (node, member) in before {
            match pins.peers.contains_key(&node) {
                true => drop(stayed.insert(node, member)),
                false => left.push((node, member)),
            }
        }
        self.members = stayed;
        let (mut came, mut twice) = (Vec::new(), Vec::new());
        for (node, pinned) in pins.peers {
            match self.members.get_mut(&node) {
                Some(member) => {
                    if pinned.lives_twice && !member.pinned.lives_twice {
                        twice.push(node);
                    }
                    member.pinned = pinned;
                }
                None => came.push((node, pinned)),
            }
        }
        self.publish();
        for node in twice {
            self.keep_out(node);
        }
        for (node, member) in left {
            self.left(node, member);
        }
        for (node, pinned) in came {
            self.members.insert(node, MemberLinks::new(pinned));
            self.membership.admit(node);
            self.dial_in(node, DialPlan::first(self.parts.own, node));
        }
    }

    fn left(&mut self, node: NodeId, member: MemberLinks) {
        if member.present {
            self.parts.events.send(LinksEvent::Missing(node));
        }
        if let Some(live) = &member.live {
            live.peer.link.close(LinkClose::Revoked);
            let why = gone(LinkClose::Revoked);
            self.parts.events.send(LinksEvent::Down { node, why });
        }
        let effects = self.membership.forget(node, moment());
        self.carry_out(effects);
    }

    /// A new link, whoever dialed.
    pub(super) fn linked(&mut self, new: NewLink) {
        let node = new.link.peer();
        if !self.members.contains_key(&node) || new.link.gone().is_some() {
            return;
        }
        if self.keeps_out(node) {
            new.link.close(LinkClose::TwoLives);
            return;
        }
        if let Some(address) = new.link.address() {
            self.hints.proven(node, address);
        }
        let number = self.number();
        let live = LiveLink::new(number, new, &self.parts, self.mailbox.clone());
        let Some(member) = self.members.get_mut(&node) else {
            return;
        };
        let facts = live.facts();
        match member.live.take() {
            Some(held) if takes_over(self.parts.own, node, held.facts(), facts) => {
                match held.facts().life == facts.life {
                    true => self.drain(node, held),
                    // Of a life that is over: nobody waits for anything on it.
                    false => held.peer.link.close(LinkClose::Replaced),
                }
            }
            Some(held) => {
                member.live = Some(held);
                self.drain(node, live);
                return;
            }
            None => {}
        }
        self.put(node, live);
    }

    /// Makes a link the one of its node.
    fn put(&mut self, node: NodeId, live: LiveLink) {
        let Some(member) = self.members.get_mut(&node) else {
            return;
        };
        let peer = Arc::clone(&live.peer);
        let is_direct = live.is_direct();
        member.live = Some(live);
        member.since = Some(Instant::now());
        member.due = None;
        if is_direct {
            (member.failure, member.refusal) = (None, None);
        }
        self.publish();
        self.parts.events.send(LinksEvent::Up(peer));
        self.introduce(node);
        match is_direct {
            true => self.dial_through(node),
            false => self.dial_directly(node),
        }
    }

    fn drain(&mut self, node: NodeId, link: LiveLink) {
        let until = moment() + self.parts.times.drain;
        self.alarms.set(until, Due::Drained(node, link.number));
        if let Some(member) = self.members.get_mut(&node) {
            member.draining.push(link);
        }
    }

    /// The member whose link has this number, and whether it is the one that counts.
    pub(super) fn owner(&self, number: u64) -> Option<NodeId> {
        let has = |member: &MemberLinks| {
            let mut links = member.live.iter().chain(&member.draining);
            links.any(|link| link.number == number)
        };
        let mut owners = self.members.iter().filter(|(_, member)| has(member));
        owners.next().map(|(node, _)| *node)
    }

    pub(super) fn ended(&mut self, number: u64, why: &LinkGone) {
        let Some(node) = self.owner(number) else {
            return;
        };
        let Some(member) = self.members.get_mut(&node) else {
            return;
        };
        member.draining.retain(|link| link.number != number);
        if member
            .live
            .as_ref()
            .is_none_or(|live| live.number != number)
        {
            return;
        }
        member.live = None;
        // The other end may have kept the one that was drained here.
        member
            .draining
            .retain(|link| link.peer.link.gone().is_none());
        if let Some(other) = member.draining.pop() {
            self.put(node, other);
            return;
        }
        let shut_down = why.0 == StreamFailure::LinkClosed(LinkClose::Shutdown);
        member.shut_down = shut_down.then(Instant::now);
        self.publish();
        self.down(node, why);
        self.dial_again(node, why);
    }

    pub(super) fn down(&mut self, node: NodeId, why: &LinkGone) {
        if let Some(member) = self.members.get_mut(&node) {
            member.failure = Some(failures::words_of_end(why));
            member.refusal = failures::refusal_of_end(why);
            member.lost_ms = Some(unix_ms());
        }
        let why = why.clone();
        self.parts.events.send(LinksEvent::Down { node, why });
        let effects = self.membership.unlinked(node, moment());
        self.carry_out(effects);
    }

    pub(super) fn tell(&self, node: NodeId, message: Control) {
        let live = self
            .members
            .get(&node)
            .and_then(|member| member.live.as_ref());
        if let Some(live) = live {
            live.tell(message);
        }
    }

    pub(super) fn alarm(&mut self) {
        let now = moment();
        for due in self.alarms.take(now) {
            match due {
                Due::Membership(timer) => {
                    let effects = self.membership.timer(timer, now);
                    self.carry_out(effects);
                }
                Due::Asked => {
                    let effects = self.membership.due(now);
                    self.carry_out(effects);
                }
                Due::Dial(node) => {
                    let member = self.members.get_mut(&node);
                    let due = member.filter(|member| member.due.is_some_and(|due| due <= now));
                    if let Some(member) = due {
                        member.due = None;
                        self.dial(node);
                    }
                }
                Due::Drained(node, number) => {
                    let Some(member) = self.members.get_mut(&node) else {
                        continue;
                    };
                    let mut drained = member.draining.extract_if(.., |link| link.number == number);
                    if let Some(link) = drained.next() {
                        link.peer.link.close(LinkClose::Replaced);
                    }
                }
                Due::Reopen => self.reopen(),
            }
        }
    }

    /// Publishes the links there are.
    pub(super) fn publish(&self) {
        let live = self.members.iter().filter_map(|(node, member)| {
            let live = member.live.as_ref()?;
            Some((*node, Arc::clone(&live.peer)))
        });
        let without = self
            .members
            .iter()
            .filter(|(_, member)| member.live.is_none());
        let shut_down = without.filter_map(|(node, member)| Some((*node, member.shut_down?)));
        let said = self.parts.said.load();
        let here = (self.parts.own, said.1);
        let members = self.members.iter();
        let roles = members.map(|(node, member)| (*node, member.pinned.role));
        let admins = roles
            .chain([here])
            .filter(|(_, role)| *role == ToldRole::Admin);
        let table = LinkTable {
            links: live.collect(),
            shut_down: shut_down.collect(),
            admins: admins.map(|(node, _)| node).collect(),
            here: Some(said.0.clone()),
            replaced: CancellationToken::new(),
        };
        let before = self.parts.table.load();
        self.parts.table.store(Arc::new(table));
        before.replaced.cancel();
    }

    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}

impl MemberLinks {
    fn new(pinned: PinnedPeer) -> Self {
        Self {
            pinned,
            plan: DialPlan::default(),
            due: None,
            dialing: None,
            live: None,
            since: None,
            draining: Vec::new(),
            failure: None,
            shut_down: None,
            refusal: None,
            lost_ms: None,
            present: false,
        }
    }
}

/// Why a link is gone that was closed here.
pub(super) fn gone(closed: LinkClose) -> LinkGone {
    LinkGone(StreamFailure::LinkClosed(closed))
}
