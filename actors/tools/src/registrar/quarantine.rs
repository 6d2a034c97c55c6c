//! Registrations whose code cannot be read: nothing of them runs before a person has approved it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mgp_engine::policy::access::Principal;
use mgp_engine::policy::approvals::{PendingEntry, Requester};
use mgp_engine::servers::sandbox::PinnedProgram;
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::approvals::Subject;
use mgp_protocol::mgp::permission::Verdict;
use mgp_transports::child::ChildSpec;
use mgp_transports::log::ServerLog;
use tokio::sync::oneshot;

use super::record::ConnectionMethod;
use super::{Record, Registrar};
use mgp_policy::approvals::{OperatorAnswer, PendingEntryGuard};
use mgp_runtime::task;
use mgp_runtime::trace::Trace;
use mgp_servers::sandbox::{find_change, pin_programs};
use mgp_servers::server::ServerHandle;

/// Registrations that wait for a person, each with the handle that ends its wait. As many as there are
/// records.
pub type PendingApprovals = Mutex<HashMap<ServerId, oneshot::Sender<()>>>;

impl Registrar {
    /// Asks a person; nothing runs before the approval. Calls to it meanwhile are answered with that reason.
    pub(super) fn await_approval(self: &Arc<Self>, record: Record) {
        let why = record.quarantine.as_deref().unwrap_or_default();
        let Ok(asked) = self.approvals.add(approval_question(&record, why)) else {
            tracing::warn!(
                server = record.id,
                "too much waits for the operator; ask again after a start"
            );
            self.list_as_pending(
                &record,
                "`mgp pending` is full: answer what is there, then start the kernel again",
            );
            return;
        };
        self.list_as_pending(&record, &format!("mgp approve {}", asked.id()));
        let (wanted, gone) = oneshot::channel();
        self.lock_pending().insert(record.server_id(), wanted);
        let (me, mut first) = (self.clone(), Some((asked, gone)));
        let start = move || {
            let (me, record, first) = (me.clone(), record.clone(), first.take());
            async move {
                match first {
                    Some((asked, gone)) => me.run_approval(record, asked, gone).await,
                    // The handling of an answer panicked: the entry is added again.
                    None => me.await_approval(record),
                }
            }
        };
        let waiting = self.supervisor.start_child("registrar.question", start);
        drop(waiting.detach());
    }

    async fn run_approval(
        self: Arc<Self>,
        mut record: Record,
        mut asked: PendingEntryGuard,
        mut gone: oneshot::Receiver<()>,
    ) {
        loop {
            let answer = tokio::select! {
                answer = asked.next_answer() => answer,
                _ = &mut gone => None,
            };
            let Some(answer) = answer else { return };
            match answer.verdict {
                Verdict::Deferred => answer.report_applied(),
                Verdict::Denied => {
                    let by = Principal::Operator(answer.decider.name.as_str().into());
                    let trace = Trace::generate();
                    match self
                        .remove(&by, &trace, &record.server_id(), "denied")
                        .await
                    {
                        Ok(_) => answer.report_applied(),
                        Err(error) => answer.report_failed(error.to_string()),
                    }
                    return;
                }
                Verdict::Approved => {
                    let now = self.current_files(&record).await;
                    if let Some(path) = find_change(&record.pinned, &now) {
                        return self.ask_again(record, now, answer, &path).await;
                    }
                    record.quarantine = None;
                    let mut registrations = self.registrations.lock().await;
                    if !registrations.servers.contains_key(&record.server_id()) {
                        answer.report_failed("it was deregistered meanwhile".into());
                        return;
                    }
                    match registrations.save_record(record.clone()).await {
                        Ok(()) => answer.report_applied(),
                        Err(error) => return answer.report_failed(error.to_string()),
                    }
                    self.lock_pending().remove(&record.server_id());
                    if !self.start_recorded(&record).await {
                        tracing::warn!(server = record.id, "it was allowed, and is not started");
                    }
                    return;
                }
            }
        }
    }

