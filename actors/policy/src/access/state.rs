//! The state of the access actor. It writes one batch of decisions at a time.

use mgp_runtime::task::SupervisedTask;
use mgp_runtime::time::unix_ms;
use mgp_runtime::{Mailbox, Reply, randomness, task};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::node_key::NodeKey;
use mgp_engine::policy::access::{
    ChangeRequest, DefaultPolicies, ForeignRules, GrantRecords, GrantRequestError, GrantTable,
    Principal, RemoteServers, ToolSets,
};
use mgp_engine::policy::grants::{
    ApplyOutcome, Authority, CausalContext, GrantChange, GrantId, Grants, LogChange, LogPosition,
    Operation, SignedOperation, Subject,
};
use mgp_protocol::ids::AgentId;
use mgp_protocol::mgp::audit::{Event, TraceId};
use mgp_protocol::refusal::Refusal;

use super::batch_write::{BatchWrite, RecoveryOutcome};
use super::{AccessActor, AccessMsg, GrantQuery, GrantStore, audit_events};
use mgp_store::journal::Journal;

/// Decisions queued while the disk is busy; more are rejected. A person makes one at a time, and a program can
/// retry.
const WAITING_MAX: usize = 1024;
/// Decisions that share one sync.
const BATCH_MAX: usize = 256;
/// Longest time between two checks of the clock, so that a clock that was set forward is noticed.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(60);

type DecisionReply = Reply<Result<Vec<GrantChange>, Refusal>>;

/// A request that arrived while the disk was busy.
enum QueuedAccessRequest {
    Record(ChangeRequest, Principal, TraceId, DecisionReply),
    Read(GrantQuery),
}

#[derive(Default)]
struct DecisionBatch {
    entries: Vec<Vec<u8>>,
    events: Vec<Event>,
    agents: BTreeSet<AgentId>,
    replies: Vec<(Vec<GrantChange>, DecisionReply)>,
}

/// The state of the actor.
pub struct AccessState {
    grants: Grants,
    authority: Authority,
    key: NodeKey,
    journal: Journal,
    table: Arc<GrantTable>,
    generation: u64,
    queue: VecDeque<QueuedAccessRequest>,
    /// The batch being written; no other decisions are made meanwhile.
    batch: Option<DecisionBatch>,
    /// The disk error that blocks new decisions.
    failure: Option<String>,
    mailbox: Mailbox<AccessMsg>,
    expiry_timer: Option<SupervisedTask<()>>,
}

impl std::fmt::Debug for AccessState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessState")
            .field("generation", &self.generation)
            .field("broken", &self.failure)
            .finish_non_exhaustive()
    }
}

impl AccessState {
    pub(super) fn new(
        store: GrantStore,
        mailbox: Mailbox<AccessMsg>,
        table: Arc<GrantTable>,
    ) -> Self {
        let mut state = Self {
            grants: store.grants,
            authority: store.authority,
            key: store.key,
            journal: store.journal,
            generation: table.generation(),
            table,
            queue: VecDeque::new(),
            batch: None,
            failure: None,
            mailbox,
            expiry_timer: None,
        };
        state.set_expiry_timer();
        state
    }

    /// Queues a decision; it is made as soon as the disk is free.
    pub(super) fn record(
        &mut self,
        actor: &AccessActor,
        change: ChangeRequest,
        by: Principal,
        trace: TraceId,
        reply: DecisionReply,
    ) {
        if self.queue.len() >= WAITING_MAX {
            return reply.send(Err(Refusal::Internal(format!(
                "{WAITING_MAX} decisions are already queued for the disk; try again"
            ))));
        }
        if let Err(not_written) = actor.audit.check() {
            // Nothing was stored yet.
            return reply.send(Err(Refusal::Internal(not_written.to_string())));
        }
        let request = QueuedAccessRequest::Record(change, by, trace, reply);
        self.queue.push_back(request);
        self.decide_next_batch(actor);
    }

    /// Reads the grants; waits for the batch being written.
    pub(super) fn read(&mut self, actor: &AccessActor, query: GrantQuery) {
        // Beyond the bound the query is dropped, which its sender notices.
        if self.queue.len() < WAITING_MAX {
            self.queue.push_back(QueuedAccessRequest::Read(query));
        }
        self.decide_next_batch(actor);
    }

