//! One dial: all places where a node may be, one shortly after the other, until one answers.

use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use mgp_protocol::ids::NodeId;
use mgp_runtime::mailbox::Mailbox;
use mgp_runtime::task::{self, SupervisedTask};
use mgp_transports::quic::{LinkEndpoint, NewLink, NoLink, PeerFault};

use super::LinksMsg;

/// Dials under way: each is a handshake and up to eight sockets' worth of packets; a thousand nodes that are
/// away are tried in turn.
pub(super) const DIALS: usize = 16;
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

pub(super) fn dial(
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
