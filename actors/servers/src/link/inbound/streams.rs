//! Chunks and progress of calls, flow control messages to the server, and `mgp/stream/cancel`.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::callers::request_ids::WireId;
use mgp_json::Splice;
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::jsonrpc::{self, RequestId};
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::mgp::stream::{self, Cancel, Cancelled, Chunk, Gap, Pace, Progress};
use mgp_protocol::refusal::Refusal;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::link::{Call, InFlight, Link};
use mgp_callers::request::{Caller, Outcome};
use mgp_callers::{CallStreamNotice, Delivery, InFlightCall, PartialResult};
use mgp_runtime::EventSink;

/// How long a server may take to answer `mgp/stream/cancel`; then the call is cancelled without it.
const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// Params of a `notifications/progress` of MCP.
#[derive(Default, Deserialize)]
struct PlainProgress<'a> {
    #[serde(borrow, default)]
    progress: Option<&'a RawValue>,
    #[serde(borrow, default)]
    total: Option<&'a RawValue>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
}

impl<'a> PlainProgress<'a> {
    fn parse(params: &'a str) -> Self {
        mcp::parse_params(Some(params)).unwrap_or_default()
    }

    fn completed(&self) -> Option<f64> {
        stream::parse_number(self.progress?.get())
    }

    fn fraction(&self) -> Option<f64> {
        let total = stream::parse_number(self.total?.get()).filter(|total| *total > 0.0)?;
        Some(self.completed()? / total)
    }
}

/// The receiver of progress and chunks of an in-flight call.
struct CallReader {
    caller: Arc<Caller>,
    call: Arc<InFlightCall>,
    token: Option<Box<str>>,
    mgp_progress: bool,
}

impl CallReader {
    fn from_call(call: &InFlight) -> Option<Self> {
        let caller = call.caller.clone().filter(|caller| caller.is_ready())?;
        Some(Self {
            caller,
            call: call.call.clone(),
            token: call.token.clone(),
            mgp_progress: call.mgp_progress,
        })
    }

    /// True if the client negotiated this MGP feature.
    fn has_negotiated(&self, feature: Features) -> bool {
        self.caller.mgp.features().contains(feature)
    }

    /// True once the call has chunks; progress numbers are then not forwarded.
    fn has_chunks(&self) -> bool {
        let stream = self.call.stream();
        stream.is_some_and(|stream| !stream.is_fresh())
    }

    fn send(&self, method: &str, params: &str) {
        let frame = jsonrpc::notification(method, Some(params));
        self.call.send(frame.into(), Delivery::Lossy);
    }
}

impl Link {
    /// The call that a message names, unless the message came on the stream of another call.
    fn find_named_call(&self, id: &RawValue, via: Option<u64>) -> Option<u64> {
        let id = self.find_call(&RequestId::from_json(id.get())?)?;
        via.is_none_or(|via| via == id).then_some(id)
    }

    /// Delivers a chunk to the stream of its call; dropped if the call has no stream or has ended.
    pub(in crate::link) fn handle_chunk(&self, params: Option<&str>, via: Option<u64>) {
        if self.deliver_chunk(params, via).is_none() {
            self.count_dropped();
        }
    }

    fn deliver_chunk(&self, params: Option<&str>, via: Option<u64>) -> Option<()> {
        let chunk: Chunk<'_> = mcp::parse_params(params).ok()?;
        let id = self.find_named_call(chunk.request_id, via)?;
        self.record_activity(id);
        let stream = self.pending.inspect(id, |call| {
            let hears = call.caller.as_ref().is_none_or(|caller| caller.is_ready());
            call.stream.clone().filter(|_| hears)
        });
        let stream = stream.flatten()?;
        stream.chunk(params?, &chunk).then_some(())
    }

    /// Forwards MGP progress of a server to the client.
    pub(in crate::link) fn handle_stream_progress(&self, params: Option<&str>, via: Option<u64>) {
        if self.deliver_progress(params, via).is_none() {
            self.count_dropped();
        }
    }

    fn deliver_progress(&self, params: Option<&str>, via: Option<u64>) -> Option<()> {
        let progress: Progress<'_> = mcp::parse_params(params).ok()?;
        let id = self.find_named_call(progress.request_id, via)?;
        self.record_activity(id);
        let reader = self.pending.inspect(id, CallReader::from_call).flatten()?;
        if reader.has_negotiated(Features::PROGRESS) {
            let own = reader.call.request_id()?;
            let mut splice = Splice::new(params?);
            splice.replace(progress.request_id.get(), own.as_json().to_owned());
            reader.send(Progress::METHOD, &splice.finish());
            return Some(());
        }
        let first = reader.token.clone()?;
        let token = reader.call.progress_token(first)?;
        let (done, share) = progress.fraction()?;
        if !reader.has_chunks() && reader.call.progress().advance(done) {
            let params =
                stream::mcp_progress_params(&token, share, stream::message_json(progress.message));
            reader.send("notifications/progress", &params);
        }
        Some(())
    }

