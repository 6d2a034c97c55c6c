//! The side of the node that has a ticket: dials until somebody there decides.

use std::time::Duration;

use mgp_engine::cluster::pairing::{PairingEnds, PairingTicket, is_proven};
use mgp_engine::node_key::PublicKey;
use mgp_engine::policy::grants::ClusterId;
use mgp_protocol::federation::hello::NodeName;
use mgp_protocol::federation::pairing::{
    PARTS_MAX, PairingAsk, PairingMessage, WelcomeBook, WelcomePart,
};
use mgp_protocol::ids::NodeId;
use mgp_runtime::event_sink::EventSink;
use mgp_runtime::mailbox::{Mailbox, Reply};
use mgp_runtime::time::unix_ms;
use mgp_transports::quic::{NoLink, PairingLink};

use super::guests::{heard, said};
use super::{JoinProgress, NodeAdmission, PairingEvent, PairingMsg};
use crate::links::LinksHandle;

/// Between one try and the next.
const AGAIN: Duration = Duration::from_secs(1);
/// How much later than by this clock a ticket may end: the inviter's clock counts, and may be behind.
pub(super) const CLOCKS_MS: u64 = 10 * 60 * 1000;

/// One joining.
pub(super) struct JoinTask {
    pub(super) number: u64,
    pub(super) own: NodeId,
    pub(super) ticket: PairingTicket,
    pub(super) name: NodeName,
    pub(super) links: LinksHandle,
    pub(super) events: EventSink<PairingEvent>,
    pub(super) mailbox: Mailbox<PairingMsg>,
}

/// Why one try came to nothing.
enum NotYet {
    /// The next one may come to something.
    Again(String),
    /// None will.
    Never(JoinProgress),
}

impl JoinTask {
    pub(super) async fn run(self) {
        let ends = self.ticket.expires_ms.saturating_add(CLOCKS_MS);
        while unix_ms() < ends {
            match self.attempt().await {
                Ok(admission) => return self.tell(JoinProgress::Admitted(Box::new(admission))),
                Err(NotYet::Never(progress)) => return self.tell(progress),
                Err(NotYet::Again(why)) => self.tell(JoinProgress::Dialing(Some(why))),
            }
            tokio::time::sleep(AGAIN).await;
        }
        self.tell(JoinProgress::Expired);
    }

    fn tell(&self, progress: JoinProgress) {
        let _ended = self
            .mailbox
            .remind(PairingMsg::Progress(self.number, progress));
    }

    async fn attempt(&self) -> Result<NodeAdmission, NotYet> {
        let mut link = self.dial().await?;
        let ends = PairingEnds {
            inviter: NodeId::of_key(&self.ticket.inviter),
            joiner: self.own,
            binding: link.binding(),
        };
        let secret = &self.ticket.secret;
        let ask = PairingMessage::Ask(PairingAsk {
            ticket: secret.id(),
            name: self.name.clone(),
            proof: ends.asking(secret),
        });
        if !said(&mut link, &ask).await {
            return Err(lost(&link));
        }
        match heard(&mut link).await {
            Some(PairingMessage::Heard(proof)) if is_proven(&proof, &ends.answering(secret)) => {}
            Some(PairingMessage::Refused(why)) => {
                return Err(NotYet::Never(JoinProgress::Refused(why)));
            }
            Some(
                PairingMessage::Heard(_)
                | PairingMessage::Ask(_)
                | PairingMessage::Part(_)
                | PairingMessage::Taken,
            ) => {
                let why = "the other side does not know the ticket's secret".to_owned();
                return Err(NotYet::Never(JoinProgress::Refused(why)));
            }
            None => return Err(lost(&link)),
        }
        self.tell(JoinProgress::Waiting);
        let admission = self.welcome(&mut link).await?;
        let (reply, kept) = Reply::new();
        self.events
            .send(PairingEvent::Joined(admission.clone(), reply));
        match kept.await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return Err(NotYet::Never(JoinProgress::Failed(why))),
            Err(_ended) => {
                let why = "the kernel ended meanwhile".to_owned();
                return Err(NotYet::Never(JoinProgress::Failed(why)));
            }
        }
        self.links.found_at(ends.inviter, link.address());
        // Lost, the ticket stays out until its time is over, and is of use to nobody else.
        let _told = said(&mut link, &PairingMessage::Taken).await;
        link.finish().await;
        Ok(admission)
    }

    async fn dial(&self) -> Result<PairingLink, NotYet> {
        let inviter = NodeId::of_key(&self.ticket.inviter);
        let endpoint = self.links.endpoint();
        let closed = || NotYet::Again("links to other nodes are not open here".to_owned());
        let endpoint = endpoint.ok_or_else(closed)?;
        let mut last =
            NoLink::Unresolved(inviter.short(), "the ticket names no address".to_owned());
        for place in &self.ticket.places {
            match endpoint.dial_pairing(inviter, place).await {
                Ok(link) => return Ok(link),
                Err(NoLink::TurnedAway) => return Err(turned_away()),
                Err(why) => last = why,
            }
        }
        Err(NotYet::Again(last.to_string()))
    }

    /// What the other side gives, once a person there has decided.
    async fn welcome(&self, link: &mut PairingLink) -> Result<NodeAdmission, NotYet> {
        let never = |why: &str| NotYet::Never(JoinProgress::Refused(why.to_owned()));
        let mut bytes = Vec::new();
        loop {
            match heard(link).await {
                Some(PairingMessage::Part(WelcomePart { bytes: part, more })) => {
                    bytes.extend(part);
                    if bytes.len() > PARTS_MAX {
                        return Err(never("the other side sends more than it may"));
                    }
                    if !more {
                        break;
                    }
                }
                Some(PairingMessage::Refused(why)) => {
                    return Err(NotYet::Never(JoinProgress::Refused(why)));
                }
                Some(PairingMessage::Ask(_) | PairingMessage::Heard(_) | PairingMessage::Taken) => {
                    return Err(never("the other side sends what cannot be read"));
                }
                None => return Err(NotYet::Again("nobody there has decided yet".to_owned())),
            }
        }
        let book = WelcomeBook::decode(&bytes);
        let book = book.map_err(|_| never("the other side sends what cannot be read"))?;
        let (cluster, inviter) = (
            ClusterId(self.ticket.cluster),
            PublicKey(self.ticket.inviter),
        );
        let admission = NodeAdmission::of(book, cluster, inviter);
        admission.ok_or_else(|| {
            never("the other side lets it into another cluster than the ticket said")
        })
    }
}

/// Why nothing more is heard.
fn lost(link: &PairingLink) -> NotYet {
    match link.is_turned_away() {
        true => turned_away(),
        false => NotYet::Again("the link was lost".to_owned()),
    }
}

fn turned_away() -> NotYet {
    let why = "the other side takes no ticket now: this one was used or withdrawn, its time is over, or the kernel there was started again; ask for another one";
    NotYet::Never(JoinProgress::Refused(why.to_owned()))
}
