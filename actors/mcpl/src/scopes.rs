//! Scopes that need the operator's approval, and stored approvals (MCPL §7).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mgp_engine::policy::approvals::{PendingEntry, Requester};
use mgp_mcpl_engine::scopes::approvals::{ApprovedScope, ApprovedScopes, LASTING_MAX};
use mgp_mcpl_engine::scopes::{ScopeRules, ScopeVerdict};
use mgp_policy::ApprovalsHandle;
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::approvals::Subject;
use mgp_runtime::task;
use mgp_runtime::time::unix_ms;
use mgp_store::{Witness, atomic_file, explain_io_error, regular_file};

/// The answer that approves permanently.
const ALWAYS: &str = "always";
/// The answer of `mgp approve`, which approves until the kernel ends.
const CONFIRM: &str = "confirm";
/// Bytes of a payload that are displayed.
const DISPLAYED_BYTES: usize = 1024;

/// An action that needs a decision.
#[derive(Clone, Debug)]
pub struct ScopedAction {
    /// The server of the set.
    pub server: ServerId,
    /// The set.
    pub set: String,
    /// The label of the scope.
    pub label: String,
    /// The server's payload, as JSON text.
    pub payload: Option<String>,
    /// The calling agent; `None` if the server acts on its own.
    pub agent: Option<AgentId>,
    /// The called tool.
    pub tool: Option<String>,
}

/// The decision about an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeDecision {
    /// Whether it is approved.
    pub approved: bool,
    /// The reason, for display.
    pub reason: String,
}

impl ScopeDecision {
    fn new_approval(why: impl Into<String>) -> Self {
        Self {
            approved: true,
            reason: why.into(),
        }
    }

    fn new_denial(why: impl Into<String>) -> Self {
        Self {
            approved: false,
            reason: why.into(),
        }
    }
}

