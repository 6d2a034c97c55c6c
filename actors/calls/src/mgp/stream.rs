//! `mgp/stream/*` (MGP §12): what the reader of an in-flight call sends, as methods, notifications and kernel tools.
//! A caller finds only its own calls.

use std::sync::Arc;
use std::time::Duration;

use mgp_protocol::jsonrpc::RequestId;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mgp::matches_method;
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::mgp::stream::{Cancel, Cancelled, Gap, MISSING_MAX, PACE_TOOL, Pace};
use mgp_protocol::refusal::Refusal;
use serde_json::value::RawValue;

use crate::Context;
use crate::answer::{empty_result, json_outcome};
use mgp_callers::request::{Caller, Outcome, Request};
use mgp_callers::{InFlightCall, InFlightCallGuard, InFlightCalls, PartialResult, StreamBudgets};

/// How long a stopped call may take to end: its server has five seconds to answer.
const STOP_TIMEOUT: Duration = Duration::from_secs(8);

/// The calls in flight of callers that know streams, and what streams may hold.
#[derive(Debug, Default)]
pub struct CallStreams {
    /// Where callers find their calls.
    pub(crate) in_flight: Arc<InFlightCalls>,
    /// What the streams of each agent may hold.
    pub(crate) budgets: Arc<StreamBudgets>,
}

/// One of `mgp/stream/*` that is a tool of the kernel, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamTool {
    /// `mgp/stream/cancel`.
    Cancel,
    /// `mgp/stream/pace`.
    Pace,
}

impl StreamTool {
    pub(super) const ALL: [Self; 2] = [Self::Cancel, Self::Pace];

    pub(super) const fn method(self) -> &'static str {
        match self {
            Self::Cancel => Cancel::METHOD,
            Self::Pace => PACE_TOOL,
        }
    }
}

/// The tool of that name or spelling, when it is one for this caller.
pub(super) fn find_tool(caller: &Caller, name: &str) -> Option<StreamTool> {
    let agreed = caller.mgp.features().contains(Features::STREAMING);
    let mut all = StreamTool::ALL.into_iter().filter(|_| agreed);
    all.find(|tool| matches_method(tool.method(), name))
}

/// Those that are listed for this caller.
pub(super) fn listed_tools(caller: &Caller) -> impl Iterator<Item = &'static str> + use<> {
    let agreed = caller.mgp.features().contains(Features::STREAMING);
    let all = StreamTool::ALL.into_iter().filter(move |_| agreed);
    all.map(StreamTool::method)
}

/// `mgp/stream/*` as a method.
///
/// # Errors
/// [`Refusal::BadParams`].
pub async fn answer(cx: &Context, request: &Request, tool: StreamTool) -> Outcome {
    execute(cx, request, tool, request.params.as_deref()).await
}

/// What the method answers, whichever way it was called.
pub(super) async fn execute(
    cx: &Context,
    request: &Request,
    tool: StreamTool,
    params: Option<&str>,
) -> Outcome {
    match tool {
        StreamTool::Cancel => cancel(cx, request, mcp::parse_params(params)?).await,
        StreamTool::Pace => {
            let asked: Pace<'_> = mcp::parse_params(params)?;
            if let Some(call) = find_own_call(cx, &request.caller, asked.request_id)
                && let Some(stream) = call.stream()
            {
                stream.set_pace(asked.rate());
            }
            Ok(empty_result())
        }
    }
}

/// The caller's own call with this id.
fn find_own_call(cx: &Context, caller: &Caller, id: &RawValue) -> Option<Arc<InFlightCall>> {
    let id = RequestId::from_json(id.get())?;
    cx.streams.in_flight.find(caller.connection, &id)
}

/// `mgp/stream/cancel`: ends a call of the caller's own, and answers with what there is of its result. What
/// is over, was never there or is another's is not cancelled.
async fn cancel(cx: &Context, request: &Request, asked: Cancel<'_>) -> Outcome {
    if RequestId::from_json(asked.request_id.get()).is_none() {
        let words = "`request_id` must be the id of the request, a string or an integer";
        return Err(Refusal::BadParams(words.into()));
    }
    let call = find_own_call(cx, &request.caller, asked.request_id);
    // A call cannot wait for its own end.
    let call = call.filter(|call| !Arc::ptr_eq(call, &request.call));
    let reason = asked
        .reason
        .and_then(|raw| serde_json::from_str(raw.get()).ok());
    let partial = match call {
        Some(call) => stop_call(&call, reason).await,
        None => None,
    };
    json_outcome(&Cancelled {
        cancelled: partial.is_some(),
        partial_result: partial.and_then(|partial| RawValue::from_string(partial.0.into()).ok()),
    })
}

/// Stops a call and waits for its end; `None` if it was answered before.
async fn stop_call(call: &InFlightCall, reason: Option<String>) -> Option<PartialResult> {
    let stop = call.stop();
    if !stop.request(reason) {
        return None;
    }
    // While it waits for a permit or for a person, no server knows of it.
    if !stop.has_tracked_request() {
        call.cancel();
    }
    let _ = tokio::time::timeout(STOP_TIMEOUT, stop.wait_until_ended()).await;
    stop.partial().cloned()
}

/// `notifications/mgp.stream.pace` of a client.
pub fn handle_pace(cx: &Context, caller: &Caller, params: Option<&str>) {
    if let Ok(asked) = mcp::parse_params::<Pace<'_>>(params)
        && let Some(call) = find_streaming_call(cx, caller, asked.request_id)
        && let Some(stream) = call.stream()
    {
        stream.set_pace(asked.rate());
    }
}

/// `notifications/mgp.stream.gap` of a client.
pub fn handle_gap(cx: &Context, caller: &Caller, params: Option<&str>) {
    if let Ok(mut asked) = mcp::parse_params::<Gap<'_>>(params)
        && let Some(call) = find_streaming_call(cx, caller, asked.request_id)
        && let Some(stream) = call.stream()
    {
        asked.missing_indices.truncate(MISSING_MAX);
        stream.report_gap(asked.missing_indices);
    }
}

fn find_streaming_call(cx: &Context, caller: &Caller, id: &RawValue) -> Option<Arc<InFlightCall>> {
    let agreed = caller.mgp.features().contains(Features::STREAMING);
    agreed.then(|| find_own_call(cx, caller, id)).flatten()
}

/// A call of a tool begins; ended with what this gives. `None` for a call within a call.
pub(crate) fn register_call(cx: &Context, request: &Request) -> Option<InFlightCallGuard> {
    let connection = request.caller.connection;
    cx.streams.in_flight.register(connection, &request.call)
}

/// The call has this outcome: its chunks go before it. Of one that was stopped, what there was is kept for
/// who stopped it.
pub(crate) async fn finish_stream(request: &Request, outcome: &Outcome) {
    let exchange = &request.call;
    let cancelled = matches!(outcome, Err(Refusal::Cancelled));
    if cancelled && exchange.stop().is_requested() {
        let so_far = match exchange.stream() {
            Some(stream) => stream.partial_result().await,
            None => None,
        };
        let so_far = so_far.unwrap_or_else(PartialResult::unknown);
        exchange.stop().set_partial(so_far);
    } else if let Some(stream) = exchange.stream() {
        stream.finish().await;
    }
}
