//! Proposals: the entries that this node writes to its own log, from the request to the reply.

use mgp_engine::policy::grants::{
    CausalContext, LogChange, LogPosition, MemberChange, Operation, SignedOperation,
};
use mgp_engine::replication::replica::{ProposalError, ProposalOutcome, ReplicaEffect};
use mgp_protocol::mgp::audit::Event;
use mgp_protocol::refusal::Refusal;
use mgp_runtime::task;
use mgp_runtime::time::unix_ms;

use super::pending::PendingProposal;
use super::state::{ReplicationState, STORES_MAX};
use super::{
    ClusterRecovery, DecideChanges, ProposalReply, ProposedChanges, RequestedBy, events,
    not_in_cluster,
};

fn to_refusal(why: &ProposalError) -> Refusal {
    Refusal::BadParams(why.to_string())
}

impl ReplicationState {
    /// Decides on changes and writes them.
    pub(super) fn propose(
        &mut self,
        decide: DecideChanges,
        by: &RequestedBy,
        reply: ProposalReply,
    ) {
        let decided = self.check_may_write().and_then(|()| {
            let records = self.records().ok_or_else(not_in_cluster)?;
            decide(&records)
        });
        match decided {
            Ok(changes) => self.write_changes(changes, by, reply),
            Err(refusal) => reply.send(Err(refusal)),
        }
    }

    fn check_may_write(&self) -> Result<(), Refusal> {
        let session = self.session.as_ref().ok_or_else(not_in_cluster)?;
        if session.pending_proposals.len() >= STORES_MAX {
            let why = format!("{STORES_MAX} changes wait for the disk already; try again");
            return Err(Refusal::Internal(why));
        }
        let checked = self.audit.check();
        checked.map_err(|error| Refusal::Internal(error.to_string()))
    }

    fn write_changes(&mut self, changes: Vec<LogChange>, by: &RequestedBy, reply: ProposalReply) {
        let mut written = WrittenChanges::default();
        let mut failed = None;
        for change in &changes {
            match self.write_one(change, by, &mut written) {
                Ok(()) => {}
                Err(why) => {
                    failed = Some(why);
                    break;
                }
            }
        }
        let completed = written.events.len();
        let in_force = self.apply_effects(written.effects);
        if let Some(why) = failed {
            let why = match completed {
                0 => why,
                _ => Refusal::BadParams(format!("{why}. {completed} changes before it were made")),
            };
            return reply.send(Err(why));
        }
        let proposed = ProposedChanges {
            changes,
            number: written.number,
            proposed_at: self.now(),
        };
        let Some(session) = &mut self.session else {
            return reply.send(Err(not_in_cluster()));
        };
        match written.ticket {
            Some(ticket) => session.pending_proposals.push(PendingProposal {
                ticket,
                changes: proposed,
                events: written.events,
                applied: in_force,
                reply,
            }),
            None => reply.send(Ok(proposed)),
        }
    }

    fn write_one(
        &mut self,
        change: &LogChange,
        by: &RequestedBy,
        written: &mut WrittenChanges,
    ) -> Result<(), Refusal> {
        let (author, now) = (by.principal.name().to_owned(), unix_ms());
        let proposed = self.with_replica(|replica, context| {
            let event = |number, replica: &mgp_engine::replication::replica::Replica| {
                let logs = replica.logs();
                events::change_event(
                    change,
                    number,
                    logs.cluster(),
                    (logs.local_node(), logs.grants()),
                    by,
                )
            };
            let before = event(None, replica);
            let (proposed, effects) = replica.propose(change.clone(), &author, now, context)?;
            Ok((proposed, effects, before))
        });
        let (proposed, effects, mut event) = proposed
            .ok_or_else(not_in_cluster)?
            .map_err(|why| to_refusal(&why))?;
        if let ProposalOutcome::Signed(place) = proposed {
            let number = serde_json::json!(place.sequence);
            event.details.insert("cluster_operation".into(), number);
            written.number = Some(place.sequence);
        }
        written.events.push(event);
        written.add(effects);
        Ok(())
    }

