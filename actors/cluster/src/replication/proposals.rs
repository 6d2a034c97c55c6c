//! What this node writes to its own log, from the request to the answer.

use mgp_engine::policy::grants::{
    CausalContext, LogChange, LogPosition, MemberChange, Operation, Signed,
};
use mgp_engine::replication::replica::{NotProposed, Proposed, ReplicaEffect};
use mgp_protocol::mgp::audit::Event;
use mgp_protocol::refusal::Refusal;
use mgp_runtime::task;
use mgp_runtime::time::unix_ms;

use super::pending::PendingProposal;
use super::state::{ReplicationState, STORES_MAX};
use super::{
    AskedBy, ClusterRecovery, DecideChanges, ProposalReply, ProposedChanges, events, in_none,
};

fn refused(why: &NotProposed) -> Refusal {
    Refusal::BadParams(why.to_string())
}

impl ReplicationState {
    /// Decides on changes and writes them.
    pub(super) fn propose(&mut self, decide: DecideChanges, by: &AskedBy, reply: ProposalReply) {
        let decided = self.may_write().and_then(|()| {
            let records = self.records().ok_or_else(in_none)?;
            decide(&records)
        });
        match decided {
            Ok(changes) => self.write(changes, by, reply),
            Err(refusal) => reply.send(Err(refusal)),
        }
    }

    fn may_write(&self) -> Result<(), Refusal> {
        let stay = self.stay.as_ref().ok_or_else(in_none)?;
        if stay.waiting.len() >= STORES_MAX {
            let why = format!("{STORES_MAX} changes wait for the disk already; try again");
            return Err(Refusal::Broken(why));
        }
        let checked = self.audit.check();
        checked.map_err(|error| Refusal::Broken(error.to_string()))
    }

    fn write(&mut self, changes: Vec<LogChange>, by: &AskedBy, reply: ProposalReply) {
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
        let done = written.audited.len();
        let in_force = self.perform(written.effects);
        if let Some(why) = failed {
            let why = match done {
                0 => why,
                _ => Refusal::BadParams(format!("{why}. {done} changes before it were made")),
            };
            return reply.send(Err(why));
        }
        let made = ProposedChanges {
            changes,
            number: written.number,
            at: self.now(),
        };
        let Some(stay) = &mut self.stay else {
            return reply.send(Err(in_none()));
        };
        match written.ticket {
            Some(ticket) => stay.waiting.push(PendingProposal {
                ticket,
                made,
                audited: written.audited,
                in_force,
                reply,
            }),
            None => reply.send(Ok(made)),
        }
    }

    fn write_one(
        &mut self,
        change: &LogChange,
        by: &AskedBy,
        written: &mut WrittenChanges,
    ) -> Result<(), Refusal> {
        let (author, now) = (by.principal.name().to_owned(), unix_ms());
        let proposed = self.with_means(|replica, means| {
            let event = |number, replica: &mgp_engine::replication::replica::Replica| {
                let logs = replica.logs();
                events::of_change(
                    change,
                    number,
                    logs.cluster(),
                    (logs.here(), logs.grants()),
                    by,
                )
            };
            let before = event(None, replica);
            let (proposed, effects) = replica.propose(change.clone(), &author, now, means)?;
            Ok((proposed, effects, before))
        });
        let (proposed, effects, mut event) =
            proposed.ok_or_else(in_none)?.map_err(|why| refused(&why))?;
        if let Proposed::Signed(place) = proposed {
            let number = serde_json::json!(place.sequence);
            event.details.insert("cluster_operation".into(), number);
            written.number = Some(place.sequence);
        }
        written.audited.push(event);
        written.add(effects);
        Ok(())
    }

    /// The recovery key makes this node an admin.
    pub(super) fn recover(
        &mut self,
        recovery: &ClusterRecovery,
        by: &AskedBy,
        reply: ProposalReply,
    ) {
        if let Err(refusal) = self.may_write() {
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
        let changes = signed.iter().map(|signed| signed.written().operation());
        let changes: Vec<LogChange> = changes.map(|operation| operation.change.clone()).collect();
        let audited = changes.iter().filter_map(|change| {
            let logs = self.stay.as_ref()?.replica.logs();
            let known = (logs.here(), logs.grants());
            Some(events::of_change(change, None, logs.cluster(), known, by))
        });
        written.audited.extend(audited);
        let taken = self.with_means(|replica, means| replica.take(&signed, means));
        written.add(taken.unwrap_or_default());
        let in_force = self.perform(written.effects);
        let made = ProposedChanges {
            changes,
            number: None,
            at: self.now(),
        };
        match (&mut self.stay, written.ticket) {
            (Some(stay), Some(ticket)) => stay.waiting.push(PendingProposal {
                ticket,
                made,
                audited: written.audited,
                in_force,
                reply,
            }),
            (Some(_) | None, _) => {
                let why = "the log of the recovery key takes nothing more";
                reply.send(Err(Refusal::BadParams(why.into())));
            }
        }
    }

    /// Whether this node may not be an admin under its key any more.
    fn is_demoted(&self) -> bool {
        self.records().is_some_and(|records| {
            let logs = records.replica.logs();
            let own = logs.members().get(logs.here());
            own.is_some_and(|member| member.most.is_some())
        })
    }

    /// The next operations of the recovery key's own log; None where it is of another cluster.
    fn signed_by_recovery(&self, recovery: &ClusterRecovery, by: &AskedBy) -> Option<Vec<Signed>> {
        let key = recovery.key.key();
        let issuer = key.node();
        let records = self.records()?;
        let logs = records.replica.logs();
        if !logs.members().is_recovery(issuer) {
            return None;
        }
        let here = MemberChange::Recover {
            key: self.public(),
            name: recovery.name.to_string(),
        };
        let gone = recovery.without.iter().map(|node| MemberChange::Cut {
            node: *node,
            at: logs.grants().tip(*node),
            stays_as: None,
        });
        let (first, mut previous) = logs.grants().next(issuer);
        let signed = std::iter::once(here).chain(gone).zip(first..);
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
            let signed = Signed::new(operation, key);
            previous = signed.written().id();
            signed
        });
        Some(signed.collect())
    }

    /// All up to this ticket is on disk: who waited for it is answered.
    pub(super) fn answer(&mut self, ticket: u64) {
        let audit = self.audit.clone();
        let Some(stay) = &mut self.stay else { return };
        let done = stay.waiting.extract_if(.., |waits| waits.ticket <= ticket);
        let done: Vec<PendingProposal> = done.collect();
        if done.is_empty() {
            return;
        }
        task::detached("replication.answer", async move {
            for proposal in done {
                proposal.finish(audit.clone()).await;
            }
        });
    }
}

/// What a proposal has brought about so far.
#[derive(Default)]
struct WrittenChanges {
    effects: Vec<ReplicaEffect>,
    ticket: Option<u64>,
    number: Option<u64>,
    audited: Vec<Event>,
}

impl WrittenChanges {
    fn add(&mut self, effects: Vec<ReplicaEffect>) {
        let tickets = effects.iter().filter_map(|effect| match effect {
            ReplicaEffect::Store { ticket, .. } => Some(*ticket),
            ReplicaEffect::Send(..) | ReplicaEffect::Changed | ReplicaEffect::Twice(..) => None,
        });
        self.ticket = self.ticket.into_iter().chain(tickets).max();
        self.effects.extend(effects);
    }
}
