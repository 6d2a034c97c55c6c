//! Entries that wait for the operator.
//! Added by gates of servers, pins, and calls that need confirmation; changes notify subscribers.
//!
//! An entry is in the operator's list before [`ApprovalsHandle::add`] returns. Dropping its guard withdraws it, so
//! that no entry outlives its requester.

use mgp_runtime::time::unix_ms;
use mgp_runtime::{EventSink, randomness};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mgp_engine::policy::approvals::{AddEntryError, AnswerError, PendingEntries, PendingEntry};
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::approvals::{DecisionResult, Entry, PENDING_URI};
use mgp_protocol::mgp::audit::TraceId;
use mgp_protocol::mgp::permission::Verdict;
use mgp_protocol::refusal::Refusal;
use tokio::sync::{mpsc, oneshot};

/// Characters of JSON text shown to a person; longer text is truncated, with a note.
const DISPLAY_CHARS_MAX: usize = 2_000;
/// Queued answers to one entry.
const ANSWER_QUEUE_CAPACITY: usize = 8;
/// How long applying an answer may take; it only has to be written to disk.
const APPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// Owns the kernel's own resources: no server can have this id.
#[must_use]
pub fn kernel_owner() -> ServerId {
    ServerId::new("mgp:kernel")
}

/// The entry of [`PENDING_URI`] in `resources/list`, as JSON text.
#[must_use]
pub fn render_resource() -> String {
    format!(
        r#"{{"uri":"{PENDING_URI}","name":"pending","title":"What waits for you","description":"Permissions, dangerous calls, changed tools, nodes and logins that wait for the operator","mimeType":"application/json"}}"#
    )
}

/// A shared handle to the pending entries.
#[derive(Debug, Clone)]
pub struct ApprovalsHandle(Arc<SharedApprovals>);

#[derive(Debug)]
struct SharedApprovals {
    table: Mutex<ApprovalTable>,
    on_change: EventSink<()>,
}

#[derive(Debug, Default)]
struct ApprovalTable {
    engine: PendingEntries,
    /// The channel to the requester of each entry.
    answer_channels: HashMap<String, mpsc::Sender<OperatorAnswer>>,
}

/// The person who decided.
#[derive(Debug, Clone)]
pub struct Decider {
    /// The agent or operator, as the endpoint authenticated it.
    pub name: String,
    /// The trace of the deciding request.
    pub trace: TraceId,
}

/// An answer of the operator to an entry.
#[derive(Debug)]
pub struct OperatorAnswer {
    /// The decision. With [`Verdict::Deferred`] the entry stays open.
    pub verdict: Verdict,
    /// The parts that it decides; empty means all open ones.
    pub parts: Vec<String>,
    /// Who decided, and in which request.
    pub decider: Decider,
    /// When an approval expires, in milliseconds since 1970.
    pub(crate) until_ms: Option<u64>,
    /// The value, for an entry that requests one.
    pub value: Option<String>,
    receipt: oneshot::Sender<Result<(), String>>,
}

impl OperatorAnswer {
    /// Reports to the operator that the answer was applied, and is on disk if necessary.
    pub fn report_applied(self) {
        let _ = self.receipt.send(Ok(()));
    }

    /// Reports to the operator why the answer could not be applied.
    pub fn report_failed(self, why: String) {
        let _ = self.receipt.send(Err(why));
    }
}

/// An unchecked answer.
struct TypedAnswer<'a> {
    verdict: Verdict,
    parts: &'a [String],
    until_ms: Option<u64>,
    value: Option<&'a str>,
}

/// An open entry. Dropping it withdraws the entry.
#[derive(Debug)]
pub struct PendingEntryGuard {
    id: String,
    until_ms: Option<u64>,
    answers: mpsc::Receiver<OperatorAnswer>,
    shared: Arc<SharedApprovals>,
}

