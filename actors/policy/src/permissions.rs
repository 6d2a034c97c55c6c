//! The permission gates of servers (MGP §3): what each server may do, and what is undecided.
//! Used by supervisors, calls and the operator; uses approvals, access and the audit log.
//!
//! Calls read published gates. A decision is recorded first, then applied to the gate, then confirmed to the
//! operator.

mod expiry;
mod gate_entry;
mod recording;
mod records;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mgp_engine::policy::approvals::{PendingEntry, Requester};
use mgp_engine::policy::grants::GrantChange;
use mgp_engine::policy::permissions::{
    MissingPermissions, PermissionEffect, PermissionGate, PermissionRules, PermissionStatus,
};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::approvals::Subject;
use mgp_protocol::mgp::permission::{Ask, Decision, PermissionType, Verdict};
use mgp_protocol::refusal::Refusal;
use mgp_sync::Snapshot;
use tokio::sync::watch;

use self::records::DecisionStore;
use crate::access::AccessHandle;
use crate::approvals::{ApprovalsHandle, Decider, PendingEntryGuard};
use mgp_callers::request::AnswerFuture;
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::time::unix_ms;
use mgp_runtime::{TaskSupervisorHandle, task};
use mgp_store::audit::AuditHandle;

/// The published gates.
type Gates = HashMap<ServerId, Arc<PermissionGate>>;

/// A shared handle to the gates.
#[derive(Debug, Clone)]
pub struct PermissionsHandle(Arc<SharedGates>);

#[derive(Debug)]
struct SharedGates {
    open_gates: Mutex<HashMap<ServerId, OpenGate>>,
    published: Snapshot<Gates>,
    changes: watch::Sender<u64>,
    next_number: AtomicU64,
    approvals: ApprovalsHandle,
    records: DecisionStore,
    audit: AuditHandle,
    supervisor: TaskSupervisorHandle,
}

/// The gate of one server instance, with its pending entries. Dropping it withdraws them.
#[derive(Debug)]
struct OpenGate {
    generation: u64,
    gate: PermissionGate,
    listener: Option<Arc<dyn GateListener>>,
    /// By the request id that gate and server use.
    entries: BTreeMap<String, OpenGateEntry>,
}

/// Messages to the server of a gate.
#[derive(Debug)]
pub enum GateMessage {
    /// The operator was asked (§3.5).
    AwaitingOperator(Ask),
    /// What the server may do now (§3.6).
    Decided(Decision),
}

/// Receives a gate's messages for its server.
pub trait GateListener: Send + Sync + std::fmt::Debug {
    /// Resolves when the server has received it; at once if it did not negotiate permissions.
    fn notify(&self, message: GateMessage) -> AnswerFuture<()>;
}

/// A pending entry of a gate.
#[derive(Debug)]
struct OpenGateEntry {
    /// Its id in the operator's list; `None` while that list is full.
    id: Option<String>,
    task: SupervisedTask<()>,
}

/// The lease of a server's gate by one instance. Dropping it closes the gate and withdraws its entries (MGP-278).
#[derive(Debug)]
pub struct GateLease {
    server: ServerId,
    generation: u64,
    shared: Arc<SharedGates>,
}

/// The server was denied a permission that it requires.
#[derive(Debug, Clone, thiserror::Error)]
#[error("it needs {0}, which was denied, and it is not run without (all_or_nothing)")]
pub struct PermissionDenied(String);

impl PermissionsHandle {
    /// Starts without gates. `access` stores the decisions, and `supervisor` runs the tasks that wait for them.
    #[must_use]
    pub fn new(
        approvals: ApprovalsHandle,
        access: AccessHandle,
        audit: AuditHandle,
        supervisor: TaskSupervisorHandle,
    ) -> Self {
        let shared = Arc::new(SharedGates {
            open_gates: Mutex::default(),
            published: Snapshot::new(Gates::new()),
            changes: watch::Sender::new(0),
            next_number: AtomicU64::new(1),
            approvals,
            records: DecisionStore(access),
            audit,
            supervisor,
        });
        let weak = Arc::downgrade(&shared);
        let supervisor = &shared.supervisor;
        supervisor.start_permanent("permissions.expiry", move || {
            expiry::run_expiry(weak.clone())
        });
        Self(shared)
    }

    /// The list in which entries are added.
    #[must_use]
    pub fn approvals(&self) -> &ApprovalsHandle {
        &self.0.approvals
    }

