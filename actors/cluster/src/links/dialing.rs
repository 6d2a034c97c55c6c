//! When a node is dialed, and one dial: all places where it may be, one shortly after the other, until one answers. Where
//! none does, those that have a link to it pass its packets on.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{self, Either};
use futures_util::stream::{self, FuturesUnordered, StreamExt as _};
use mgp_engine::cluster::link_plan::{DialPlan, RELAY_AFTER, RELAYS_AT_ONCE};
use mgp_protocol::ids::NodeId;
use mgp_runtime::mailbox::Mailbox;
use mgp_runtime::randomness;
use mgp_runtime::task::{self, SupervisedTask};
use mgp_runtime::time::moment;
use mgp_sync::Snapshot;
use mgp_transports::quic::{LinkEndpoint, LinkGone, NewLink, NoLink, PeerFault};

use super::alarms::Due;
use super::keeping_out::{refuses_two_lives, says_two_lives};
use super::live::LiveLink;
use super::state::{LinksState, MemberLinks};
use super::{LinkTable, LinksMsg, failures};

/// Dials under way: each is a handshake and up to eight sockets' worth of packets; a thousand nodes that are
/// away are tried in turn.
pub(super) const DIALS: usize = 16;
/// A link that lasted so long has come about: after it the node is dialed at once.
const LASTED: Duration = Duration::from_secs(10);
/// Between one place and the next: long enough that a near node answers at the first.
const NEXT_PLACE: Duration = Duration::from_millis(250);

/// What came of a dial.
#[derive(Debug)]
pub struct Dialed {
    pub(super) node: NodeId,
    pub(super) outcome: Result<NewLink, NoLink>,
    /// Who answered at which place.
    pub(super) answered: Vec<(String, NodeId)>,
}

impl Dialed {
    fn through(link: NewLink, answered: Vec<(String, NodeId)>) -> Self {
        Self {
            node: link.link.peer(),
            outcome: Ok(link),
            answered,
        }
    }
}

impl LinksState {
    /// After a link that lasted at once, after one that did not later and later.
    pub(super) fn dial_again(&mut self, node: NodeId, why: &LinkGone) {
        let kept_out = says_two_lives(why);
        if kept_out {
            self.kept_out_by(node);
        }
        let Some(member) = self.members.get_mut(&node) else {
            return;
        };
        let lasted = member
            .since
            .take()
            .is_some_and(|since| since.elapsed() >= LASTED);
        if lasted {
            member.plan.came_about();
        }
        self.dial_later(node, kept_out);
    }

    /// After a dial that failed, or a link that did not last.
    fn dial_later(&mut self, node: NodeId, kept_out: bool) {
        let Some(member) = self.members.get_mut(&node) else {
            return;
        };
        let chance = u64::from_le_bytes(randomness::bytes());
        let wait = match (kept_out, &member.live) {
            (true, _) => member.plan.kept_out(chance),
            (false, None) => member.plan.failed(chance),
            (false, Some(_)) => member.plan.relayed(chance),
        };
        self.dial_in(node, wait);
    }

    pub(super) fn found(&mut self, node: NodeId, address: SocketAddr) {
        if self.hints.found(node, address) {
            self.dial_soon(node);
        }
    }

    /// There is a reason to think that a dial succeeds now. Where this node is kept out, only its operator's new key is
    /// one.
    pub(super) fn dial_soon(&mut self, node: NodeId) {
        if let Some(member) = self.members.get_mut(&node)
            && !member.plan.is_kept_out()
        {
            member.plan.reset();
            self.dial_in(node, DialPlan::first(self.parts.own, node));
        }
    }

    pub(super) fn dial_in(&mut self, node: NodeId, wait: Duration) {
        let may = self.socket.is_some() && !self.keeps_out(node);
        let Some(member) = self.members.get_mut(&node).filter(|_| may) else {
            return;
        };
        let at = moment() + wait;
        let sooner = member.due.is_none_or(|due| at < due);
        if !member.is_linked_directly() && member.dialing.is_none() && sooner {
            member.due = Some(at);
            self.alarms.set(at, Due::Dial(node));
        }
    }

    /// There is a direct link to this node: whoever has none may be reached through it.
    pub(super) fn dial_through(&mut self, relay: NodeId) {
        let able = |member: &MemberLinks| {
            member
                .live
                .as_ref()
                .is_some_and(|live| live.peer.may_relay())
        };
        if !self.members.get(&relay).is_some_and(able) {
            return;
        }
        let unlinked = self.members.iter().filter(|(_, member)| {
            member.live.is_none() && !member.plan.is_kept_out() && member.due.is_none()
        });
        let unlinked: Vec<NodeId> = unlinked.map(|(node, _)| *node).collect();
        for node in unlinked {
            self.dial_in(node, DialPlan::first(self.parts.own, node));
        }
    }

    /// The node is linked through another one: a direct link is better.
    pub(super) fn dial_directly(&mut self, node: NodeId) {
        if let Some(member) = self.members.get_mut(&node) {
            let chance = u64::from_le_bytes(randomness::bytes());
            let wait = member.plan.relayed(chance);
            self.dial_in(node, wait);
        }
    }

