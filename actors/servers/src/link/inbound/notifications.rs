//! Notifications from a server.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mgp_engine::servers::log_levels::LogLevel;
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::jsonrpc::{self, RequestId};
use mgp_protocol::mcp;
use mgp_protocol::mgp::is_extension_method;

use crate::link::callback::origin::Origin;
use crate::link::server_methods::{
    MethodHandler, MethodRequirement, find_method, is_callback_like,
};
use crate::link::{Link, LinkEvent, List, Wire, request_meta};
use mgp_callers::Delivery;

impl Link {
    /// Handles a notification.
    pub(super) fn handle_notification(
        self: &Arc<Self>,
        method: &str,
        params: Option<&str>,
        via: Option<u64>,
    ) {
        match find_method(method) {
            Some((needs, MethodHandler::Notification(take))) => {
                if self.has_negotiated(needs) {
                    take(self, params, via)
                } else {
                    self.count_dropped()
                }
            }
            // A callback without an id is invalid, and would bypass the checks of callbacks.
            _ if is_callback_like(method) => self.count_dropped(),
            // Negotiated methods are in the table of methods. An id of an ended call could reach another caller.
            _ if is_extension_method(method) => self.count_dropped(),
            Some((_, MethodHandler::Request(_) | MethodHandler::ClientCallback(_))) | None => {
                self.forward_notification(method, params, via);
            }
        }
    }

    /// True if these requirements were negotiated with the server.
    pub(super) fn has_negotiated(&self, needs: MethodRequirement) -> bool {
        match needs {
            MethodRequirement::Nothing => true,
            MethodRequirement::Mgp(features) => self.mgp().features().contains(features),
            MethodRequirement::Mcpl(_) => self.mcpl().is_some(),
        }
    }

    pub(in crate::link) fn handle_cancelled(&self, params: Option<&str>) {
        if let Ok(cancelled) = mcp::parse_params::<mcp::Cancelled<'_>>(params)
            && let Some(id) = RequestId::from_json(cancelled.request_id.get())
        {
            self.handle_withdrawal(&id);
        }
    }

    pub(in crate::link) fn handle_list_changed(&self, list: List) {
        self.emit(LinkEvent::ListChanged(list));
    }

    /// Handles the acknowledgement of one of the kernel's listens.
    pub(in crate::link) fn handle_listen_acknowledged(&self, params: Option<&str>) {
        self.listen_state.record_acknowledged(&self.ids, params);
    }

    pub(in crate::link) fn handle_task_status(&self, params: Option<&str>) {
        let (family, params) = (ProtocolFamily::Legacy, params.unwrap_or("{}").to_owned());
        self.emit(LinkEvent::TaskChanged { family, params });
    }

    pub(in crate::link) fn handle_audit_report(&self, params: Option<&str>) {
        self.emit(LinkEvent::AuditReported(params.map(str::to_owned)));
    }

    /// Handles the cancellation of a callback, or the end of a listen.
    fn handle_withdrawal(&self, id: &RequestId) {
        self.open_callbacks.withdraw(id);
        self.mcpl_requests.withdraw(id);
        if let Some(id) = self.find_call(id)
            && self.pending.inspect(id, |call| call.is_listen) == Some(true)
        {
            self.settle_call(id, Err(self.lost_refusal("it ended a listen")));
        }
    }

    /// Forwards a log record to the call that caused it if that is known, else to every client that may see this
    /// server.
    pub(in crate::link) fn handle_log_message(
        self: &Arc<Self>,
        params: Option<&str>,
        via: Option<u64>,
    ) {
        let Some(params) = params else { return };
        let Ok(message) = mcp::parse_params::<mcp::Message<'_>>(Some(params)) else {
            return;
        };
        let level = message.level.parse().unwrap_or(LogLevel::Info);
        match self.origin(via) {
            Origin::Call(caller, in_flight) | Origin::Likely(caller, in_flight, _) => {
                if caller
                    .log_level(&in_flight)
                    .is_some_and(|floor| level.is_at_least(floor))
                {
                    let frame = mgp_callers::render_log_frame(&self.server, &caller.view, params);
                    in_flight.send(frame, Delivery::Lossy);
                }
            }
            Origin::NoCall | Origin::Several => self.emit(LinkEvent::Logged(params.to_owned())),
        }
    }

    pub(in crate::link) fn handle_resource_updated(&self, params: Option<&str>) {
        if let Some(params) = params
            && let Ok(updated) = mcp::parse_params::<mcp::resources::Updated<'_>>(Some(params))
        {
            // A single pipe preserves the order, so the active listen delivers the same update.
            if matches!(self.wire, Wire::Child(_))
                && self.listen_state.is_superseded(&self.ids, params)
            {
                return;
            }
            // Remove the id of the kernel's listen.
            let (uri, params) = (updated.uri.into(), request_meta::strip_meta(params).into());
            self.emit(LinkEvent::ResourceUpdated { uri, params });
        }
    }

    /// Handles a lifecycle report of the server.
    pub(in crate::link) fn handle_lifecycle_report(&self, params: Option<&str>) {
        match params {
            Some(params) => {
                let (link, params) = (self.number, params.to_owned());
                self.emit(LinkEvent::LifecycleReported { link, params });
            }
            None => self.count_dropped(),
        }
    }

    pub(in crate::link) fn handle_task_changed(&self, params: Option<&str>) {
        if let Some(params) = params
            && !(matches!(self.wire, Wire::Child(_))
                && self.listen_state.is_superseded(&self.ids, params))
        {
            let (family, params) = (
                ProtocolFamily::Stateless,
                request_meta::strip_meta(params).into_owned(),
            );
            if self.can_forward_task_event(&params) {
                self.emit(LinkEvent::TaskChanged { family, params })
            } else {
                self.count_dropped()
            }
        }
    }

    pub(in crate::link) fn handle_elicitation_complete(&self, params: Option<&str>) {
        if let Ok(complete) = mcp::parse_params::<mcp::elicitation::Complete<'_>>(params)
            && let Some(agent) = self.url_elicitations.take_client(&complete.elicitation_id)
        {
            let frame = jsonrpc::notification("notifications/elicitation/complete", params);
            agent.send(frame.into(), Delivery::Reliable);
        }
    }

    /// Forwards an unknown notification to the call that caused it, or drops it: it may contain what other
    /// clients must not see.
    fn forward_notification(&self, method: &str, params: Option<&str>, via: Option<u64>) {
        match self.origin(via) {
            Origin::Call(caller, in_flight) if caller.is_ready() => {
                in_flight.send(
                    jsonrpc::notification(method, params).into(),
                    Delivery::Lossy,
                );
            }
            Origin::Call(..) | Origin::Likely(..) | Origin::NoCall | Origin::Several => {
                self.count_dropped();
            }
        }
    }

    /// Counts a dropped notification.
    pub(in crate::link) fn count_dropped(&self) {
        self.counts.dropped.fetch_add(1, Ordering::Relaxed);
    }
}
