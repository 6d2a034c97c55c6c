//! Questions that wait for the operator.
//! Asked by gates of servers, pins, and calls that need confirmation; reports changes to subscriptions.
//!
//! A question is in the operator's list before [`ApprovalsHandle::add`] returns, and is withdrawn when the
//! asker is dropped, so that no question outlives its asker.

use mgp_runtime::randomness;
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

use mgp_runtime::event_sink::EventSink;
use mgp_runtime::time::unix_ms;

/// Characters of JSON text shown to a person; longer text is cut, with a remark.
const DISPLAY_CHARS_MAX: usize = 2_000;
/// Answers to one question that may be queued.
const ANSWER_QUEUE_CAPACITY: usize = 8;
/// How long carrying out an answer may take; it only has to be written to disk.
const APPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// The owner of the kernel's own resources: no server can have this id.
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

/// Handle for everyone.
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
    /// The channel to the asker of each question.
    askers: HashMap<String, mpsc::Sender<OperatorAnswer>>,
}

/// Who decided.
#[derive(Debug, Clone)]
pub struct Decider {
    /// The agent or operator, as authenticated by the door.
    pub name: String,
    /// The trace of the deciding request.
    pub trace: TraceId,
}

/// An answer of the operator.
#[derive(Debug)]
pub struct OperatorAnswer {
    /// The decision. [`Verdict::Deferred`] means not now: the question stays open.
    pub verdict: Verdict,
    /// The parts it is about; when empty, all that are open.
    pub parts: Vec<String>,
    /// Who decided, and in which request.
    pub decider: Decider,
    /// When an approval expires, in milliseconds since 1970.
    pub(crate) until_ms: Option<u64>,
    /// The answer to a question that takes a value.
    pub value: Option<String>,
    receipt: oneshot::Sender<Result<(), String>>,
}

impl OperatorAnswer {
    /// Reports to the operator that the answer was carried out, and is on disk if necessary.
    pub fn report_applied(self) {
        let _ = self.receipt.send(Ok(()));
    }

    /// Reports to the operator why it could not be carried out.
    pub fn report_failed(self, why: String) {
        let _ = self.receipt.send(Err(why));
    }
}

/// An answer as it was typed.
struct TypedAnswer<'a> {
    verdict: Verdict,
    parts: &'a [String],
    until_ms: Option<u64>,
    value: Option<&'a str>,
}

/// An open question. Dropping it withdraws it.
#[derive(Debug)]
pub struct PendingEntryGuard {
    id: String,
    until_ms: Option<u64>,
    answers: mpsc::Receiver<OperatorAnswer>,
    shared: Arc<SharedApprovals>,
}

impl PendingEntryGuard {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The next answer; `None` when its time is over. If the answer is dropped unreported, the operator is
    /// told that it had no effect.
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

    /// All of it is decided: removes it from the list.
    pub fn close(&self) {
        let open = {
            let mut table = self.shared.table();
            table.askers.remove(&self.id);
            table.engine.close(&self.id)
        };
        if open.is_some() {
            tracing::info!(id = %self.id, "waits for the operator no more");
            self.shared.notify_changed();
        }
    }

    /// Part of it is decided: only these parts stay open.
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

    /// Notifies subscribers of the list.
    fn notify_changed(&self) {
        self.on_change.send(());
    }
}

impl ApprovalsHandle {
    /// An empty list; `changed` notifies subscribers.
    #[must_use]
    pub fn new(changed: EventSink<()>) -> Self {
        Self(Arc::new(SharedApprovals {
            table: Mutex::default(),
            on_change: changed,
        }))
    }

