//! Hands on what one server says unasked.

use std::sync::Arc;

use mgp_engine::callers::tasks::{Maker, TaskRef};
use mgp_engine::policy::approvals::{ApprovalQuestion, NotTaken};
use mgp_protocol::dialect::Era;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp;
use mgp_protocol::mgp::audit::{Replay, Replayed};
use mgp_protocol::mgp::permission::{Ask, Decision};
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::member;

use super::{ServerEvent, ServerHandle, ServerMsg};
use crate::link::{List, Upward};
use mgp_callers::agent::Agent;
use mgp_callers::directory::Directory;
use mgp_callers::request::Answering;
use mgp_policy::permissions::PermissionsHandle;
use mgp_runtime::event_sink::EventSink;
use mgp_runtime::mailbox::Mailbox;
use mgp_store::audit::AuditHandle;

/// Hands on what one server says unasked.
#[derive(Debug)]
pub(super) struct Up {
    pub(super) handle: Arc<ServerHandle>,
    pub(super) supervisor: Mailbox<ServerMsg>,
    pub(super) events: EventSink<ServerEvent>,
    pub(super) directory: Arc<Directory>,
    pub(super) permissions: PermissionsHandle,
    pub(super) audit: AuditHandle,
}

impl Upward for Up {
    fn reported(&self, server: &ServerId, params: Option<&str>) {
        self.audit.heard(server, params);
    }

    fn list_changed(&self, _server: &ServerId, what: List) {
        let _ = self.supervisor.tell(ServerMsg::ListChanged(what));
    }

    fn updated(&self, _server: &ServerId, uri: &str, params: &str) {
        self.events.send(ServerEvent::Updated {
            server: self.handle.key().clone(),
            uri: uri.to_owned(),
            params: params.to_owned(),
        });
    }

    fn task_changed(&self, server: &ServerId, era: Era, params: &str) {
        let Some(task) = member(params, "taskId").and_then(|own| serde_json::from_str(own).ok())
        else {
            return;
        };
        let refer = |maker| TaskRef {
            server: server.clone(),
            maker,
        };
        match era {
            Era::Modern => {
                let task_ref = refer(Maker::Modern { task });
                let whose = self.handle.agent();
                self.directory.task_changed(&task_ref, params, whose);
            }
            Era::Legacy => {
                let task_ref = refer(Maker::Legacy { task });
                let whose = self.handle.agent();
                self.directory.task_status(&task_ref, params, whose);
            }
        }
    }

    fn stepped(&self, link: u64, params: &str) {
        if let Ok(step) = mcp::read(Some(params)) {
            let _ = self.supervisor.tell(ServerMsg::Said(link, step));
        }
    }

    fn logged(&self, server: &ServerId, params: &str) {
        self.directory.logged(server, params, self.handle.agent());
    }

    fn only_rooted(&self, server: &ServerId) -> Option<Arc<Agent>> {
        let mut rooted = self.directory.rooted(server, 2, self.handle.agent());
        rooted.pop().filter(|_| rooted.is_empty())
    }

    fn permission_asked(&self, server: &ServerId, ask: Ask) -> Answering<Decision> {
        let (permissions, server) = (self.permissions.clone(), server.clone());
        Box::pin(async move { permissions.asked(&server, &ask).await })
    }

    fn consented(&self, question: ApprovalQuestion) -> Answering<Result<Option<bool>, NotTaken>> {
        let approvals = self.permissions.approvals().clone();
        Box::pin(async move { approvals.yes_or_no(question).await })
    }

    fn replayed(&self, asked: Replay) -> Answering<Result<Replayed, Refusal>> {
        let (audit, may) = (self.audit.clone(), self.handle.may_audit());
        Box::pin(async move {
            match may {
                true => audit.replay(&asked).await,
                false => Err(Refusal::Forbidden(
                    "a sandboxed server does not read the audit log".into(),
                )),
            }
        })
    }

    fn unusable(&self, link: u64) {
        self.handle.retire(link);
    }

    fn broken(&self, _server: &ServerId, link: u64, why: String) {
        self.handle.retire(link);
        let _ = self.supervisor.tell(ServerMsg::Broken(link, why));
    }
}
