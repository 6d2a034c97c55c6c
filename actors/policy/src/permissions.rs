//! The permission gates of servers (MGP §3): what each server may do and what still has to be decided.
//! Used by supervisors, calls and the operator; uses approvals, access and the audit log.
//!
//! Calls read published gates. A decision is recorded before the gate applies it, and applied before the
//! operator is told that it is done.

mod asking;
mod recording;
mod records;
mod ticking;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mgp_engine::policy::approvals::{ApprovalQuestion, Asker};
use mgp_engine::policy::grants::GrantChange;
use mgp_engine::policy::permissions::{
    Lacking, PermissionEffect, PermissionGate, PermissionRules, PermissionStanding,
};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::approvals::Subject;
use mgp_protocol::mgp::permission::{Ask, Decision, PermissionType, Verdict};
use mgp_protocol::refusal::Refusal;
use mgp_sync::snapshot::Snapshot;
use tokio::sync::watch;

use self::records::Records;
use crate::access::AccessHandle;
use crate::approvals::{ApprovalsHandle, AwaitedApproval, Decider};
use mgp_callers::request::Answering;
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
    posts: Mutex<HashMap<ServerId, Post>>,
    shown: Snapshot<Gates>,
    turned: watch::Sender<u64>,
    numbers: AtomicU64,
    approvals: ApprovalsHandle,
    records: Records,
    audit: AuditHandle,
    supervisor: TaskSupervisorHandle,
}

/// The gate of one life of a server, with its questions. Dropping it withdraws them.
#[derive(Debug)]
struct Post {
    life: u64,
    gate: PermissionGate,
    /// The server, once it is connected.
    server: Option<Arc<dyn GateListener>>,
    /// By the id of the question between gate and server.
    asking: BTreeMap<String, OpenGateQuestion>,
}

/// Messages to the server of a gate.
#[derive(Debug)]
pub enum GateNews {
    /// The operator is asked (§3.5).
    Asked(Ask),
    /// What the server may do now (§3.6).
    Decided(Decision),
}

/// The server of a gate.
pub trait GateListener: Send + Sync + std::fmt::Debug {
    /// Resolves when the server has received it; at once if it did not negotiate permissions.
    fn hears(&self, news: GateNews) -> Answering<()>;
}

/// A question that waits for the operator.
#[derive(Debug)]
struct OpenGateQuestion {
    /// Its id in the operator's list; `None` while that list is full.
    id: Option<String>,
    task: SupervisedTask<()>,
}

/// One life's lease of its server's gate. Dropping it closes the gate and withdraws its questions
/// (MGP-278).
#[derive(Debug)]
pub struct GateLease {
    server: ServerId,
    life: u64,
    shared: Arc<SharedGates>,
}