    pub(super) fn dial(&mut self, node: NodeId) {
        let dialing = self
            .members
            .values()
            .filter(|member| member.dialing.is_some())
            .count();
        let is_linked = |node| self.is_linked(node);
        let places = self.hints.of(node, is_linked);
        let Some(socket) = &self.socket else {
            return;
        };
        let Some(member) = self.members.get_mut(&node) else {
            return;
        };
        if member.is_linked_directly() || member.dialing.is_some() || member.pinned.lives_twice {
            return;
        }
        let ways = DialWays {
            places,
            links: Arc::clone(&self.parts.table),
            may_relay: member.live.is_none(),
            plan: member.plan,
        };
        if ways.places.is_empty() && ways.relays(node).is_empty() {
            // Dialed when a hint comes, or a link to somebody who may relay.
            let nowhere = || failures::words_of_no_link(&NoLink::NoAddress);
            member.failure.get_or_insert_with(nowhere);
            return;
        }
        if dialing >= DIALS {
            if !self.turns.contains(&node) {
                self.turns.push_back(node);
            }
            return;
        }
        let (endpoint, mailbox) = (socket.endpoint.clone(), self.mailbox.clone());
        member.dialing = Some(dial(endpoint, node, ways, mailbox));
    }

    pub(super) fn dialed(&mut self, dialed: Dialed) {
        let node = dialed.node;
        for (place, found) in &dialed.answered {
            self.hints.answered(place, *found);
            if *found != node && !self.is_linked(*found) {
                self.dial_soon(*found);
            }
        }
        if let Some(member) = self.members.get_mut(&node) {
            member.dialing = None;
            match dialed.outcome {
                Ok(new) => self.linked(new),
                Err(why) => {
                    member.failure = Some(failures::words_of_no_link(&why));
                    member.refusal = failures::refusal_of_no_link(&why, member.refusal);
                    let kept_out = refuses_two_lives(&why);
                    if kept_out {
                        self.kept_out_by(node);
                    }
                    self.dial_later(node, kept_out);
                }
            }
        }
        if let Some(next) = self.turns.pop_front() {
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
        self.live.as_ref().is_some_and(LiveLink::is_direct)
    }
}

/// The ways on which a node may be reached.
#[derive(Debug)]
struct DialWays {
    /// Where it may be.
    places: Vec<String>,
    /// Who may pass on what is for it is among those that are linked once that is asked for.
    links: Arc<Snapshot<LinkTable>>,
    /// Whether others are asked at all.
    may_relay: bool,
    plan: DialPlan,
}

impl DialWays {
    fn relays(&self, node: NodeId) -> Vec<NodeId> {
        if !self.may_relay {
            return Vec::new();
        }
        let links = self.links.load();
        let able = links.links.iter().filter(|(other, _)| **other != node);
        let able = able.filter(|(_, peer)| peer.may_relay());
        self.plan.relays(able.map(|(other, _)| *other).collect())
    }
}

fn dial(
    endpoint: LinkEndpoint,
    node: NodeId,
    ways: DialWays,
    mailbox: Mailbox<LinksMsg>,
) -> SupervisedTask<()> {
    task::supervised("links.dial", async move {
        let dialed = task::caught("links.dial", race(&endpoint, node, ways)).await;
        let dialed = dialed.unwrap_or_else(|broken| Dialed {
            node,
            outcome: Err(NoLink::Unresolved(node.short(), broken.to_string())),
            answered: Vec::new(),
        });
        let _over = mailbox.remind(LinksMsg::Dialed(Box::new(dialed)));
    })
}

/// Others are asked to relay once the direct ways have had their time, or all have failed before.
async fn race(endpoint: &LinkEndpoint, node: NodeId, ways: DialWays) -> Dialed {
    let direct = race_places(endpoint, node, ways.places.clone());
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
            Either::Right((Some(link), _)) => return Dialed::through(link, Vec::new()),
        },
    };
    match linked {
        Some(link) => Dialed::through(link, tried.answered),
        None => tried,
    }
}

/// The first link that comes about through another node.
async fn race_relays(endpoint: &LinkEndpoint, node: NodeId, ways: &DialWays) -> Option<NewLink> {
    let relays = ways.relays(node).into_iter();
    let dials = relays.map(|relay| endpoint.dial_through(node, relay));
    let mut linked = stream::iter(dials)
        .buffer_unordered(RELAYS_AT_ONCE)
        .filter_map(|dialed| future::ready(dialed.ok()));
    linked.next().await
}

async fn race_places(endpoint: &LinkEndpoint, node: NodeId, places: Vec<String>) -> Dialed {
    let mut trying: FuturesUnordered<_> = (0u32..)
        .zip(places)
        .map(|(at, place)| async move {
            tokio::time::sleep(NEXT_PLACE * at).await;
            (endpoint.dial(node, &place).await, place)
        })
        .collect();
    let mut answered = Vec::new();
    let mut worst = NoLink::NoAddress;
    while let Some((tried, place)) = trying.next().await {
        match tried {
            Ok(link) => {
                answered.push((place, node));
                let outcome = Ok(link);
                return Dialed {
                    node,
                    outcome,
                    answered,
                };
            }
            Err(why) => {
                if let NoLink::Peer(PeerFault::OtherNode { found, .. }) = &why {
                    answered.push((place, *found));
                }
                if tells(&why) >= tells(&worst) {
                    worst = why;
                }
            }
        }
    }
    Dialed {
        node,
        outcome: Err(worst),
        answered,
    }
}

/// How much it says about the node itself.
fn tells(why: &NoLink) -> u8 {
    match why {
        NoLink::NoAddress | NoLink::RelayRefused { .. } | NoLink::RelaySilent { .. } => 0,
        NoLink::Unresolved(..) => 0,
        NoLink::Itself => 1,
        NoLink::Peer(PeerFault::OtherNode { .. }) => 2,
        NoLink::Unreachable(..) => 3,
        NoLink::Peer(PeerFault::NotPinned(_) | PeerFault::NoTicket | PeerFault::Certificate(_)) => {
            4
        }
        NoLink::NotTaken(_) | NoLink::NotEntered(_) | NoLink::TurnedAway => 5,
        NoLink::Version(_) => 6,
    }
}