impl PendingEntryGuard {
    /// The entry's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The next answer; `None` once the entry expires. An answer that is dropped unreported is shown to the operator as
    /// without effect.
    pub async fn next_answer(&mut self) -> Option<OperatorAnswer> {
        let left = |end: u64| Duration::from_millis(end.saturating_sub(unix_ms()));
        let Some(left) = self.until_ms.map(left) else {
            return self.answers.recv().await;
        };
        tokio::select! {
            answer = self.answers.recv() => answer,
            () = tokio::time::sleep(left) => None,
        }
    }

    /// Removes the entry from the list once all of it is decided.
    pub fn close(&self) {
        let open = {
            let mut table = self.shared.table();
            table.answer_channels.remove(&self.id);
            table.engine.close(&self.id)
        };
        if open.is_some() {
            tracing::info!(id = %self.id, "no longer waits for the operator");
            self.shared.notify_changed();
        }
    }

    /// Keeps only these parts open.
    pub(crate) fn narrow(&self, parts: &[String]) {
        self.shared.table().engine.set_parts(&self.id, parts);
        self.shared.notify_changed();
    }
}

impl Drop for PendingEntryGuard {
    fn drop(&mut self) {
        self.close();
    }
}

impl SharedApprovals {
    fn table(&self) -> MutexGuard<'_, ApprovalTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify_changed(&self) {
        self.on_change.send(());
    }
}

impl ApprovalsHandle {
    /// An empty list; `on_change` notifies subscribers.
    #[must_use]
    pub fn new(on_change: EventSink<()>) -> Self {
        Self(Arc::new(SharedApprovals {
            table: Mutex::default(),
            on_change,
        }))
    }

    /// Adds an entry to the operator's list.
    ///
    /// # Errors
    /// [`AddEntryError`] at a limit, which the requester treats as a denial.
    pub fn add(&self, entry: PendingEntry) -> Result<PendingEntryGuard, AddEntryError> {
        let (sender, answers) = mpsc::channel(ANSWER_QUEUE_CAPACITY);
        let until_ms = entry.expires_ms;
        let text = entry.text.clone();
        let id = {
            let mut table = self.0.table();
            let random = u32::from_le_bytes(randomness::random_bytes());
            let id = table.engine.add(entry, random, unix_ms())?;
            table.answer_channels.insert(id.clone(), sender);
            id
        };
        tracing::warn!(%id, "waits for the operator (`mgp approve {id}` or `mgp deny {id}`): {text}");
        self.0.notify_changed();
        Ok(PendingEntryGuard {
            id,
            until_ms,
            answers,
            shared: self.0.clone(),
        })
    }