/// The server was denied a permission that it needs to run.
#[derive(Debug, Clone, thiserror::Error)]
#[error("it needs {0}, which was denied, and it is not run without (all_or_nothing)")]
pub struct Rejected(String);

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
            posts: Mutex::default(),
            shown: Snapshot::new(Gates::new()),
            turned: watch::Sender::new(0),
            numbers: AtomicU64::new(1),
            approvals,
            records: Records(access),
            audit,
            supervisor,
        });
        let weak = Arc::downgrade(&shared);
        let supervisor = &shared.supervisor;
        supervisor.start_lasting("permissions.expiry", move || ticking::tick(weak.clone()));
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
        let life = shared.numbers.fetch_add(1, Ordering::Relaxed);
        let recorded = shared.records.of(server).await;
        let recorded = recorded.map_err(|e| e.to_string())?;
        let post = Post {
            life,
            gate: PermissionGate::new(rules.clone(), recorded),
            server: None,
            asking: BTreeMap::new(),
        };
        let before = shared.posts().insert(server.clone(), post);
        drop(before);
        shared.publish(server);
        Ok(GateLease {
            server: server.clone(),
            life,
            shared: shared.clone(),
        })
    }

    /// The tools of a running server need these. Only calls of these tools wait for the approval.
    pub fn tools_need(&self, server: &ServerId, words: &[String]) {
        if !words.is_empty() {
            self.0.need(server, None, words, "tools of it need this");
        }
    }

    /// Whether a call that needs these may be made now.
    ///
    /// # Errors
    /// [`Lacking`] names what is missing. Permissions that have expired are requested again.
    pub fn may(&self, server: &ServerId, words: &[String]) -> Result<(), Lacking> {
        if words.is_empty() {
            return Ok(());
        }
        let gates = self.0.shown.load();
        let judged = match gates.get(server) {
            Some(gate) => gate.may(words, unix_ms()),
            // Its life is over, which the call finds out next.
            None => Ok(()),
        };
        if judged.is_err() {
            self.0.need(server, None, words, "a call needs this");
        }
        judged
    }

    /// The permissions a call that needs these would lack; `None` when it lacks none. Nobody is asked.
    #[must_use]
    pub fn lacks(&self, server: &ServerId, words: &[String]) -> Option<Lacking> {
        let gates = self.0.shown.load();
        gates.get(server)?.may(words, unix_ms()).err()
    }

    /// The permissions a running server has, of those it is known to need.
    #[must_use]
    pub fn has(&self, server: &ServerId, words: &[String]) -> BTreeSet<PermissionType> {
        let gates = self.0.shown.load();
        let gate = gates.get(server);
        gate.map(|gate| gate.has(words, unix_ms()))
            .unwrap_or_default()
    }

    /// The permissions a running server is known to need, each with how it was decided: for people.
    #[must_use]
    pub fn describe(&self, server: &ServerId) -> Vec<String> {
        let gates = self.0.shown.load();
        let gate = gates.get(server);
        gate.map(|gate| gate.describe(unix_ms()))
            .unwrap_or_default()
    }

    /// A running server requests permissions. Answered when each of them is decided by a person, the
    /// configuration or the policy.
    pub async fn asked(&self, server: &ServerId, ask: &Ask) -> Decision {
        let gate = self.decided(server, &ask.permissions, "it asks for this now");
        match gate.await {
            Some(gate) => gate.decision(&ask.request_id, &ask.permissions),
            None => nothing(&ask.request_id),
        }
    }

    /// A running server needs permissions, for this reason. Resolves when each of them is decided; `None` when its life
    /// or the kernel ends before that.
    pub async fn decided(
        &self,
        server: &ServerId,
        words: &[String],
        why: &str,
    ) -> Option<Arc<PermissionGate>> {
        let mut turned = self.0.turned.subscribe();
        self.0.need(server, None, words, why);
        loop {
            turned.borrow_and_update();
            let gate = self.0.shown.load().get(server).cloned()?;
            if !gate.undecided(words) {
                return Some(gate);
            }
            tokio::select! {
                turned = turned.changed() => turned.ok()?,
                // Nobody asks the operator any more.
                () = self.0.supervisor.ended() => return None,
            }
        }
    }

    /// The permissions of a server that somebody decided about, or that it needs.
    ///
    /// # Errors
    /// The decisions cannot be read.
    pub async fn known(&self, server: &ServerId) -> Result<BTreeSet<PermissionType>, Refusal> {
        let recorded = self.0.records.of(server).await?;
        let gate = self.0.shown.load().get(server).cloned();
        let of_gate = gate.iter().flat_map(|gate| gate.known().cloned());
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
            let mut posts = self.0.posts();
            let post = posts.get_mut(server);
            post.map(|post| post.gate.revoke(permission, &decider.by))
        };
        self.0.publish(server);
        let effects = effects.unwrap_or_default();
        let had = !effects.is_empty();
        // A permission given by policy has no record that this one would end.
        let ends = |change: &GrantChange| matches!(change, GrantChange::Grant(g) if !g.replaces.is_empty());
        if !recorded.iter().any(ends) {
            self.0.told(server, effects, Some(&decider.trace));
        }
        if had {
            self.0.tell_later(server, &[permission.to_string()]);
        }
        Ok(had)
    }
}

impl GateLease {
    /// The server has completed its handshake: it is told what is decided.
    pub fn meets(&self, met: Arc<dyn GateListener>) {
        let mut posts = self.shared.posts();
        if let Some(post) = posts.get_mut(&self.server).filter(|p| p.life == self.life) {
            post.server = Some(met);
        }
    }

    /// The server needs these to run.
    pub fn needs(&self, words: &[String]) {
        if !words.is_empty() {
            let (shared, life) = (&self.shared, Some(self.life));
            shared.need(&self.server, life, words, "it says so at its start");
        }
    }

    /// The permissions the server has, by earlier decisions and of those it is known to need.
    #[must_use]
    pub fn has(&self, words: &[String]) -> BTreeSet<PermissionType> {
        let posts = self.shared.posts();
        let post = posts.get(&self.server).filter(|p| p.life == self.life);
        post.map(|post| post.gate.has(words, unix_ms()))
            .unwrap_or_default()
    }

