//! The permission gates of servers (MGP §3): what each server may do and what still has to be decided.
//! Used by supervisors, calls and the operator; uses approvals, access and the audit log.
//!
//! Calls read published gates. A decision is recorded before the gate applies it, and applied before the
//! operator is told that it is done.

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
use mgp_sync::snapshot::Snapshot;
use tokio::sync::watch;

use self::records::DecisionStore;
use crate::access::AccessHandle;
use crate::approvals::{ApprovalsHandle, Decider, PendingEntryGuard};
use mgp_callers::request::AnswerFuture;
use mgp_runtime::task::{self, SupervisedTask};
use mgp_runtime::task_supervisor::TaskSupervisorHandle;
use mgp_runtime::time::unix_ms;
use mgp_store::audit::AuditHandle;

/// The gates as calls see them.
type Gates = HashMap<ServerId, Arc<PermissionGate>>;

/// Handle for everyone.
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

/// The gate of one life of a server, with its questions. Dropping it withdraws them.
#[derive(Debug)]
struct OpenGate {
    generation: u64,
    gate: PermissionGate,
    /// The server, once it is connected.
    listener: Option<Arc<dyn GateListener>>,
    /// By the id of the question between gate and server.
    entries: BTreeMap<String, OpenGateEntry>,
}

/// Messages to the server of a gate.
#[derive(Debug)]
pub enum GateMessage {
    /// The operator is asked (§3.5).
    AwaitingOperator(Ask),
    /// What the server may do now (§3.6).
    Decided(Decision),
}

/// The server of a gate.
pub trait GateListener: Send + Sync + std::fmt::Debug {
    /// Resolves when the server has received it; at once if it did not negotiate permissions.
    fn notify(&self, news: GateMessage) -> AnswerFuture<()>;
}

/// A question that waits for the operator.
#[derive(Debug)]
struct OpenGateEntry {
    /// Its id in the operator's list; `None` while that list is full.
    id: Option<String>,
    task: SupervisedTask<()>,
}

/// One life's lease of its server's gate. Dropping it closes the gate and withdraws its questions
/// (MGP-278).
#[derive(Debug)]
pub struct GateLease {
    server: ServerId,
    generation: u64,
    shared: Arc<SharedGates>,
}

/// The server was denied a permission that it needs to run.
#[derive(Debug, Clone, thiserror::Error)]
#[error("it needs {0}, which was denied, and it is not run without (all_or_nothing)")]
pub struct PermissionDenied(String);

impl PermissionsHandle {
    /// No gate yet. Decisions are kept by `access`, and what waits for one is a task of `supervisor`.
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

    /// Where the operator is asked.
    #[must_use]
    pub fn approvals(&self) -> &ApprovalsHandle {
        &self.0.approvals
    }

    /// The gate of a life of a server that begins, with the decisions made before.
    ///
    /// # Errors
    /// In words, why that cannot be read.
    pub async fn open(
        &self,
        server: &ServerId,
        rules: &PermissionRules,
    ) -> Result<GateLease, String> {
        let shared = &self.0;
        let life = shared.next_number.fetch_add(1, Ordering::Relaxed);
        let recorded = shared.records.load(server).await;
        let recorded = recorded.map_err(|e| e.to_string())?;
        let post = OpenGate {
            generation: life,
            gate: PermissionGate::new(rules.clone(), recorded),
            listener: None,
            entries: BTreeMap::new(),
        };
        let before = shared.lock_gates().insert(server.clone(), post);
        drop(before);
        shared.publish(server);
        Ok(GateLease {
            server: server.clone(),
            generation: life,
            shared: shared.clone(),
        })
    }

