//! Registrations whose code cannot be read: nothing of them runs before a person has looked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mgp_engine::access::Principal;
use mgp_engine::approvals::{Asker, Question};
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::approvals::Subject;
use mgp_protocol::mgp::permission::Verdict;
use mgp_transports::log::ServerLog;
use tokio::sync::oneshot;

use super::record::Way;
use super::{Record, Registrar};
use crate::server::ServerHandle;
use crate::trace::Trace;

/// Registrations that wait for a person, each with what ends that. As many as there are records.
pub type Waiting = Mutex<HashMap<ServerId, oneshot::Sender<()>>>;

impl Registrar {
    /// Nothing of it runs before a person has looked at it.
    pub(super) async fn quarantined(
        self: Arc<Self>,
        mut record: Record,
        why: &str,
        mut gone: oneshot::Receiver<()>,
    ) {
        let Ok(mut asked) = self.approvals.ask(question(&record, why)) else {
            tracing::warn!(
                server = record.id,
                "too much waits for the operator; ask again after a start"
            );
            return;
        };
        self.hold(&record, asked.id());
        loop {
            let answer = tokio::select! {
                answer = asked.answer() => answer,
                _ = &mut gone => None,
            };
            let Some(answer) = answer else { return };
            match answer.verdict {
                Verdict::Deferred => answer.taken(),
                Verdict::Denied => {
                    let by = Principal::Operator(answer.decider.by.as_str().into());
                    let trace = Trace::minted();
                    match self.forget(&by, &trace, &record.server(), "denied").await {
                        Ok(_) => answer.taken(),
                        Err(error) => answer.failed(error.to_string()),
                    }
                    return;
                }
                Verdict::Approved => {
                    record.quarantine = None;
                    let mut book = self.book.lock().await;
                    if !book.servers.contains_key(&record.server()) {
                        answer.failed("it was deregistered meanwhile".into());
                        return;
                    }
                    match book.put(record.clone()).await {
                        Ok(()) => answer.taken(),
                        Err(error) => return answer.failed(error.to_string()),
                    }
                    self.waiting().remove(&record.server());
                    self.start(&record).await;
                    return;
                }
            }
        }
    }

    /// It is shown, and what it waits for.
    fn hold(&self, record: &Record, question: &str) {
        let (id, own) = (record.server(), std::path::PathBuf::new());
        let declared = record.spec(&self.background, own, None).mgp;
        let why = format!("waits for approval: mgp approve {question}");
        let held = ServerHandle::held(id.clone(), ServerLog::new(), declared, &why);
        self.servers.update(|servers| {
            let mut servers = servers.clone();
            servers.insert(id, held);
            servers
        });
    }

    pub(super) fn waiting(&self) -> MutexGuard<'_, HashMap<ServerId, oneshot::Sender<()>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn question(record: &Record, why: &str) -> Question {
    let way = match &record.way {
        Way::Stdio { command, args, .. } => format!("{command} {}", args.join(" ")),
        Way::Http { url } => url.clone(),
    };
    let (needs, justified) = (&record.permissions, &record.justification);
    Question {
        subject: Subject::Registration,
        asker: Asker::Agent(AgentId::new(record.created_by.clone())),
        server: Some(record.server()),
        text: format!(
            "{} registered server {}: {why}",
            record.created_by, record.id
        ),
        details: [
            Some(format!("it runs: {way}")),
            (!needs.is_empty()).then(|| format!("it needs: {}", needs.join(", "))),
            justified
                .as_ref()
                .map(|why| format!("it is said to be for: {why}")),
        ]
        .into_iter()
        .flatten()
        .collect(),
        parts: Vec::new(),
        until_ms: None,
    }
}
