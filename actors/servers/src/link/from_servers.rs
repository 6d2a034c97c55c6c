//! The table of every method a server may send, with its handler.

use std::sync::Arc;

use mgp_protocol::jsonrpc::RequestId;
use mgp_protocol::lookalike::are_alike;
use mgp_protocol::mcpl::feature_sets::Capability;
use mgp_protocol::mgp::negotiation::Features;

use super::{Link, List};

use self::FromServer::{Notification, Question, Request};
use self::MethodNeeds::{Mcpl, Mgp};

/// The handler of a method.
#[derive(Clone, Copy, Debug)]
pub enum FromServer {
    /// A notification: its `params`, and the call on whose stream it came, where the transport tells.
    Notification(fn(&Arc<Link>, Option<&str>, Option<u64>)),
    /// A request that the kernel answers itself: its id and `params`.
    Request(fn(&Arc<Link>, RequestId, Option<&str>)),
    /// A request that is passed to a client.
    Question(ClientQuestion),
}

/// The questions a server may ask a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientQuestion {
    /// `sampling/createMessage`.
    Sampling,
    /// `elicitation/create`.
    Elicitation,
    /// `roots/list`.
    Roots,
}

impl ClientQuestion {
    /// Its method.
    #[must_use]
    pub fn method(self) -> &'static str {
        match self {
            Self::Sampling => "sampling/createMessage",
            Self::Elicitation => "elicitation/create",
            Self::Roots => "roots/list",
        }
    }
}

/// What must have been negotiated before a method is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodNeeds {
    /// Nothing.
    Nothing,
    /// These parts of MGP.
    Mgp(Features),
    /// MCPL, and what is checked before it does something.
    Mcpl(McplCheck),
}

/// What is checked of a method of MCPL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum McplCheck {
    /// The feature set that it names is enabled, and uses this.
    FeatureSet(Capability),
    /// The feature set that it names is enabled, and a person or a pattern opened the scope.
    Scope,
    /// The channel is registered, and an enabled feature set lets it through.
    Channel,
    /// The server declares channels; the channels are its own.
    Declared,
    /// It is about the server's own channels or sets, or about nothing of anybody else.
    Own,
}

/// For methods that need no extension.
const NONE: MethodNeeds = MethodNeeds::Nothing;

