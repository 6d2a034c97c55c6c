//! When to dial a node, and one dial: all its addresses, started shortly one after the other, until one answers. If
//! none does, nodes with a link to it relay its packets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{self, Either};
use futures_util::stream::{self, FuturesUnordered, StreamExt as _};
use mgp_engine::cluster::link_plan::{DialBackoff, RELAY_AFTER, RELAYS_CONCURRENT};
use mgp_protocol::ids::NodeId;
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::time::monotonic_now;
use mgp_runtime::{Mailbox, randomness, task};
use mgp_sync::Snapshot;
use mgp_transports::quic::{LinkEndpoint, LinkError, LinkGone, NewLink, PeerError};

use super::key_conflicts::{is_duplicate_key_end, is_duplicate_key_error};
use super::live_link::LiveLink;
use super::state::{LinksState, MemberLinks};
use super::timers::TimerEvent;
use super::{LinkTable, LinksMsg, failure_text};

/// Dials under way: each is a handshake and up to eight sockets' worth of packets; a thousand nodes that are
/// away are tried in turn.
pub(super) const MAX_DIALS: usize = 16;
/// A link that lasted so long has come about: after it the node is dialed at once.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// Between one place and the next: long enough that a near node answers at the first.
const ADDRESS_STAGGER: Duration = Duration::from_millis(250);

/// What came of a dial.
#[derive(Debug)]
pub struct DialResult {
    pub(super) node: NodeId,
    pub(super) outcome: Result<NewLink, LinkError>,
    /// Who answered at which place.
    pub(super) responders: Vec<(String, NodeId)>,
}

impl DialResult {
    fn via_relay(link: NewLink, responders: Vec<(String, NodeId)>) -> Self {
        Self {
            node: link.link.peer(),
            outcome: Ok(link),
            responders,
        }
    }
}

impl LinksState {
    /// After a link that lasted at once, after one that did not later and later.
    pub(super) fn redial_after_loss(&mut self, node: NodeId, why: &LinkGone) {
        let kept_out = is_duplicate_key_end(why);
        if kept_out {
            self.report_blocked_by(node);
        }
        let Some(member) = self.members.get_mut(&node) else {
            return;
        };
        let lasted = member
            .since
            .take()
            .is_some_and(|since| since.elapsed() >= STABLE_AFTER);
        if lasted {
            member.plan.record_link();
        }
        self.schedule_redial(node, kept_out);
    }

    /// After a dial that failed, or a link that did not last.
    fn schedule_redial(&mut self, node: NodeId, kept_out: bool) {
        let Some(member) = self.members.get_mut(&node) else {
            return;
        };
        let chance = u64::from_le_bytes(randomness::random_bytes());
        let wait = match (kept_out, &member.link) {
            (true, _) => member.plan.next_duplicate_delay(chance),
            (false, None) => member.plan.next_delay(chance),
            (false, Some(_)) => member.plan.next_direct_delay(chance),
        };
        self.schedule_dial(node, wait);
    }

    pub(super) fn add_hint(&mut self, node: NodeId, address: SocketAddr) {
        if self.hints.add_announced(node, address) {
            self.dial_soon(node);
        }
    }

    /// There is a reason to think that a dial succeeds now. Where this node is kept out, only its operator's new key is
    /// one.
    pub(super) fn dial_soon(&mut self, node: NodeId) {
        if let Some(member) = self.members.get_mut(&node)
            && !member.plan.is_rejected_as_duplicate()
        {
            member.plan.reset();
            self.schedule_dial(node, DialBackoff::initial_delay(self.parts.node, node));
        }
    }

    pub(super) fn schedule_dial(&mut self, node: NodeId, wait: Duration) {
        let may = self.socket.is_some() && !self.is_blocked(node);
        let Some(member) = self.members.get_mut(&node).filter(|_| may) else {
            return;
        };
        let at = monotonic_now() + wait;
        let sooner = member.due.is_none_or(|due| at < due);
        if !member.is_linked_directly() && member.dialing.is_none() && sooner {
            member.due = Some(at);
            self.alarms.set(at, TimerEvent::Dial(node));
        }
    }