    /// The tools of a running server need these. Only calls of these tools wait for the approval.
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
        let judged = match gates.get(server) {
            Some(gate) => gate.check(words, unix_ms()),
            // Its life is over, which the call finds out next.
            None => Ok(()),
        };
        if judged.is_err() {
            self.0
                .require_permissions(server, None, words, "a call needs this");
        }
        judged
    }

    /// The permissions a call that needs these would lack; `None` when it lacks none. Nobody is asked.
    #[must_use]
    pub fn find_missing(&self, server: &ServerId, words: &[String]) -> Option<MissingPermissions> {
        let gates = self.0.published.load();
        gates.get(server)?.check(words, unix_ms()).err()
    }

    /// The permissions a running server has, of those it is known to need.
    #[must_use]
    pub fn granted_among(&self, server: &ServerId, words: &[String]) -> BTreeSet<PermissionType> {
        let gates = self.0.published.load();
        let gate = gates.get(server);
        gate.map(|gate| gate.granted_permissions(words, unix_ms()))
            .unwrap_or_default()
    }

    /// The permissions a running server is known to need, each with how it was decided: for people.
    #[must_use]
    pub fn describe(&self, server: &ServerId) -> Vec<String> {
        let gates = self.0.published.load();
        let gate = gates.get(server);
        gate.map(|gate| gate.describe(unix_ms()))
            .unwrap_or_default()
    }

    /// A running server requests permissions. Answered when each of them is decided by a person, the
    /// configuration or the policy.
    pub async fn request(&self, server: &ServerId, ask: &Ask) -> Decision {
        let gate = self.wait_until_decided(server, &ask.permissions, "it asks for this now");
        match gate.await {
            Some(gate) => gate.to_decision(&ask.request_id, &ask.permissions),
            None => empty_decision(&ask.request_id),
        }
    }

    /// A running server needs permissions, for this reason. Resolves when each of them is decided; `None` when its life
    /// or the kernel ends before that.
    pub async fn wait_until_decided(
        &self,
        server: &ServerId,
        words: &[String],
        why: &str,
    ) -> Option<Arc<PermissionGate>> {
        let mut turned = self.0.changes.subscribe();
        self.0.require_permissions(server, None, words, why);
        loop {
            turned.borrow_and_update();
            let gate = self.0.published.load().get(server).cloned()?;
            if !gate.has_pending(words) {
                return Some(gate);
            }
            tokio::select! {
                turned = turned.changed() => turned.ok()?,
                // Nobody asks the operator any more.
                () = self.0.supervisor.wait_until_stopped() => return None,
            }
        }
    }

    /// The permissions of a server that somebody decided about, or that it needs.
    ///
    /// # Errors
    /// The decisions cannot be read.
    pub async fn known_permissions(
        &self,
        server: &ServerId,
    ) -> Result<BTreeSet<PermissionType>, Refusal> {
        let recorded = self.0.records.load(server).await?;
        let gate = self.0.published.load().get(server).cloned();
        let of_gate = gate
            .iter()
            .flat_map(|gate| gate.known_permissions().cloned());
        Ok(recorded.into_keys().chain(of_gate).collect())
    }

    /// The operator revokes a permission. Resolves when that is on disk and applies to every call that has
    /// not left yet; false when the server did not have it.
    ///
    /// # Errors
    /// Why it could not be recorded, in words.
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
            let mut posts = self.0.lock_gates();
            let post = posts.get_mut(server);
            post.map(|post| post.gate.revoke(permission, &decider.name))
        };
        self.0.publish(server);
        let effects = effects.unwrap_or_default();
        let had = !effects.is_empty();
        // A permission given by policy has no record that this one would end.
        let ends = |change: &GrantChange| matches!(change, GrantChange::Grant(g) if !g.replaces.is_empty());
        if !recorded.iter().any(ends) {
            self.0.record_effects(server, effects, Some(&decider.trace));
        }
        if had {
            self.0
                .spawn_decision_notice(server, &[permission.to_string()]);
        }
        Ok(had)
    }
}

impl GateLease {
    /// The server has completed its handshake: it is told what is decided.
    pub fn attach_server(&self, met: Arc<dyn GateListener>) {
        let mut posts = self.shared.lock_gates();
        if let Some(post) = posts
            .get_mut(&self.server)
            .filter(|p| p.generation == self.generation)
        {
            post.listener = Some(met);
        }
    }

    /// The server needs these to run.
    pub fn require(&self, words: &[String]) {
        if !words.is_empty() {
            let (shared, life) = (&self.shared, Some(self.generation));
            shared.require_permissions(&self.server, life, words, "it says so at its start");
        }
    }

    /// The permissions the server has, by earlier decisions and of those it is known to need.
    #[must_use]
    pub fn granted_among(&self, words: &[String]) -> BTreeSet<PermissionType> {
        let posts = self.shared.lock_gates();
        let post = posts
            .get(&self.server)
            .filter(|p| p.generation == self.generation);
        post.map(|post| post.gate.granted_permissions(words, unix_ms()))
            .unwrap_or_default()
    }

