//! The state of the links actor: the socket, the members, and the links to them.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::cluster::address_hints::AddressHints;
use mgp_engine::cluster::link_plan::{DialBackoff, should_replace};
use mgp_engine::cluster::membership::Membership;
use mgp_protocol::federation::close_codes::LinkClose;
use mgp_protocol::federation::control::Control;
use mgp_protocol::federation::hello::ReportedRole;
use mgp_protocol::ids::NodeId;
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::time::{monotonic_now, unix_ms};
use mgp_runtime::{Mailbox, randomness};
use mgp_transports::quic::{LinkGone, NewLink, StreamFailure};
use tokio_util::sync::CancellationToken;

use super::failure_text::LinkRefusal;
use super::live_link::LiveLink;
use super::parts::LinksShared;
use super::socket::OpenSocket;
use super::timers::{TimerEvent, Timers};
use super::{LinkPins, LinkTable, LinksEvent, LinksMsg, PinnedPeer, failure_text};

/// A member, and the links to it.
#[derive(Debug)]
pub(super) struct MemberLinks {
    pub(super) pinned: PinnedPeer,
    pub(super) plan: DialBackoff,
    pub(super) due: Option<MonotonicTime>,
    pub(super) dialing: Option<SupervisedTask<()>>,
    pub(super) link: Option<LiveLink>,
    pub(super) since: Option<Instant>,
    /// Replaced links that are draining; the transport bounds them.
    pub(super) draining: Vec<LiveLink>,
    pub(super) failure: Option<String>,
    /// When its last link ended by a graceful shutdown of the node.
    pub(super) shut_down: Option<Instant>,
    pub(super) refusal: Option<LinkRefusal>,
    pub(super) lost_ms: Option<u64>,
    pub(super) present: bool,
}

/// The state of the actor.
pub struct LinksState {
    pub(super) parts: Arc<LinksShared>,
    pub(super) mailbox: Mailbox<LinksMsg>,
    pub(super) socket: Option<OpenSocket>,
    pub(super) members: BTreeMap<NodeId, MemberLinks>,
    pub(super) hints: AddressHints,
    pub(super) membership: Membership,
    pub(super) alarms: Timers,
    /// Nodes whose dial is queued, each once.
    pub(super) dial_queue: VecDeque<NodeId>,
    last_number: u64,
}

impl LinksState {
    pub(super) fn new(parts: Arc<LinksShared>, mailbox: Mailbox<LinksMsg>) -> Self {
        let seed = u64::from_le_bytes(randomness::random_bytes());
        Self {
            membership: Membership::new(parts.node, unix_ms(), seed),
            alarms: Timers::new(mailbox.clone()),
            parts,
            mailbox,
            socket: None,
            members: BTreeMap::new(),
            hints: AddressHints::default(),
            dial_queue: VecDeque::new(),
            last_number: 0,
        }
    }

    /// Restores the state of the failed actor.
    pub(super) fn restore(&mut self) {
        // A remaining holder of the socket would keep the port.
        self.parts.endpoint.store(Arc::new(None));
        self.publish();
        let saved = self.parts.saved();
        self.pin(saved.pins);
        if saved.listen.is_some() {
            self.reopen();
        }
    }

    pub(super) fn pinned_nodes(&self) -> HashSet<NodeId> {
        self.members.keys().copied().collect()
    }

