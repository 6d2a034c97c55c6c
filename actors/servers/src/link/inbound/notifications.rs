//! Notifications from a server.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mgp_engine::servers::log_levels::LogLevel;
use mgp_protocol::dialect::Era;
use mgp_protocol::jsonrpc::{self, RequestId};
use mgp_protocol::mcp;
use mgp_protocol::mgp::is_of_extension;

use crate::link::from_servers::{FromServer, MethodNeeds, from_servers, is_like_a_question};
use crate::link::question::origin::Origin;
use crate::link::{Link, LinkEvent, List, Wire, envelope};
use mgp_callers::exchange::Delivery;

impl Link {
    /// Handles a notification.
    pub(super) fn notified(self: &Arc<Self>, method: &str, params: Option<&str>, via: Option<u64>) {
        match from_servers(method) {
            Some((needs, FromServer::Notification(take))) => match self.has_agreed(needs) {
                true => take(self, params, via),
                false => self.dropped(),
            },
            // A question without an id is invalid, and would bypass the checks of questions.
            _ if is_like_a_question(method) => self.dropped(),
            // What of it was agreed to stands in the table; an id of a finished call could reach another
            // caller.
            _ if is_of_extension(method) => self.dropped(),
            Some((_, FromServer::Request(_) | FromServer::Question(_))) | None => {
                self.pass_on(method, params, via);
            }
        }
    }

    /// True when all of these were negotiated with the server.
    pub(super) fn has_agreed(&self, needs: MethodNeeds) -> bool {
        match needs {
            MethodNeeds::Nothing => true,
            MethodNeeds::Mgp(features) => self.mgp().features().contains(features),
            MethodNeeds::Mcpl(_) => self.mcpl().is_some(),
        }
    }

    pub(in crate::link) fn cancelled(&self, params: Option<&str>) {
        if let Ok(cancelled) = mcp::read::<mcp::Cancelled<'_>>(params)
            && let Some(id) = RequestId::from_json(cancelled.request_id.get())
        {
            self.withdrawn(&id);
        }
    }

    pub(in crate::link) fn list_changed(&self, list: List) {
        self.tells(LinkEvent::ListChanged(list));
    }

    /// The server acknowledged one of the kernel's listens.
    pub(in crate::link) fn acknowledged(&self, params: Option<&str>) {
        self.listening.acknowledged(&self.ids, params);
    }

    pub(in crate::link) fn task_status(&self, params: Option<&str>) {
        let (era, params) = (Era::Legacy, params.unwrap_or("{}").to_owned());
        self.tells(LinkEvent::TaskChanged { era, params });
    }

    pub(in crate::link) fn audit_reported(&self, params: Option<&str>) {
        self.tells(LinkEvent::AuditReported(params.map(str::to_owned)));
    }

    /// The server cancels one of its questions, or ends a listen.
    fn withdrawn(&self, id: &RequestId) {
        self.questions.withdraw(id);
        self.mcpl_asked.withdraw(id);
        if let Some(id) = self.meant(id)
            && self.pending.with(id, |call| call.listens) == Some(true)
        {
            self.settle(id, Err(self.lost("it ended a listen")));
        }
    }

    /// A log record goes to the call that caused it where that is known, else to every client that may
    /// see this server.
    pub(in crate::link) fn logged(self: &Arc<Self>, params: Option<&str>, via: Option<u64>) {
        let Some(params) = params else { return };
        let Ok(message) = mcp::read::<mcp::Message<'_>>(Some(params)) else {
            return;
        };
        let level = message.level.parse().unwrap_or(LogLevel::Info);
        match self.origin(via) {
            Origin::Call(caller, exchange) | Origin::Likely(caller, exchange, _) => {
                if caller
                    .log_level(&exchange)
                    .is_some_and(|floor| level.passes(floor))
                {
                    let frame =
                        mgp_callers::directory::log_frame(&self.server, &caller.view, params);
                    exchange.send(frame, Delivery::Lossy);
                }
            }
            Origin::Nobody | Origin::Several => self.tells(LinkEvent::Logged(params.to_owned())),
        }
    }

    pub(in crate::link) fn updated(&self, params: Option<&str>) {
        if let Some(params) = params
            && let Ok(updated) = mcp::read::<mcp::resources::Updated<'_>>(Some(params))
        {
            // One channel keeps the order, so the listen in force brings the same news.
            if matches!(self.wire, Wire::Child(_))
                && self.listening.is_superseded(&self.ids, params)
            {
                return;
            }
            // The id of the kernel's listen is removed.
            let (uri, params) = (updated.uri.into(), envelope::without_meta(params).into());
            self.tells(LinkEvent::ResourceUpdated { uri, params });
        }
    }

    /// The server reports its own state.
    pub(in crate::link) fn lifecycle_reported(&self, params: Option<&str>) {
        match params {
            Some(params) => {
                let (link, params) = (self.number, params.to_owned());
                self.tells(LinkEvent::LifecycleReported { link, params });
            }
            None => self.dropped(),
        }
    }

    pub(in crate::link) fn task_changed(&self, params: Option<&str>) {
        if let Some(params) = params
            && !(matches!(self.wire, Wire::Child(_))
                && self.listening.is_superseded(&self.ids, params))
        {
            let (era, params) = (Era::Modern, envelope::without_meta(params).into_owned());
            match self.may_tell(&params) {
                true => self.tells(LinkEvent::TaskChanged { era, params }),
                false => self.dropped(),
            }
        }
    }

    pub(in crate::link) fn elicitation_complete(&self, params: Option<&str>) {
        if let Ok(complete) = mcp::read::<mcp::elicitation::Complete<'_>>(params)
            && let Some(agent) = self.elicited.complete(&complete.elicitation_id)
        {
            let frame = jsonrpc::notification("notifications/elicitation/complete", params);
            agent.tell(frame.into(), Delivery::Reliable);
        }
    }

    /// An unknown notification goes to the call that caused it or is dropped: it may hold what other
    /// clients must not see.
    fn pass_on(&self, method: &str, params: Option<&str>, via: Option<u64>) {
        match self.origin(via) {
            Origin::Call(caller, exchange) if caller.hears() => {
                exchange.send(
                    jsonrpc::notification(method, params).into(),
                    Delivery::Lossy,
                );
            }
            Origin::Call(..) | Origin::Likely(..) | Origin::Nobody | Origin::Several => {
                self.dropped();
            }
        }
    }

    /// Counts a notification that is dropped.
    pub(in crate::link) fn dropped(&self) {
        self.counts.dropped.fetch_add(1, Ordering::Relaxed);
    }
}
