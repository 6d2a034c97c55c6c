//! The table of all methods a server may send, with their handlers.

use std::sync::Arc;

use mgp_json::lookalike::are_alike;
use mgp_protocol::jsonrpc::RequestId;
use mgp_protocol::mcpl::feature_sets::Capability;
use mgp_protocol::mgp::negotiation::Features;

use super::{Link, List};

use self::MethodHandler::{ClientCallback, Notification, Request};
use self::MethodRequirement::{Mcpl, Mgp};

/// The handler of a method.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MethodHandler {
    /// A notification: its `params`, and the call on whose stream it came, if the transport knows it.
    Notification(fn(&Arc<Link>, Option<&str>, Option<u64>)),
    /// A request that the kernel answers itself: its id and `params`.
    Request(fn(&Arc<Link>, RequestId, Option<&str>)),
    /// A request that is forwarded to a client.
    ClientCallback(Callback),
}

/// The requests a server may send to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callback {
    /// `sampling/createMessage`.
    Sampling,
    /// `elicitation/create`.
    Elicitation,
    /// `roots/list`.
    Roots,
}

impl Callback {
    /// The method of this callback.
    #[must_use]
    pub fn method(self) -> &'static str {
        match self {
            Self::Sampling => "sampling/createMessage",
            Self::Elicitation => "elicitation/create",
            Self::Roots => "roots/list",
        }
    }
}

/// What must have been negotiated before a method is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MethodRequirement {
    /// Nothing.
    Nothing,
    /// These MGP features.
    Mgp(Features),
    /// MCPL, with a check before the method is carried out.
    Mcpl(McplCheck),
}

/// The check of an MCPL method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum McplCheck {
    /// The named feature set is enabled and uses this capability.
    FeatureSet(Capability),
    /// The named feature set is enabled, and a person or a pattern approved the scope.
    Scope,
    /// The channel is registered, and an enabled feature set permits it.
    Channel,
    /// The server declares channels, and the channels are its own.
    Declared,
    /// The method concerns only the server's own channels and feature sets.
    OwnResources,
}

/// For methods that need no extension.
const NO_REQUIREMENT: MethodRequirement = MethodRequirement::Nothing;

/// Method, required extension, handler. Without the extension a notification is dropped and a request is
/// answered with "method not found". Notifications that are not in this table: `inbound/notifications.rs`.
#[rustfmt::skip]
pub(crate) const SERVER_METHODS: [(&str, MethodRequirement, MethodHandler); 35] = [
    ("notifications/progress", NO_REQUIREMENT, Notification(|link, params, _| link.handle_progress(params))),
    ("notifications/message", NO_REQUIREMENT, Notification(Link::handle_log_message)),
    ("notifications/cancelled", NO_REQUIREMENT, Notification(|link, params, _| link.handle_cancelled(params))),
    ("notifications/tools/list_changed", NO_REQUIREMENT, Notification(|link, _, _| link.handle_list_changed(List::Tools))),
    ("notifications/prompts/list_changed", NO_REQUIREMENT, Notification(|link, _, _| link.handle_list_changed(List::Prompts))),
    ("notifications/resources/list_changed", NO_REQUIREMENT, Notification(|link, _, _| link.handle_list_changed(List::Resources))),
    ("notifications/resources/updated", NO_REQUIREMENT, Notification(|link, params, _| link.handle_resource_updated(params))),
    ("notifications/subscriptions/acknowledged", NO_REQUIREMENT, Notification(|link, params, _| link.handle_listen_acknowledged(params))),
    ("notifications/tasks", NO_REQUIREMENT, Notification(|link, params, _| link.handle_task_changed(params))),
    ("notifications/tasks/status", NO_REQUIREMENT, Notification(|link, params, _| link.handle_task_status(params))),
    ("notifications/elicitation/complete", NO_REQUIREMENT, Notification(|link, params, _| link.handle_elicitation_complete(params))),
    ("notifications/mgp.lifecycle", Mgp(Features::LIFECYCLE), Notification(|link, params, _| link.handle_lifecycle_report(params))),
    ("notifications/mgp.event", Mgp(Features::EVENTS), Notification(Link::handle_event)),
    ("notifications/mgp.events.subscribed", Mgp(Features::EVENTS), Notification(|link, _, via| link.handle_channel_started(via))),
    ("notifications/mgp.audit", Mgp(Features::AUDIT), Notification(|link, params, _| link.handle_audit_report(params))),
    ("notifications/mgp.callback.request", Mgp(Features::CALLBACKS), Notification(Link::handle_mgp_callback)),
    ("notifications/mgp.stream.chunk", Mgp(Features::STREAMING), Notification(|link, params, via| link.handle_chunk(params, via))),
    ("notifications/mgp.stream.progress", Mgp(Features::PROGRESS), Notification(|link, params, via| link.handle_stream_progress(params, via))),
    ("ping", NO_REQUIREMENT, Request(|link, id, _| link.handle_ping(&id))),
    ("mgp/permission/request", Mgp(Features::PERMISSIONS), Request(Link::handle_permission_request)),
    ("mgp/permission/await", Mgp(Features::PERMISSIONS), Request(Link::handle_permission_request)),
    ("mgp/audit/replay", Mgp(Features::AUDIT), Request(Link::handle_replay_request)),
    ("push/event", Mcpl(McplCheck::FeatureSet(Capability::PushEvents)), Request(|link, id, params| link.handle_mcpl_request("push/event", id, params))),
    ("inference/request", Mcpl(McplCheck::FeatureSet(Capability::InferenceRequest)), Request(|link, id, params| link.handle_mcpl_request("inference/request", id, params))),
    ("model/info", Mcpl(McplCheck::OwnResources), Request(|link, id, params| link.handle_mcpl_request("model/info", id, params))),
    ("scope/elevate", Mcpl(McplCheck::Scope), Request(|link, id, params| link.handle_mcpl_request("scope/elevate", id, params))),
    ("channels/register", Mcpl(McplCheck::Declared), Request(|link, id, params| link.handle_mcpl_request("channels/register", id, params))),
    ("channels/list", Mcpl(McplCheck::OwnResources), Request(|link, id, params| link.handle_mcpl_request("channels/list", id, params))),
    ("channels/incoming", Mcpl(McplCheck::Channel), Request(|link, id, params| link.handle_mcpl_request("channels/incoming", id, params))),
    ("featureSets/changed", Mcpl(McplCheck::OwnResources), Notification(|link, params, _| link.handle_mcpl_notification("featureSets/changed", params))),
    ("mcpl/manifestChanged", Mcpl(McplCheck::OwnResources), Notification(|link, params, _| link.handle_mcpl_notification("mcpl/manifestChanged", params))),
    ("channels/changed", Mcpl(McplCheck::Declared), Notification(|link, params, _| link.handle_mcpl_notification("channels/changed", params))),
    ("sampling/createMessage", NO_REQUIREMENT, ClientCallback(Callback::Sampling)),
    ("elicitation/create", NO_REQUIREMENT, ClientCallback(Callback::Elicitation)),
    ("roots/list", NO_REQUIREMENT, ClientCallback(Callback::Roots)),
];

