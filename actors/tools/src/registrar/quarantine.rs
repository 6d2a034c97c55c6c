//! Registrations whose code cannot be read: they are not started before the operator has approved them.

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
use mgp_policy::{OperatorAnswer, PendingEntryGuard};
use mgp_runtime::task;
use mgp_runtime::trace::Trace;
use mgp_servers::ServerHandle;
use mgp_servers::sandbox::{find_change, pin_programs};

/// Registrations that wait for the operator, each with the sender that ends its wait. Bounded by the records.
pub type PendingApprovals = Mutex<HashMap<ServerId, oneshot::Sender<()>>>;

impl Registrar {
    /// Adds a pending entry; the server is not started before the approval. Meanwhile calls to it fail with that reason.
    pub(super) fn await_approval(self: &Arc<Self>, record: Record) {
        let why = record.quarantine.as_deref().unwrap_or_default();
        let Ok(guard) = self.approvals.add(approval_entry(&record, why)) else {
            tracing::warn!(
                server = record.id,
                "too many entries wait for the operator; it is added after a restart"
            );
            self.list_as_pending(
                &record,
                "`mgp pending` is full: decide its entries, then restart the kernel",
            );
            return;
        };
        self.list_as_pending(&record, &format!("mgp approve {}", guard.id()));
        let (end_wait, withdrawn) = oneshot::channel();
        self.lock_pending().insert(record.server_id(), end_wait);
        let (registrar, mut first) = (self.clone(), Some((guard, withdrawn)));
        let start = move || {
            let (registrar, record, first) = (registrar.clone(), record.clone(), first.take());
            async move {
                match first {
                    Some((guard, withdrawn)) => {
                        registrar.run_approval(record, guard, withdrawn).await
                    }
                    // The task panicked while it handled an answer: add the entry again.
                    None => registrar.await_approval(record),
                }
            }
        };
        let task = self.supervisor.start_child("registrar.question", start);
        drop(task.detach());
    }

    async fn run_approval(
        self: Arc<Self>,
        mut record: Record,
        mut guard: PendingEntryGuard,
        mut withdrawn: oneshot::Receiver<()>,
    ) {
        loop {
            let answer = tokio::select! {
                answer = guard.next_answer() => answer,
                _ = &mut withdrawn => None,
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
                    let current = self.current_files(&record).await;
                    if let Some(path) = find_change(&record.pinned, &current) {
                        return self.ask_again(record, current, answer, &path).await;
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
                        tracing::warn!(server = record.id, "it was approved, but not started");
                    }
                    return;
                }
            }
        }
    }

    /// Handles files that changed since the request: starts nothing, and requests approval of the current files.
    async fn ask_again(
        self: Arc<Self>,
        mut record: Record,
        current: Vec<PinnedProgram>,
        answer: OperatorAnswer,
        path: &str,
    ) {
        record.pinned = current;
        let saved = {
            let mut registrations = self.registrations.lock().await;
            if registrations.servers.contains_key(&record.server_id()) {
                registrations.save_record(record.clone()).await
            } else {
                answer.report_failed("it was deregistered meanwhile".into());
                return;
            }
        };
        if let Err(error) = saved {
            return answer.report_failed(error.to_string());
        }
        answer.report_failed(format!(
            "{path} is not what it was when you were asked: nothing was started; look at it, and at what `mgp pending` asks now"
        ));
        self.await_approval(record);
    }

    /// Starts a server from an earlier run of the kernel, or requests approval if its files are not the approved ones.
    pub(super) async fn start_if_approved(self: &Arc<Self>, mut record: Record) -> bool {
        let is_approved = record.quarantine.is_none() && !record.pinned.is_empty();
        if is_approved {
            let current = self.current_files(&record).await;
            if let Some(path) = find_change(&record.pinned, &current) {
                record.quarantine = Some(format!("{path} has changed since it was allowed"));
                record.pinned = current;
                if let Err(error) = self
                    .registrations
                    .lock()
                    .await
                    .save_record(record.clone())
                    .await
                {
                    tracing::error!(server = record.id, %error, "its files have changed, and that cannot be stored");
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
            let interpreter = interpreters.usual_name(&spec.command);
            let interpreter = interpreter.and_then(|name| interpreters.find(name));
            let command =
                interpreter.map_or(spec.command.clone(), |path| path.display().to_string());
            pin_programs(&ChildSpec { command, ..spec })
        });
        pinning.await.unwrap_or_default()
    }

    /// Lists the server as waiting for approval.
    fn list_as_pending(&self, record: &Record, remedy: &str) {
        let (id, folder) = (record.server_id(), std::path::PathBuf::new());
        let declared = record.to_spec(&self.defaults, folder, None).mgp;
        let why = format!("waits for approval: {remedy}");
        let handle = ServerHandle::new_unapproved(id.clone(), ServerLog::new(), declared, &why);
        self.servers.update(|servers| {
            let mut servers = servers.clone();
            servers.insert(id, handle);
            servers
        });
    }

    pub(super) fn lock_pending(&self) -> MutexGuard<'_, HashMap<ServerId, oneshot::Sender<()>>> {
        self.pending_approvals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn approval_entry(record: &Record, why: &str) -> PendingEntry {
    let transport = match &record.way {
        ConnectionMethod::Stdio { command, args, .. } => format!("{command} {}", args.join(" ")),
        ConnectionMethod::Http { url } => url.clone(),
    };
    let (permissions, justification) = (&record.permissions, &record.justification);
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
            Some(format!("it runs: {transport}")),
            (!files.is_empty()).then(|| format!("from: {}", files.join(", "))),
            (!permissions.is_empty()).then(|| format!("it needs: {}", permissions.join(", "))),
            justification
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