    /// Opens the gate of a new server instance, with the earlier decisions.
    ///
    /// # Errors
    /// The earlier decisions cannot be read.
    pub async fn open(
        &self,
        server: &ServerId,
        rules: &PermissionRules,
    ) -> Result<GateLease, String> {
        let shared = &self.0;
        let generation = shared.next_number.fetch_add(1, Ordering::Relaxed);
        let recorded = shared.records.load(server).await;
        let recorded = recorded.map_err(|e| e.to_string())?;
        let open_gate = OpenGate {
            generation,
            gate: PermissionGate::new(rules.clone(), recorded),
            listener: None,
            entries: BTreeMap::new(),
        };
        let before = shared.lock_gates().insert(server.clone(), open_gate);
        drop(before);
        shared.publish(server);
        Ok(GateLease {
            server: server.clone(),
            generation,
            shared: shared.clone(),
        })
    }

    /// Adds permissions that tools of a running server need. Only calls of these tools wait for them.
    pub fn add_tool_needs(&self, server: &ServerId, words: &[String]) {
        if !words.is_empty() {
            self.0
                .require_permissions(server, None, words, "tools of it need this");
        }
    }

    /// Whether a call that needs these may be made now.
    ///
    /// # Errors
    /// [`MissingPermissions`] names what is missing. Permissions that have expired are requested again.
    pub fn check(&self, server: &ServerId, words: &[String]) -> Result<(), MissingPermissions> {
        if words.is_empty() {
            return Ok(());
        }
        let gates = self.0.published.load();
        let checked = match gates.get(server) {
            Some(gate) => gate.check(words, unix_ms()),
            // The instance has ended, which the call finds out next.
            None => Ok(()),
        };
        if checked.is_err() {
            self.0
                .require_permissions(server, None, words, "a call needs this");
        }
        checked
    }

    /// The permissions that a call would lack; `None` if it lacks none. Does not ask the operator.
    #[must_use]
    pub fn find_missing(&self, server: &ServerId, words: &[String]) -> Option<MissingPermissions> {
        let gates = self.0.published.load();
        gates.get(server)?.check(words, unix_ms()).err()
    }

    /// The permissions that a running server has, of those it is known to need.
    #[must_use]
    pub fn granted_among(&self, server: &ServerId, words: &[String]) -> BTreeSet<PermissionType> {
        let gates = self.0.published.load();
        let gate = gates.get(server);
        gate.map(|gate| gate.granted_permissions(words, unix_ms()))
            .unwrap_or_default()
    }

    /// The permissions that a running server is known to need, each with its decision, for display.
    #[must_use]
    pub fn describe(&self, server: &ServerId) -> Vec<String> {
        let gates = self.0.published.load();
        let gate = gates.get(server);
        gate.map(|gate| gate.describe(unix_ms()))
            .unwrap_or_default()
    }

    /// Handles a running server's request for permissions. Resolves when each of them is decided by a person, the
    /// configuration or the policy.
    pub async fn request(&self, server: &ServerId, ask: &Ask) -> Decision {
        let gate = self.wait_until_decided(server, &ask.permissions, "it asks for this now");
        match gate.await {
            Some(gate) => gate.to_decision(&ask.request_id, &ask.permissions),
            None => empty_decision(&ask.request_id),
        }
    }

    /// Requires permissions for a running server, with a reason. Resolves when each of them is decided; `None` if the
    /// instance or the kernel ends first.
    pub async fn wait_until_decided(
        &self,
        server: &ServerId,
        words: &[String],
        why: &str,
    ) -> Option<Arc<PermissionGate>> {
        let mut changes = self.0.changes.subscribe();
        self.0.require_permissions(server, None, words, why);
        loop {
            changes.borrow_and_update();
            let gate = self.0.published.load().get(server).cloned()?;
            if !gate.has_pending(words) {
                return Some(gate);
            }
            tokio::select! {
                changed = changes.changed() => changed.ok()?,
                // No more entries are added during shutdown.
                () = self.0.supervisor.wait_until_stopped() => return None,
            }
        }
    }

    /// The permissions of a server that were decided, or that it needs.
    ///
    /// # Errors
    /// The decisions cannot be read.
    pub async fn known_permissions(
        &self,
        server: &ServerId,
    ) -> Result<BTreeSet<PermissionType>, Refusal> {
        let recorded = self.0.records.load(server).await?;
        let gate = self.0.published.load().get(server).cloned();
        let from_gate = gate
            .iter()
            .flat_map(|gate| gate.known_permissions().cloned());
        Ok(recorded.into_keys().chain(from_gate).collect())
    }

