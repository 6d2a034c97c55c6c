//! The side of the node that has a ticket: dials until somebody there decides.

use std::time::Duration;

use mgp_engine::cluster::pairing::{
    JoinNonce, PairingEnds, PairingSide, PairingTicket, Unrevealed, is_proven,
};
use mgp_engine::node_key::PublicKey;
use mgp_engine::policy::grants::ClusterId;
use mgp_protocol::federation::hello::NodeName;
use mgp_protocol::federation::pairing::{
    PARTS_MAX, PairingAsk, PairingMessage, WelcomeBook, WelcomePart, WordCommitment, WordNonce,
    WordNonces,
};
use mgp_protocol::ids::NodeId;
use mgp_runtime::event_sink::EventSink;
use mgp_runtime::mailbox::{Mailbox, Reply};
use mgp_runtime::randomness;
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
    pub(super) nonce: JoinNonce,
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
    pub(super) async fn run(mut self) {
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

    async fn attempt(&mut self) -> Result<NodeAdmission, NotYet> {
        let mut link = self.dial().await?;
        let ends = PairingEnds {
            inviter: NodeId::of_key(&self.ticket.inviter),
            joiner: self.own,
            binding: link.binding(),
        };
        self.show_ticket(&mut link, &ends).await?;
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

    /// Shows the ticket, and makes the words with the other side where it knows nonces.
    async fn show_ticket(
        &mut self,
        link: &mut PairingLink,
        ends: &PairingEnds,
    ) -> Result<(), NotYet> {
        let secret = &self.ticket.secret;
        let (side, nonce) = (PairingSide::Joiner, self.nonce.nonce());
        let ask = PairingMessage::Ask(PairingAsk {
            ticket: secret.id(),
            name: self.name.clone(),
            proof: ends.asking(secret),
            commitment: Some(ends.commitment(side, &self.name, nonce, secret)),
        });
        if !said(link, &ask).await {
            return Err(lost(link));
        }
        let expected = ends.answering(secret);
        match heard(link).await {
            Some(PairingMessage::Committed(theirs)) if is_proven(&theirs.proof, &expected) => {
                self.exchange(link, ends, &theirs.commitment).await
            }
            Some(PairingMessage::Heard(proof)) if is_proven(&proof, &expected) => {
                match secret.has_nonces() {
                    true => Err(never(
                        "the other side answers like an older version, and the ticket is of a newer one: \
                         somebody may be trying to choose the words; ask for another ticket",
                    )),
                    false => Ok(()),
                }
            }
            Some(PairingMessage::Refused(why)) => Err(never(&why)),
            Some(
                PairingMessage::Heard(_)
                | PairingMessage::Committed(_)
                | PairingMessage::Reveal(_)
                | PairingMessage::Ask(_)
                | PairingMessage::Part(_)
                | PairingMessage::Taken,
            ) => Err(never("the other side does not know the ticket's secret")),
            None => Err(lost(link)),
        }
    }

    /// Reveals the nonce of this side to this commitment, reads the other one, and shows the words.
    async fn exchange(
        &mut self,
        link: &mut PairingLink,
        ends: &PairingEnds,
        theirs: &WordCommitment,
    ) -> Result<(), NotYet> {
        let own = match self.nonce.reveal(theirs, WordNonce(randomness::bytes())) {
            Ok(own) => own,
            Err(Unrevealed::Redrawn) => {
                return Err(NotYet::Again("the words are made anew".to_owned()));
            }
            Err(Unrevealed::TooOften) => {
                return Err(never("the other side changes the words again and again"));
            }
        };
        if !said(link, &PairingMessage::Reveal(own)).await {
            return Err(lost(link));
        }
        let (name, secret) = (&self.name, &self.ticket.secret);
        match heard(link).await {
            Some(PairingMessage::Reveal(inviter))
                if ends.commitment(PairingSide::Inviter, name, &inviter, secret) == *theirs =>
            {
                let nonces = WordNonces {
                    inviter,
                    joiner: own,
                };
                let words = ends.words_with_nonces(name, secret, &nonces);
                let _ended = self.mailbox.remind(PairingMsg::Words(self.number, words));
                Ok(())
            }
            Some(PairingMessage::Refused(why)) => Err(never(&why)),
            Some(
                PairingMessage::Reveal(_)
                | PairingMessage::Heard(_)
                | PairingMessage::Committed(_)
                | PairingMessage::Ask(_)
                | PairingMessage::Part(_)
                | PairingMessage::Taken,
            ) => Err(never("the other side reveals what it did not commit to")),
            None => Err(lost(link)),
        }
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
                Some(
                    PairingMessage::Ask(_)
                    | PairingMessage::Heard(_)
                    | PairingMessage::Committed(_)
                    | PairingMessage::Reveal(_)
                    | PairingMessage::Taken,
                ) => {
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

fn never(why: &str) -> NotYet {
    NotYet::Never(JoinProgress::Refused(why.to_owned()))
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
