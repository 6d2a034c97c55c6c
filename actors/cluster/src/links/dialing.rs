//! Schedules dials and dials a node: all its addresses, started shortly one after the other, until one
//! answers. If none does, its packets are relayed by nodes with a link to it.

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

/// The most concurrent dials: each is a handshake and up to eight sockets' worth of packets; a thousand
/// unreachable nodes are dialed in turn.
pub(super) const MAX_DIALS: usize = 16;
/// A link that lasted so long counts as stable: after it the node is dialed at once.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// The delay between two addresses: long enough that a near node answers at the first.
const ADDRESS_STAGGER: Duration = Duration::from_millis(250);

/// The result of a dial.
#[derive(Debug)]
pub struct DialResult {
    pub(super) node: NodeId,
    pub(super) outcome: Result<NewLink, LinkError>,
    /// The node that answered at each address.
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
    /// Schedules a redial after a link ended: at once after a stable link, with backoff after others.
    pub(super) fn redial_after_loss(&mut self, node: NodeId, error: &LinkGone) {
        let is_rejected = is_duplicate_key_end(error);
        if is_rejected {
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
        self.schedule_redial(node, is_rejected);
    }

    /// Schedules a redial with backoff, after a failed dial or an unstable link.
    fn schedule_redial(&mut self, node: NodeId, is_rejected: bool) {
        let Some(member) = self.members.get_mut(&node) else {
            return;
        };
        let chance = u64::from_le_bytes(randomness::random_bytes());
        let wait = match (is_rejected, &member.link) {
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

    /// Dials soon, because a dial may succeed now. A node that rejects this one is not dialed sooner: only
    /// its operator can change that.
    pub(super) fn dial_soon(&mut self, node: NodeId) {
        if let Some(member) = self.members.get_mut(&node)
            && !member.plan.is_rejected_as_duplicate()
        {
            member.plan.reset();
            self.schedule_dial(node, DialBackoff::initial_delay(self.parts.node, node));
        }
    }

    pub(super) fn schedule_dial(&mut self, node: NodeId, wait: Duration) {
        let can_dial = self.socket.is_some() && !self.is_blocked(node);
        let Some(member) = self.members.get_mut(&node).filter(|_| can_dial) else {
            return;
        };
        let at = monotonic_now() + wait;
        let sooner = member.due.is_none_or(|due| at < due);
        if !member.is_linked_directly() && member.dialing.is_none() && sooner {
            member.due = Some(at);
            self.alarms.set(at, TimerEvent::Dial(node));
        }
    }

    /// Dials unlinked nodes through a node that was linked directly.
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

    /// Dials a node that is linked through a relay: a direct link is better.
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
        let addresses = self.hints.dial_targets(node, is_linked);
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
        let targets = DialTargets {
            addresses,
            links: Arc::clone(&self.parts.table),
            allow_relay: member.link.is_none(),
            plan: member.plan,
        };
        if targets.addresses.is_empty() && targets.relays(node).is_empty() {
            // Dialed again on a hint, or when a possible relay is linked.
            let no_address = || failure_text::describe_link_error(&LinkError::NoAddress);
            member.failure.get_or_insert_with(no_address);
            return;
        }
        if dialing >= MAX_DIALS {
            if !self.dial_queue.contains(&node) {
                self.dial_queue.push_back(node);
            }
            return;
        }
        let (endpoint, mailbox) = (socket.endpoint.clone(), self.mailbox.clone());
        member.dialing = Some(dial(endpoint, node, targets, mailbox));
    }

    pub(super) fn handle_dial_result(&mut self, result: DialResult) {
        let node = result.node;
        for (address, found) in &result.responders {
            self.hints.record_answer(address, *found);
            if *found != node && !self.is_linked(*found) {
                self.dial_soon(*found);
            }
        }
        if let Some(member) = self.members.get_mut(&node) {
            member.dialing = None;
            match result.outcome {
                Ok(new) => self.add_link(new),
                Err(error) => {
                    member.failure = Some(failure_text::describe_link_error(&error));
                    member.refusal = failure_text::link_error_to_refusal(&error, member.refusal);
                    let is_rejected = is_duplicate_key_error(&error);
                    if is_rejected {
                        self.report_blocked_by(node);
                    }
                    self.schedule_redial(node, is_rejected);
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

/// The addresses and relays by which a node may be reached.
#[derive(Debug)]
struct DialTargets {
    /// Its possible addresses.
    addresses: Vec<String>,
    /// The published links; relays are chosen from them when needed.
    links: Arc<Snapshot<LinkTable>>,
    /// True if relays may be used.
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
    targets: DialTargets,
    mailbox: Mailbox<LinksMsg>,
) -> SupervisedTask<()> {
    task::spawn_supervised("links.dial", async move {
        let result = task::catch_panic("links.dial", race_targets(&endpoint, node, targets)).await;
        let result = result.unwrap_or_else(|broken| DialResult {
            node,
            outcome: Err(LinkError::Unresolved(node.short_id(), broken.to_string())),
            responders: Vec::new(),
        });
        let _over = mailbox.send_to_self(LinksMsg::Dialed(Box::new(result)));
    })
}

/// Tries relays once the direct addresses have had their time, or all have failed before.
async fn race_targets(endpoint: &LinkEndpoint, node: NodeId, targets: DialTargets) -> DialResult {
    let direct = race_addresses(endpoint, node, targets.addresses.clone());
    tokio::pin!(direct);
    let in_time = tokio::time::timeout(RELAY_AFTER, &mut direct).await;
    let relayed = race_relays(endpoint, node, &targets);
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

/// The first link that is established through a relay.
async fn race_relays(
    endpoint: &LinkEndpoint,
    node: NodeId,
    targets: &DialTargets,
) -> Option<NewLink> {
    let relays = targets.relays(node).into_iter();
    let dials = relays.map(|relay| endpoint.dial_through(node, relay));
    let mut linked = stream::iter(dials)
        .buffer_unordered(RELAYS_CONCURRENT)
        .filter_map(|result| future::ready(result.ok()));
    linked.next().await
}

async fn race_addresses(
    endpoint: &LinkEndpoint,
    node: NodeId,
    addresses: Vec<String>,
) -> DialResult {
    let mut trying: FuturesUnordered<_> = (0u32..)
        .zip(addresses)
        .map(|(at, address)| async move {
            tokio::time::sleep(ADDRESS_STAGGER * at).await;
            (endpoint.dial(node, &address).await, address)
        })
        .collect();
    let mut answered = Vec::new();
    let mut worst = LinkError::NoAddress;
    while let Some((tried, address)) = trying.next().await {
        match tried {
            Ok(link) => {
                answered.push((address, node));
                let outcome = Ok(link);
                return DialResult {
                    node,
                    outcome,
                    responders: answered,
                };
            }
            Err(error) => {
                if let LinkError::Peer(PeerError::OtherNode { found, .. }) = &error {
                    answered.push((address, *found));
                }
                if error_rank(&error) >= error_rank(&worst) {
                    worst = error;
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

/// Ranks an error by how much it reveals about the node itself.
fn error_rank(error: &LinkError) -> u8 {
    match error {
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