    pub(super) fn pin(&mut self, mut pins: LinkPins) {
        pins.peers.remove(&self.parts.node);
        self.parts.save(|saved| saved.pins = pins.clone());
        // Closed first: whatever else this does, those links carry nothing any more.
        if let Some(socket) = &self.socket {
            socket
                .endpoint
                .set_pinned_nodes(pins.peers.keys().copied().collect());
        }
        self.hints.set_pinned(pins.peers.keys().copied());
        self.hints.set_names(pins.names.into_iter());
        let previous = std::mem::take(&mut self.members);
        let (mut remaining, mut removed) = (BTreeMap::new(), Vec::new());
        for (node, member) in previous {
            if pins.peers.contains_key(&node) {
                drop(remaining.insert(node, member))
            } else {
                removed.push((node, member))
            }
        }
        self.members = remaining;
        let (mut added, mut duplicated) = (Vec::new(), Vec::new());
        for (node, pinned) in pins.peers {
            match self.members.get_mut(&node) {
                Some(member) => {
                    if pinned.has_duplicate_key && !member.pinned.has_duplicate_key {
                        duplicated.push(node);
                    }
                    member.pinned = pinned;
                }
                None => added.push((node, pinned)),
            }
        }
        self.publish();
        for node in duplicated {
            self.block_duplicate_key(node);
        }
        for (node, member) in removed {
            self.remove_member(node, member);
        }
        for (node, pinned) in added {
            self.members.insert(node, MemberLinks::new(pinned));
            self.membership.admit(node);
            self.schedule_dial(node, DialBackoff::initial_delay(self.parts.node, node));
        }
    }

    fn remove_member(&mut self, node: NodeId, member: MemberLinks) {
        if member.present {
            self.parts.events.send(LinksEvent::Missing(node));
        }
        if let Some(live) = &member.link {
            live.peer.link.close(LinkClose::Revoked);
            let reason = closed_here(LinkClose::Revoked);
            self.parts
                .events
                .send(LinksEvent::Down { node, why: reason });
        }
        let effects = self.membership.forget(node, monotonic_now());
        self.apply_effects(effects);
    }

    /// Adds a new link, whichever node dialed.
    pub(super) fn add_link(&mut self, new: NewLink) {
        let node = new.link.peer();
        if !self.members.contains_key(&node) || new.link.end_reason().is_some() {
            return;
        }
        if self.is_blocked(node) {
            new.link.close(LinkClose::TwoLives);
            return;
        }
        if let Some(address) = new.link.address() {
            self.hints.add_proven(node, address);
        }
        let number = self.next_number();
        let live = LiveLink::new(number, new, &self.parts, self.mailbox.clone());
        let Some(member) = self.members.get_mut(&node) else {
            return;
        };
        let facts = live.facts();
        match member.link.take() {
            Some(current) if should_replace(self.parts.node, node, current.facts(), facts) => {
                if current.facts().instance == facts.instance {
                    self.drain(node, current)
                } else {
                    // The link of an earlier generation: no request on it waits for an answer.
                    current.peer.link.close(LinkClose::Replaced)
                }
            }
            Some(current) => {
                member.link = Some(current);
                self.drain(node, live);
                return;
            }
            None => {}
        }
        self.set_link(node, live);
    }

    /// Makes a link the current one of its node.
    fn set_link(&mut self, node: NodeId, live: LiveLink) {
        let Some(member) = self.members.get_mut(&node) else {
            return;
        };
        let peer = Arc::clone(&live.peer);
        let is_direct = live.is_direct();
        member.link = Some(live);
        member.since = Some(Instant::now());
        member.due = None;
        if is_direct {
            (member.failure, member.refusal) = (None, None);
        }
        self.publish();
        self.parts.events.send(LinksEvent::Up(peer));
        self.exchange_addresses(node);
        if is_direct {
            self.dial_through(node)
        } else {
            self.dial_directly(node)
        }
    }

    fn drain(&mut self, node: NodeId, link: LiveLink) {
        let until = monotonic_now() + self.parts.times.drain;
        self.alarms
            .set(until, TimerEvent::Drained(node, link.number));
        if let Some(member) = self.members.get_mut(&node) {
            member.draining.push(link);
        }
    }

    /// The member whose current link has this number.
    pub(super) fn owner(&self, number: u64) -> Option<NodeId> {
        let has = |member: &MemberLinks| {
            let mut links = member.link.iter().chain(&member.draining);
            links.any(|link| link.number == number)
        };
        let mut owners = self.members.iter().filter(|(_, member)| has(member));
        owners.next().map(|(node, _)| *node)
    }

