//! `mgp/stream/*` (MGP §12): what the reader of a call says while it is under way, as methods, notifications
//! and tools of the kernel. A caller finds its own calls alone.

use std::sync::Arc;
use std::time::Duration;

use mgp_protocol::jsonrpc::RequestId;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::mgp::spells;
use mgp_protocol::mgp::stream::{Cancel, Cancelled, Gap, MISSING_MAX, PACE_TOOL, Pace};
use mgp_protocol::refusal::Refusal;
use serde_json::value::RawValue;

use crate::Context;
use crate::answer::{json, nothing};
use mgp_callers::exchange::Exchange;
use mgp_callers::exchange::call_stream::PartialResult;
use mgp_callers::exchange::call_stream::room::StreamRooms;
use mgp_callers::exchange::under_way::{CallUnderWay, CallsUnderWay};
use mgp_callers::request::{Caller, Outcome, Request};

/// How long a stopped call may take to end: its server has five seconds to answer.
const ENDED: Duration = Duration::from_secs(8);

/// The calls under way of callers that know streams, and what streams may hold.
#[derive(Debug, Default)]
pub struct CallStreams {
    /// Where callers find their calls.
    pub under_way: Arc<CallsUnderWay>,
    /// What the streams of each agent may hold.
    pub rooms: Arc<StreamRooms>,
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
pub(super) fn tool(caller: &Caller, name: &str) -> Option<StreamTool> {
    let agreed = caller.mgp.features().contains(Features::STREAMING);
    let mut all = StreamTool::ALL.into_iter().filter(|_| agreed);
    all.find(|tool| spells(tool.method(), name))
}

/// Those that are listed for this caller.
pub(super) fn listed(caller: &Caller) -> impl Iterator<Item = &'static str> + use<> {
    let agreed = caller.mgp.features().contains(Features::STREAMING);
    let all = StreamTool::ALL.into_iter().filter(move |_| agreed);
    all.map(StreamTool::method)
}

/// `mgp/stream/*` as a method.
///
/// # Errors
/// [`Refusal::BadParams`].
pub async fn answer(cx: &Context, request: &Request, tool: StreamTool) -> Outcome {
    answered(cx, request, tool, request.params.as_deref()).await
}

/// What the method answers, whichever way it was called.
pub(super) async fn answered(
    cx: &Context,
    request: &Request,
    tool: StreamTool,
    params: Option<&str>,
) -> Outcome {
    match tool {
        StreamTool::Cancel => cancel(cx, request, mcp::read(params)?).await,
        StreamTool::Pace => {
            let asked: Pace<'_> = mcp::read(params)?;
            if let Some(call) = own(cx, &request.caller, asked.request_id)
                && let Some(stream) = call.stream()
            {
                stream.pace(asked.rate());
            }
            Ok(nothing())
        }
    }
}

/// The caller's own call with this id.
fn own(cx: &Context, caller: &Caller, id: &RawValue) -> Option<Arc<Exchange>> {
    let id = RequestId::from_json(id.get())?;
    cx.streams.under_way.find(caller.connection, &id)
}

/// `mgp/stream/cancel`: ends a call of the caller's own, and answers with what there is of its result. What
/// is over, was never there or is another's is not cancelled.
async fn cancel(cx: &Context, request: &Request, asked: Cancel<'_>) -> Outcome {
    if RequestId::from_json(asked.request_id.get()).is_none() {
        let words = "`request_id` must be the id of the request, a string or an integer";
        return Err(Refusal::BadParams(words.into()));
    }
    let call = own(cx, &request.caller, asked.request_id);
    // A call cannot wait for its own end.
    let call = call.filter(|call| !Arc::ptr_eq(call, &request.exchange));
    let reason = asked
        .reason
        .and_then(|raw| serde_json::from_str(raw.get()).ok());
    let partial = match call {
        Some(call) => stopped(&call, reason).await,
        None => None,
    };
    json(&Cancelled {
        cancelled: partial.is_some(),
        partial_result: partial.and_then(|partial| RawValue::from_string(partial.0.into()).ok()),
    })
}

/// Stops a call and waits for its end; `None` when it was answered before.
async fn stopped(call: &Exchange, reason: Option<String>) -> Option<PartialResult> {
    let stop = call.stop();
    if !stop.ask(reason) {
        return None;
    }
    // While it waits for its turn, or for a person, no server knows of it.
    if !stop.is_carried() {
        call.cancel();
    }
    let _ = tokio::time::timeout(ENDED, stop.ended()).await;
    stop.partial().cloned()
}

/// `notifications/mgp.stream.pace` of a client.
pub fn paced(cx: &Context, caller: &Caller, params: Option<&str>) {
    if let Ok(asked) = mcp::read::<Pace<'_>>(params)
        && let Some(call) = agreed(cx, caller, asked.request_id)
        && let Some(stream) = call.stream()
    {
        stream.pace(asked.rate());
    }
}

/// `notifications/mgp.stream.gap` of a client.
pub fn missed(cx: &Context, caller: &Caller, params: Option<&str>) {
    if let Ok(mut asked) = mcp::read::<Gap<'_>>(params)
        && let Some(call) = agreed(cx, caller, asked.request_id)
        && let Some(stream) = call.stream()
    {
        asked.missing_indices.truncate(MISSING_MAX);
        stream.gap(asked.missing_indices);
    }
}

fn agreed(cx: &Context, caller: &Caller, id: &RawValue) -> Option<Arc<Exchange>> {
    let agreed = caller.mgp.features().contains(Features::STREAMING);
    agreed.then(|| own(cx, caller, id)).flatten()
}

/// A call of a tool begins; ended with what this gives. `None` for a call within a call.
pub(crate) fn begun(cx: &Context, request: &Request) -> Option<CallUnderWay> {
    let connection = request.caller.connection;
    cx.streams.under_way.enter(connection, &request.exchange)
}

/// The call has this outcome: its chunks go before it. Of one that was stopped, what there was is kept for
/// who stopped it.
pub(crate) async fn ended(request: &Request, outcome: &Outcome) {
    let exchange = &request.exchange;
    let cancelled = matches!(outcome, Err(Refusal::Cancelled));
    if cancelled && exchange.stop().is_asked() {
        let so_far = match exchange.stream() {
            Some(stream) => stream.so_far().await,
            None => None,
        };
        let so_far = so_far.unwrap_or_else(PartialResult::nothing);
        exchange.stop().set_partial(so_far);
    } else if let Some(stream) = exchange.stream() {
        stream.finish().await;
    }
}