    /// Decides the queued requests that can share a sync.
    fn decide_next_batch(&mut self, actor: &AccessActor) {
        if self.batch.is_some() {
            return;
        }
        let mut batch = DecisionBatch::default();
        while batch.replies.len() < BATCH_MAX {
            // A query must not see decisions that are not on disk.
            let is_query = matches!(self.queue.front(), Some(QueuedAccessRequest::Read(_)));
            if is_query && !batch.entries.is_empty() {
                break;
            }
            match self.queue.pop_front() {
                Some(QueuedAccessRequest::Read(query)) => query.answer(&self.grant_records()),
                Some(QueuedAccessRequest::Record(change, by, trace, reply)) => {
                    self.decide(&mut batch, &change, &by, &trace, reply);
                }
                None => break,
            }
        }
        if batch.entries.is_empty() {
            return;
        }
        self.commit(actor, &mut batch);
        self.batch = Some(batch);
    }

    fn decide(
        &mut self,
        batch: &mut DecisionBatch,
        change: &ChangeRequest,
        by: &Principal,
        trace: &TraceId,
        reply: DecisionReply,
    ) {
        if let Some(why) = &self.failure {
            return reply.send(Err(Refusal::Internal(why.clone())));
        }
        let decided = change.decide(by, &self.grant_records());
        let changes = match decided.map_err(GrantRequestError::into_refusal) {
            Ok(changes) if changes.is_empty() => return reply.send(Ok(changes)),
            Ok(changes) => changes,
            Err(refusal) => return reply.send(Err(refusal)),
        };
        for change in &changes {
            if let Err(refusal) = self.apply(batch, change, by, trace) {
                return reply.send(Err(refusal));
            }
        }
        batch.replies.push((changes, reply));
    }

    /// Applies a change to the state, and adds it to the batch.
    fn apply(
        &mut self,
        batch: &mut DecisionBatch,
        change: &GrantChange,
        by: &Principal,
        trace: &TraceId,
    ) -> Result<(), Refusal> {
        let issuer = self.key.node_id();
        let (sequence, previous) = self.grants.next_position(issuer);
        let operation = Operation {
            cluster: None,
            place: LogPosition { issuer, sequence },
            previous,
            author: by.name().to_owned(),
            told_at_ms: unix_ms(),
            change: LogChange::Grants(change.clone()),
            context: CausalContext::default(),
        };
        let subjects = self.grants.subjects(change);
        let event = audit_events::decision_event(&operation, change, &self.grants, by, trace);
        operation
            .check()
            .map_err(|bad| Refusal::BadParams(bad.to_string()))?;
        let signed = SignedOperation::new(operation, &self.key);
        match self.grants.apply(signed.encoded()) {
            Ok(ApplyOutcome::Appended) => {}
            Ok(other) => return Err(Refusal::Internal(format!("not the next one: {other:?}"))),
            Err(refused) => return Err(Refusal::BadParams(refused.to_string())),
        }
        batch.entries.push(signed.to_bytes());
        batch.events.push(event);
        let agents = subjects.into_iter().filter_map(|subject| match subject {
            Subject::Agent(agent) => Some(agent.agent),
            Subject::Server(_) | Subject::AgentsAt(_) | Subject::AgentEverywhere(_) => None,
        });
        batch.agents.extend(agents);
        Ok(())
    }

    /// Writes a batch to disk and to the audit log, in a task of its own.
    fn commit(&self, actor: &AccessActor, batch: &mut DecisionBatch) {
        let writing = BatchWrite {
            journal: self.journal.clone(),
            audit: actor.audit.clone(),
            key: self.key.clone(),
            mailbox: self.mailbox.clone(),
            agents: batch.agents.clone(),
        };
        let entries = std::mem::take(&mut batch.entries);
        let events = std::mem::take(&mut batch.events);
        let mailbox = self.mailbox.clone();
        task::spawn_detached("access.write", async move {
            let written = task::catch_panic("access.write", writing.run(entries, events)).await;
            if let Err(broken) = written {
                let _ = mailbox.send_to_self(AccessMsg::Broken(broken.to_string()));
            }
        });
    }

    /// Publishes and acknowledges the batch that is on disk.
    pub(super) fn handle_committed(&mut self, actor: &AccessActor, outcome: Result<(), String>) {
        let Some(batch) = self.batch.take() else {
            return;
        };
        match outcome {
            Ok(()) => {
                self.publish(actor, &batch.agents);
                for (changes, reply) in batch.replies {
                    reply.send(Ok(changes));
                }
            }
            Err(why) => {
                tracing::error!(%why, "cannot tell whether a decision is on disk");
                for (_, reply) in batch.replies {
                    reply.send(Err(Refusal::Internal(why.clone())));
                }
                self.failure = Some(format!(
                    "{why}. Until then nothing is granted or revoked; see `mgp status`"
                ));
            }
        }
        self.decide_next_batch(actor);
    }

