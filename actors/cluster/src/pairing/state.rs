//! The state of the pairing actor.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::cluster::pairing::{
    JoinNonce, LIFETIME_MS, OpenTickets, PairingEnds, PairingRejection, PairingSecret,
    PairingTicket, TicketStage, TicketTerms,
};
use mgp_engine::node_key::{NodeKey, PublicKey};
use mgp_protocol::federation::assertion::LinkBinding;
use mgp_protocol::federation::hello::NodeName;
use mgp_protocol::federation::pairing::{PairingCommitted, TicketId, WordNonce};
use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::audit::{Actor, ActorKind, Event, EventType, Outcome, Target, TraceId};
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::time::unix_ms;
use mgp_runtime::{EventSink, Mailbox, Reply, randomness, task};
use mgp_store::audit::{AuditHandle, kernel_actor, new_event};
use mgp_transports::quic::PairingLink;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::guests::{self, DecisionReceiver, PairingDecision, TicketRequest};
use super::joining::{CLOCK_SKEW_MS, JoinTask};
use super::{
    AdmissionRequest, Invitation, InviteOptions, JoinProgress, Joining, NodeAdmission,
    PairingActionError, PairingEvent, PairingMsg, PairingStart, PendingNode, TicketAnswer,
    TicketStatus,
};
use crate::links::LinksHandle;

/// Longest that the kernel may take to write down who is admitted.
const ADMISSION_TIMEOUT: Duration = Duration::from_secs(60);
/// Refusals of strangers that the audit log tells of, for each ticket that was put out: whoever goes on is not
/// to fill it.
const LOGGED_REFUSALS: u32 = 16;

type ApproveReply = Reply<Result<(), PairingActionError>>;
type InviteReply = Reply<Result<Invitation, PairingActionError>>;

/// The state of the actor.
pub struct PairingState {
    key: NodeKey,
    links: LinksHandle,
    events: EventSink<PairingEvent>,
    pending_changed: EventSink<()>,
    /// The nodes that waited when that was last sent.
    last_pending: Vec<PendingNode>,
    audit: AuditHandle,
    mailbox: Mailbox<PairingMsg>,
    tickets: OpenTickets,
    /// Where each ticket leads; of those that are out.
    addresses: BTreeMap<TicketId, Vec<String>>,
    /// Where each was shown from last.
    last_shown_from: BTreeMap<TicketId, SocketAddr>,
    /// One for each ticket.
    decisions: BTreeMap<TicketId, watch::Sender<PairingDecision>>,
    /// Who waits for an approval to be written down.
    approving: BTreeMap<TicketId, Vec<ApproveReply>>,
    /// As many as the transport admits.
    guests: BTreeMap<u64, SupervisedTask<()>>,
    joining: Option<(u64, Joining, SupervisedTask<()>)>,
    expiry_timer: Option<SupervisedTask<()>>,
    refusals: u32,
    last_number: u64,
}

impl PairingState {
    pub(super) fn new(start: PairingStart, mailbox: Mailbox<PairingMsg>) -> Self {
        Self {
            key: start.key,
            links: start.links,
            events: start.events,
            pending_changed: start.pending_changed,
            last_pending: Vec::new(),
            audit: start.audit,
            mailbox,
            tickets: OpenTickets::default(),
            addresses: BTreeMap::new(),
            last_shown_from: BTreeMap::new(),
            decisions: BTreeMap::new(),
            approving: BTreeMap::new(),
            guests: BTreeMap::new(),
            joining: None,
            expiry_timer: None,
            refusals: 0,
            last_number: 0,
        }
    }

    /// Nobody learns a ticket before it is written down that it was made.
    pub(super) async fn invite(&mut self, terms: InviteOptions, reply: InviteReply) {
        let approved_before = terms.is_preapproved;
        let invited = match self.make_ticket(terms).await {
            Ok(invited) => invited,
            Err(failed) => return reply.send(Err(failed)),
        };
        let id = invited.id;
        let details = json!({"step": "invited", "ticket": id.to_string(), "approved_before": approved_before});
        let event = pairing_event(kernel_actor(), Outcome::Success, details);
        let (audit, mailbox) = (self.audit.clone(), self.mailbox.clone());
        task::spawn_detached("pairing.invite", async move {
            if let Err(refused) = audit.record_decision(event).await {
                let end = |reply| PairingMsg::EndTicket(id, "it was not written down", reply);
                let _ = mailbox.ask(end).await;
                return reply.send(Err(refused.into()));
            }
            reply.send(Ok(invited));
        });
    }

