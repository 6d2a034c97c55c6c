//! The state of the pairing actor.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::cluster::pairing::{
    JoinNonce, LIVES_MS, PairingEnds, PairingRefusal, PairingSecret, PairingTicket, TicketStage,
    TicketTerms, TicketsOut,
};
use mgp_engine::node_key::{NodeKey, PublicKey};
use mgp_protocol::federation::assertion::LinkBinding;
use mgp_protocol::federation::hello::NodeName;
use mgp_protocol::federation::pairing::{PairingCommitted, TicketId, WordNonce};
use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::audit::{Actor, ActorKind, Event, EventType, Outcome, Target, TraceId};
use mgp_runtime::event_sink::EventSink;
use mgp_runtime::mailbox::{Mailbox, Reply};
use mgp_runtime::randomness;
use mgp_runtime::task::{self, SupervisedTask};
use mgp_runtime::time::unix_ms;
use mgp_store::audit::{AuditHandle, by_kernel, event};
use mgp_transports::quic::PairingLink;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::guests::{self, AskedOver, PairingDecision, WaitForDecision};
use super::joining::{CLOCKS_MS, JoinTask};
use super::{
    AdmitNode, AnsweredTicket, InviteTerms, Invited, JoinProgress, Joining, NodeAdmission,
    PairingEvent, PairingFailed, PairingMsg, PairingStart, TicketStatus, WaitingNode,
};
use crate::links::LinksHandle;

/// Longest that the kernel may take to write down who is let in.
const WRITING: Duration = Duration::from_secs(60);
/// Refusals of strangers that the audit log tells of, for each ticket that was put out: whoever goes on is not
/// to fill it.
const REFUSALS_TOLD: u32 = 16;

type ApproveReply = Reply<Result<(), PairingFailed>>;
type InviteReply = Reply<Result<Invited, PairingFailed>>;

/// The state of the actor.
pub struct PairingState {
    key: NodeKey,
    links: LinksHandle,
    events: EventSink<PairingEvent>,
    audit: AuditHandle,
    mailbox: Mailbox<PairingMsg>,
    tickets: TicketsOut,
    /// Where each ticket leads; of those that are out.
    places: BTreeMap<TicketId, Vec<String>>,
    /// Where each was shown from last.
    shown_from: BTreeMap<TicketId, SocketAddr>,
    /// One for each ticket.
    decisions: BTreeMap<TicketId, watch::Sender<PairingDecision>>,
    /// Who waits for a yes to be written down.
    approving: BTreeMap<TicketId, Vec<ApproveReply>>,
    /// As many as the transport lets in.
    guests: BTreeMap<u64, SupervisedTask<()>>,
    joining: Option<(u64, Joining, SupervisedTask<()>)>,
    alarm: Option<SupervisedTask<()>>,
    refusals: u32,
    numbers: u64,
}

impl PairingState {
    pub(super) fn new(start: PairingStart, mailbox: Mailbox<PairingMsg>) -> Self {
        Self {
            key: start.key,
            links: start.links,
            events: start.events,
            audit: start.audit,
            mailbox,
            tickets: TicketsOut::default(),
            places: BTreeMap::new(),
            shown_from: BTreeMap::new(),
            decisions: BTreeMap::new(),
            approving: BTreeMap::new(),
            guests: BTreeMap::new(),
            joining: None,
            alarm: None,
            refusals: 0,
            numbers: 0,
        }
    }

    /// Nobody learns a ticket before it is written down that it was made.
    pub(super) async fn invite(&mut self, terms: InviteTerms, reply: InviteReply) {
        let approved_before = terms.approved_before;
        let invited = match self.make_ticket(terms).await {
            Ok(invited) => invited,
            Err(failed) => return reply.send(Err(failed)),
        };
        let id = invited.id;
        let details = json!({"step": "invited", "ticket": id.to_string(), "approved_before": approved_before});
        let event = pairing_event(by_kernel(), Outcome::Success, details);
        let (audit, mailbox) = (self.audit.clone(), self.mailbox.clone());
        task::detached("pairing.invite", async move {
            if let Err(refused) = audit.decided(event).await {
                let end = |reply| PairingMsg::End(id, "it was not written down", reply);
                let _ = mailbox.ask(end).await;
                return reply.send(Err(refused.into()));
            }
            reply.send(Ok(invited));
        });
    }

