//! Handles the events of a server's link.

use std::future::Future;
use std::sync::Arc;

use mgp_engine::callers::tasks::{Maker, TaskRef};
use mgp_engine::policy::approvals::{AddEntryError, PendingEntry};
use mgp_json::member;
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::mcp;
use mgp_protocol::mgp::audit::{Replay, Replayed};
use mgp_protocol::mgp::permission::{Ask, Decision};
use mgp_protocol::refusal::Refusal;

use super::{ServerActor, ServerEvent, ServerHandle, ServerMsg};
use crate::audit_forwarding::{AUDIT_LOG, can_read_audit_log};
use crate::link::LinkEvent;
use mgp_callers::Directory;
use mgp_callers::agent::Agent;
use mgp_policy::PermissionsHandle;
use mgp_runtime::{EventSink, Mailbox, Reply, task};
use mgp_store::audit::AuditHandle;

/// Receives the events of the links of one generation.
#[derive(Debug)]
struct LinkListener {
    handle: Arc<ServerHandle>,
    supervisor: Mailbox<ServerMsg>,
    events: EventSink<ServerEvent>,
    directory: Arc<Directory>,
    permissions: PermissionsHandle,
    audit: AuditHandle,
}

impl ServerActor {
    /// The sink for the events of a generation's links.
    pub(super) fn link_event_sink(&self, supervisor: Mailbox<ServerMsg>) -> EventSink<LinkEvent> {
        let listener = LinkListener {
            handle: self.handle.clone(),
            supervisor,
            events: self.events.clone(),
            directory: self.directory.clone(),
            permissions: self.permissions.clone(),
            audit: self.audit.clone(),
        };
        EventSink::new(move |event| listener.handle_event(event))
    }
}

impl LinkListener {
    fn handle_event(&self, event: LinkEvent) {
        match event {
            LinkEvent::ListChanged(list) => self.send_to_supervisor(ServerMsg::ListChanged(list)),
            LinkEvent::AuditReported(params) => {
                self.audit
                    .record_server_report(&self.handle.id, params.as_deref());
            }
            LinkEvent::ResourceUpdated { uri, params } => self.handle_resource_updated(uri, params),
            LinkEvent::TaskChanged { family, params } => self.handle_task_changed(family, &params),
            LinkEvent::LifecycleReported { link, params } => {
                self.handle_lifecycle_report(link, &params)
            }
            LinkEvent::EventReported(event) => {
                let server = self.handle.key().clone();
                self.events.send(ServerEvent::Reported { server, event });
            }
            LinkEvent::McplReceived(message) => {
                let server = self.handle.key().clone();
                self.events
                    .send(ServerEvent::McplReceived { server, message });
            }
            LinkEvent::McplConnected(link) => {
                let server = self.handle.key().clone();
                self.events
                    .send(ServerEvent::McplConnected { server, link });
            }
            LinkEvent::Logged(params) => {
                let whose = self.handle.agent();
                self.directory.send_log(&self.handle.id, &params, whose);
            }
            LinkEvent::RootsRequested(reply) => reply.send(self.only_agent_with_roots()),
            LinkEvent::PermissionRequested(ask, reply) => {
                self.handle_permission_request(ask, reply)
            }
            LinkEvent::ConsentRequested(entry, reply) => self.handle_consent_request(*entry, reply),
            LinkEvent::CallbackRequested(callback, reply) => {
                reply.send(self.directory.callbacks.open(*callback));
            }
            LinkEvent::OperatorInputRequested(entry, reply) => {
                self.handle_operator_input_request(*entry, reply)
            }
            LinkEvent::ReplayRequested(replay, reply) => self.handle_replay_request(replay, reply),
            LinkEvent::Unusable(link) => self.handle.retire(link),
            LinkEvent::Broken(link, why) => {
                self.handle.retire(link);
                self.send_to_supervisor(ServerMsg::LinkBroke(link, why));
            }
        }
    }

    fn send_to_supervisor(&self, message: ServerMsg) {
        let _ = self.supervisor.send(message);
    }

    fn handle_resource_updated(&self, uri: String, params: String) {
        let server = self.handle.key().clone();
        self.events.send(ServerEvent::ResourceUpdated {
            server,
            uri,
            params,
        });
    }

    fn handle_task_changed(&self, family: ProtocolFamily, params: &str) {
        let Some(task) = member(params, "taskId").and_then(|own| serde_json::from_str(own).ok())
        else {
            return;
        };
        let refer = |maker| TaskRef {
            server: self.handle.id.clone(),
            maker,
        };
        let whose = self.handle.agent();
        match family {
            ProtocolFamily::Stateless => {
                let task_ref = refer(Maker::Modern { task });
                self.directory.notify_task_changed(&task_ref, params, whose);
            }
            ProtocolFamily::Legacy => {
                let task_ref = refer(Maker::Legacy { task });
                self.directory.notify_task_status(&task_ref, params, whose);
            }
        }
    }

    fn handle_lifecycle_report(&self, link: u64, params: &str) {
        if let Ok(step) = mcp::parse_params(Some(params)) {
            self.send_to_supervisor(ServerMsg::LifecycleReported(link, step));
        }
    }

    /// The only agent whose roots the server may get outside any call.
    fn only_agent_with_roots(&self) -> Option<Arc<Agent>> {
        let whose = self.handle.agent();
        let mut rooted = self.directory.agents_with_roots(&self.handle.id, 2, whose);
        rooted.pop().filter(|_| rooted.is_empty())
    }

    fn handle_permission_request(&self, ask: Ask, reply: Reply<Decision>) {
        let (permissions, server) = (self.permissions.clone(), self.handle.id.clone());
        spawn_reply(
            reply,
            async move { permissions.request(&server, &ask).await },
        );
    }

    fn handle_consent_request(
        &self,
        entry: PendingEntry,
        reply: Reply<Result<Option<bool>, AddEntryError>>,
    ) {
        let approvals = self.permissions.approvals().clone();
        spawn_reply(
            reply,
            async move { approvals.wait_for_verdict(entry).await },
        );
    }

    fn handle_operator_input_request(
        &self,
        entry: PendingEntry,
        reply: Reply<Result<Option<Option<String>>, AddEntryError>>,
    ) {
        let approvals = self.permissions.approvals().clone();
        spawn_reply(reply, async move { approvals.wait_for_value(entry).await });
    }

    fn handle_replay_request(&self, replay: Replay, reply: Reply<Result<Replayed, Refusal>>) {
        if !self.handle.can_audit() {
            let message = "a sandboxed server does not read the audit log";
            return reply.send(Err(Refusal::Forbidden(message.into())));
        }
        if !can_read_audit_log(&self.permissions, &self.handle.id) {
            let message = format!(
                "{AUDIT_LOG} is not approved for this server; `mgp servers show` shows its status"
            );
            return reply.send(Err(Refusal::Forbidden(message)));
        }
        let audit = self.audit.clone();
        spawn_reply(reply, async move { audit.replay(&replay).await });
    }
}

/// Forwards an answer when it arrives, unless the receiver is gone.
fn spawn_reply<T: Send + 'static>(
    mut reply: Reply<T>,
    answer: impl Future<Output = T> + Send + 'static,
) {
    task::spawn_detached("server.answer", async move {
        let answer = tokio::select! {
            answer = answer => answer,
            () = reply.closed() => return,
        };
        reply.send(answer);
    });
}