    /// Resolves when the server may run. `waits` receives the names of the questions that block it.
    ///
    /// # Errors
    /// [`PermissionDenied`].
    pub async fn wait_until_settled(
        &self,
        waits: impl Fn(&[String]),
    ) -> Result<(), PermissionDenied> {
        let mut turned = self.shared.changes.subscribe();
        let mut told = Vec::new();
        loop {
            turned.borrow_and_update();
            let (standing, names) = {
                let posts = self.shared.lock_gates();
                let Some(post) = posts
                    .get(&self.server)
                    .filter(|p| p.generation == self.generation)
                else {
                    return Ok(());
                };
                let names = post.entries.values().filter_map(|asking| asking.id.clone());
                (post.gate.status(), names.collect::<Vec<_>>())
            };
            match standing {
                PermissionStatus::Ready => return Ok(()),
                PermissionStatus::Rejected(denied) => {
                    let denied: Vec<_> = denied.iter().map(ToString::to_string).collect();
                    return Err(PermissionDenied(denied.join(", ")));
                }
                PermissionStatus::Pending(_) if told != names || names.is_empty() => {
                    waits(&names);
                    told = names;
                }
                PermissionStatus::Pending(_) => {}
            }
            if turned.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

impl Drop for GateLease {
    fn drop(&mut self) {
        let mut posts = self.shared.lock_gates();
        if posts
            .get(&self.server)
            .is_some_and(|post| post.generation == self.generation)
        {
            let closed = posts.remove(&self.server);
            drop(posts);
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

    /// Publishes the state of a server's gate for calls, and wakes those that wait for it.
    fn publish(&self, server: &ServerId) {
        // Under the lock, so that an older state is never published after a newer one.
        let posts = self.lock_gates();
        let gate = posts.get(server).map(|post| Arc::new(post.gate.clone()));
        self.published.update(|gates| {
            let mut gates = gates.clone();
            match gate {
                Some(gate) => gates.insert(server.clone(), gate),
                None => gates.remove(server),
            };
            gates
        });
        drop(posts);
        self.changes.send_modify(|turned| *turned += 1);
    }

    /// A server needs these permissions, in this life or in whichever it has.
    fn require_permissions(
        self: &Arc<Self>,
        server: &ServerId,
        life: Option<u64>,
        words: &[String],
        why: &str,
    ) {
        let request = format!("perm-{}", self.next_number.fetch_add(1, Ordering::Relaxed));
        let effects = {
            let mut posts = self.lock_gates();
            let post = posts.get_mut(server);
            let Some(post) = post.filter(|post| life.is_none_or(|life| post.generation == life))
            else {
                return;
            };
            let effects = post.gate.require(words, &request, unix_ms());
            if effects.is_empty() {
                return;
            }
            for effect in &effects {
                if let PermissionEffect::Request(ask) = effect {
                    self.add_entry(server, post, ask, words, why);
                }
            }
            effects
        };
        self.publish(server);
        let asks = effects
            .iter()
            .any(|e| matches!(e, PermissionEffect::Request(_)));
        self.record_effects(server, effects, None);
        if !asks {
            self.spawn_decision_notice(server, words);
        }
    }

    /// Tells a server what was decided without asking anybody.
    fn spawn_decision_notice(self: &Arc<Self>, server: &ServerId, words: &[String]) {
        let request = format!("perm-{}", self.next_number.fetch_add(1, Ordering::Relaxed));
        let (shared, server, words) = (self.clone(), server.clone(), words.to_vec());
        task::spawn_detached("permissions.tell_server", async move {
            shared.notify_decided(&server, &request, &words).await;
        });
    }

    /// A question got its place in the operator's list after a delay.
    fn set_entry_id(&self, server: &ServerId, life: u64, request: &str, id: &str) {
        let mut posts = self.lock_gates();
        let post = posts.get_mut(server).filter(|post| post.generation == life);
        if let Some(asking) = post.and_then(|post| post.entries.get_mut(request)) {
            asking.id = Some(id.to_owned());
        }
        drop(posts);
        self.changes.send_modify(|turned| *turned += 1);
    }

    /// Adds a question of the gate to the operator's list; it is there when this returns.
    fn add_entry(
        self: &Arc<Self>,
        server: &ServerId,
        post: &mut OpenGate,
        ask: &Ask,
        words: &[String],
        why: &str,
    ) {
        let question = build_entry(server, &ask.permissions, why);
        let asked = self.approvals.add(question.clone());
        let id = asked.as_ref().ok().map(|asked| asked.id().to_owned());
        let waiting = gate_entry::GateEntryTask {
            shared: Arc::downgrade(self),
            server: server.clone(),
            generation: post.generation,
            ask: ask.clone(),
            permissions: words.to_vec(),
            entry: question,
        };
        let mut asked = asked.ok();
        let start = move || waiting.clone().run(asked.take());
        let task = self.supervisor.start_child("permissions.question", start);
        post.entries.retain(|_, asking| !asking.task.is_finished());
        post.entries
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