    /// The disk works again.
    pub(super) fn handle_restored(&mut self, actor: &AccessActor, restored: RecoveryOutcome) {
        tracing::info!("decisions are accepted again");
        self.failure = None;
        match restored {
            RecoveryOutcome::RolledBack(grants) => {
                self.grants = *grants;
                self.set_expiry_timer();
            }
            RecoveryOutcome::Committed(agents) => self.publish(actor, &agents),
        }
        self.decide_next_batch(actor);
    }

    pub(super) fn set_defaults(&mut self, actor: &AccessActor, defaults: DefaultPolicies) {
        if *self.table.defaults() == defaults {
            return;
        }
        self.generation += 1;
        let next = self.table.with_defaults(defaults, self.generation);
        self.publish_table(actor, next);
    }

    pub(super) fn set_tool_sets(&mut self, actor: &AccessActor, sets: Arc<ToolSets>) {
        if *self.table.sets() == sets {
            return;
        }
        self.generation += 1;
        let next = self.table.with_sets(sets, self.generation);
        self.publish_table(actor, next);
    }

    pub(super) fn set_remote_servers(&mut self, actor: &AccessActor, remote: Arc<RemoteServers>) {
        if *self.table.remote() == remote {
            return;
        }
        self.generation += 1;
        let next = self.table.with_remote(remote, self.generation);
        self.publish_table(actor, next);
    }

    pub(super) fn set_foreign_rules(
        &mut self,
        actor: &AccessActor,
        rules: Option<Arc<ForeignRules>>,
    ) {
        let is_lease_renewal = match (self.table.foreign(), &rules) {
            (Some(before), Some(after)) => before.is_same_except_lease(after),
            (None, None) => return,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if is_lease_renewal {
            // Only the lease changed: no notification, and no new decision.
            let next = Arc::new(self.table.with_foreign(rules, self.generation));
            self.table = next.clone();
            return actor.table.store(next);
        }
        self.generation += 1;
        let next = self.table.with_foreign(rules, self.generation);
        self.publish_table(actor, next);
    }

    /// Removes expired grants from the table.
    pub(super) fn remove_expired(&mut self, actor: &AccessActor) {
        if self.batch.is_some() {
            // Decisions that are not on disk are not published; `publish` sets the timer again.
            return;
        }
        match self.table.expired_agents(unix_ms()) {
            ended if ended.is_empty() => self.set_expiry_timer(),
            ended => self.publish(actor, &ended),
        }
    }

    fn publish(&mut self, actor: &AccessActor, agents: &BTreeSet<AgentId>) {
        self.generation += 1;
        let (grants, authority) = (&self.grants, &self.authority);
        let next = self
            .table
            .with_changes(agents, grants, authority, unix_ms(), self.generation);
        self.publish_table(actor, next);
    }

    fn publish_table(&mut self, actor: &AccessActor, next: GrantTable) {
        let next = Arc::new(next);
        let before = std::mem::replace(&mut self.table, next.clone());
        actor.table.store(next.clone());
        actor.directory.notify_access_changed(&before, &next);
        actor.on_change.send(());
        self.set_expiry_timer();
    }

    /// Sets the timer for the next grant that expires.
    fn set_expiry_timer(&mut self) {
        self.expiry_timer = None;
        // After a failure nothing is published; calls check the time themselves.
        let Some(end) = self
            .table
            .next_expiry_ms()
            .filter(|_| self.failure.is_none())
        else {
            return;
        };
        let delay = Duration::from_millis(end.saturating_sub(unix_ms())).min(CLOCK_CHECK_INTERVAL);
        let mailbox = self.mailbox.clone();
        self.expiry_timer = Some(task::spawn_supervised("access.expiry", async move {
            tokio::time::sleep(delay).await;
            let _ = mailbox.send_to_self(AccessMsg::ExpiryDue);
        }));
    }

    fn grant_records(&self) -> GrantRecords<'_> {
        GrantRecords {
            grants: &self.grants,
            authority: &self.authority,
            defaults: self.table.defaults(),
            now_ms: unix_ms(),
            new_id: GrantId(randomness::random_bytes()),
        }
    }
}