    /// There is a direct link to this node: nodes without one may reach others through it.
    pub(super) fn dial_through(&mut self, relay: NodeId) {
        let able = |member: &MemberLinks| {
            member
                .link
                .as_ref()
                .is_some_and(|live| live.peer.can_relay())
        };
        if !self.members.get(&relay).is_some_and(able) {
            return;
        }
        let unlinked = self.members.iter().filter(|(_, member)| {
            member.link.is_none() && !member.plan.is_rejected_as_duplicate() && member.due.is_none()
        });
        let unlinked: Vec<NodeId> = unlinked.map(|(node, _)| *node).collect();
        for node in unlinked {
            self.schedule_dial(node, DialBackoff::initial_delay(self.parts.node, node));
        }
    }

    /// The node is linked through another one: a direct link is better.
    pub(super) fn dial_directly(&mut self, node: NodeId) {
        if let Some(member) = self.members.get_mut(&node) {
            let chance = u64::from_le_bytes(randomness::random_bytes());
            let wait = member.plan.next_direct_delay(chance);
            self.schedule_dial(node, wait);
        }
    }

    pub(super) fn dial(&mut self, node: NodeId) {
        let dialing = self
            .members
            .values()
            .filter(|member| member.dialing.is_some())
            .count();
        let is_linked = |node| self.is_linked(node);
        let places = self.hints.dial_targets(node, is_linked);
        let Some(socket) = &self.socket else {
            return;
        };
        let Some(member) = self.members.get_mut(&node) else {
            return;
        };
        if member.is_linked_directly()
            || member.dialing.is_some()
            || member.pinned.has_duplicate_key
        {
            return;
        }
        let ways = DialTargets {
            addresses: places,
            links: Arc::clone(&self.parts.table),
            allow_relay: member.link.is_none(),
            plan: member.plan,
        };
        if ways.addresses.is_empty() && ways.relays(node).is_empty() {
            // Dialed when a hint comes, or a link to somebody who may relay.
            let nowhere = || failure_text::describe_link_error(&LinkError::NoAddress);
            member.failure.get_or_insert_with(nowhere);
            return;
        }
        if dialing >= MAX_DIALS {
            if !self.dial_queue.contains(&node) {
                self.dial_queue.push_back(node);
            }
            return;
        }
        let (endpoint, mailbox) = (socket.endpoint.clone(), self.mailbox.clone());
        member.dialing = Some(dial(endpoint, node, ways, mailbox));
    }

    pub(super) fn handle_dial_result(&mut self, dialed: DialResult) {
        let node = dialed.node;
        for (place, found) in &dialed.responders {
            self.hints.record_answer(place, *found);
            if *found != node && !self.is_linked(*found) {
                self.dial_soon(*found);
            }
        }
        if let Some(member) = self.members.get_mut(&node) {
            member.dialing = None;
            match dialed.outcome {
                Ok(new) => self.add_link(new),
                Err(why) => {
                    member.failure = Some(failure_text::describe_link_error(&why));
                    member.refusal = failure_text::link_error_to_refusal(&why, member.refusal);
                    let kept_out = is_duplicate_key_error(&why);
                    if kept_out {
                        self.report_blocked_by(node);
                    }
                    self.schedule_redial(node, kept_out);
                }
            }
        }
        if let Some(next) = self.dial_queue.pop_front() {
            self.dial(next);
        }
    }

    fn is_linked(&self, node: NodeId) -> bool {
        let member = self.members.get(&node);
        member.is_some_and(MemberLinks::is_linked_directly)
    }
}

impl MemberLinks {
    fn is_linked_directly(&self) -> bool {
        self.link.as_ref().is_some_and(LiveLink::is_direct)
    }
}

/// The ways on which a node may be reached.
#[derive(Debug)]
struct DialTargets {
    /// Where it may be.
    addresses: Vec<String>,
    /// Who may pass on what is for it is among those that are linked once that is asked for.
    links: Arc<Snapshot<LinkTable>>,
    /// Whether relays are used at all.
    allow_relay: bool,
    plan: DialBackoff,
}

impl DialTargets {
    fn relays(&self, node: NodeId) -> Vec<NodeId> {
        if !self.allow_relay {
            return Vec::new();
        }
        let links = self.links.load();
        let able = links.links.iter().filter(|(other, _)| **other != node);
        let able = able.filter(|(_, peer)| peer.can_relay());
        self.plan
            .pick_relays(able.map(|(other, _)| *other).collect())
    }
}