    async fn make_ticket(
        &mut self,
        terms: InviteOptions,
    ) -> Result<Invitation, PairingActionError> {
        if self.links.address().is_none() {
            return Err(PairingActionError::NotOpen);
        }
        let lives = terms.ttl.map(|lives| lives.as_millis());
        let lives = lives.map_or(LIFETIME_MS, |lives| {
            u64::try_from(lives).unwrap_or(u64::MAX)
        });
        let secret = PairingSecret::with_nonces(&randomness::random_bytes());
        let ticket = PairingTicket {
            inviter: self.key.public_key().0,
            cluster: terms.cluster.0,
            secret: secret.clone(),
            expires_ms: unix_ms().saturating_add(lives),
            addresses: terms.addresses,
        };
        let expires_ms = ticket.expires_ms;
        let id = self.tickets.add(
            secret,
            TicketTerms {
                role: terms.role,
                preapproved: terms.is_preapproved,
                expires_ms,
            },
        )?;
        self.addresses.insert(id, ticket.addresses.clone());
        self.decisions.insert(id, watch::Sender::default());
        self.refusals = 0;
        if let Err(error) = self.links.set_pairing(true).await {
            self.end_ticket(id, "links are gone").await;
            return Err(error.into());
        }
        self.set_alarm();
        let ticket = ticket.render();
        Ok(Invitation {
            ticket,
            id,
            expires_ms,
        })
    }

    pub(super) fn list_tickets(&self) -> Vec<TicketStatus> {
        let all = self.tickets.iter().map(|(id, ticket)| TicketStatus {
            id,
            role: ticket.terms.role,
            is_preapproved: ticket.terms.preapproved,
            expires_ms: ticket.terms.expires_ms,
            addresses: self.addresses.get(&id).cloned().unwrap_or_default(),
            stage: ticket.stage.clone(),
        });
        all.collect()
    }

    pub(super) fn pending_nodes(&self) -> Vec<PendingNode> {
        let waiting = self
            .tickets
            .iter()
            .filter_map(|(id, ticket)| match &ticket.stage {
                TicketStage::Waiting(who) => Some(PendingNode {
                    id,
                    node: who.clone(),
                    role: ticket.terms.role,
                    address: self.last_shown_from.get(&id).copied(),
                    expires_ms: ticket.terms.expires_ms,
                }),
                TicketStage::Open | TicketStage::Admitting(_) | TicketStage::Admitted(_) => None,
            });
        waiting.collect()
    }

    /// Whatever was handled: one comparison cannot miss a way in which a node comes or goes.
    pub(super) fn notify_if_pending_changed(&mut self) {
        let pending = self.pending_nodes();
        if pending != self.last_pending {
            self.last_pending = pending;
            self.pending_changed.send(());
        }
    }

    pub(super) fn add_guest(&mut self, link: Box<PairingLink>) {
        self.last_number += 1;
        let (number, mailbox) = (self.last_number, self.mailbox.clone());
        let hosting = async move {
            let hosted = guests::serve_guest(*link, mailbox.clone());
            // A panic over what a stranger says ends its link, and nothing else.
            let _broken = task::catch_panic("pairing.guest", hosted).await;
            let _ended = mailbox.send_to_self(PairingMsg::GuestGone(number));
        };
        let hosting = task::spawn_supervised("pairing.guest", hosting);
        self.guests.insert(number, hosting);
    }

    pub(super) async fn remove_guest(&mut self, number: u64) {
        self.guests.remove(&number);
        self.close_if_no_tickets().await;
    }

    /// Without tickets nobody may ask. Who is there already is first told why.
    async fn close_if_no_tickets(&mut self) {
        if self.tickets.is_empty() && self.guests.is_empty() {
            // Without links there is no door either.
            let _gone = self.links.set_pairing(false).await;
        }
    }

    /// Answers a node's commitment with this side's.
    pub(super) fn answer_commitment(
        &mut self,
        asked: TicketRequest,
    ) -> Result<PairingCommitted, PairingRejection> {
        let (id, by) = (asked.request.ticket, node_actor(&asked));
        let (request, fresh) = (
            asked.into_request(self.key.node_id()),
            randomness::random_bytes(),
        );
        let committed = self.tickets.commit(&request, WordNonce(fresh), unix_ms());
        committed.inspect_err(|refusal| self.record_refusal(id, by, refusal))
    }