    async fn make_ticket(&mut self, terms: InviteTerms) -> Result<Invited, PairingFailed> {
        if self.links.address().is_none() {
            return Err(PairingFailed::NotOpen);
        }
        let lives = terms.lives_for.map(|lives| lives.as_millis());
        let lives = lives.map_or(LIVES_MS, |lives| u64::try_from(lives).unwrap_or(u64::MAX));
        let secret = PairingSecret::with_nonces(&randomness::bytes());
        let ticket = PairingTicket {
            inviter: self.key.public().0,
            cluster: terms.cluster.0,
            secret: secret.clone(),
            expires_ms: unix_ms().saturating_add(lives),
            places: terms.addresses,
        };
        let expires_ms = ticket.expires_ms;
        let id = self.tickets.put(
            secret,
            TicketTerms {
                role: terms.role,
                approved_before: terms.approved_before,
                expires_ms,
            },
        )?;
        self.places.insert(id, ticket.places.clone());
        self.decisions.insert(id, watch::Sender::default());
        self.refusals = 0;
        if let Err(error) = self.links.set_pairing(true).await {
            self.end(id, "links are gone").await;
            return Err(error.into());
        }
        self.set_alarm();
        let ticket = ticket.text();
        Ok(Invited {
            ticket,
            id,
            expires_ms,
        })
    }

    pub(super) fn statuses(&self) -> Vec<TicketStatus> {
        let all = self.tickets.all().map(|(id, ticket)| TicketStatus {
            id,
            role: ticket.terms.role,
            approved_before: ticket.terms.approved_before,
            expires_ms: ticket.terms.expires_ms,
            places: self.places.get(&id).cloned().unwrap_or_default(),
            stage: ticket.stage.clone(),
        });
        all.collect()
    }

    pub(super) fn waiting(&self) -> Vec<WaitingNode> {
        let waiting = self
            .tickets
            .all()
            .filter_map(|(id, ticket)| match &ticket.stage {
                TicketStage::Waiting(who) => Some(WaitingNode {
                    id,
                    who: who.clone(),
                    role: ticket.terms.role,
                    from: self.shown_from.get(&id).copied(),
                    expires_ms: ticket.terms.expires_ms,
                }),
                TicketStage::Open | TicketStage::Admitting(_) | TicketStage::Admitted(_) => None,
            });
        waiting.collect()
    }

    pub(super) fn guest(&mut self, link: Box<PairingLink>) {
        self.numbers += 1;
        let (number, mailbox) = (self.numbers, self.mailbox.clone());
        let hosting = async move {
            let hosted = guests::host(*link, mailbox.clone());
            // A panic over what a stranger says ends its link, and nothing else.
            let _broken = task::caught("pairing.guest", hosted).await;
            let _ended = mailbox.remind(PairingMsg::Left(number));
        };
        let hosting = task::supervised("pairing.guest", hosting);
        self.guests.insert(number, hosting);
    }

    pub(super) async fn left(&mut self, number: u64) {
        self.guests.remove(&number);
        self.shut().await;
    }

    /// Without tickets nobody may ask. Who is there already is first told why.
    async fn shut(&mut self) {
        if self.tickets.is_empty() && self.guests.is_empty() {
            // Without links there is no door either.
            let _gone = self.links.set_pairing(false).await;
        }
    }

    /// Answers a node's commitment with this side's.
    pub(super) fn commit(&mut self, asked: AskedOver) -> Result<PairingCommitted, PairingRefusal> {
        let (id, by) = (asked.ask.ticket, by_node(&asked));
        let (request, fresh) = (asked.request(self.key.node()), randomness::bytes());
        let committed = self.tickets.commit(&request, WordNonce(fresh), unix_ms());
        committed.inspect_err(|refusal| self.note_refusal(id, by, refusal))
    }

    fn note_refusal(&mut self, id: TicketId, by: Actor, refusal: &PairingRefusal) {
        if self.refusals < REFUSALS_TOLD {
            self.refusals += 1;
            let details =
                json!({"step": "refused", "ticket": id.to_string(), "reason": refusal.to_string()});
            self.tell(by, Outcome::Denied, details);
        }
    }

