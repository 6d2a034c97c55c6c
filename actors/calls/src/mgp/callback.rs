//! `mgp/callback/respond` and `mgp/events/pending_callbacks` (MGP §13.4), as methods and as tools of the
//! kernel, for agents that negotiated callbacks.

use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mgp::callback::Respond;
use mgp_protocol::mgp::matches_method;
use mgp_protocol::mgp::negotiation::Features;

use crate::Context;
use crate::answer::json_outcome;
use mgp_callers::request::{Caller, Outcome, Request};

/// One of these methods, and the tool that stands for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackTool {
    /// `mgp/callback/respond`.
    Respond,
    /// `mgp/events/pending_callbacks`.
    Pending,
}

impl CallbackTool {
    pub(super) const ALL: [Self; 2] = [Self::Respond, Self::Pending];

    pub(super) const fn method(self) -> &'static str {
        match self {
            Self::Respond => Respond::METHOD,
            Self::Pending => "mgp/events/pending_callbacks",
        }
    }
}

/// The tool of that name or spelling, when it is one for this caller.
pub(super) fn find_tool(caller: &Caller, name: &str) -> Option<CallbackTool> {
    let mut all = CallbackTool::ALL.into_iter();
    let tool = all.find(|tool| matches_method(tool.method(), name))?;
    let agreed = caller.mgp.features().contains(Features::CALLBACKS);
    (caller.operator || agreed).then_some(tool)
}

/// Those that are listed for this caller.
pub(super) fn listed_tools(caller: &Caller) -> impl Iterator<Item = &'static str> + use<> {
    let agreed = caller.mgp.features().contains(Features::CALLBACKS);
    let all = CallbackTool::ALL.into_iter().filter(move |_| agreed);
    all.map(CallbackTool::method)
}

/// As a method.
///
/// # Errors
/// Why the answer is not taken.
pub async fn answer(cx: &Context, request: &Request, tool: CallbackTool) -> Outcome {
    execute(cx, request, tool, request.params.as_deref())
}

/// What the method answers, whichever way it was called.
pub(super) fn execute(
    cx: &Context,
    request: &Request,
    tool: CallbackTool,
    params: Option<&str>,
) -> Outcome {
    let (callbacks, caller) = (&cx.directory.callbacks, &request.caller);
    match tool {
        CallbackTool::Respond => {
            let said: Respond = mcp::parse_params(params)?;
            json_outcome(&callbacks.respond(caller, &said)?)
        }
        CallbackTool::Pending => json_outcome(&callbacks.pending(caller)),
    }
}