    /// Makes this node an admin by the recovery key.
    pub(super) fn recover(
        &mut self,
        recovery: &ClusterRecovery,
        by: &RequestedBy,
        reply: ProposalReply,
    ) {
        if let Err(refusal) = self.check_may_write() {
            return reply.send(Err(refusal));
        }
        if self.is_demoted() {
            let why = "this node was demoted, which is for good under its key: `mgp nodes rekey` gives it another one, with which the recovery key makes it an admin";
            return reply.send(Err(Refusal::BadParams(why.into())));
        }
        let Some(signed) = self.signed_by_recovery(recovery, by) else {
            let why = "this is not the recovery key of this node's cluster";
            return reply.send(Err(Refusal::BadParams(why.into())));
        };
        let mut written = WrittenChanges::default();
        let changes = signed.iter().map(|signed| signed.encoded().operation());
        let changes: Vec<LogChange> = changes.map(|operation| operation.change.clone()).collect();
        let audited = changes.iter().filter_map(|change| {
            let logs = self.session.as_ref()?.replica.logs();
            let known = (logs.local_node(), logs.grants());
            Some(events::change_event(
                change,
                None,
                logs.cluster(),
                known,
                by,
            ))
        });
        written.events.extend(audited);
        let accepted =
            self.with_replica(|replica, context| replica.handle_entries(&signed, context));
        written.add(accepted.unwrap_or_default());
        let in_force = self.apply_effects(written.effects);
        let proposed = ProposedChanges {
            changes,
            number: None,
            proposed_at: self.now(),
        };
        match (&mut self.session, written.ticket) {
            (Some(session), Some(ticket)) => session.pending_proposals.push(PendingProposal {
                ticket,
                changes: proposed,
                events: written.events,
                applied: in_force,
                reply,
            }),
            (Some(_) | None, _) => {
                let why = "the log of the recovery key is full";
                reply.send(Err(Refusal::BadParams(why.into())));
            }
        }
    }

    /// True if this node was demoted under its key and cannot be an admin.
    fn is_demoted(&self) -> bool {
        self.records().is_some_and(|records| {
            let logs = records.replica.logs();
            let own = logs.members().get(logs.local_node());
            own.is_some_and(|member| member.role_max.is_some())
        })
    }

    /// The next operations of the recovery key's own log; None if it is the key of another cluster.
    fn signed_by_recovery(
        &self,
        recovery: &ClusterRecovery,
        by: &RequestedBy,
    ) -> Option<Vec<SignedOperation>> {
        let key = recovery.key.key();
        let issuer = key.node_id();
        let records = self.records()?;
        let logs = records.replica.logs();
        if !logs.members().is_recovery(issuer) {
            return None;
        }
        let change = MemberChange::Recover {
            key: self.public(),
            name: recovery.name.to_string(),
        };
        let cuts = recovery.removed.iter().map(|node| MemberChange::Cut {
            node: *node,
            at: logs.grants().tip(*node),
            stays_as: None,
        });
        let (first, mut previous) = logs.grants().next_position(issuer);
        let signed = std::iter::once(change).chain(cuts).zip(first..);
        let signed = signed.map(|(change, sequence)| {
            let operation = Operation {
                cluster: Some(logs.cluster()),
                place: LogPosition { issuer, sequence },
                previous,
                author: by.principal.name().to_owned(),
                told_at_ms: unix_ms(),
                change: LogChange::Members(change),
                context: CausalContext::default(),
            };
            let signed = SignedOperation::new(operation, key);
            previous = signed.encoded().id();
            signed
        });
        Some(signed.collect())
    }

    /// Replies to all proposals whose writes up to this ticket are on disk.
    pub(super) fn answer_stored(&mut self, ticket: u64) {
        let audit = self.audit.clone();
        let Some(session) = &mut self.session else {
            return;
        };
        let completed = session
            .pending_proposals
            .extract_if(.., |waits| waits.ticket <= ticket);
        let completed: Vec<PendingProposal> = completed.collect();
        if completed.is_empty() {
            return;
        }
        task::spawn_detached("replication.answer", async move {
            for proposal in completed {
                proposal.finish(audit.clone()).await;
            }
        });
    }
}

/// The effects of a proposal so far.
#[derive(Default)]
struct WrittenChanges {
    effects: Vec<ReplicaEffect>,
    ticket: Option<u64>,
    number: Option<u64>,
    events: Vec<Event>,
}

impl WrittenChanges {
    fn add(&mut self, effects: Vec<ReplicaEffect>) {
        let tickets = effects.iter().filter_map(|effect| match effect {
            ReplicaEffect::Store { ticket, .. } => Some(*ticket),
            ReplicaEffect::Send(..) | ReplicaEffect::Changed | ReplicaEffect::DuplicateKey(..) => {
                None
            }
        });
        self.ticket = self.ticket.into_iter().chain(tickets).max();
        self.effects.extend(effects);
    }
}