    /// Resolves when the server may run. `waits` receives the names of the questions that block it.
    ///
    /// # Errors
    /// [`Rejected`].
    pub async fn settled(&self, waits: impl Fn(&[String])) -> Result<(), Rejected> {
        let mut turned = self.shared.turned.subscribe();
        let mut told = Vec::new();
        loop {
            turned.borrow_and_update();
            let (standing, names) = {
                let posts = self.shared.posts();
                let Some(post) = posts.get(&self.server).filter(|p| p.life == self.life) else {
                    return Ok(());
                };
                let names = post.asking.values().filter_map(|asking| asking.id.clone());
                (post.gate.standing(), names.collect::<Vec<_>>())
            };
            match standing {
                PermissionStanding::Open => return Ok(()),
                PermissionStanding::Rejected(denied) => {
                    let denied: Vec<_> = denied.iter().map(ToString::to_string).collect();
                    return Err(Rejected(denied.join(", ")));
                }
                PermissionStanding::Waiting(_) if told != names || names.is_empty() => {
                    waits(&names);
                    told = names;
                }
                PermissionStanding::Waiting(_) => {}
            }
            if turned.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

impl Drop for GateLease {
    fn drop(&mut self) {
        let mut posts = self.shared.posts();
        if posts
            .get(&self.server)
            .is_some_and(|post| post.life == self.life)
        {
            let closed = posts.remove(&self.server);
            drop(posts);
            drop(closed);
            self.shared.publish(&self.server);
        }
    }
}

impl SharedGates {
    fn posts(&self) -> MutexGuard<'_, HashMap<ServerId, Post>> {
        self.posts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes the state of a server's gate for calls, and wakes those that wait for it.
    fn publish(&self, server: &ServerId) {
        // Under the lock, so that an older state is never published after a newer one.
        let posts = self.posts();
        let gate = posts.get(server).map(|post| Arc::new(post.gate.clone()));
        self.shown.update(|gates| {
            let mut gates = gates.clone();
            match gate {
                Some(gate) => gates.insert(server.clone(), gate),
                None => gates.remove(server),
            };
            gates
        });
        drop(posts);
        self.turned.send_modify(|turned| *turned += 1);
    }

    /// A server needs these permissions, in this life or in whichever it has.
    fn need(self: &Arc<Self>, server: &ServerId, life: Option<u64>, words: &[String], why: &str) {
        let request = format!("perm-{}", self.numbers.fetch_add(1, Ordering::Relaxed));
        let effects = {
            let mut posts = self.posts();
            let post = posts.get_mut(server);
            let Some(post) = post.filter(|post| life.is_none_or(|life| post.life == life)) else {
                return;
            };
            let effects = post.gate.need(words, &request, unix_ms());
            if effects.is_empty() {
                return;
            }
            for effect in &effects {
                if let PermissionEffect::Ask(ask) = effect {
                    self.ask(server, post, ask, words, why);
                }
            }
            effects
        };
        self.publish(server);
        let asks = effects
            .iter()
            .any(|e| matches!(e, PermissionEffect::Ask(_)));
        self.told(server, effects, None);
        if !asks {
            self.tell_later(server, words);
        }
    }

    /// Tells a server what was decided without asking anybody.
    fn tell_later(self: &Arc<Self>, server: &ServerId, words: &[String]) {
        let request = format!("perm-{}", self.numbers.fetch_add(1, Ordering::Relaxed));
        let (shared, server, words) = (self.clone(), server.clone(), words.to_vec());
        task::detached("permissions.tell_server", async move {
            shared.tell_server(&server, &request, &words).await;
        });
    }

    /// A question got its place in the operator's list after a delay.
    fn named(&self, server: &ServerId, life: u64, request: &str, id: &str) {
        let mut posts = self.posts();
        let post = posts.get_mut(server).filter(|post| post.life == life);
        if let Some(asking) = post.and_then(|post| post.asking.get_mut(request)) {
            asking.id = Some(id.to_owned());
        }
        drop(posts);
        self.turned.send_modify(|turned| *turned += 1);
    }

    /// Adds a question of the gate to the operator's list; it is there when this returns.
    fn ask(
        self: &Arc<Self>,
        server: &ServerId,
        post: &mut Post,
        ask: &Ask,
        words: &[String],
        why: &str,
    ) {
        let question = question(server, &ask.permissions, why);
        let asked = self.approvals.ask(question.clone());
        let id = asked.as_ref().ok().map(|asked| asked.id().to_owned());
        let waiting = asking::GateQuestionTask {
            shared: Arc::downgrade(self),
            server: server.clone(),
            life: post.life,
            ask: ask.clone(),
            words: words.to_vec(),
            question,
        };
        let mut asked = asked.ok();
        let start = move || waiting.clone().run(asked.take());
        let task = self.supervisor.start_child("permissions.question", start);
        post.asking.retain(|_, asking| !asking.task.is_finished());
        post.asking
            .insert(ask.request_id.clone(), OpenGateQuestion { id, task });
    }
}

fn question(server: &ServerId, permissions: &[String], why: &str) -> ApprovalQuestion {
    let details = permissions.iter().map(|name| {
        let risk = PermissionType::read(name);
        let risk = risk.first().map_or("dangerous", |p| p.risk().as_str());
        format!("{name}: {risk}; {why}")
    });
    ApprovalQuestion {
        subject: Subject::Permissions,
        asker: Asker::Server(server.clone()),
        server: Some(server.clone()),
        text: format!("server {server} needs {}", permissions.join(", ")),
        details: details.collect(),
        parts: permissions.to_vec(),
        options: None,
        until_ms: None,
    }
}

fn nothing(request: &str) -> Decision {
    Decision {
        request_id: request.to_owned(),
        grants: BTreeMap::new(),
        approved_by: None,
        expires_at: None,
    }
}
