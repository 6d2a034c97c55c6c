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

/// Notifications and requests of the server that are for the kernel, and the state of the connection. `params`
/// are as sent.
#[derive(Debug)]
pub enum LinkEvent {
    /// One of its lists changed.
    ListChanged(List),
    /// The server reports its own actions: `params` of its `notifications/mgp.audit`.
    AuditReported(Option<String>),
    /// A resource changed.
    ResourceUpdated {
        /// The server's own URI.
        uri: String,
        /// As sent, without the id of the kernel's listen.
        params: String,
    },
    /// A task of the server changed: `params` of its `notifications/tasks` without the id of the kernel's
    /// listen, or in the legacy family of its `notifications/tasks/status`.
    TaskChanged {
        /// The protocol family of the notification.
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
    /// The server sent an event of one of the kernel's subscriptions.
    EventReported(Box<ReportedEvent>),
    /// A log record that belongs to no single call.
    Logged(String),
    /// The server requested the roots of its only client outside any call.
    RootsRequested(Reply<Option<Arc<Agent>>>),
    /// The server requested permissions at run time; answered when decided.
    PermissionRequested(Ask, Reply<Decision>),
    /// A callback of the server needs the operator's approval first; answered with `None` when its time has run
    /// out.
    ConsentRequested(
        Box<PendingEntry>,
        Reply<Result<Option<bool>, AddEntryError>>,
    ),
    /// An MGP callback for a client; answered when the client can answer it.
    CallbackRequested(
        Box<OpenCallback>,
        Reply<Result<OpenCallbackGuard, OpenCallbackError>>,
    ),
    /// A callback that no client can receive. The operator's answer is a value, or `None` for a denial; no
    /// answer at all when the time has run out.
    OperatorInputRequested(
        Box<PendingEntry>,
        Reply<Result<Option<Option<String>>, AddEntryError>>,
    ),
    /// The server sent an MCPL message.
    McplReceived(McplMessage),
    /// The handshake with a server that speaks MCPL is complete.
    McplConnected(Arc<Link>),
    /// The server requested audit events that it missed.
    ReplayRequested(Replay, Reply<Result<Replayed, Refusal>>),
    /// The connection with this number accepts no new calls.
    Unusable(u64),
    /// The connection with this number is broken, and the reason.
    Broken(u64, String),
}

/// The answer to a request of MCPL: the result as JSON text.
pub type McplAnswer = Result<String, McplError>;

/// An MCPL message of a server.
#[derive(Debug)]
pub struct McplMessage {
    /// The number of the connection.
    pub link: u64,
    /// One of the methods of [`super::SERVER_METHODS`].
    pub method: &'static str,
    /// The params as sent; an empty object if there were none.
    pub params: String,
    /// For a request: the server's own id, and the reply. Dropping the reply answers with an internal error.
    pub request: Option<(RequestId, Reply<McplAnswer>)>,
}

/// An event of a server, as sent; the subscription was not checked.
#[derive(Debug)]
pub struct ReportedEvent {
    /// The number of the connection.
    pub link: u64,
    /// The server's own id of the subscription.
    pub subscription: String,
    /// The channel of the event.
    pub channel: String,
    /// The timestamp, as JSON text.
    pub timestamp: Option<Box<str>>,
    /// The payload, as JSON text.
    pub data: Box<str>,
    /// The number of events of the same subscription that the rate limit dropped before it.
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

    /// Starts a task that the connection depends on; a panic in it breaks the connection.
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

    /// Sends an event and waits for the reply; `None` if the reply is lost.
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
    async fn panic_in_link_task_breaks_connection() {
        let server = ScriptedServer::legacy("{}");
        let tended = server
            .link
            .spawn_link_task("stream", async { panic!("no way") });
        assert!(tended.await.is_ok());
        let events = server.received.0.lock().unwrap();
        assert_eq!(*events, ["stream panicked: no way"]);
    }
}