/// Method, the extension that must have been negotiated, handler. Without the extension a notification
/// is dropped and a request is answered with "method not found". Notifications that stand in no line:
/// `inbound/notifications.rs`.
#[rustfmt::skip]
pub const FROM_SERVERS: [(&str, MethodNeeds, FromServer); 34] = [
    ("notifications/progress", NONE, Notification(|link, params, _| link.progressed(params))),
    ("notifications/message", NONE, Notification(Link::logged)),
    ("notifications/cancelled", NONE, Notification(|link, params, _| link.cancelled(params))),
    ("notifications/tools/list_changed", NONE, Notification(|link, _, _| link.list_changed(List::Tools))),
    ("notifications/prompts/list_changed", NONE, Notification(|link, _, _| link.list_changed(List::Prompts))),
    ("notifications/resources/list_changed", NONE, Notification(|link, _, _| link.list_changed(List::Resources))),
    ("notifications/resources/updated", NONE, Notification(|link, params, _| link.updated(params))),
    ("notifications/subscriptions/acknowledged", NONE, Notification(|link, params, _| link.acknowledged(params))),
    ("notifications/tasks", NONE, Notification(|link, params, _| link.task_changed(params))),
    ("notifications/tasks/status", NONE, Notification(|link, params, _| link.task_status(params))),
    ("notifications/elicitation/complete", NONE, Notification(|link, params, _| link.elicitation_complete(params))),
    ("notifications/mgp.lifecycle", Mgp(Features::LIFECYCLE), Notification(|link, params, _| link.lifecycle_reported(params))),
    ("notifications/mgp.event", Mgp(Features::EVENTS), Notification(Link::event_told)),
    ("notifications/mgp.events.subscribed", Mgp(Features::EVENTS), Notification(|link, _, via| link.channel_agreed(via))),
    ("notifications/mgp.audit", Mgp(Features::AUDIT), Notification(|link, params, _| link.audit_reported(params))),
    ("notifications/mgp.callback.request", Mgp(Features::CALLBACKS), Notification(Link::called_back)),
    ("notifications/mgp.stream.chunk", Mgp(Features::STREAMING), Notification(|link, params, via| link.chunk_arrived(params, via))),
    ("notifications/mgp.stream.progress", Mgp(Features::PROGRESS), Notification(|link, params, via| link.stream_progressed(params, via))),
    ("ping", NONE, Request(|link, id, _| link.pinged(&id))),
    ("mgp/permission/request", Mgp(Features::PERMISSIONS), Request(Link::permission_asked)),
    ("mgp/permission/await", Mgp(Features::PERMISSIONS), Request(Link::permission_asked)),
    ("mgp/audit/replay", Mgp(Features::AUDIT), Request(Link::replay_asked)),
    ("push/event", Mcpl(McplCheck::FeatureSet(Capability::PushEvents)), Request(|link, id, params| link.mcpl_asked("push/event", id, params))),
    ("inference/request", Mcpl(McplCheck::FeatureSet(Capability::InferenceRequest)), Request(|link, id, params| link.mcpl_asked("inference/request", id, params))),
    ("model/info", Mcpl(McplCheck::Own), Request(|link, id, params| link.mcpl_asked("model/info", id, params))),
    ("scope/elevate", Mcpl(McplCheck::Scope), Request(|link, id, params| link.mcpl_asked("scope/elevate", id, params))),
    ("channels/register", Mcpl(McplCheck::Declared), Request(|link, id, params| link.mcpl_asked("channels/register", id, params))),
    ("channels/list", Mcpl(McplCheck::Own), Request(|link, id, params| link.mcpl_asked("channels/list", id, params))),
    ("channels/incoming", Mcpl(McplCheck::Channel), Request(|link, id, params| link.mcpl_asked("channels/incoming", id, params))),
    ("featureSets/changed", Mcpl(McplCheck::Own), Notification(|link, params, _| link.mcpl_told("featureSets/changed", params))),
    ("channels/changed", Mcpl(McplCheck::Declared), Notification(|link, params, _| link.mcpl_told("channels/changed", params))),
    ("sampling/createMessage", NONE, Question(ClientQuestion::Sampling)),
    ("elicitation/create", NONE, Question(ClientQuestion::Elicitation)),
    ("roots/list", NONE, Question(ClientQuestion::Roots)),
];

/// The extension and the handler of this method.
pub(super) fn from_servers(method: &str) -> Option<(MethodNeeds, FromServer)> {
    let found = FROM_SERVERS.iter().find(|(known, ..)| *known == method);
    found.map(|(_, needs, taken)| (*needs, *taken))
}

/// The question this method asks a client, if any.
pub(super) fn question(method: &str) -> Option<ClientQuestion> {
    match from_servers(method)?.1 {
        Question(asked) => Some(asked),
        Notification(_) | Request(_) => None,
    }
}

/// True for the methods that ask a client, and for names some readers could take for them.
pub(super) fn is_like_a_question(method: &str) -> bool {
    let mut questions = FROM_SERVERS
        .iter()
        .filter(|(.., taken)| matches!(taken, Question(_)));
    questions.any(|(known, ..)| are_alike(method, known))
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
    fn each_method_has_one_line() {
        let all: BTreeSet<&str> = FROM_SERVERS.iter().map(|(method, ..)| *method).collect();
        assert_eq!(all.len(), FROM_SERVERS.len());
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
            assert!(from_servers(typed).is_some(), "{typed}");
        }
        assert!(from_servers("tools/list").is_none() && from_servers("Ping").is_none());
    }

    #[test]
    fn what_is_like_a_question_is_found_in_every_spelling() {
        assert_eq!(question("roots/list"), Some(ClientQuestion::Roots));
        let asked = FROM_SERVERS
            .iter()
            .filter_map(|(name, ..)| Some((*name, question(name)?)));
        assert!(asked.clone().all(|(name, asked)| asked.method() == name));
        assert_eq!(asked.count(), 3);
        assert_eq!(question("Roots/list"), None);
        assert!(is_like_a_question("Roots/list") && is_like_a_question("roots/list"));
        assert!(!is_like_a_question("ping"));
    }
}