    /// Revokes a permission. Resolves when that is on disk and applies to every call that was not sent yet; false if the
    /// server did not have it.
    ///
    /// # Errors
    /// The decision could not be recorded.
    pub async fn revoke(
        &self,
        server: &ServerId,
        permission: &PermissionType,
        decider: &Decider,
    ) -> Result<bool, Refusal> {
        let (denied, records) = (Verdict::Denied, &self.0.records);
        let recorded = records.record(server, permission, denied, None, decider);
        let recorded = recorded.await?;
        let effects = {
            let mut gates = self.0.lock_gates();
            let open_gate = gates.get_mut(server);
            open_gate.map(|open_gate| open_gate.gate.revoke(permission, &decider.name))
        };
        self.0.publish(server);
        let effects = effects.unwrap_or_default();
        let was_granted = !effects.is_empty();
        // A permission that policy granted has no record that the new one replaces.
        let replaces_grant = |change: &GrantChange| matches!(change, GrantChange::Grant(g) if !g.replaces.is_empty());
        if !recorded.iter().any(replaces_grant) {
            self.0.record_effects(server, effects, Some(&decider.trace));
        }
        if was_granted {
            self.0
                .spawn_decision_notice(server, &[permission.to_string()]);
        }
        Ok(was_granted)
    }
}

impl GateLease {
    /// Connects the server after its handshake: it receives decisions from now on.
    pub fn attach_server(&self, listener: Arc<dyn GateListener>) {
        let mut gates = self.shared.lock_gates();
        if let Some(open_gate) = gates
            .get_mut(&self.server)
            .filter(|p| p.generation == self.generation)
        {
            open_gate.listener = Some(listener);
        }
    }

    /// Requires permissions for the server to run.
    pub fn require(&self, words: &[String]) {
        if !words.is_empty() {
            let (shared, generation) = (&self.shared, Some(self.generation));
            shared.require_permissions(&self.server, generation, words, "it says so at its start");
        }
    }

    /// The permissions that the server has by earlier decisions, of those it is known to need.
    #[must_use]
    pub fn granted_among(&self, words: &[String]) -> BTreeSet<PermissionType> {
        let gates = self.shared.lock_gates();
        let open_gate = gates
            .get(&self.server)
            .filter(|p| p.generation == self.generation);
        open_gate
            .map(|open_gate| open_gate.gate.granted_permissions(words, unix_ms()))
            .unwrap_or_default()
    }

