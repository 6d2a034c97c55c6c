//! Methods of MGP that may also be called as tools of the kernel.

use serde_json::value::RawValue;

use super::access::{self, AccessTool};
use super::agent;
use super::callback::{self, CallbackTool};
use super::discovery;
use super::events::{self, EventsTool};
use super::stream::{self, StreamTool};
use crate::Context;
use crate::answer::structured;
use crate::cut_results;
use crate::mcpl;
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
const BEGINS: &str = "mgp";

/// The definitions of the tools that are listed for this caller: those of the extensions it negotiated, and
/// those for registering servers where it may.
pub(crate) fn listed(cx: &Context, caller: &Caller) -> Vec<String> {
    let security = caller.mgp.features().contains(Features::TOOL_SECURITY);
    let methods = agent::listed(caller)
        .into_iter()
        .chain(callback::listed(caller))
        .chain(events::listed(caller))
        .chain(stream::listed(caller))
        .chain(cut_results::listed(cx, caller))
        .chain(mcpl::state::listed(cx, caller))
        .chain(mcpl::channels::listed(cx, caller));
    let methods = methods.filter(|method| is_open(caller, method));
    let mut all = match is_open(caller, DiscoveryTool::Register.method()) {
        true => discovery::registering_tools(cx, caller, security),
        false => Vec::new(),
    };
    all.extend(methods.filter_map(|method| definition(method, security)));
    all
}

/// Whether the tool that stands for this method is there for callers of the caller's node. Where it is not, its
/// name may be that of a server's tool.
fn is_open(caller: &Caller, method: &str) -> bool {
    remote_requests::allows(&caller.agent, RemoteTarget::KernelTool(method))
}

/// The tool for finding others that has this name or spelling, when it is one for this caller.
pub(crate) fn meta_tool(caller: &Caller, name: &str) -> Option<MetaTool> {
    MetaTool::named(name).filter(|tool| is_open(caller, tool.method()))
}

/// The methods of all tools of the kernel that are answered here.
#[must_use]
pub fn methods() -> Vec<&'static str> {
    let access = AccessTool::ALL.map(KernelTool::Access);
    let callback = CallbackTool::ALL.map(KernelTool::Callback);
    let discovery = DiscoveryTool::ALL.map(KernelTool::Discovery);
    let stream = StreamTool::ALL.map(KernelTool::Stream);
    let events = EventsTool::ALL.map(KernelTool::Events);
    let tools = KernelTool::PLAIN.into_iter();
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
    ReadOn,
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
    const PLAIN: [Self; 4] = [Self::AskAgent, Self::ReadOn, Self::Publish, Self::RollBack];

    const fn method(&self) -> &'static str {
        match self {
            Self::Access(tool) => tool.method(),
            Self::AskAgent => Ask::METHOD,
            Self::Callback(tool) => tool.method(),
            Self::ReadOn => Read::METHOD,
            Self::Discovery(tool) => tool.method(),
            Self::Publish => Publish::METHOD,
            Self::RollBack => Rollback::METHOD,
            Self::Stream(tool) => tool.method(),
            Self::Events(tool) => tool.method(),
        }
    }

    /// The tool of that name or spelling, when it is one for this caller.
    pub(crate) fn named(cx: &Context, caller: &Caller, name: &str) -> Option<Self> {
        let tool = Self::agreed(cx, caller, name)?;
        is_open(caller, tool.method()).then_some(tool)
    }

    /// The method of that name or spelling, when the caller agreed to it.
    fn agreed(cx: &Context, caller: &Caller, name: &str) -> Option<Self> {
        if !name.starts_with(BEGINS) {
            return None;
        }
        if agent::is_tool(caller, name) {
            return Some(Self::AskAgent);
        }
        if cut_results::is_tool(cx, caller, name) {
            return Some(Self::ReadOn);
        }
        if mcpl::state::is_tool(cx, caller, name) {
            return Some(Self::RollBack);
        }
        if mcpl::channels::is_tool(cx, caller, name) {
            return Some(Self::Publish);
        }
        let access = access::tool(caller, name).map(Self::Access);
        let callback = || callback::tool(caller, name).map(Self::Callback);
        let discovery = || discovery::tool(cx, caller, name).map(Self::Discovery);
        let stream = || stream::tool(caller, name).map(Self::Stream);
        let events = || events::tool(caller, name).map(Self::Events);
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
        if let Self::ReadOn = self {
            return cut_results::read(cx, request, params);
        }
        let answer = match self {
            Self::Access(tool) => access::answered(cx, request, tool, params).await,
            Self::AskAgent => agent::answered(cx, request, params).await,
            Self::ReadOn => cut_results::read(cx, request, params),
            Self::Publish => mcpl::channels::by_tool(cx, request, params).await,
            Self::RollBack => mcpl::state::by_tool(cx, request, params).await,
            Self::Callback(tool) => callback::answered(cx, request, tool, params),
            Self::Discovery(tool) => discovery::answered(cx, request, tool, params).await,
            Self::Stream(tool) => stream::answered(cx, request, tool, params).await,
            Self::Events(tool) => events::answered(cx, request, tool, params).await,
        };
        Ok(structured(&request.caller, &answer?))
    }
}
