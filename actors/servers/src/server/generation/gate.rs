//! Notifies a server of decisions about its permissions (MGP §3.5, §3.6), if it negotiated permissions.

use std::sync::{Arc, Weak};
use std::time::Duration;

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::negotiation::{Active, Features};
use mgp_protocol::mgp::permission::{Await, Grant, Request, Response};

use crate::link::Link;
use mgp_callers::request::AnswerFuture;
use mgp_policy::{GateListener, GateMessage};

/// How long a server may take to acknowledge; the decision is in force anyway.
const ACK_TIMEOUT: Duration = Duration::from_secs(5);

/// The listener of a permission gate for one server.
#[derive(Debug)]
pub(in crate::server) struct LinkGateListener(Weak<Link>);

impl LinkGateListener {
    pub(in crate::server) fn for_link(link: &Arc<Link>) -> Arc<Self> {
        Arc::new(Self(Arc::downgrade(link)))
    }
}

impl GateListener for LinkGateListener {
    fn notify(&self, message: GateMessage) -> AnswerFuture<()> {
        let link = self.0.upgrade();
        let link = link.filter(|link| link.mgp().features().contains(Features::PERMISSIONS));
        Box::pin(async move {
            if let Some(link) = link {
                notify_server(&link, message).await;
            }
        })
    }
}

/// Sends a decision; the answer is ignored, also if the server does not know the method.
async fn notify_server(link: &Arc<Link>, message: GateMessage) {
    let later = link
        .mgp()
        .as_active()
        .is_some_and(Active::has_draft_permission_methods);
    match (message, later) {
        (GateMessage::AwaitingOperator(ask), true) => send_request(link, Await::METHOD, &ask).await,
        (GateMessage::AwaitingOperator(ask), false) => {
            send_request(link, Request::METHOD, &ask).await
        }
        (GateMessage::Decided(decision), true) => {
            send_request(link, Grant::METHOD, &decision).await
        }
        (GateMessage::Decided(decision), false) => {
            send_request(link, Response::METHOD, &decision).await
        }
    }
}

async fn send_request(link: &Arc<Link>, method: &str, params: &impl serde::Serialize) {
    let params = serde_json::to_string(params).expect("what is asked and decided is always JSON");
    let answer = link.request(method, Some(&params));
    match tokio::time::timeout(ACK_TIMEOUT, answer).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::debug!(server = %link.server, method, %error, "a silent gate"),
        Err(_) => {
            tracing::debug!(server = %link.server, method, "no answer to a permission decision")
        }
    }
}