    /// The files changed since they were shown: nothing is started, and the person is asked again about the present
    /// files.
    async fn ask_again(
        self: Arc<Self>,
        mut record: Record,
        now: Vec<PinnedProgram>,
        answer: OperatorAnswer,
        path: &str,
    ) {
        record.pinned = now;
        let put = {
            let mut registrations = self.registrations.lock().await;
            if registrations.servers.contains_key(&record.server_id()) {
                registrations.save_record(record.clone()).await
            } else {
                answer.report_failed("it was deregistered meanwhile".into());
                return;
            }
        };
        if let Err(error) = put {
            return answer.report_failed(error.to_string());
        }
        answer.report_failed(format!(
            "{path} is not what it was when you were asked: nothing was started; look at it, and at what `mgp pending` asks now"
        ));
        self.await_approval(record);
    }

    /// Starts a server from an earlier run of the kernel, or asks for approval if its files are not those that a
    /// person approved.
    pub(super) async fn start_if_approved(self: &Arc<Self>, mut record: Record) -> bool {
        let allowed = record.quarantine.is_none() && !record.pinned.is_empty();
        if allowed {
            let now = self.current_files(&record).await;
            if let Some(path) = find_change(&record.pinned, &now) {
                record.quarantine = Some(format!("{path} has changed since it was allowed"));
                record.pinned = now;
                if let Err(error) = self
                    .registrations
                    .lock()
                    .await
                    .save_record(record.clone())
                    .await
                {
                    tracing::error!(server = record.id, %error, "what it is run from has changed, and that cannot be kept");
                }
            }
        }
        self.start_or_ask(record).await
    }

    /// The files it would be run from.
    pub(super) async fn current_files(&self, record: &Record) -> Vec<PinnedProgram> {
        let ConnectionMethod::Stdio { command, args, env } = &record.way else {
            return Vec::new();
        };
        let spec = ChildSpec {
            id: record.server_id(),
            command: command.clone(),
            args: args.clone(),
            env: env.clone(),
            inherit_env: Vec::new(),
            cwd: None,
            kernel_mark: String::new(),
            launcher: None,
        };
        let interpreters = self.defaults.interpreters.clone();
        let pinning = task::run_blocking("registrar.pin", move || {
            let meant = interpreters.usual_name(&spec.command);
            let meant = meant.and_then(|name| interpreters.find(name));
            let command = meant.map_or(spec.command.clone(), |path| path.display().to_string());
            pin_programs(&ChildSpec { command, ..spec })
        });
        pinning.await.unwrap_or_default()
    }

    /// The server is listed, with what it waits for.
    fn list_as_pending(&self, record: &Record, remedy: &str) {
        let (id, own) = (record.server_id(), std::path::PathBuf::new());
        let declared = record.to_spec(&self.defaults, own, None).mgp;
        let why = format!("waits for approval: {remedy}");
        let held = ServerHandle::new_unapproved(id.clone(), ServerLog::new(), declared, &why);
        self.servers.update(|servers| {
            let mut servers = servers.clone();
            servers.insert(id, held);
            servers
        });
    }

    pub(super) fn lock_pending(&self) -> MutexGuard<'_, HashMap<ServerId, oneshot::Sender<()>>> {
        self.pending_approvals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn approval_question(record: &Record, why: &str) -> PendingEntry {
    let way = match &record.way {
        ConnectionMethod::Stdio { command, args, .. } => format!("{command} {}", args.join(" ")),
        ConnectionMethod::Http { url } => url.clone(),
    };
    let (needs, justified) = (&record.permissions, &record.justification);
    let files = record.pinned.iter();
    let files = files.map(|file| format!("{} ({:.16})", file.path.display(), file.hash));
    let files: Vec<String> = files.collect();
    PendingEntry {
        subject: Subject::Registration,
        requester: Requester::Agent(AgentId::new(record.created_by.clone())),
        server: Some(record.server_id()),
        text: format!(
            "{} registered server {}: {why}",
            record.created_by, record.id
        ),
        details: [
            Some(format!("it runs: {way}")),
            (!files.is_empty()).then(|| format!("from: {}", files.join(", "))),
            (!needs.is_empty()).then(|| format!("it needs: {}", needs.join(", "))),
            justified
                .as_ref()
                .map(|why| format!("it is said to be for: {why}")),
        ]
        .into_iter()
        .flatten()
        .collect(),
        parts: Vec::new(),
        options: None,
        expires_ms: None,
    }
}