/// Reads the permanent approvals. The first one creates the file.
///
/// # Errors
/// The file cannot be read.
pub fn load(file: &Path) -> Result<Vec<ApprovedScope>, String> {
    match regular_file::read_to_string(file) {
        Ok(text) => serde_json::from_str(&text).map_err(|why| {
            let file = file.display();
            format!("{file}: {why}; put a copy back, or remove it: then a person is asked again")
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(explain_io_error(file, &error)),
    }
}

/// The operator's answer for one scope, shared by several requests.
type SharedDecision = Arc<tokio::sync::Mutex<Option<ScopeDecision>>>;

/// The approvals, and the pending entries for more.
#[derive(Debug)]
pub struct ScopeStore {
    approved: Mutex<ApprovedScopes>,
    /// Scopes with a pending entry: several requests for the same scope wait for one answer. Bounded by the waiting requests
    /// and calls.
    pending: Mutex<HashMap<ApprovedScope, SharedDecision>>,
    write_lock: tokio::sync::Mutex<()>,
    file: PathBuf,
    witness: Witness,
    approvals: ApprovalsHandle,
}

impl ScopeStore {
    /// Starts with the permanent approvals ([`load`]), which are stored in `file`.
    #[must_use]
    pub fn new(
        lasting: Vec<ApprovedScope>,
        file: PathBuf,
        witness: Witness,
        approvals: ApprovalsHandle,
    ) -> Self {
        Self {
            approved: Mutex::new(ApprovedScopes::new(lasting)),
            pending: Mutex::default(),
            write_lock: tokio::sync::Mutex::default(),
            file,
            witness,
            approvals,
        }
    }

    /// The operator's pending entries.
    pub(crate) fn approvals(&self) -> &ApprovalsHandle {
        &self.approvals
    }

    /// The decision of the lists and earlier answers; `None` if the operator must decide.
    #[must_use]
    pub fn known_decision(
        &self,
        action: &ScopedAction,
        rules: &ScopeRules,
    ) -> Option<ScopeDecision> {
        match rules.evaluate(&action.label) {
            ScopeVerdict::Denied(pattern) => Some(ScopeDecision::new_denial(format!(
                "the blacklist has {pattern}"
            ))),
            ScopeVerdict::Approved(pattern) => Some(ScopeDecision::new_approval(format!(
                "the whitelist has {pattern}"
            ))),
            ScopeVerdict::Undecided(_) => self
                .lock_approved()
                .contains(&scope_key(action))
                .then(|| ScopeDecision::new_approval("a person approved it before")),
        }
    }

    /// Decides by the lists, by earlier approvals, or by the operator, who has `patience`; after that it is denied
    /// (MCPL §7.6).
    pub async fn decide(
        &self,
        action: &ScopedAction,
        rules: &ScopeRules,
        patience: Duration,
    ) -> ScopeDecision {
        if let Some(known) = self.known_decision(action, rules) {
            return known;
        }
        let scope = scope_key(action);
        let shared_decision = self.shared_decision(&scope);
        let decided = {
            let waited = shared_decision.try_lock().is_err();
            let mut decision = shared_decision.lock().await;
            match (waited, decision.clone(), self.known_decision(action, rules)) {
                (_, _, Some(known)) => known,
                (true, Some(decision), None) => decision,
                (_, _, None) => {
                    let decided = self.ask_operator(action, rules, patience).await;
                    *decision = Some(decided.clone());
                    decided
                }
            }
        };
        self.remove_pending(&scope, shared_decision);
        decided
    }

    async fn ask_operator(
        &self,
        action: &ScopedAction,
        rules: &ScopeRules,
        patience: Duration,
    ) -> ScopeDecision {
        let pending = self
            .approvals
            .wait_for_value(approval_entry(action, rules, patience))
            .await;
        match pending {
            Err(why) => ScopeDecision::new_denial(why.to_string()),
            Ok(None) => ScopeDecision::new_denial("nobody decided in time"),
            Ok(Some(None)) => ScopeDecision::new_denial("the operator denied it"),
            Ok(Some(Some(answer))) if answer == ALWAYS => {
                match self.save(scope_key(action)).await {
                    Ok(true) => ScopeDecision::new_approval("the operator approved it for good"),
                    Ok(false) => ScopeDecision::new_approval(format!(
                        "the operator approved it; {LASTING_MAX} are approved for good already, so it holds until the kernel ends"
                    )),
                    Err(why) => {
                        tracing::error!("an approved scope is not stored: {why}");
                        ScopeDecision::new_approval("the operator approved it")
                    }
                }
            }
            Ok(Some(Some(_))) => {
                self.lock_approved().approve(scope_key(action));
                ScopeDecision::new_approval("the operator approved it")
            }
        }
    }

    /// Stores a permanent approval; false when there are too many.
    async fn save(&self, scope: ApprovedScope) -> Result<bool, String> {
        let _lock = self.write_lock.lock().await;
        let (is_stored, text) = {
            let mut approved = self.lock_approved();
            let is_stored = approved.approve_for_good(scope);
            let lasting: Vec<_> = approved.lasting().collect();
            let text = serde_json::to_string_pretty(&lasting).expect("approvals are always JSON");
            (is_stored, text)
        };
        self.write(text).await.map(|()| is_stored)
    }

    /// Revokes the approvals of a server's set, or of all its sets; returns their number.
    ///
    /// # Errors
    /// The disk failed: the approvals are still revoked until the kernel ends.
    pub async fn forget(&self, server: &ServerId, set: Option<&str>) -> Result<usize, String> {
        let _lock = self.write_lock.lock().await;
        let (removed, text) = {
            let mut approved = self.lock_approved();
            let removed = approved.forget(server, set);
            let lasting: Vec<_> = approved.lasting().collect();
            let text = serde_json::to_string_pretty(&lasting).expect("approvals are always JSON");
            (removed, text)
        };
        match removed {
            0 => Ok(0),
            _ => self.write(text).await.map(|()| removed),
        }
    }

    async fn write(&self, text: String) -> Result<(), String> {
        let file = self.file.clone();
        let wrote = task::run_blocking("mcpl.approve_scope", move || {
            if let Some(folder) = file.parent() {
                atomic_file::create_folder(folder)
                    .map_err(|error| explain_io_error(folder, &error))?;
            }
            atomic_file::write(&file, text.as_bytes())
                .map_err(|error| explain_io_error(&file, &error))
        });
        wrote
            .await
            .unwrap_or_else(|panicked| Err(panicked.to_string()))?;
        self.witness.settle_presence();
        Ok(())
    }

    fn shared_decision(&self, scope: &ApprovedScope) -> SharedDecision {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        // The entry of a requester that disconnected stays until the next request for it, or until another one finishes.
        pending.retain(|_, shared_decision| Arc::strong_count(shared_decision) > 1);
        pending.entry(scope.clone()).or_default().clone()
    }

    fn remove_pending(&self, scope: &ApprovedScope, shared_decision: SharedDecision) {
        drop(shared_decision);
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if pending
            .get(scope)
            .is_some_and(|shared_decision| Arc::strong_count(shared_decision) == 1)
        {
            pending.remove(scope);
        }
    }

    fn lock_approved(&self) -> MutexGuard<'_, ApprovedScopes> {
        self.approved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn scope_key(action: &ScopedAction) -> ApprovedScope {
    ApprovedScope {
        server: action.server.clone(),
        set: action.set.clone(),
        label: action.label.clone(),
        agent: action.agent.clone(),
    }
}

/// The pending entry. Foreign text is quoted, on one line.
fn approval_entry(action: &ScopedAction, rules: &ScopeRules, patience: Duration) -> PendingEntry {
    let ScopedAction {
        server, set, label, ..
    } = action;
    let text = match (&action.agent, &action.tool) {
        (Some(agent), Some(tool)) => {
            format!("{agent} wants to call {tool:?} of {server} in the scope {label:?} ({set})")
        }
        (Some(agent), None) => {
            format!("{agent} wants to act in the scope {label:?} of {server} ({set})")
        }
        (None, _) => format!("server {server} wants to act in the scope {label:?} ({set})"),
    };
    let mut details = Vec::new();
    if let ScopeVerdict::Undecided(Some(why)) = rules.evaluate(label) {
        details.push(format!("no whitelist opens it: {why}"));
    }
    if let Some(payload) = &action.payload {
        let shown: String = payload.chars().take(DISPLAYED_BYTES).collect();
        details.push(format!("with {shown}"));
    }
    details.push(format!(
        "approved, it holds for exactly this label until the kernel ends; answered with `{ALWAYS}`, for good"
    ));
    let patience = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
    PendingEntry {
        subject: Subject::Scope,
        requester: match &action.agent {
            Some(agent) => Requester::Agent(agent.clone()),
            None => Requester::Server(server.clone()),
        },
        server: Some(server.clone()),
        text,
        details,
        parts: Vec::new(),
        options: Some(vec![CONFIRM.to_owned(), ALWAYS.to_owned()]),
        expires_ms: Some(unix_ms().saturating_add(patience)),
    }
}