    fn record_refusal(&mut self, id: TicketId, by: Actor, refusal: &PairingRejection) {
        if self.refusals < LOGGED_REFUSALS {
            self.refusals += 1;
            let details =
                json!({"step": "refused", "ticket": id.to_string(), "reason": refusal.to_string()});
            self.record_event(by, Outcome::Denied, details);
        }
    }

    pub(super) fn show_ticket(
        &mut self,
        asked: TicketRequest,
    ) -> Result<(TicketAnswer, DecisionReceiver), PairingRejection> {
        let (id, by, from) = (asked.request.ticket, node_actor(&asked), asked.address);
        let nonce = asked.nonce;
        let request = asked.into_request(self.key.node_id());
        let answered = match nonce {
            Some(nonce) => {
                let revealed = self.tickets.reveal(&request, &nonce, unix_ms());
                revealed.map(|(heard, own)| (heard, Some(own)))
            }
            None => self
                .tickets
                .request_without_nonces(&request, unix_ms())
                .map(|heard| (heard, None)),
        };
        let (heard, nonce) = match answered {
            Ok(answered) => answered,
            Err(refusal) => {
                self.record_refusal(id, by, &refusal);
                return Err(refusal);
            }
        };
        self.last_shown_from.insert(id, from);
        let decided = self
            .decisions
            .get(&id)
            .ok_or(PairingRejection::NoTicket)?
            .subscribe();
        if heard.is_new {
            let details = json!({"step": "asked", "ticket": id.to_string(), "approved_before": heard.approved});
            self.record_event(by, Outcome::Success, details);
            let waiting = self
                .pending_nodes()
                .into_iter()
                .find(|waiting| waiting.id == id);
            if let Some(waiting) = waiting.filter(|_| !heard.approved) {
                self.events.send(PairingEvent::ApprovalRequested(waiting));
            }
        }
        if heard.approved {
            self.approve(id, None);
        }
        Ok((
            TicketAnswer {
                reply: heard,
                nonce,
            },
            decided,
        ))
    }