    pub(super) fn shown(
        &mut self,
        asked: AskedOver,
    ) -> Result<(AnsweredTicket, WaitForDecision), PairingRefusal> {
        let (id, by, from) = (asked.ask.ticket, by_node(&asked), asked.from);
        let nonce = asked.nonce;
        let request = asked.request(self.key.node());
        let answered = match nonce {
            Some(nonce) => {
                let revealed = self.tickets.reveal(&request, &nonce, unix_ms());
                revealed.map(|(heard, own)| (heard, Some(own)))
            }
            None => self
                .tickets
                .asked(&request, unix_ms())
                .map(|heard| (heard, None)),
        };
        let (heard, nonce) = match answered {
            Ok(answered) => answered,
            Err(refusal) => {
                self.note_refusal(id, by, &refusal);
                return Err(refusal);
            }
        };
        self.shown_from.insert(id, from);
        let decided = self
            .decisions
            .get(&id)
            .ok_or(PairingRefusal::NoTicket)?
            .subscribe();
        if heard.is_new {
            let details = json!({"step": "asked", "ticket": id.to_string(), "approved_before": heard.approved});
            self.tell(by, Outcome::Success, details);
            let waiting = self.waiting().into_iter().find(|waiting| waiting.id == id);
            if let Some(waiting) = waiting.filter(|_| !heard.approved) {
                self.events.send(PairingEvent::Asked(waiting));
            }
        }
        if heard.approved {
            self.approve(id, None);
        }
        Ok((AnsweredTicket { heard, nonce }, decided))
    }