fn dial(
    endpoint: LinkEndpoint,
    node: NodeId,
    ways: DialTargets,
    mailbox: Mailbox<LinksMsg>,
) -> SupervisedTask<()> {
    task::spawn_supervised("links.dial", async move {
        let dialed = task::catch_panic("links.dial", race_targets(&endpoint, node, ways)).await;
        let dialed = dialed.unwrap_or_else(|broken| DialResult {
            node,
            outcome: Err(LinkError::Unresolved(node.short_id(), broken.to_string())),
            responders: Vec::new(),
        });
        let _over = mailbox.send_to_self(LinksMsg::Dialed(Box::new(dialed)));
    })
}

/// Relays are used once the direct addresses have had their time, or all have failed before.
async fn race_targets(endpoint: &LinkEndpoint, node: NodeId, ways: DialTargets) -> DialResult {
    let direct = race_addresses(endpoint, node, ways.addresses.clone());
    tokio::pin!(direct);
    let in_time = tokio::time::timeout(RELAY_AFTER, &mut direct).await;
    let relayed = race_relays(endpoint, node, &ways);
    tokio::pin!(relayed);
    let (tried, linked) = match in_time {
        Ok(direct) if direct.outcome.is_ok() => return direct,
        Ok(direct) => (direct, relayed.await),
        Err(_) => match future::select(direct, relayed).await {
            Either::Left((direct, _)) if direct.outcome.is_ok() => return direct,
            Either::Left((direct, relayed)) => (direct, relayed.await),
            Either::Right((None, direct)) => return direct.await,
            Either::Right((Some(link), _)) => return DialResult::via_relay(link, Vec::new()),
        },
    };
    match linked {
        Some(link) => DialResult::via_relay(link, tried.responders),
        None => tried,
    }
}

/// The first link that comes about through another node.
async fn race_relays(endpoint: &LinkEndpoint, node: NodeId, ways: &DialTargets) -> Option<NewLink> {
    let relays = ways.relays(node).into_iter();
    let dials = relays.map(|relay| endpoint.dial_through(node, relay));
    let mut linked = stream::iter(dials)
        .buffer_unordered(RELAYS_CONCURRENT)
        .filter_map(|dialed| future::ready(dialed.ok()));
    linked.next().await
}

async fn race_addresses(endpoint: &LinkEndpoint, node: NodeId, places: Vec<String>) -> DialResult {
    let mut trying: FuturesUnordered<_> = (0u32..)
        .zip(places)
        .map(|(at, place)| async move {
            tokio::time::sleep(ADDRESS_STAGGER * at).await;
            (endpoint.dial(node, &place).await, place)
        })
        .collect();
    let mut answered = Vec::new();
    let mut worst = LinkError::NoAddress;
    while let Some((tried, place)) = trying.next().await {
        match tried {
            Ok(link) => {
                answered.push((place, node));
                let outcome = Ok(link);
                return DialResult {
                    node,
                    outcome,
                    responders: answered,
                };
            }
            Err(why) => {
                if let LinkError::Peer(PeerError::OtherNode { found, .. }) = &why {
                    answered.push((place, *found));
                }
                if error_rank(&why) >= error_rank(&worst) {
                    worst = why;
                }
            }
        }
    }
    DialResult {
        node,
        outcome: Err(worst),
        responders: answered,
    }
}

/// How much it says about the node itself.
fn error_rank(why: &LinkError) -> u8 {
    match why {
        LinkError::NoAddress | LinkError::RelayRefused { .. } | LinkError::RelaySilent { .. } => 0,
        LinkError::Unresolved(..) => 0,
        LinkError::Itself => 1,
        LinkError::Peer(PeerError::OtherNode { .. }) => 2,
        LinkError::Unreachable(..) => 3,
        LinkError::Peer(
            PeerError::NotPinned(_) | PeerError::NoTicket | PeerError::Certificate(_),
        ) => 4,
        LinkError::HelloFailed(_) | LinkError::LinkRejected(_) | LinkError::PairingRefused => 5,
        LinkError::Version(_) => 6,
    }
}
