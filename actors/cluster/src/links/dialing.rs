//! When a node is dialed, and one dial: all places where it may be, one shortly after the other, until one answers.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use mgp_engine::cluster::link_plan::DialPlan;
use mgp_protocol::ids::NodeId;
use mgp_runtime::mailbox::Mailbox;
use mgp_runtime::randomness;
use mgp_runtime::task::{self, SupervisedTask};
use mgp_runtime::time::moment;
use mgp_transports::quic::{LinkEndpoint, LinkGone, NewLink, NoLink, PeerFault};

use super::alarms::Due;
use super::keeping_out::{refuses_two_lives, says_two_lives};
use super::state::LinksState;
use super::{LinksMsg, failures};

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
        let wait = match kept_out {
            true => member.plan.kept_out(chance),
            false => member.plan.failed(chance),
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
        if member.live.is_none() && member.dialing.is_none() && sooner {
            member.due = Some(at);
            self.alarms.set(at, Due::Dial(node));
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
        if member.live.is_some() || member.dialing.is_some() || member.pinned.lives_twice {
            return;
        }
        if places.is_empty() {
            // Dialed when a hint comes.
            let nowhere = "no address of it is known: name it under [cluster] peers, or turn `mgp lan on` on both sides";
            member.failure.get_or_insert_with(|| nowhere.to_owned());
            return;
        }
        if dialing >= DIALS {
            if !self.turns.contains(&node) {
                self.turns.push_back(node);
            }
            return;
        }
        let (endpoint, mailbox) = (socket.endpoint.clone(), self.mailbox.clone());
        member.dialing = Some(dial(endpoint, node, places, mailbox));
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
        member.is_some_and(|member| member.live.is_some())
    }
}

fn dial(
    endpoint: LinkEndpoint,
    node: NodeId,
    places: Vec<String>,
    mailbox: Mailbox<LinksMsg>,
) -> SupervisedTask<()> {
    task::supervised("links.dial", async move {
        let dialed = task::caught("links.dial", race(&endpoint, node, places)).await;
        let dialed = dialed.unwrap_or_else(|broken| Dialed {
            node,
            outcome: Err(NoLink::Unresolved(node.short(), broken.to_string())),
            answered: Vec::new(),
        });
        let _over = mailbox.remind(LinksMsg::Dialed(Box::new(dialed)));
    })
}

async fn race(endpoint: &LinkEndpoint, node: NodeId, places: Vec<String>) -> Dialed {
    let mut trying: FuturesUnordered<_> = (0u32..)
        .zip(places)
        .map(|(at, place)| async move {
            tokio::time::sleep(NEXT_PLACE * at).await;
            (endpoint.dial(node, &place).await, place)
        })
        .collect();
    let mut answered = Vec::new();
    let mut worst = NoLink::Unresolved(node.short(), "no address of it is known".to_owned());
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
