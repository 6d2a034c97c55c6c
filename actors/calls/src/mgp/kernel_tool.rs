//! Methods of MGP that may also be called as tools of the kernel.

use serde_json::value::RawValue;

use super::access::{self, AccessTool};
use super::agent;
use super::callback::{self, CallbackTool};
use super::discovery;
use super::events::{self, EventsTool};
use super::stream::{self, StreamTool};
use crate::Context;
use crate::answer::to_tool_result;
use crate::mcpl;
use crate::result_pages;
use mgp_callers::request::{Caller, Outcome, Request};
use mgp_engine::cluster::remote_requests::{self, RemoteTarget};
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::agent::Ask;
use mgp_protocol::mgp::calls::Read;
use mgp_protocol::mgp::channels::Publish;
use mgp_protocol::mgp::discovery::DiscoveryTool;
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::mgp::state::Rollback;
use mgp_protocol::mgp::tools::meta::MetaTool;
use mgp_protocol::mgp::tools::methods::definition;

/// How every spelling of a method begins.
const METHOD_PREFIX: &str = "mgp";

/// The definitions of the tools that are listed for this caller: those of the extensions it negotiated, and
/// those for registering servers where it may.
pub(crate) fn listed_tools(cx: &Context, caller: &Caller) -> Vec<String> {
    let security = caller.mgp.features().contains(Features::TOOL_SECURITY);
    let methods = agent::tool_definition(caller)
        .into_iter()
        .chain(callback::listed_tools(caller))
        .chain(events::listed_tools(caller))
        .chain(stream::listed_tools(caller))
        .chain(result_pages::tool_definition(cx, caller))
        .chain(mcpl::state::tool_definition(cx, caller))
        .chain(mcpl::channels::tool_definition(cx, caller));
    let methods = methods.filter(|method| is_open(caller, method));
    let mut all = if is_open(caller, DiscoveryTool::Register.method()) {
        discovery::registration_tools(cx, caller, security)
    } else {
        Vec::new()
    };
    all.extend(methods.filter_map(|method| definition(method, security)));
    all
}

/// Whether the tool that stands for this method is there for callers of the caller's node. Where it is not, its
/// name may be that of a server's tool.
fn is_open(caller: &Caller, method: &str) -> bool {
    remote_requests::is_allowed(&caller.agent, RemoteTarget::KernelTool(method))
}

/// The tool for finding others that has this name or spelling, when it is one for this caller.
pub(crate) fn meta_tool(caller: &Caller, name: &str) -> Option<MetaTool> {
    MetaTool::from_name(name).filter(|tool| is_open(caller, tool.method()))
}

/// The methods of all tools of the kernel that are answered here.
#[must_use]
pub fn methods() -> Vec<&'static str> {
    let access = AccessTool::ALL.map(KernelTool::Access);
    let callback = CallbackTool::ALL.map(KernelTool::Callback);
    let discovery = DiscoveryTool::ALL.map(KernelTool::Discovery);
    let stream = StreamTool::ALL.map(KernelTool::Stream);
    let events = EventsTool::ALL.map(KernelTool::Events);
    let tools = KernelTool::SINGLE_METHOD_TOOLS.into_iter();
    let tools = tools.chain(access).chain(callback).chain(discovery);
    let tools = tools.chain(stream).chain(events);
    let meta = MetaTool::ALL.map(MetaTool::method);
    tools.map(|tool| tool.method()).chain(meta).collect()
}

/// A method that is called as a tool.
pub(crate) enum KernelTool {
    /// `mgp/access/*`.
    Access(AccessTool),
    /// `mgp/agent/ask`.
    AskAgent,
    /// `mgp/callback/respond` and what is pending.
    Callback(CallbackTool),
    /// `mgp/calls/read`.
    ReadPage,
    /// `mgp/discovery/*`.
    Discovery(DiscoveryTool),
    /// `mgp/channels/publish`.
    Publish,
    /// `mgp/state/rollback`.
    RollBack,
    /// `mgp/stream/*`.
    Stream(StreamTool),
    /// `mgp/events/*`.
    Events(EventsTool),
}

impl KernelTool {
    /// Those that are one of a kind.
    const SINGLE_METHOD_TOOLS: [Self; 4] = [
        Self::AskAgent,
        Self::ReadPage,
        Self::Publish,
        Self::RollBack,
    ];

    const fn method(&self) -> &'static str {
        match self {
            Self::Access(tool) => tool.method(),
            Self::AskAgent => Ask::METHOD,
            Self::Callback(tool) => tool.method(),
            Self::ReadPage => Read::METHOD,
            Self::Discovery(tool) => tool.method(),
            Self::Publish => Publish::METHOD,
            Self::RollBack => Rollback::METHOD,
            Self::Stream(tool) => tool.method(),
            Self::Events(tool) => tool.method(),
        }
    }

    /// The tool of that name or spelling, when it is one for this caller.
    pub(crate) fn from_name(cx: &Context, caller: &Caller, name: &str) -> Option<Self> {
        let tool = Self::from_negotiated_name(cx, caller, name)?;
        is_open(caller, tool.method()).then_some(tool)
    }

    /// The method of that name or spelling, when the caller agreed to it.
    fn from_negotiated_name(cx: &Context, caller: &Caller, name: &str) -> Option<Self> {
        if !name.starts_with(METHOD_PREFIX) {
            return None;
        }
        if agent::is_tool(caller, name) {
            return Some(Self::AskAgent);
        }
        if result_pages::is_tool(cx, caller, name) {
            return Some(Self::ReadPage);
        }
        if mcpl::state::is_tool(cx, caller, name) {
            return Some(Self::RollBack);
        }
        if mcpl::channels::is_tool(cx, caller, name) {
            return Some(Self::Publish);
        }
        let access = access::find_tool(caller, name).map(Self::Access);
        let callback = || callback::find_tool(caller, name).map(Self::Callback);
        let discovery = || discovery::find_tool(cx, caller, name).map(Self::Discovery);
        let stream = || stream::find_tool(caller, name).map(Self::Stream);
        let events = || events::find_tool(caller, name).map(Self::Events);
        access
            .or_else(callback)
            .or_else(discovery)
            .or_else(stream)
            .or_else(events)
    }

    /// What the method answers, as structured content and as text.
    ///
    /// # Errors
    /// Those of the method.
    pub(crate) async fn answer(
        self,
        cx: &Context,
        request: &Request,
        arguments: Option<&RawValue>,
    ) -> Outcome {
        let params = Some(arguments.map_or("{}", RawValue::get));
        if let Self::ReadPage = self {
            return result_pages::next_page(cx, request, params);
        }
        let answer = match self {
            Self::Access(tool) => access::execute(cx, request, tool, params).await,
            Self::AskAgent => agent::execute(cx, request, params).await,
            Self::ReadPage => result_pages::next_page(cx, request, params),
            Self::Publish => mcpl::channels::publish_as_tool(cx, request, params).await,
            Self::RollBack => mcpl::state::rollback_as_tool(cx, request, params).await,
            Self::Callback(tool) => callback::execute(cx, request, tool, params),
            Self::Discovery(tool) => discovery::execute(cx, request, tool, params).await,
            Self::Stream(tool) => stream::execute(cx, request, tool, params).await,
            Self::Events(tool) => events::execute(cx, request, tool, params).await,
        };
        Ok(to_tool_result(&request.caller, &answer?))
    }
}