/// The requirement and the handler of this method.
pub(super) fn find_method(method: &str) -> Option<(MethodRequirement, MethodHandler)> {
    let found = SERVER_METHODS.iter().find(|(known, ..)| *known == method);
    found.map(|(_, needs, taken)| (*needs, *taken))
}

/// The callback with this method, if any.
pub(super) fn find_callback(method: &str) -> Option<Callback> {
    match find_method(method)?.1 {
        ClientCallback(callback) => Some(callback),
        Notification(_) | Request(_) => None,
    }
}

/// True for callback methods, and for names that some parsers could confuse with them.
pub(super) fn is_callback_like(method: &str) -> bool {
    let mut callbacks = SERVER_METHODS
        .iter()
        .filter(|(.., taken)| matches!(taken, ClientCallback(_)));
    callbacks.any(|(known, ..)| are_alike(method, known))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use mgp_protocol::mcp::{self, Method};
    use mgp_protocol::mcpl;
    use mgp_protocol::mgp::{self, audit, permission};

    use super::*;

    /// Each method is listed once, under the name of its protocol type where it has one.
    #[test]
    fn methods_are_listed_once() {
        let all: BTreeSet<&str> = SERVER_METHODS.iter().map(|(method, ..)| *method).collect();
        assert_eq!(all.len(), SERVER_METHODS.len());
        for typed in [
            mcp::Ping::METHOD,
            mcp::elicitation::Create::METHOD,
            mgp::Lifecycle::METHOD,
            mgp::Audit::METHOD,
            mgp::callback::Request::METHOD,
            mgp::Event::METHOD,
            mgp::events::Subscribed::METHOD,
            mgp::stream::Chunk::METHOD,
            mgp::stream::Progress::METHOD,
            permission::Request::METHOD,
            permission::Await::METHOD,
            audit::Replay::METHOD,
            mcpl::feature_sets::Changed::METHOD,
            mcpl::scope::Elevate::METHOD,
        ] {
            assert!(find_method(typed).is_some(), "{typed}");
        }
        assert!(find_method("tools/list").is_none() && find_method("Ping").is_none());
    }

    #[test]
    fn lookalikes_of_callback_methods_are_detected() {
        assert_eq!(find_callback("roots/list"), Some(Callback::Roots));
        let callbacks = SERVER_METHODS
            .iter()
            .filter_map(|(name, ..)| Some((*name, find_callback(name)?)));
        assert!(
            callbacks
                .clone()
                .all(|(name, callback)| callback.method() == name)
        );
        assert_eq!(callbacks.count(), 3);
        assert_eq!(find_callback("Roots/list"), None);
        assert!(is_callback_like("Roots/list") && is_callback_like("roots/list"));
        assert!(!is_callback_like("ping"));
    }
}