    /// Lets a node in: a person says so who looked at these words, or the ticket did before.
    pub(super) fn approve(&mut self, id: TicketId, by: Option<(String, ApproveReply)>) {
        let (words, reply) = by.unzip();
        let role = self.tickets.iter().find(|(other, _)| *other == id);
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
        let admit = AdmissionRequest {
            node: node.node,
            key: PublicKey(node.key),
            name: node.name,
            role,
        };
        let (reply, written) = Reply::new();
        self.events.send(PairingEvent::Admit(admit, reply));
        let mailbox = self.mailbox.clone();
        task::spawn_detached("pairing.admit", async move {
            let written = tokio::time::timeout(ADMISSION_TIMEOUT, written).await;
            let outcome = match written {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(_)) | Err(_) => Err("it could not be written down here".to_owned()),
            };
            let _ended = mailbox.send_to_self(PairingMsg::AdmissionRecorded(id, outcome));
        });
    }

    pub(super) fn handle_admission(
        &mut self,
        id: TicketId,
        outcome: Result<NodeAdmission, String>,
    ) {
        self.tickets.finish_admission(id, outcome.is_ok());
        let (decision, answer) = match outcome {
            Ok(admission) => (
                PairingDecision::Approved(Arc::new(admission.to_welcome_book().to_parts())),
                Ok(()),
            ),
            Err(why) => (
                PairingDecision::Denied(why.clone()),
                Err(PairingActionError::NotAdmitted(why)),
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
    pub(super) async fn end_ticket(&mut self, id: TicketId, why: &str) -> bool {
        let Some(ticket) = self.tickets.remove(id) else {
            return false;
        };
        self.forget(id);
        if let Some(decisions) = self.decisions.remove(&id) {
            let open = matches!(*decisions.borrow(), PairingDecision::Pending);
            if open {
                decisions.send_replace(PairingDecision::Denied(why.to_owned()));
            }
        }
        let is_used = matches!(ticket.stage, TicketStage::Admitted(_));
        let step = if is_used { "used" } else { "ended" };
        let details = json!({"step": step, "ticket": id.to_string(), "reason": why});
        self.record_event(kernel_actor(), Outcome::Success, details);
        self.close_if_no_tickets().await;
        true
    }

    fn forget(&mut self, id: TicketId) {
        self.addresses.remove(&id);
        self.last_shown_from.remove(&id);
    }

    pub(super) async fn confirm_delivery(&mut self, id: TicketId) {
        self.end_ticket(id, "its node is let in").await;
    }

    pub(super) async fn expire(&mut self) {
        self.expiry_timer = None;
        let (gone, _) = self.tickets.expire(unix_ms());
        for id in gone {
            self.forget(id);
            if let Some(decisions) = self.decisions.remove(&id) {
                decisions
                    .send_replace(PairingDecision::Denied("the ticket has expired".to_owned()));
            }
            let details = json!({"step": "expired", "ticket": id.to_string()});
            self.record_event(kernel_actor(), Outcome::Success, details);
        }
        self.close_if_no_tickets().await;
        self.set_alarm();
    }

    /// One task sleeps until the next ticket's time is over. One that is over and being written down is looked
    /// at again when that is done.
    fn set_alarm(&mut self) {
        let now = unix_ms();
        let times = self.tickets.iter().map(|(_, ticket)| match ticket.stage {
            TicketStage::Admitting(_) => u64::MAX,
            TicketStage::Open | TicketStage::Waiting(_) | TicketStage::Admitted(_) => {
                ticket.terms.expires_ms
            }
        });
        let Some(next) = times.min().filter(|next| *next < u64::MAX) else {
            self.expiry_timer = None;
            return;
        };
        let (wait, mailbox) = (next.saturating_sub(now), self.mailbox.clone());
        self.expiry_timer = Some(task::spawn_supervised("pairing.alarm", async move {
            tokio::time::sleep(Duration::from_millis(wait)).await;
            let _ended = mailbox.send_to_self(PairingMsg::Expire);
        }));
    }

    pub(super) fn join(
        &mut self,
        text: &str,
        name: NodeName,
    ) -> Result<Joining, PairingActionError> {
        let ticket = PairingTicket::parse(text)?;
        let (own, inviter) = (self.key.node_id(), NodeId::from_key(&ticket.inviter));
        if own == inviter {
            return Err(PairingActionError::OwnTicket);
        }
        if ticket.expires_ms.saturating_add(CLOCK_SKEW_MS) <= unix_ms() {
            return Err(PairingActionError::Expired);
        }
        if self.links.address().is_none() {
            return Err(PairingActionError::NotOpen);
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
            has_weak_words: !ticket.secret.has_nonces(),
            progress: JoinProgress::Dialing(None),
        };
        self.last_number += 1;
        let number = self.last_number;
        let joins = JoinTask {
            number,
            node: own,
            ticket,
            name,
            nonce: JoinNonce::new(WordNonce(randomness::random_bytes())),
            links: self.links.clone(),
            events: self.events.clone(),
            mailbox: self.mailbox.clone(),
        };
        let joins = task::spawn_supervised("pairing.join", joins.run());
        self.joining = Some((number, joining.clone(), joins));
        Ok(joining)
    }

    pub(super) fn joining(&self) -> Option<Joining> {
        self.joining.as_ref().map(|(_, joining, _)| joining.clone())
    }

    pub(super) fn set_words(&mut self, number: u64, words: String) {
        if let Some((current, joining, _)) = &mut self.joining
            && *current == number
        {
            (joining.words, joining.has_weak_words) = (Some(words), false);
        }
    }

    pub(super) fn set_progress(&mut self, number: u64, progress: JoinProgress) {
        if let Some((current, joining, _)) = &mut self.joining
            && *current == number
        {
            joining.progress = progress;
        }
    }

    fn record_event(&self, by: Actor, outcome: Outcome, details: Value) {
        self.audit.record(pairing_event(by, outcome, details));
    }
}

fn node_actor(asked: &TicketRequest) -> Actor {
    Actor {
        kind: ActorKind::Node,
        id: asked.node.to_string(),
    }
}

fn pairing_event(by: Actor, outcome: Outcome, details: Value) -> Event {
    let trace = TraceId::from_random(randomness::random_bytes());
    new_event(
        EventType::NODE_PAIRING,
        by,
        Target::default(),
        &trace,
        outcome,
        details,
    )
}