    /// Lets a node in: a person says so who looked at these words, or the ticket did before.
    pub(super) fn approve(&mut self, id: TicketId, by: Option<(String, ApproveReply)>) {
        let (words, reply) = by.unzip();
        let role = self.tickets.all().find(|(other, _)| *other == id);
        let role = role.map(|(_, ticket)| ticket.terms.role);
        let approved = self.tickets.approve(id, words.as_deref());
        let (node, role) = match (approved, role) {
            (Ok(Some(node)), Some(role)) => (node, role),
            (Ok(_), _) => {
                // It is being written down, or is already.
                match (self.approving.get_mut(&id), reply) {
                    (Some(others), Some(reply)) => others.push(reply),
                    (None, Some(reply)) => reply.send(Ok(())),
                    (_, None) => {}
                }
                return;
            }
            (Err(refusal), _) => {
                if let Some(reply) = reply {
                    reply.send(Err(refusal.into()));
                }
                return;
            }
        };
        self.approving.insert(id, reply.into_iter().collect());
        let admit = AdmitNode {
            node: node.node,
            key: PublicKey(node.key),
            name: node.name,
            role,
        };
        let (reply, written) = Reply::new();
        self.events.send(PairingEvent::Admit(admit, reply));
        let mailbox = self.mailbox.clone();
        task::detached("pairing.admit", async move {
            let written = tokio::time::timeout(WRITING, written).await;
            let outcome = match written {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(_)) | Err(_) => Err("it could not be written down here".to_owned()),
            };
            let _ended = mailbox.remind(PairingMsg::Written(id, outcome));
        });
    }

    pub(super) fn written(&mut self, id: TicketId, outcome: Result<NodeAdmission, String>) {
        self.tickets.written(id, outcome.is_ok());
        let (decision, answer) = match outcome {
            Ok(admission) => (
                PairingDecision::Yes(Arc::new(admission.book().parts())),
                Ok(()),
            ),
            Err(why) => (
                PairingDecision::No(why.clone()),
                Err(PairingFailed::NotAdmitted(why)),
            ),
        };
        if let Some(decisions) = self.decisions.get_mut(&id) {
            decisions.send_replace(decision);
            if answer.is_err() {
                // Whoever comes next is decided about anew.
                *decisions = watch::Sender::default();
            }
        }
        for reply in self.approving.remove(&id).unwrap_or_default() {
            reply.send(answer.clone());
        }
        self.set_alarm();
    }

    /// The ticket is good for nothing any more; who waits with it is told why.
    pub(super) async fn end(&mut self, id: TicketId, why: &str) -> bool {
        let Some(ticket) = self.tickets.end(id) else {
            return false;
        };
        self.forget(id);
        if let Some(decisions) = self.decisions.remove(&id) {
            let open = matches!(*decisions.borrow(), PairingDecision::Open);
            if open {
                decisions.send_replace(PairingDecision::No(why.to_owned()));
            }
        }
        let is_used = matches!(ticket.stage, TicketStage::Admitted(_));
        let step = if is_used { "used" } else { "ended" };
        let details = json!({"step": step, "ticket": id.to_string(), "reason": why});
        self.tell(by_kernel(), Outcome::Success, details);
        self.shut().await;
        true
    }

    fn forget(&mut self, id: TicketId) {
        self.places.remove(&id);
        self.shown_from.remove(&id);
    }

    pub(super) async fn delivered(&mut self, id: TicketId) {
        self.end(id, "its node is let in").await;
    }

    pub(super) async fn expire(&mut self) {
        self.alarm = None;
        let (gone, _) = self.tickets.expire(unix_ms());
        for id in gone {
            self.forget(id);
            if let Some(decisions) = self.decisions.remove(&id) {
                decisions.send_replace(PairingDecision::No("the ticket has expired".to_owned()));
            }
            let details = json!({"step": "expired", "ticket": id.to_string()});
            self.tell(by_kernel(), Outcome::Success, details);
        }
        self.shut().await;
        self.set_alarm();
    }

    /// One task sleeps until the next ticket's time is over. One that is over and being written down is looked
    /// at again when that is done.
    fn set_alarm(&mut self) {
        let now = unix_ms();
        let times = self.tickets.all().map(|(_, ticket)| match ticket.stage {
            TicketStage::Admitting(_) => u64::MAX,
            TicketStage::Open | TicketStage::Waiting(_) | TicketStage::Admitted(_) => {
                ticket.terms.expires_ms
            }
        });
        let Some(next) = times.min().filter(|next| *next < u64::MAX) else {
            self.alarm = None;
            return;
        };
        let (wait, mailbox) = (next.saturating_sub(now), self.mailbox.clone());
        self.alarm = Some(task::supervised("pairing.alarm", async move {
            tokio::time::sleep(Duration::from_millis(wait)).await;
            let _ended = mailbox.remind(PairingMsg::Expire);
        }));
    }

    pub(super) fn join(&mut self, text: &str, name: NodeName) -> Result<Joining, PairingFailed> {
        let ticket = PairingTicket::read(text)?;
        let (own, inviter) = (self.key.node(), NodeId::of_key(&ticket.inviter));
        if own == inviter {
            return Err(PairingFailed::Own);
        }
        if ticket.expires_ms.saturating_add(CLOCKS_MS) <= unix_ms() {
            return Err(PairingFailed::Expired);
        }
        if self.links.address().is_none() {
            return Err(PairingFailed::NotOpen);
        }
        let ends = PairingEnds {
            inviter,
            joiner: own,
            binding: LinkBinding([0; 32]),
        };
        let joining = Joining {
            inviter,
            name: name.clone(),
            expires_ms: ticket.expires_ms,
            // Of a maker that knows nonces the words are known once both are.
            words: (!ticket.secret.has_nonces()).then(|| ends.words(&name, &ticket.secret)),
            fixed_words: !ticket.secret.has_nonces(),
            progress: JoinProgress::Dialing(None),
        };
        self.numbers += 1;
        let number = self.numbers;
        let joins = JoinTask {
            number,
            own,
            ticket,
            name,
            nonce: JoinNonce::new(WordNonce(randomness::bytes())),
            links: self.links.clone(),
            events: self.events.clone(),
            mailbox: self.mailbox.clone(),
        };
        let joins = task::supervised("pairing.join", joins.run());
        self.joining = Some((number, joining.clone(), joins));
        Ok(joining)
    }

    pub(super) fn joining(&self) -> Option<Joining> {
        self.joining.as_ref().map(|(_, joining, _)| joining.clone())
    }

    pub(super) fn words(&mut self, number: u64, words: String) {
        if let Some((current, joining, _)) = &mut self.joining
            && *current == number
        {
            (joining.words, joining.fixed_words) = (Some(words), false);
        }
    }

    pub(super) fn progress(&mut self, number: u64, progress: JoinProgress) {
        if let Some((current, joining, _)) = &mut self.joining
            && *current == number
        {
            joining.progress = progress;
        }
    }

    fn tell(&self, by: Actor, outcome: Outcome, details: Value) {
        self.audit.tell(pairing_event(by, outcome, details));
    }
}

fn by_node(asked: &AskedOver) -> Actor {
    Actor {
        kind: ActorKind::Node,
        id: asked.node.to_string(),
    }
}

fn pairing_event(by: Actor, outcome: Outcome, details: Value) -> Event {
    let trace = TraceId::mint(randomness::bytes());
    event(
        EventType::NODE_PAIRING,
        by,
        Target::default(),
        &trace,
        outcome,
        details,
    )
}