    /// Adds an entry that is decided as a whole. Resolves with whether it was approved, or with `None` once it expires.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub async fn wait_for_verdict(
        &self,
        entry: PendingEntry,
    ) -> Result<Option<bool>, AddEntryError> {
        let mut guard = self.add(entry)?;
        while let Some(answer) = guard.next_answer().await {
            let verdict = answer.verdict;
            answer.report_applied();
            match verdict {
                Verdict::Approved => return Ok(Some(true)),
                Verdict::Denied => return Ok(Some(false)),
                // The entry stays open.
                Verdict::Deferred => {}
            }
        }
        Ok(None)
    }

    /// Adds an entry that is answered with a value. Resolves with the value, with `Some(None)` if the operator gives
    /// none, or with `None` once it expires.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub async fn wait_for_value(
        &self,
        entry: PendingEntry,
    ) -> Result<Option<Option<String>>, AddEntryError> {
        let mut guard = self.add(entry)?;
        while let Some(mut answer) = guard.next_answer().await {
            let (verdict, value) = (answer.verdict, answer.value.take());
            answer.report_applied();
            if verdict != Verdict::Deferred {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// All open entries, the oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<Entry> {
        self.0.table().engine.entries()
    }

    /// Approves an entry or parts of it. Resolves once that is applied.
    ///
    /// # Errors
    /// The reason why nothing was decided.
    pub async fn approve(
        &self,
        id: &str,
        only: &[String],
        until_ms: Option<u64>,
        decider: &Decider,
    ) -> Result<DecisionResult, Refusal> {
        let typed_answer = TypedAnswer {
            verdict: Verdict::Approved,
            parts: only,
            until_ms,
            value: None,
        };
        self.decide(id, typed_answer, decider).await
    }

    /// Answers an entry that requests a value. Resolves once the value is delivered.
    ///
    /// # Errors
    /// The reason why nothing was decided.
    pub async fn answer(
        &self,
        id: &str,
        value: &str,
        decider: &Decider,
    ) -> Result<DecisionResult, Refusal> {
        let typed_answer = TypedAnswer {
            verdict: Verdict::Approved,
            parts: &[],
            until_ms: None,
            value: Some(value),
        };
        self.decide(id, typed_answer, decider).await
    }

    /// Denies or defers an entry. Resolves once that is applied.
    ///
    /// # Errors
    /// The reason why nothing was decided.
    pub async fn deny(
        &self,
        id: &str,
        only: &[String],
        later: bool,
        decider: &Decider,
    ) -> Result<DecisionResult, Refusal> {
        let verdict = if later {
            Verdict::Deferred
        } else {
            Verdict::Denied
        };
        let typed_answer = TypedAnswer {
            verdict,
            parts: only,
            until_ms: None,
            value: None,
        };
        self.decide(id, typed_answer, decider).await
    }

    async fn decide(
        &self,
        id: &str,
        typed_answer: TypedAnswer<'_>,
        decider: &Decider,
    ) -> Result<DecisionResult, Refusal> {
        let id = id.trim().to_ascii_lowercase();
        let TypedAnswer {
            verdict,
            parts: only,
            until_ms,
            value,
        } = typed_answer;
        let (entry, value, sender) = {
            let table = self.0.table();
            let to_refusal = |error: AnswerError| Refusal::BadParams(error.to_string());
            let entry = table.engine.find(&id, only).map_err(to_refusal)?;
            let approved = verdict == Verdict::Approved;
            let value = table
                .engine
                .resolve_value(&id, value, approved)
                .map_err(to_refusal)?;
            table
                .engine
                .check_expiry(&id, until_ms)
                .map_err(to_refusal)?;
            (
                entry.clone(),
                value,
                table.answer_channels.get(&id).cloned(),
            )
        };
        let parts = match only {
            [] => entry.parts,
            only => only.to_vec(),
        };
        let (receipt, applied) = oneshot::channel();
        let answer = OperatorAnswer {
            verdict,
            parts: parts.clone(),
            decider: decider.clone(),
            until_ms,
            value: value.clone(),
            receipt,
        };
        let withdrawn = || {
            Refusal::BadParams(format!(
                "{id} was answered or withdrawn meanwhile; list pending entries with `mgp pending`"
            ))
        };
        sender
            .ok_or_else(withdrawn)?
            .try_send(answer)
            .map_err(|_| withdrawn())?;
        match tokio::time::timeout(APPLY_TIMEOUT, applied).await {
            Ok(Ok(Ok(()))) => Ok(DecisionResult {
                text: entry.text,
                verdict,
                parts,
                value,
                until: until_ms.map(render_rfc3339_ms),
                id,
            }),
            Ok(Ok(Err(why))) => Err(Refusal::BadRequest(format!("{id} is not decided: {why}"))),
            Ok(Err(_)) => Err(withdrawn()),
            Err(_) => Err(Refusal::Internal(format!(
                "{id} is not decided: the answer was not applied within {} s",
                APPLY_TIMEOUT.as_secs()
            ))),
        }
    }
}

/// Escapes control and bidirectional characters of JSON text for display, and marks truncation.
#[must_use]
pub fn escape_for_display(json: &str) -> String {
    let plain = |c: char| c == ' ' || c.is_alphanumeric() || c.is_ascii_graphic();
    let mut out = String::new();
    for c in json.chars().take(DISPLAY_CHARS_MAX) {
        if plain(c) {
            out.push(c)
        } else {
            out.extend(c.escape_unicode())
        }
    }
    let truncated = json.chars().skip(DISPLAY_CHARS_MAX).count();
    if truncated > 0 {
        out.push_str(&format!(" (and {truncated} characters more)"));
    }
    out
}