    pub(super) fn handle_link_end(&mut self, number: u64, reason: &LinkGone) {
        let Some(node) = self.owner(number) else {
            return;
        };
        let Some(member) = self.members.get_mut(&node) else {
            return;
        };
        member.draining.retain(|link| link.number != number);
        if member
            .link
            .as_ref()
            .is_none_or(|live| live.number != number)
        {
            return;
        }
        member.link = None;
        // The other node may have chosen the link that drains here.
        member
            .draining
            .retain(|link| link.peer.link.end_reason().is_none());
        if let Some(other) = member.draining.pop() {
            self.set_link(node, other);
            return;
        }
        let shut_down = reason.0 == StreamFailure::LinkClosed(LinkClose::Shutdown);
        member.shut_down = shut_down.then(Instant::now);
        self.publish();
        self.set_down(node, reason);
        self.redial_after_loss(node, reason);
    }

    pub(super) fn set_down(&mut self, node: NodeId, reason: &LinkGone) {
        if let Some(member) = self.members.get_mut(&node) {
            member.failure = Some(failure_text::describe_end(reason));
            member.refusal = failure_text::end_to_refusal(reason);
            member.lost_ms = Some(unix_ms());
        }
        let reason = reason.clone();
        self.parts
            .events
            .send(LinksEvent::Down { node, why: reason });
        let effects = self.membership.handle_link_down(node, monotonic_now());
        self.apply_effects(effects);
    }

    pub(super) fn send(&self, node: NodeId, message: Control) {
        let live = self
            .members
            .get(&node)
            .and_then(|member| member.link.as_ref());
        if let Some(live) = live {
            live.send(message);
        }
    }

    pub(super) fn run_due_timers(&mut self) {
        let now = monotonic_now();
        for due in self.alarms.take_due(now) {
            match due {
                TimerEvent::Membership(timer) => {
                    let effects = self.membership.handle_timer(timer, now);
                    self.apply_effects(effects);
                }
                TimerEvent::ProbesExpired => {
                    let effects = self.membership.check_probes(now);
                    self.apply_effects(effects);
                }
                TimerEvent::Dial(node) => {
                    let member = self.members.get_mut(&node);
                    let due = member.filter(|member| member.due.is_some_and(|due| due <= now));
                    if let Some(member) = due {
                        member.due = None;
                        self.dial(node);
                    }
                }
                TimerEvent::Drained(node, number) => {
                    let Some(member) = self.members.get_mut(&node) else {
                        continue;
                    };
                    let mut drained = member.draining.extract_if(.., |link| link.number == number);
                    if let Some(link) = drained.next() {
                        link.peer.link.close(LinkClose::Replaced);
                    }
                }
                TimerEvent::Reopen => self.reopen(),
            }
        }
    }

    /// Publishes the table of links.
    pub(super) fn publish(&self) {
        let live = self.members.iter().filter_map(|(node, member)| {
            let live = member.link.as_ref()?;
            Some((*node, Arc::clone(&live.peer)))
        });
        let without = self
            .members
            .iter()
            .filter(|(_, member)| member.link.is_none());
        let shut_down = without.filter_map(|(node, member)| Some((*node, member.shut_down?)));
        let hello = self.parts.hello.load();
        let local = (self.parts.node, hello.1);
        let members = self.members.iter();
        let roles = members.map(|(node, member)| (*node, member.pinned.role));
        let admins = roles
            .chain([local])
            .filter(|(_, role)| *role == ReportedRole::Admin);
        let table = LinkTable {
            links: live.collect(),
            shut_down: shut_down.collect(),
            admins: admins.map(|(node, _)| node).collect(),
            local_name: Some(hello.0.clone()),
            replaced: CancellationToken::new(),
        };
        let previous = self.parts.table.load();
        self.parts.table.store(Arc::new(table));
        previous.replaced.cancel();
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}

impl MemberLinks {
    fn new(pinned: PinnedPeer) -> Self {
        Self {
            pinned,
            plan: DialBackoff::default(),
            due: None,
            dialing: None,
            link: None,
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

/// The reason of a link that this node closed.
pub(super) fn closed_here(closed: LinkClose) -> LinkGone {
    LinkGone(StreamFailure::LinkClosed(closed))
}
