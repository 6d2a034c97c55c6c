//! Reports the partial messages of a lite call as progress to its caller (A-33).

use std::sync::Arc;

use bytes::Bytes;
use mgp_json::quote;
use mgp_protocol::jsonrpc;

use crate::link::Link;

/// Reports partial messages to the caller, if it requested progress.
pub(super) struct PartialReporter<'a> {
    call: Option<(&'a Arc<Link>, u64)>,
    is_wanted: bool,
    reported: u64,
}

impl<'a> PartialReporter<'a> {
    pub(super) fn for_call(link: &'a Arc<Link>, id: u64) -> Self {
        let wanted = link
            .pending
            .inspect(id, |call| call.token.is_some() || call.mgp_progress);
        Self {
            call: Some((link, id)),
            is_wanted: wanted.unwrap_or(false),
            reported: 0,
        }
    }

    pub(super) fn discard() -> Self {
        Self {
            call: None,
            is_wanted: false,
            reported: 0,
        }
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Records activity of the server; heartbeats count.
    pub(super) fn record_heartbeat(&self) {
        if let Some((link, id)) = self.call {
            link.record_activity(id);
        }
    }

    /// Reports a partial message, given as JSON text (A-33).
    pub(super) fn report(&mut self, partial: &str) {
        let Some((link, id)) = self.call.filter(|_| self.is_wanted) else {
            return;
        };
        self.reported += 1;
        let text: Option<String> = serde_json::from_str(partial).ok();
        let message = quote(text.as_deref().unwrap_or(partial));
        let params = format!(
            r#"{{"progressToken":{},"progress":{},"message":{message}}}"#,
            link.ids.encode(id),
            self.reported
        );
        let frame = jsonrpc::notification("notifications/progress", Some(&params));
        link.receive(&Bytes::from(frame), Some(id));
    }
}
