//! MCPL messages of a server: passed to the supervisor unchanged and in order.

use std::sync::Arc;
use std::time::Duration;

use mgp_protocol::jsonrpc::{INTERNAL_ERROR, RequestId};

use crate::link::callback::{self, MAX_CALLBACKS};
use crate::link::{Link, LinkEvent, McplMessage};
use mgp_runtime::{Reply, task};

/// Upper limit for the kernel's answer. The handlers have deadlines of their own, and an answer may need a
/// person.
const ANSWER_TIMEOUT_MAX: Duration = Duration::from_secs(900);

impl Link {
    /// Handles an MCPL request; it always gets an answer (MCPL-149).
    pub(in crate::link) fn handle_mcpl_request(
        self: &Arc<Self>,
        method: &'static str,
        id: RequestId,
        params: Option<&str>,
    ) {
        let Some(withdrawn) = self.mcpl_requests.register(&id) else {
            let message = format!("{MAX_CALLBACKS} requests are open already, or one with this id");
            return self.reply(&id, &callback::rejection(INTERNAL_ERROR, &message));
        };
        let (reply, answer) = Reply::new();
        self.emit(LinkEvent::McplReceived(McplMessage {
            link: self.number,
            method,
            params: params.unwrap_or("{}").to_owned(),
            request: Some((id.clone(), reply)),
        }));
        let link = self.clone();
        task::spawn_detached("link.mcpl_request", async move {
            let answer = tokio::select! {
                answer = answer => match answer {
                    Ok(Ok(result)) => Some(Ok(result.into())),
                    Ok(Err(error)) => Some(Err(error.to_json().into())),
                    Err(_) => {
                        let message = "the kernel lost the answer to it";
                        Some(callback::rejection(INTERNAL_ERROR, message))
                    }
                },
                () = tokio::time::sleep(ANSWER_TIMEOUT_MAX) => {
                    Some(callback::rejection(INTERNAL_ERROR, "nobody answered in time"))
                }
                () = withdrawn.wait_until_raised() => None,
                () = link.wait_until_closed() => None,
            };
            let open = link.mcpl_requests.remove(&id);
            if let Some(answer) = answer.filter(|_| open) {
                link.reply(&id, &answer);
            }
        });
    }

    /// Handles an MCPL notification.
    pub(in crate::link) fn handle_mcpl_notification(
        &self,
        method: &'static str,
        params: Option<&str>,
    ) {
        self.emit(LinkEvent::McplReceived(McplMessage {
            link: self.number,
            method,
            params: params.unwrap_or("{}").to_owned(),
            request: None,
        }));
    }

    /// Reports the complete handshake, so that MCPL can be started with the server.
    pub(crate) fn report_mcpl_connected(self: &Arc<Self>) {
        if self.mcpl().is_some() {
            self.emit(LinkEvent::McplConnected(self.clone()));
        }
    }
}
