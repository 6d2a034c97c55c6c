//! Handles the events of a server's link.

use std::future::Future;
use std::sync::Arc;

use mgp_engine::callers::tasks::{Maker, TaskRef};
use mgp_engine::policy::approvals::{ApprovalQuestion, NotTaken};
use mgp_protocol::dialect::Era;
use mgp_protocol::mcp;
use mgp_protocol::mgp::audit::{Replay, Replayed};
use mgp_protocol::mgp::permission::{Ask, Decision};
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::member;

use super::{ServerActor, ServerEvent, ServerHandle, ServerMsg};
use crate::audit_forwarding::{AUDIT_LOG, may_read};
use crate::link::LinkEvent;
use mgp_callers::agent::Agent;
use mgp_callers::directory::Directory;
use mgp_policy::permissions::PermissionsHandle;
use mgp_runtime::event_sink::EventSink;
use mgp_runtime::mailbox::{Mailbox, Reply};
use mgp_runtime::task;
use mgp_store::audit::AuditHandle;

/// Receives the events of the links of one life.
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
    /// The sink for the events of a life's links.
    pub(super) fn hears_links(&self, supervisor: Mailbox<ServerMsg>) -> EventSink<LinkEvent> {
        let listener = LinkListener {
            handle: self.handle.clone(),
            supervisor,
            events: self.events.clone(),
            directory: self.directory.clone(),
            permissions: self.permissions.clone(),
            audit: self.audit.clone(),
        };
        EventSink::new(move |event| listener.takes(event))
    }
}

impl LinkListener {
    fn takes(&self, event: LinkEvent) {
        match event {
            LinkEvent::ListChanged(list) => self.supervised(ServerMsg::ListChanged(list)),
            LinkEvent::AuditReported(params) => {
                self.audit.heard(&self.handle.id, params.as_deref());
            }
            LinkEvent::ResourceUpdated { uri, params } => self.updated(uri, params),
            LinkEvent::TaskChanged { era, params } => self.task_changed(era, &params),
            LinkEvent::LifecycleReported { link, params } => self.lifecycle_reported(link, &params),
            LinkEvent::EventTold(event) => {
                let server = self.handle.key().clone();
                self.events.send(ServerEvent::Told { server, event });
            }
            LinkEvent::Mcpl(message) => {
                let server = self.handle.key().clone();
                self.events.send(ServerEvent::Mcpl { server, message });
            }
            LinkEvent::McplMet(link) => {
                let server = self.handle.key().clone();
                self.events.send(ServerEvent::McplMet { server, link });
            }
            LinkEvent::Logged(params) => {
                let whose = self.handle.agent();
                self.directory.logged(&self.handle.id, &params, whose);
            }
            LinkEvent::RootsAsked(reply) => reply.send(self.only_rooted()),
            LinkEvent::PermissionAsked(ask, reply) => self.permission_asked(ask, reply),
            LinkEvent::ConsentAsked(question, reply) => self.consent_asked(*question, reply),
            LinkEvent::CallbackAsked(callback, reply) => {
                reply.send(self.directory.callbacks.ask(*callback));
            }
            LinkEvent::OperatorAsked(question, reply) => self.operator_asked(*question, reply),
            LinkEvent::ReplayAsked(asked, reply) => self.replay_asked(asked, reply),
            LinkEvent::Unusable(link) => self.handle.retire(link),
            LinkEvent::Broken(link, why) => {
                self.handle.retire(link);
                self.supervised(ServerMsg::LinkBroke(link, why));
            }
        }
    }

    fn supervised(&self, message: ServerMsg) {
        let _ = self.supervisor.tell(message);
    }

    fn updated(&self, uri: String, params: String) {
        let server = self.handle.key().clone();
        self.events.send(ServerEvent::Updated {
            server,
            uri,
            params,
        });
    }

    fn task_changed(&self, era: Era, params: &str) {
        let Some(task) = member(params, "taskId").and_then(|own| serde_json::from_str(own).ok())
        else {
            return;
        };
        let refer = |maker| TaskRef {
            server: self.handle.id.clone(),
            maker,
        };
        let whose = self.handle.agent();
        match era {
            Era::Modern => {
                let task_ref = refer(Maker::Modern { task });
                self.directory.task_changed(&task_ref, params, whose);
            }
            Era::Legacy => {
                let task_ref = refer(Maker::Legacy { task });
                self.directory.task_status(&task_ref, params, whose);
            }
        }
    }

    fn lifecycle_reported(&self, link: u64, params: &str) {
        if let Ok(step) = mcp::read(Some(params)) {
            self.supervised(ServerMsg::LifecycleReported(link, step));
        }
    }

    /// The only agent whose roots the server may get outside any call.
    fn only_rooted(&self) -> Option<Arc<Agent>> {
        let whose = self.handle.agent();
        let mut rooted = self.directory.rooted(&self.handle.id, 2, whose);
        rooted.pop().filter(|_| rooted.is_empty())
    }

    fn permission_asked(&self, ask: Ask, reply: Reply<Decision>) {
        let (permissions, server) = (self.permissions.clone(), self.handle.id.clone());
        answer(reply, async move { permissions.asked(&server, &ask).await });
    }

    fn consent_asked(
        &self,
        question: ApprovalQuestion,
        reply: Reply<Result<Option<bool>, NotTaken>>,
    ) {
        let approvals = self.permissions.approvals().clone();
        answer(reply, async move { approvals.yes_or_no(question).await });
    }

    fn operator_asked(
        &self,
        question: ApprovalQuestion,
        reply: Reply<Result<Option<Option<String>>, NotTaken>>,
    ) {
        let approvals = self.permissions.approvals().clone();
        answer(reply, async move { approvals.value(question).await });
    }

    fn replay_asked(&self, asked: Replay, reply: Reply<Result<Replayed, Refusal>>) {
        if !self.handle.may_audit() {
            let words = "a sandboxed server does not read the audit log";
            return reply.send(Err(Refusal::Forbidden(words.into())));
        }
        if !may_read(&self.permissions, &self.handle.id) {
            let words = format!(
                "{AUDIT_LOG} is not approved for this server; `mgp servers show` shows how it stands"
            );
            return reply.send(Err(Refusal::Forbidden(words)));
        }
        let audit = self.audit.clone();
        answer(reply, async move { audit.replay(&asked).await });
    }
}

/// Passes on an answer when it comes, unless nobody waits any more.
fn answer<T: Send + 'static>(
    mut reply: Reply<T>,
    answer: impl Future<Output = T> + Send + 'static,
) {
    task::detached("server.answer", async move {
        let answer = tokio::select! {
            answer = answer => answer,
            () = reply.closed() => return,
        };
        reply.send(answer);
    });
}
