//! `mgp/events/*` (MGP §13.2), as methods and as tools of the kernel: for the operator, and for agents that
//! negotiated events.

mod remote_subscription;

use std::sync::Arc;

use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_engine::tools::catalog::CatalogTool;
use mgp_engine::tools::events::channels::{EventScope, KernelChannel, KernelEvent};
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mgp::events::{Channels, Replay, Severity, Subscribe, Unsubscribe};
use mgp_protocol::mgp::matches_method;
use mgp_protocol::mgp::negotiation::Features;
use serde_json::json;

use crate::Context;
use crate::answer::{empty_result, json_outcome};
use mgp_callers::request::{Caller, Outcome, Request};
use mgp_runtime::time::unix_ms;
use mgp_tools::EventsRequest;

/// One of `mgp/events/*`: a method, and a tool of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventsTool {
    /// `mgp/events/subscribe`.
    Subscribe,
    /// `mgp/events/unsubscribe`.
    Unsubscribe,
    /// `mgp/events/replay`.
    Replay,
    /// `mgp/events/channels`.
    Channels,
}

impl EventsTool {
    pub(super) const ALL: [Self; 4] = [
        Self::Subscribe,
        Self::Unsubscribe,
        Self::Replay,
        Self::Channels,
    ];

    pub(super) const fn method(self) -> &'static str {
        match self {
            Self::Subscribe => Subscribe::METHOD,
            Self::Unsubscribe => Unsubscribe::METHOD,
            Self::Replay => Replay::METHOD,
            Self::Channels => Channels::METHOD,
        }
    }
}

/// The tool of that name or spelling, when it is one for this caller.
pub(super) fn find_tool(caller: &Caller, name: &str) -> Option<EventsTool> {
    let mut all = EventsTool::ALL.into_iter();
    let tool = all.find(|tool| matches_method(tool.method(), name))?;
    (caller.operator || has_negotiated(caller)).then_some(tool)
}

/// Those that are listed for this caller: a stateless one has nobody to send events to.
pub(super) fn listed_tools(caller: &Caller) -> impl Iterator<Item = &'static str> + use<> {
    let (agreed, alone) = (has_negotiated(caller), caller.is_stateless());
    let all = EventsTool::ALL.into_iter().filter(move |_| agreed);
    all.filter(move |tool| !alone || *tool == EventsTool::Channels)
        .map(EventsTool::method)
}

/// Of another node only the method itself is asked.
fn has_negotiated(caller: &Caller) -> bool {
    caller.mgp.features().contains(Features::EVENTS) && !caller.agent.is_remote()
}

/// `mgp/events/*` as a method.
///
/// # Errors
/// Params that cannot be read; a bound; an id that is not one of this connection.
pub async fn answer(cx: &Context, request: &Request, tool: EventsTool) -> Outcome {
    execute(cx, request, tool, request.params.as_deref()).await
}

/// What the method answers, whichever way it was called.
pub(super) async fn execute(
    cx: &Context,
    request: &Request,
    tool: EventsTool,
    params: Option<&str>,
) -> Outcome {
    let (events, caller) = (&cx.events, &request.caller);
    match tool {
        EventsTool::Subscribe if caller.agent.is_remote() => {
            remote_subscription::follow(cx, request, params).await
        }
        EventsTool::Subscribe => {
            let request = EventsRequest {
                caller: caller.clone(),
                call: request.call.clone(),
                request: mcp::parse_params(params)?,
                following: None,
            };
            json_outcome(&events.subscribe(request).await?)
        }
        EventsTool::Unsubscribe => {
            let asked: Unsubscribe = mcp::parse_params(params)?;
            let ended = events.unsubscribe(caller.connection, asked.subscription_id);
            ended.await.map(|()| empty_result())
        }
        EventsTool::Replay => {
            let asked = mcp::parse_params(params)?;
            json_outcome(&events.replay(caller.connection, asked).await?)
        }
        EventsTool::Channels => {
            let channels = events.channels(caller.clone()).await?;
            json_outcome(&json!({"channels": channels}))
        }
    }
}

/// A call leaves for its server. It has no record yet, and so no cursor.
pub(crate) fn publish_call_started(cx: &Context, request: &Request, tool: &Arc<CatalogTool>) {
    let caller = &request.caller;
    cx.events
        .publish_kernel_event(KernelChannel::ToolStarted, || KernelEvent {
            channel: KernelChannel::ToolStarted,
            severity: Severity::Info,
            scope: EventScope {
                server: Some(tool.server.clone()),
                agent: (!caller.operator).then(|| caller.agent.clone()),
                operator_only: caller.operator,
            },
            timestamp: render_rfc3339_ms(unix_ms()),
            data: json!({
                "trace_id": request.trace.id,
                "server_id": tool.server.as_str(),
                "tool_name": &*tool.own_name,
            }),
            for_agents: None,
        });
}
