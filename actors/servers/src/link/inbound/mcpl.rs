//! What a server asks and tells in MCPL: it goes up as it came, in its order.

use std::sync::Arc;
use std::time::Duration;

use mgp_protocol::jsonrpc::{INTERNAL_ERROR, RequestId};

use crate::link::question::{self, MAX_QUESTIONS};
use crate::link::{Link, LinkEvent, McplMessage};
use mgp_runtime::mailbox::Reply;
use mgp_runtime::task;

/// How long the kernel may take for an answer at most: whoever answers has a deadline of its own, and a person
/// may be asked.
const ANSWER_MAX: Duration = Duration::from_secs(900);

impl Link {
    /// A request: it is answered, whatever becomes of it (MCPL-149).
    pub(in crate::link) fn mcpl_asked(
        self: &Arc<Self>,
        method: &'static str,
        id: RequestId,
        params: Option<&str>,
    ) {
        let Some(withdrawn) = self.mcpl_asked.open(&id) else {
            let words = format!("{MAX_QUESTIONS} requests are open already, or one with this id");
            return self.reply(&id, &question::refused(INTERNAL_ERROR, &words));
        };
        let (reply, answer) = Reply::new();
        self.tells(LinkEvent::Mcpl(McplMessage {
            link: self.number,
            method,
            params: params.unwrap_or("{}").to_owned(),
            asked: Some((id.clone(), reply)),
        }));
        let link = self.clone();
        task::detached("link.mcpl_request", async move {
            let answer = tokio::select! {
                answer = answer => match answer {
                    Ok(Ok(result)) => Some(Ok(result.into())),
                    Ok(Err(error)) => Some(Err(error.to_json().into())),
                    Err(_) => {
                        let words = "the kernel lost the answer to it";
                        Some(question::refused(INTERNAL_ERROR, words))
                    }
                },
                () = tokio::time::sleep(ANSWER_MAX) => {
                    Some(question::refused(INTERNAL_ERROR, "nobody answered in time"))
                }
                () = withdrawn.raised() => None,
                () = link.over() => None,
            };
            let open = link.mcpl_asked.close(&id);
            if let Some(answer) = answer.filter(|_| open) {
                link.reply(&id, &answer);
            }
        });
    }

    /// A notification.
    pub(in crate::link) fn mcpl_told(&self, method: &'static str, params: Option<&str>) {
        self.tells(LinkEvent::Mcpl(McplMessage {
            link: self.number,
            method,
            params: params.unwrap_or("{}").to_owned(),
            asked: None,
        }));
    }

    /// The handshake is done: whoever speaks MCPL with it says the first word.
    pub(crate) fn meets_in_mcpl(self: &Arc<Self>) {
        if self.mcpl().is_some() {
            self.tells(LinkEvent::McplMet(self.clone()));
        }
    }
}
