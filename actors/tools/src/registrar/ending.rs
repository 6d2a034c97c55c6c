//! How registered servers end: taken out by who registered them, by the operator, or with their session.

use std::sync::Arc;
use std::time::Duration;

use mgp_engine::policy::access::{self, Principal};
use mgp_protocol::ids::{ConnectionId, ServerId};
use mgp_protocol::mgp::audit::{EventType, Outcome};
use mgp_protocol::mgp::discovery::{Deregister, Deregistered};
use mgp_protocol::refusal::Refusal;
use serde_json::json;

use super::{Record, Registrar, actor, target};
use mgp_callers::request::Caller;
use mgp_runtime::task;
use mgp_runtime::time::unix_ms;
use mgp_runtime::trace::Trace;
use mgp_store::audit::event;
use mgp_store::removal;

/// How long a deregistration waits for its server to be gone.
const GONE: Duration = Duration::from_secs(60);

impl Registrar {
    /// `mgp/discovery/deregister`.
    ///
    /// # Errors
    /// [`Refusal::UnknownServer`]; [`Refusal::Forbidden`] for what was registered by somebody else, or
    /// is configured; or that it could not be written down.
    pub async fn deregister(
        &self,
        caller: &Caller,
        trace: &Trace,
        ask: Deregister,
    ) -> Result<Deregistered, Refusal> {
        let id = ServerId::new(ask.id.clone());
        let record = self.registrations.lock().await.servers.get(&id).cloned();
        if !record.as_ref().is_some_and(|record| record.is_of(caller)) {
            let refusal = self.not_theirs(caller, &id, record.as_ref());
            self.asked_in_vain(caller, trace, &id, &refusal);
            return Err(refusal);
        }
        let reason = ask.reason.as_deref().unwrap_or_default();
        self.forget(&caller.identity(), trace, &id, reason).await
    }

    /// Why this caller may not end a server that it did not register. One that it may not see is unknown to
    /// it.
    fn not_theirs(&self, caller: &Caller, id: &ServerId, record: Option<&Record>) -> Refusal {
        let known = self.servers.load().contains_key(id) && caller.view.shows(id);
        let table = self.access.table();
        if !known || !table.sees(&caller.identity(), id, unix_ms()) {
            return Refusal::UnknownServer(id.to_string());
        }
        match record {
            Some(record) => Refusal::Forbidden(format!(
                "server {id} was registered by {}: only it and the operator may take it out",
                record.created_by
            )),
            None if caller.operator => Refusal::BadParams(format!(
                "server {id} was not registered, it is configured in a file: `mgp servers remove {id}` takes it out"
            )),
            None => Refusal::Forbidden(format!(
                "server {id} is configured by the operator in a file, and agents may not take it out: they take out what they registered"
            )),
        }
    }

    /// Records that somebody asked to end a server that is not theirs.
    fn asked_in_vain(&self, caller: &Caller, trace: &Trace, id: &ServerId, why: &Refusal) {
        if let Refusal::Forbidden(reason) = why {
            let (who, details) = (actor(&caller.identity()), json!({ "reason": reason }));
            let kind = EventType::SERVER_DEREGISTERED;
            let (trace, ended) = (&trace.id, Outcome::Denied);
            self.audit
                .tell(event(kind, who, target(id.as_str()), trace, ended, details));
        }
    }

    /// A session has ended: ends the servers that were registered for it alone.
    pub fn ended(self: &Arc<Self>, session: ConnectionId) {
        let me = self.clone();
        task::detached("registrar.session_ended", async move {
            let its = me.registrations.lock().await.of_session(session);
            let kernel = Principal::Operator("kernel".into());
            for id in its {
                let trace = Trace::minted();
                let gone = me.forget(&kernel, &trace, &id, "its session ended");
                if let Err(error) = gone.await {
                    tracing::error!(server = %id, %error, "its session ended, and it did not");
                }
            }
        });
    }

    pub(super) async fn forget(
        &self,
        who: &Principal,
        trace: &Trace,
        id: &ServerId,
        reason: &str,
    ) -> Result<Deregistered, Refusal> {
        let mut registrations = self.registrations.lock().await;
        let Some(record) = registrations.servers.get(id).cloned() else {
            return Err(Refusal::UnknownServer(id.to_string()));
        };
        let mut event = self.event(who, trace, &record, EventType::SERVER_DEREGISTERED);
        event.details.insert("reason".into(), reason.into());
        let written = self.audit.decided(event).await;
        written.map_err(|error| Refusal::Broken(error.to_string()))?;
        registrations.strike(id).await?;
        drop(registrations);
        self.waiting().remove(id);
        let handle = self.servers.load().get(id).cloned();
        let tools = handle.map(|handle| handle.tools());
        let stopped = match self.tree.get() {
            Some(tree) => tree.stop_server(id.clone()).await,
            None => None,
        };
        self.servers.update(|servers| {
            let mut servers = servers.clone();
            servers.remove(id);
            servers
        });
        if let Some(stopped) = stopped {
            let _ = tokio::time::timeout(GONE, stopped).await;
        }
        self.vacate(id, trace).await;
        let tools = tools.iter().flat_map(|tools| tools.iter());
        Ok(Deregistered {
            id: id.to_string(),
            tools: tools.map(ToString::to_string).collect(),
        })
    }

    /// Revokes what was granted to a server that is gone, and frees its name, so that another server of
    /// that name begins without grants. If that fails, the name stays taken, and the next start of the
    /// kernel tries again.
    pub(super) async fn vacate(&self, id: &ServerId, trace: &Trace) {
        let (its, kernel) = (id.clone(), Principal::Operator("kernel".into()));
        let taken_back = self.access.record(kernel, trace.id.clone(), move |ledger| {
            Ok(access::vacate(&its, ledger.grants, ledger.authority))
        });
        if let Err(error) = taken_back.await {
            return tracing::error!(server = %id, %error, "it is gone, and what was granted on it is not");
        }
        let (pins, its) = (self.pins.clone(), id.clone());
        let sandboxes = &self.connector.sandboxes;
        let folders = [sandboxes.own_folder(id), sandboxes.code_folder(id)];
        let removed = task::blocking("registrar.remove", move || {
            pins.forget(&its)?;
            folders
                .iter()
                .try_for_each(|folder| removal::remove(folder))
        });
        if let Err(error) = removed
            .await
            .unwrap_or_else(|e| Err(std::io::Error::other(e)))
        {
            return tracing::error!(server = %id, %error, "it is gone, and its files are not");
        }
        if let Err(error) = self.registrations.lock().await.ended(id).await {
            return tracing::error!(server = %id, %error, "it is gone, and its name is not free");
        }
        if let Some(tree) = self.tree.get() {
            tree.name_freed(id.clone()).await;
        }
    }
}
