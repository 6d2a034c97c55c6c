//! Events of a link, for the supervisor of its server.

use std::future::Future;
use std::sync::Arc;

use mgp_engine::callers::callbacks::{OpenCallback, OpenCallbackError};
use mgp_engine::policy::approvals::{AddEntryError, PendingEntry};
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::jsonrpc::RequestId;
use mgp_protocol::mcpl::McplError;
use mgp_protocol::mgp::audit::{Replay, Replayed};
use mgp_protocol::mgp::permission::{Ask, Decision};
use mgp_protocol::refusal::Refusal;

use super::{Link, List};
use mgp_callers::OpenCallbackGuard;
use mgp_callers::agent::Agent;
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::{Reply, task};

/// Notifications and requests of the server that are for the kernel, and the fate of the connection.
/// `params` are as sent.
#[derive(Debug)]
pub enum LinkEvent {
    /// One of its lists changed.
    ListChanged(List),
    /// The server reports what it did: `params` of its `notifications/mgp.audit`.
    AuditReported(Option<String>),
    /// A resource changed.
    ResourceUpdated {
        /// The server's own URI.
        uri: String,
        /// As sent, without the id of the kernel's listen.
        params: String,
    },
    /// A task of the server changed: `params` of its `notifications/tasks` without the id of the
    /// kernel's listen, or in the legacy era of its `notifications/tasks/status`.
    TaskChanged {
        /// The era of the notification.
        family: ProtocolFamily,
        /// As sent.
        params: String,
    },
    /// The server reports a change of its state: `params` of its
    /// `notifications/mgp.lifecycle`.
    LifecycleReported {
        /// The number of the connection.
        link: u64,
        /// As sent.
        params: String,
    },
    /// The server tells an event of one of the kernel's subscriptions.
    EventReported(Box<ReportedEvent>),
    /// A log record that belongs to no single call.
    Logged(String),
    /// The server asks for the roots of its only client outside any call.
    RootsRequested(Reply<Option<Arc<Agent>>>),
    /// The server asks for permissions at run time; answered when that is decided.
    PermissionRequested(Ask, Reply<Decision>),
    /// The server has a question that the operator wants to see first; answered with `None` when its
    /// time has run out.
    ConsentRequested(
        Box<PendingEntry>,
        Reply<Result<Option<bool>, AddEntryError>>,
    ),
    /// The server asks its client something by a callback; answered when the client can answer it.
    CallbackRequested(
        Box<OpenCallback>,
        Reply<Result<OpenCallbackGuard, OpenCallbackError>>,
    ),
    /// The server asks something that no client can be asked. The operator's answer is a value, or `None`
    /// for none; nothing at all when its time has run out.
    OperatorInputRequested(
        Box<PendingEntry>,
        Reply<Result<Option<Option<String>>, AddEntryError>>,
    ),
    /// The server says something of MCPL.
    McplReceived(McplMessage),
    /// A server that speaks MCPL has said who it is, and was told that the kernel is ready.
    McplConnected(Arc<Link>),
    /// The server asks for audit events that it missed.
    ReplayRequested(Replay, Reply<Result<Replayed, Refusal>>),
    /// The connection of this number takes no new calls.
    Unusable(u64),
    /// The connection of this number is broken, and why.
    Broken(u64, String),
}

/// The answer to a request of MCPL: the result as JSON text.
pub type McplAnswer = Result<String, McplError>;

/// What a server says of MCPL.
#[derive(Debug)]
pub struct McplMessage {
    /// The number of the connection.
    pub link: u64,
    /// One of the methods of [`super::SERVER_METHODS`].
    pub method: &'static str,
    /// As sent; an empty object where there were none.
    pub params: String,
    /// Of a request: the server's own id, and the way to answer. One that is dropped is an internal error.
    pub request: Option<(RequestId, Reply<McplAnswer>)>,
}

/// An event of a server, as sent: whether it was asked for is not known here.
#[derive(Debug)]
pub struct ReportedEvent {
    /// The number of the connection.
    pub link: u64,
    /// The server's own id of the subscription.
    pub subscription: String,
    /// Of which channel.
    pub channel: String,
    /// When, as JSON text.
    pub timestamp: Option<Box<str>>,
    /// What happened, as JSON text.
    pub data: Box<str>,
    /// How many of the same subscription were dropped before it, as there were too many.
    pub missed: u64,
}

impl Link {
    /// Sends an event.
    pub(crate) fn emit(&self, event: LinkEvent) {
        self.events.send(event);
    }

    /// Reports that this connection is broken.
    pub(super) fn report_broken(&self, why: String) {
        self.emit(LinkEvent::Broken(self.number, why));
    }

    /// Starts a task that the connection depends on: a panic there breaks the connection.
    pub(crate) fn spawn_link_task(
        self: &Arc<Self>,
        name: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> SupervisedTask<()> {
        let link = self.clone();
        task::spawn_supervised(name, async move {
            if let Err(broken) = task::catch_panic(name, work).await {
                link.report_broken(broken.to_string());
            }
        })
    }

    /// Sends an event and waits for the answer; `None` when that is lost.
    pub(super) async fn ask_supervisor<T>(
        &self,
        event: impl FnOnce(Reply<T>) -> LinkEvent,
    ) -> Option<T> {
        let (reply, answer) = Reply::new();
        self.emit(event(reply));
        answer.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use crate::link::scripted::ScriptedServer;

    #[tokio::test]
    async fn a_panic_in_what_a_connection_needs_breaks_it() {
        let it = ScriptedServer::legacy("{}");
        let tended = it
            .link
            .spawn_link_task("stream", async { panic!("no way") });
        assert!(tended.await.is_ok());
        let heard = it.received.0.lock().unwrap();
        assert_eq!(*heard, ["stream panicked: no way"]);
    }
}
