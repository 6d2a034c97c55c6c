//! Scopes that need a person's approval, and stored approvals (MCPL §7).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mgp_engine::policy::approvals::{PendingEntry, Requester};
use mgp_mcpl_engine::scopes::approvals::{ApprovedScope, ApprovedScopes, LASTING_MAX};
use mgp_mcpl_engine::scopes::{ScopeRules, ScopeVerdict};
use mgp_policy::approvals::ApprovalsHandle;
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::approvals::Subject;
use mgp_runtime::task;
use mgp_runtime::time::unix_ms;
use mgp_store::{atomic_file, health::explain_io_error, regular_file, witnesses::Witness};

/// The answer that approves for good.
const ALWAYS: &str = "always";
/// The answer that approves until the kernel ends; `mgp approve` says it.
const CONFIRM: &str = "confirm";
/// Bytes of a payload that are shown to a person.
const DISPLAYED_BYTES: usize = 1024;

/// An action that is about to be done.
#[derive(Clone, Debug)]
pub struct ScopedAction {
    /// Whose set.
    pub server: ServerId,
    /// Which set.
    pub set: String,
    /// In which scope.
    pub label: String,
    /// What the server needs of it, as JSON text.
    pub payload: Option<String>,
    /// The agent that calls; `None` where the server asks for itself.
    pub agent: Option<AgentId>,
    /// What it calls.
    pub tool: Option<String>,
}

/// What was decided about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeDecision {
    /// It may.
    pub approved: bool,
    /// Who says so, in words.
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

/// Reads what was approved for good. The file is made with the first one.
///
/// # Errors
/// A file that cannot be read, in words.
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

/// A person's answer for one scope while several requests wait for it.
type SharedDecision = Arc<tokio::sync::Mutex<Option<ScopeDecision>>>;

/// The approvals, and where people are asked.
#[derive(Debug)]
pub struct ScopeStore {
    approved: Mutex<ApprovedScopes>,
    /// Scopes with a pending entry: several requests for the same scope wait for one answer. Bounded by the waiting
    /// requests and calls.
    pending: Mutex<HashMap<ApprovedScope, SharedDecision>>,
    write_lock: tokio::sync::Mutex<()>,
    file: PathBuf,
    witness: Witness,
    approvals: ApprovalsHandle,
}

impl ScopeStore {
    /// With what was approved for good before ([`load`]), which is kept in `file`.
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

    /// Where people are asked.
    pub(crate) fn approvals(&self) -> &ApprovalsHandle {
        &self.approvals
    }

    /// The decision of the lists and earlier answers; `None` if a person has to be asked.
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

    /// Decides: by the lists, by what was approved, or by a person, who has `patience`; then it is denied
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
        let question = self.shared_decision(&scope);
        let decided = {
            let waited = question.try_lock().is_err();
            let mut said = question.lock().await;
            match (waited, said.clone(), self.known_decision(action, rules)) {
                (_, _, Some(known)) => known,
                (true, Some(said), None) => said,
                (_, _, None) => {
                    let decided = self.ask_operator(action, rules, patience).await;
                    *said = Some(decided.clone());
                    decided
                }
            }
        };
        self.remove_pending(&scope, question);
        decided
    }

    async fn ask_operator(
        &self,
        action: &ScopedAction,
        rules: &ScopeRules,
        patience: Duration,
    ) -> ScopeDecision {
        let asked = self
            .approvals
            .wait_for_value(approval_question(action, rules, patience))
            .await;
        match asked {
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
                        tracing::error!("an approved scope is not kept: {why}");
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

    /// Keeps an approval for good; false when there are too many.
    async fn save(&self, scope: ApprovedScope) -> Result<bool, String> {
        let _turn = self.write_lock.lock().await;
        let (kept, text) = {
            let mut approved = self.lock_approved();
            let kept = approved.approve_for_good(scope);
            let lasting: Vec<_> = approved.lasting().collect();
            let text = serde_json::to_string_pretty(&lasting).expect("approvals are always JSON");
            (kept, text)
        };
        self.write(text).await.map(|()| kept)
    }

    /// Revokes the approvals of a server's set, or of all its sets; returns their number.
    ///
    /// # Errors
    /// The disk, in words: until the kernel ends they are taken back all the same.
    pub async fn forget(&self, server: &ServerId, set: Option<&str>) -> Result<usize, String> {
        let _turn = self.write_lock.lock().await;
        let (gone, text) = {
            let mut approved = self.lock_approved();
            let gone = approved.forget(server, set);
            let lasting: Vec<_> = approved.lasting().collect();
            let text = serde_json::to_string_pretty(&lasting).expect("approvals are always JSON");
            (gone, text)
        };
        match gone {
            0 => Ok(0),
            _ => self.write(text).await.map(|()| gone),
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
            .unwrap_or_else(|broken| Err(broken.to_string()))?;
        self.witness.settle_presence();
        Ok(())
    }

    fn shared_decision(&self, scope: &ApprovedScope) -> SharedDecision {
        let mut asked = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        // An entry whose requester disconnected stays here until it is requested again, or another one finishes.
        asked.retain(|_, question| Arc::strong_count(question) > 1);
        asked.entry(scope.clone()).or_default().clone()
    }

    fn remove_pending(&self, scope: &ApprovedScope, question: SharedDecision) {
        drop(question);
        let mut asked = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if asked
            .get(scope)
            .is_some_and(|question| Arc::strong_count(question) == 1)
        {
            asked.remove(scope);
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

/// The text of the entry. Text from others is quoted, on one line.
fn approval_question(
    action: &ScopedAction,
    rules: &ScopeRules,
    patience: Duration,
) -> PendingEntry {
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
