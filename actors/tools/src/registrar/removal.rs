//! Ends registered servers: removed by their registrant, by the operator, or with their session.

use std::sync::Arc;
use std::time::Duration;

use mgp_engine::policy::access::{ChangeRequest, Principal};
use mgp_protocol::ids::{ConnectionId, ServerId};
use mgp_protocol::mgp::audit::{EventType, Outcome};
use mgp_protocol::mgp::discovery::{Deregister, Deregistered};
use mgp_protocol::refusal::Refusal;
use serde_json::json;

use super::{Record, Registrar, audit_actor, audit_target};
use mgp_callers::request::Caller;
use mgp_runtime::task;
use mgp_runtime::time::unix_ms;
use mgp_runtime::trace::Trace;
use mgp_store::audit::new_event;
use mgp_store::removal;

/// How long a deregistration waits for its server to terminate.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

impl Registrar {
    /// `mgp/discovery/deregister`.
    ///
    /// # Errors
    /// [`Refusal::UnknownServer`]; [`Refusal::Forbidden`] for a server that somebody else registered or that is
    /// configured; or a failed write.
    pub async fn deregister(
        &self,
        caller: &Caller,
        trace: &Trace,
        ask: Deregister,
    ) -> Result<Deregistered, Refusal> {
        let id = ServerId::new(ask.id.clone());
        let record = self.registrations.lock().await.servers.get(&id).cloned();
        if !record
            .as_ref()
            .is_some_and(|record| record.is_owned_by(caller))
        {
            let refusal = self.not_owner_refusal(caller, &id, record.as_ref());
            self.record_removal_refusal(caller, trace, &id, &refusal);
            return Err(refusal);
        }
        let reason = ask.reason.as_deref().unwrap_or_default();
        self.remove(&caller.identity(), trace, &id, reason).await
    }

    /// Why this caller may not remove a server that it did not register. One that it may not see is unknown to it.
    fn not_owner_refusal(
        &self,
        caller: &Caller,
        id: &ServerId,
        record: Option<&Record>,
    ) -> Refusal {
        let known = self.servers.load().contains_key(id) && caller.view.includes(id);
        let table = self.access.table();
        if !known || !table.is_server_visible(&caller.identity(), id, unix_ms()) {
            return Refusal::UnknownServer(id.to_string());
        }
        match record {
            Some(record) => Refusal::Forbidden(format!(
                "server {id} was registered by {}: only that agent and the operator may remove it",
                record.created_by
            )),
            None if caller.operator => Refusal::BadParams(format!(
                "server {id} is not registered but configured in a file: remove it with `mgp servers remove {id}`"
            )),
            None => Refusal::Forbidden(format!(
                "server {id} is configured by the operator in a file; agents may remove only servers that they registered"
            )),
        }
    }

    /// Records an attempt to remove somebody else's server.
    fn record_removal_refusal(&self, caller: &Caller, trace: &Trace, id: &ServerId, why: &Refusal) {
        if let Refusal::Forbidden(reason) = why {
            let (actor, details) = (audit_actor(&caller.identity()), json!({ "reason": reason }));
            let kind = EventType::SERVER_DEREGISTERED;
            let (trace, outcome) = (&trace.id, Outcome::Denied);
            self.audit.record(new_event(
                kind,
                actor,
                audit_target(id.as_str()),
                trace,
                outcome,
                details,
            ));
        }
    }

    /// Removes the servers that were registered for a session that has ended.
    pub fn end_session_servers(self: &Arc<Self>, session: ConnectionId) {
        let registrar = self.clone();
        task::spawn_detached("registrar.session_ended", async move {
            let servers = registrar
                .registrations
                .lock()
                .await
                .session_servers(session);
            let kernel = Principal::Operator("kernel".into());
            for id in servers {
                let trace = Trace::generate();
                let removal = registrar.remove(&kernel, &trace, &id, "its session ended");
                if let Err(error) = removal.await {
                    tracing::error!(server = %id, %error, "its session ended, but it was not removed");
                }
            }
        });
    }

    pub(super) async fn remove(
        &self,
        principal: &Principal,
        trace: &Trace,
        id: &ServerId,
        reason: &str,
    ) -> Result<Deregistered, Refusal> {
        let mut registrations = self.registrations.lock().await;
        let Some(record) = registrations.servers.get(id).cloned() else {
            return Err(Refusal::UnknownServer(id.to_string()));
        };
        let mut event = self.audit_event(principal, trace, &record, EventType::SERVER_DEREGISTERED);
        event.details.insert("reason".into(), reason.into());
        let written = self.audit.record_decision(event).await;
        written.map_err(|error| Refusal::Internal(error.to_string()))?;
        registrations.remove(id).await?;
        drop(registrations);
        self.lock_pending().remove(id);
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
            let _ = tokio::time::timeout(STOP_TIMEOUT, stopped).await;
        }
        self.revoke_grants(id, trace).await;
        let tools = tools.iter().flat_map(|tools| tools.iter());
        Ok(Deregistered {
            id: id.to_string(),
            tools: tools.map(ToString::to_string).collect(),
        })
    }

    /// Revokes the grants of a removed server and frees its name, so that another server of that name starts without
    /// grants. If that fails, the name stays taken, and the next start of the kernel retries.
    pub(super) async fn revoke_grants(&self, id: &ServerId, trace: &Trace) {
        let kernel = Principal::Operator("kernel".into());
        let revoke = ChangeRequest::RevokeServer(id.clone());
        let revoked = self.access.record(kernel, trace.id.clone(), revoke);
        if let Err(error) = revoked.await {
            return tracing::error!(server = %id, %error, "it is removed, but its grants are not revoked");
        }
        let (pins, server) = ([self.pins.clone(), self.skill_pins.clone()], id.clone());
        let sandboxes = &self.connector.sandboxes;
        let folders = [sandboxes.server_folder(id), sandboxes.code_folder(id)];
        let removed = task::run_blocking("registrar.remove", move || {
            pins.iter().try_for_each(|pins| pins.forget(&server))?;
            folders
                .iter()
                .try_for_each(|folder| removal::remove(folder))
        });
        if let Err(error) = removed
            .await
            .unwrap_or_else(|e| Err(std::io::Error::other(e)))
        {
            return tracing::error!(server = %id, %error, "it is removed, but its files are not deleted");
        }
        if let Err(error) = self.registrations.lock().await.finish_removal(id).await {
            return tracing::error!(server = %id, %error, "it is removed, but its name is not free");
        }
        if let Some(tree) = self.tree.get() {
            tree.release_name(id.clone()).await;
        }
    }
}