    /// Adds a question to the operator's list.
    ///
    /// # Errors
    /// [`AddEntryError`] at a limit, which the asker treats as a no.
    pub fn add(&self, question: PendingEntry) -> Result<PendingEntryGuard, AddEntryError> {
        let (way, answers) = mpsc::channel(ANSWER_QUEUE_CAPACITY);
        let until_ms = question.expires_ms;
        let text = question.text.clone();
        let id = {
            let mut table = self.0.table();
            let chance = u32::from_le_bytes(randomness::random_bytes());
            let id = table.engine.add(question, chance, unix_ms())?;
            table.askers.insert(id.clone(), way);
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

    /// Asks a question that is answered as a whole: resolves with the answer, or `None` when its time is
    /// over.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub async fn wait_for_verdict(
        &self,
        question: PendingEntry,
    ) -> Result<Option<bool>, AddEntryError> {
        let mut asked = self.add(question)?;
        while let Some(answer) = asked.next_answer().await {
            let verdict = answer.verdict;
            answer.report_applied();
            match verdict {
                Verdict::Approved => return Ok(Some(true)),
                Verdict::Denied => return Ok(Some(false)),
                // It stays open.
                Verdict::Deferred => {}
            }
        }
        Ok(None)
    }

    /// Asks a question that is answered with a value: resolves with it, with none when the operator does not
    /// give one, or with nothing when its time is over.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub async fn wait_for_value(
        &self,
        question: PendingEntry,
    ) -> Result<Option<Option<String>>, AddEntryError> {
        let mut asked = self.add(question)?;
        while let Some(mut answer) = asked.next_answer().await {
            let (verdict, value) = (answer.verdict, answer.value.take());
            answer.report_applied();
            if verdict != Verdict::Deferred {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// All open questions, the oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<Entry> {
        self.0.table().engine.entries()
    }

    /// The operator approves a question or parts of it. Answered when that is carried out.
    ///
    /// # Errors
    /// Why nothing was decided, in words.
    pub async fn approve(
        &self,
        id: &str,
        only: &[String],
        until_ms: Option<u64>,
        decider: &Decider,
    ) -> Result<DecisionResult, Refusal> {
        let said = TypedAnswer {
            verdict: Verdict::Approved,
            parts: only,
            until_ms,
            value: None,
        };
        self.decide(id, said, decider).await
    }

    /// The operator answers a question that takes a value. Answered when it was passed on.
    ///
    /// # Errors
    /// Why nothing was decided, in words.
    pub async fn answer(
        &self,
        id: &str,
        value: &str,
        decider: &Decider,
    ) -> Result<DecisionResult, Refusal> {
        let said = TypedAnswer {
            verdict: Verdict::Approved,
            parts: &[],
            until_ms: None,
            value: Some(value),
        };
        self.decide(id, said, decider).await
    }

    /// The operator denies or defers a question. Answered when that is carried out.
    ///
    /// # Errors
    /// Why nothing was decided, in words.
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
        let said = TypedAnswer {
            verdict,
            parts: only,
            until_ms: None,
            value: None,
        };
        self.decide(id, said, decider).await
    }

    async fn decide(
        &self,
        id: &str,
        said: TypedAnswer<'_>,
        decider: &Decider,
    ) -> Result<DecisionResult, Refusal> {
        let id = id.trim().to_ascii_lowercase();
        let TypedAnswer {
            verdict,
            parts: only,
            until_ms,
            value: typed,
        } = said;
        let (question, value, way) = {
            let table = self.0.table();
            let no = |no: AnswerError| Refusal::BadParams(no.to_string());
            let question = table.engine.find(&id, only).map_err(no)?;
            let approved = verdict == Verdict::Approved;
            let value = table
                .engine
                .resolve_value(&id, typed, approved)
                .map_err(no)?;
            table.engine.check_expiry(&id, until_ms).map_err(no)?;
            (question.clone(), value, table.askers.get(&id).cloned())
        };
        let parts = match only {
            [] => question.parts,
            only => only.to_vec(),
        };
        let (receipt, taken) = oneshot::channel();
        let answer = OperatorAnswer {
            verdict,
            parts: parts.clone(),
            decider: decider.clone(),
            until_ms,
            value: value.clone(),
            receipt,
        };
        let gone = || {
            Refusal::BadParams(format!(
                "{id} was answered or taken back meanwhile; `mgp pending` shows what waits"
            ))
        };
        way.ok_or_else(gone)?.try_send(answer).map_err(|_| gone())?;
        match tokio::time::timeout(APPLY_TIMEOUT, taken).await {
            Ok(Ok(Ok(()))) => Ok(DecisionResult {
                text: question.text,
                verdict,
                parts,
                value,
                until: until_ms.map(render_rfc3339_ms),
                id,
            }),
            Ok(Ok(Err(why))) => Err(Refusal::BadRequest(format!("{id} is not decided: {why}"))),
            Ok(Err(_)) => Err(gone()),
            Err(_) => Err(Refusal::Internal(format!(
                "{id} is not decided: nothing came of it within {} s",
                APPLY_TIMEOUT.as_secs()
            ))),
        }
    }
}

/// JSON text as shown to a person: control and bidirectional characters are escaped, and cuts are
/// marked.
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
    let more = json.chars().skip(DISPLAY_CHARS_MAX).count();
    if more > 0 {
        out.push_str(&format!(" (and {more} characters more)"));
    }
    out
}
