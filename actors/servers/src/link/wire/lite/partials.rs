//! What a lite server says before the result of a call: it is progress to who asked for it (A-33).

use std::sync::Arc;

use bytes::Bytes;
use mgp_protocol::jsonrpc;
use mgp_protocol::splice::quoted;

use crate::link::Link;

/// Who hears what comes before the result.
pub(super) struct LitePartials<'a> {
    of: Option<(&'a Arc<Link>, u64)>,
    wanted: bool,
    told: u64,
}

impl<'a> LitePartials<'a> {
    pub(super) fn of(link: &'a Arc<Link>, id: u64) -> Self {
        let wanted = link
            .pending
            .with(id, |call| call.token.is_some() || call.reports);
        Self {
            of: Some((link, id)),
            wanted: wanted.unwrap_or(false),
            told: 0,
        }
    }

    pub(super) fn nobody() -> Self {
        Self {
            of: None,
            wanted: false,
            told: 0,
        }
    }

    pub(super) fn wanted(&self) -> bool {
        self.wanted
    }

    /// The server lives: a heartbeat is one word of that.
    pub(super) fn alive(&self) {
        if let Some((link, id)) = self.of {
            link.touch(id);
        }
    }

    /// A partial message, as JSON text (A-33).
    pub(super) fn told(&mut self, partial: &str) {
        let Some((link, id)) = self.of.filter(|_| self.wanted) else {
            return;
        };
        self.told += 1;
        let text: Option<String> = serde_json::from_str(partial).ok();
        let message = quoted(text.as_deref().unwrap_or(partial));
        let params = format!(
            r#"{{"progressToken":{},"progress":{},"message":{message}}}"#,
            link.ids.shown(id),
            self.told
        );
        let frame = jsonrpc::notification("notifications/progress", Some(&params));
        link.receive(&Bytes::from(frame), Some(id));
    }
}