    /// Resolves when the server may run. `waits` receives the ids of the entries that block it.
    ///
    /// # Errors
    /// [`PermissionDenied`].
    pub async fn wait_until_settled(
        &self,
        waits: impl Fn(&[String]),
    ) -> Result<(), PermissionDenied> {
        let mut changes = self.shared.changes.subscribe();
        let mut reported = Vec::new();
        loop {
            changes.borrow_and_update();
            let (status, ids) = {
                let gates = self.shared.lock_gates();
                let Some(open_gate) = gates
                    .get(&self.server)
                    .filter(|p| p.generation == self.generation)
                else {
                    return Ok(());
                };
                let ids = open_gate
                    .entries
                    .values()
                    .filter_map(|entry| entry.id.clone());
                (open_gate.gate.status(), ids.collect::<Vec<_>>())
            };
            match status {
                PermissionStatus::Ready => return Ok(()),
                PermissionStatus::Rejected(denied) => {
                    let denied: Vec<_> = denied.iter().map(ToString::to_string).collect();
                    return Err(PermissionDenied(denied.join(", ")));
                }
                PermissionStatus::Pending(_) if reported != ids || ids.is_empty() => {
                    waits(&ids);
                    reported = ids;
                }
                PermissionStatus::Pending(_) => {}
            }
            if changes.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

impl Drop for GateLease {
    fn drop(&mut self) {
        let mut gates = self.shared.lock_gates();
        if gates
            .get(&self.server)
            .is_some_and(|open_gate| open_gate.generation == self.generation)
        {
            let closed = gates.remove(&self.server);
            drop(gates);
            drop(closed);
            self.shared.publish(&self.server);
        }
    }
}

impl SharedGates {
    fn lock_gates(&self) -> MutexGuard<'_, HashMap<ServerId, OpenGate>> {
        self.open_gates
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes the state of a server's gate, and wakes the tasks that wait for it.
    fn publish(&self, server: &ServerId) {
        // Under the lock, so that an older state is never published after a newer one.
        let gates = self.lock_gates();
        let gate = gates
            .get(server)
            .map(|open_gate| Arc::new(open_gate.gate.clone()));
        self.published.update(|gates| {
            let mut gates = gates.clone();
            match gate {
                Some(gate) => gates.insert(server.clone(), gate),
                None => gates.remove(server),
            };
            gates
        });
        drop(gates);
        self.changes.send_modify(|generation| *generation += 1);
    }

    /// Requires permissions for one instance of a server, or for the current one.
    fn require_permissions(
        self: &Arc<Self>,
        server: &ServerId,
        generation: Option<u64>,
        words: &[String],
        why: &str,
    ) {
        let request = format!("perm-{}", self.next_number.fetch_add(1, Ordering::Relaxed));
        let effects = {
            let mut gates = self.lock_gates();
            let open_gate = gates.get_mut(server);
            let Some(open_gate) = open_gate.filter(|open_gate| {
                generation.is_none_or(|generation| open_gate.generation == generation)
            }) else {
                return;
            };
            let effects = open_gate.gate.require(words, &request, unix_ms());
            if effects.is_empty() {
                return;
            }
            for effect in &effects {
                if let PermissionEffect::Request(ask) = effect {
                    self.add_entry(server, open_gate, ask, words, why);
                }
            }
            effects
        };
        self.publish(server);
        let has_request = effects
            .iter()
            .any(|e| matches!(e, PermissionEffect::Request(_)));
        self.record_effects(server, effects, None);
        if !has_request {
            self.spawn_decision_notice(server, words);
        }
    }

    /// Notifies a server of what was decided without the operator.
    fn spawn_decision_notice(self: &Arc<Self>, server: &ServerId, words: &[String]) {
        let request = format!("perm-{}", self.next_number.fetch_add(1, Ordering::Relaxed));
        let (shared, server, words) = (self.clone(), server.clone(), words.to_vec());
        task::spawn_detached("permissions.tell_server", async move {
            shared.notify_decided(&server, &request, &words).await;
        });
    }

    /// Sets the id of an entry that was added to the operator's list after a delay.
    fn set_entry_id(&self, server: &ServerId, generation: u64, request: &str, id: &str) {
        let mut gates = self.lock_gates();
        let open_gate = gates
            .get_mut(server)
            .filter(|open_gate| open_gate.generation == generation);
        if let Some(entry) = open_gate.and_then(|open_gate| open_gate.entries.get_mut(request)) {
            entry.id = Some(id.to_owned());
        }
        drop(gates);
        self.changes.send_modify(|generation| *generation += 1);
    }

    /// Adds an entry of the gate to the operator's list before it returns.
    fn add_entry(
        self: &Arc<Self>,
        server: &ServerId,
        open_gate: &mut OpenGate,
        ask: &Ask,
        words: &[String],
        why: &str,
    ) {
        let entry = build_entry(server, &ask.permissions, why);
        let guard = self.approvals.add(entry.clone());
        let id = guard.as_ref().ok().map(|guard| guard.id().to_owned());
        let waiter = gate_entry::GateEntryTask {
            shared: Arc::downgrade(self),
            server: server.clone(),
            generation: open_gate.generation,
            ask: ask.clone(),
            permissions: words.to_vec(),
            entry,
        };
        let mut guard = guard.ok();
        let start = move || waiter.clone().run(guard.take());
        let task = self.supervisor.start_child("permissions.question", start);
        open_gate
            .entries
            .retain(|_, entry| !entry.task.is_finished());
        open_gate
            .entries
            .insert(ask.request_id.clone(), OpenGateEntry { id, task });
    }
}

fn build_entry(server: &ServerId, permissions: &[String], why: &str) -> PendingEntry {
    let details = permissions.iter().map(|name| {
        let risk = PermissionType::parse_all(name);
        let risk = risk.first().map_or("dangerous", |p| p.risk().as_str());
        format!("{name}: {risk}; {why}")
    });
    PendingEntry {
        subject: Subject::Permissions,
        requester: Requester::Server(server.clone()),
        server: Some(server.clone()),
        text: format!("server {server} needs {}", permissions.join(", ")),
        details: details.collect(),
        parts: permissions.to_vec(),
        options: None,
        expires_ms: None,
    }
}

fn empty_decision(request: &str) -> Decision {
    Decision {
        request_id: request.to_owned(),
        grants: BTreeMap::new(),
        approved_by: None,
        expires_at: None,
    }
}
