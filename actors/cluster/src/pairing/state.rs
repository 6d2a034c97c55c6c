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

use super::inviting::{self, DecisionReceiver, PairingDecision, TicketRequest};
use super::joining::{CLOCK_SKEW_MS, JoinTask};
use super::{
    AdmissionRequest, Invitation, InviteOptions, JoinProgress, Joining, NodeAdmission,
    PairingActionError, PairingEvent, PairingMsg, PairingStart, PendingNode, TicketAnswer,
    TicketStatus,
};
use crate::links::LinksHandle;

/// How long the kernel may take to persist an admission.
const ADMISSION_TIMEOUT: Duration = Duration::from_secs(60);
/// Rejections of unknown nodes that are recorded in the audit log, for each created ticket: repeated
/// attempts must not fill it.
const LOGGED_REFUSALS: u32 = 16;

type ApproveReply = Reply<Result<(), PairingActionError>>;
type InviteReply = Reply<Result<Invitation, PairingActionError>>;

/// The state of the actor.
pub struct PairingState {
    key: NodeKey,
    links: LinksHandle,
    events: EventSink<PairingEvent>,
    pending_changed: EventSink<()>,
    /// The waiting nodes at the last notification.
    last_pending: Vec<PendingNode>,
    audit: AuditHandle,
    mailbox: Mailbox<PairingMsg>,
    tickets: OpenTickets,
    /// The addresses in each open ticket.
    addresses: BTreeMap<TicketId, Vec<String>>,
    /// The address from which each ticket was last shown.
    last_shown_from: BTreeMap<TicketId, SocketAddr>,
    /// The decision about each ticket.
    decisions: BTreeMap<TicketId, watch::Sender<PairingDecision>>,
    /// The callers that wait for an approval to be persisted.
    approving: BTreeMap<TicketId, Vec<ApproveReply>>,
    /// The tasks of connected nodes; bounded by the transport.
    connected_nodes: BTreeMap<u64, SupervisedTask<()>>,
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
            connected_nodes: BTreeMap::new(),
            joining: None,
            expiry_timer: None,
            refusals: 0,
            last_number: 0,
        }
    }

    /// Creates a ticket. Its creation is recorded before the ticket is returned.
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
        let ttl = terms.ttl.map(|ttl| ttl.as_millis());
        let ttl = ttl.map_or(LIFETIME_MS, |ttl| u64::try_from(ttl).unwrap_or(u64::MAX));
        let secret = PairingSecret::with_nonces(&randomness::random_bytes());
        let ticket = PairingTicket {
            inviter: self.key.public_key().0,
            cluster: terms.cluster.0,
            secret: secret.clone(),
            expires_ms: unix_ms().saturating_add(ttl),
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

    /// Notifies if the waiting nodes changed. Called after every message: one comparison covers all ways in
    /// which a node comes or goes.
    pub(super) fn notify_if_pending_changed(&mut self) {
        let pending = self.pending_nodes();
        if pending != self.last_pending {
            self.last_pending = pending;
            self.pending_changed.send(());
        }
    }

    pub(super) fn add_node(&mut self, link: Box<PairingLink>) {
        self.last_number += 1;
        let (number, mailbox) = (self.last_number, self.mailbox.clone());
        let hosting = async move {
            let hosted = inviting::serve_node(*link, mailbox.clone());
            // A panic over an unknown node's message ends its link, and nothing else.
            let _broken = task::catch_panic("pairing.guest", hosted).await;
            let _ended = mailbox.send_to_self(PairingMsg::NodeGone(number));
        };
        let hosting = task::spawn_supervised("pairing.guest", hosting);
        self.connected_nodes.insert(number, hosting);
    }

    pub(super) async fn remove_node(&mut self, number: u64) {
        self.connected_nodes.remove(&number);
        self.close_if_no_tickets().await;
    }

    /// Forbids pairing requests when there are no tickets. Connected nodes are first notified of the
    /// reason.
    async fn close_if_no_tickets(&mut self) {
        if self.tickets.is_empty() && self.connected_nodes.is_empty() {
            // Without links there is no listener either.
            let _gone = self.links.set_pairing(false).await;
        }
    }

    /// Answers a node's commitment with this side's.
    pub(super) fn answer_commitment(
        &mut self,
        request: TicketRequest,
    ) -> Result<PairingCommitted, PairingRejection> {
        let (id, by) = (request.request.ticket, node_actor(&request));
        let (request, fresh) = (
            request.into_request(self.key.node_id()),
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
        request: TicketRequest,
    ) -> Result<(TicketAnswer, DecisionReceiver), PairingRejection> {
        let (id, by, from) = (
            request.request.ticket,
            node_actor(&request),
            request.address,
        );
        let nonce = request.nonce;
        let request = request.into_request(self.key.node_id());
        let answered = match nonce {
            Some(nonce) => {
                let revealed = self.tickets.reveal(&request, &nonce, unix_ms());
                revealed.map(|(response, local_nonce)| (response, Some(local_nonce)))
            }
            None => self
                .tickets
                .request_without_nonces(&request, unix_ms())
                .map(|response| (response, None)),
        };
        let (response, nonce) = match answered {
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
        if response.is_new {
            let details = json!({"step": "asked", "ticket": id.to_string(), "approved_before": response.approved});
            self.record_event(by, Outcome::Success, details);
            let waiting = self
                .pending_nodes()
                .into_iter()
                .find(|waiting| waiting.id == id);
            if let Some(waiting) = waiting.filter(|_| !response.approved) {
                self.events.send(PairingEvent::ApprovalRequested(waiting));
            }
        }
        if response.approved {
            self.approve(id, None);
        }
        Ok((
            TicketAnswer {
                reply: response,
                nonce,
            },
            decided,
        ))
    }

    /// Approves a node: by a person who compared these words, or by a preapproved ticket.
    pub(super) fn approve(&mut self, id: TicketId, by: Option<(String, ApproveReply)>) {
        let (words, reply) = by.unzip();
        let role = self.tickets.iter().find(|(other, _)| *other == id);
        let role = role.map(|(_, ticket)| ticket.terms.role);
        let approved = self.tickets.approve(id, words.as_deref());
        let (node, role) = match (approved, role) {
            (Ok(Some(node)), Some(role)) => (node, role),
            (Ok(_), _) => {
                // The admission is being persisted, or already is.
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
                PairingDecision::Approved(Arc::new(admission.to_welcome_bundle().to_parts())),
                Ok(()),
            ),
            Err(reason) => (
                PairingDecision::Denied(reason.clone()),
                Err(PairingActionError::NotAdmitted(reason)),
            ),
        };
        if let Some(decisions) = self.decisions.get_mut(&id) {
            decisions.send_replace(decision);
            if answer.is_err() {
                // The next node with this ticket is decided anew.
                *decisions = watch::Sender::default();
            }
        }
        for reply in self.approving.remove(&id).unwrap_or_default() {
            reply.send(answer.clone());
        }
        self.set_alarm();
    }

    /// Ends a ticket; nodes that wait with it are notified of the reason.
    pub(super) async fn end_ticket(&mut self, id: TicketId, reason: &str) -> bool {
        let Some(ticket) = self.tickets.remove(id) else {
            return false;
        };
        self.forget(id);
        if let Some(decisions) = self.decisions.remove(&id) {
            let open = matches!(*decisions.borrow(), PairingDecision::Pending);
            if open {
                decisions.send_replace(PairingDecision::Denied(reason.to_owned()));
            }
        }
        let is_used = matches!(ticket.stage, TicketStage::Admitted(_));
        let step = if is_used { "used" } else { "ended" };
        let details = json!({"step": step, "ticket": id.to_string(), "reason": reason});
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
        let (expired, _) = self.tickets.expire(unix_ms());
        for id in expired {
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

    /// Sets the timer to the next expiry of a ticket. A ticket that expires while its admission is
    /// persisted is checked again when that is done.
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
        let (local, inviter) = (self.key.node_id(), NodeId::from_key(&ticket.inviter));
        if local == inviter {
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
            joiner: local,
            binding: LinkBinding([0; 32]),
        };
        let joining = Joining {
            inviter,
            name: name.clone(),
            expires_ms: ticket.expires_ms,
            // With a ticket that supports nonces the words are known once both nonces are.
            words: (!ticket.secret.has_nonces()).then(|| ends.words(&name, &ticket.secret)),
            has_weak_words: !ticket.secret.has_nonces(),
            progress: JoinProgress::Dialing(None),
        };
        self.last_number += 1;
        let number = self.last_number;
        let joins = JoinTask {
            number,
            node: local,
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

fn node_actor(request: &TicketRequest) -> Actor {
    Actor {
        kind: ActorKind::Node,
        id: request.node.to_string(),
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