    /// Forwards progress to the call with this token, under the client's own token (CMCP-061). It is dropped if
    /// the call has ended (CMCP-062). A client that requested MGP progress gets that format.
    pub(in crate::link) fn handle_progress(&self, params: Option<&str>) {
        let Some(params) = params else { return };
        let Ok(progress) = mcp::parse_params::<mcp::Progress<'_>>(Some(params)) else {
            return;
        };
        let token = RequestId::from_response_id(progress.progress_token.get());
        let Some(id) = token.and_then(|token| self.find_call(&token)) else {
            return;
        };
        self.record_activity(id);
        let Some(reader) = self.pending.inspect(id, CallReader::from_call).flatten() else {
            return;
        };
        match reader.token.clone() {
            Some(first) => {
                let Some(token) = reader.call.progress_token(first) else {
                    return;
                };
                if reader.call.stream().is_some() && !reader.has_negotiated(Features::STREAMING) {
                    let done = PlainProgress::parse(params).completed();
                    let advances = |done| reader.call.progress().advance(done);
                    if reader.has_chunks() || !done.is_some_and(advances) {
                        return;
                    }
                }
                let mut splice = Splice::new(params);
                splice.replace(progress.progress_token.get(), &*token);
                reader.send("notifications/progress", &splice.finish());
            }
            None if reader.mgp_progress => {
                if let Some(own) = reader.call.request_id() {
                    let progress = PlainProgress::parse(params);
                    let message = stream::message_json(progress.message);
                    let params =
                        stream::progress_params(own.as_json(), progress.fraction(), message);
                    reader.send(Progress::METHOD, &params);
                }
            }
            None => {}
        }
    }

    /// A sink that sends stream notices to the server; it keeps no reference to the connection.
    pub(in crate::link) fn stream_notice_sink(
        self: &Arc<Self>,
        id: WireId,
    ) -> EventSink<CallStreamNotice> {
        let link = Arc::downgrade(self);
        EventSink::new(move |notice| {
            let Some(link) = link.upgrade() else { return };
            let id = id.to_string();
            let (method, params) = match notice {
                CallStreamNotice::Pace(rate) => (Pace::METHOD, stream::pace_params(&id, rate)),
                CallStreamNotice::Gap(missing) => (Gap::METHOD, stream::gap_params(&id, &missing)),
            };
            link.notify(method, Some(&params));
        })
    }

    /// Stops a call for its client (MGP §12.7). A server with streams is asked for the partial result; any
    /// other, and one that does not answer, gets an MCP cancellation.
    pub(in crate::link) async fn stop_call(self: &Arc<Self>, id: u64, call: &Call<'_>) -> Refusal {
        let stop = call.in_flight.stop();
        let knows = self.mgp_for(call.family).features();
        if knows.contains(Features::STREAMING) {
            let request_id = self.ids.encode(id).to_string();
            let params = stream::cancel_params(&request_id, stop.reason());
            let request = self.clone().request_stream_cancel(call.family, params);
            if let Ok(Ok(answer)) = tokio::time::timeout(STOP_DEADLINE, request).await
                && let Some(partial) = parse_partial_result(&String::from_utf8_lossy(&answer))
            {
                if let Some(partial) = partial {
                    stop.set_partial(self.guard_partial(call, partial));
                }
                drop(self.pending.take(id));
                self.open_callbacks.notify_call_ended();
                return Refusal::Cancelled;
            }
        }
        self.cancel_call(id, stop.reason());
        Refusal::Cancelled
    }

    /// Boxed, because it is a call within a call and the type would be recursive.
    fn request_stream_cancel(
        self: Arc<Self>,
        family: ProtocolFamily,
        params: String,
    ) -> RequestFuture {
        Box::pin(async move { self.request_in(family, Cancel::METHOD, Some(&params)).await })
    }
}

type RequestFuture = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// Parses the partial result of a cancellation; `None` if the server did not cancel.
fn parse_partial_result(answer: &str) -> Option<Option<PartialResult>> {
    let answer: Cancelled = mcp::parse_params(Some(answer)).ok()?;
    let partial = answer.partial_result.as_deref().map(RawValue::get);
    let partial = partial.filter(|text| text.starts_with('{'));
    let partial = partial.map(|text| PartialResult(text.into()));
    answer.cancelled.then_some(partial)
}
