//! Chunks and progress of calls, what the server is told of their reader, and `mgp/stream/cancel`.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::callers::request_ids::WireId;
use mgp_protocol::dialect::Era;
use mgp_protocol::jsonrpc::{self, RequestId};
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::mgp::stream::{self, Cancel, Cancelled, Chunk, Gap, Pace, Progress};
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::Splice;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::link::{Call, InFlight, Link};
use mgp_callers::exchange::call_stream::{CallStreamNotice, PartialResult};
use mgp_callers::exchange::{Delivery, Exchange};
use mgp_callers::request::{Caller, Outcome};
use mgp_runtime::event_sink::EventSink;

/// How long a server may take to answer `mgp/stream/cancel`; then the call is cancelled without it.
const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// What a server of plain MCP says of how far a call is.
#[derive(Default, Deserialize)]
struct SaidProgress<'a> {
    #[serde(borrow, default)]
    progress: Option<&'a RawValue>,
    #[serde(borrow, default)]
    total: Option<&'a RawValue>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
}

impl<'a> SaidProgress<'a> {
    fn read(params: &'a str) -> Self {
        mcp::read(Some(params)).unwrap_or_default()
    }

    fn done(&self) -> Option<f64> {
        stream::number(self.progress?.get())
    }

    fn share(&self) -> Option<f64> {
        let total = stream::number(self.total?.get()).filter(|total| *total > 0.0)?;
        Some(self.done()? / total)
    }
}

/// The reader of a call under way.
struct CallReader {
    caller: Arc<Caller>,
    exchange: Arc<Exchange>,
    token: Option<Box<str>>,
    reports: bool,
}

impl CallReader {
    fn of(call: &InFlight) -> Option<Self> {
        let caller = call.caller.clone().filter(|caller| caller.hears())?;
        Some(Self {
            caller,
            exchange: call.exchange.clone(),
            token: call.token.clone(),
            reports: call.reports,
        })
    }

    /// A client that is told of progress in the words of MGP.
    fn speaks(&self, feature: Features) -> bool {
        self.caller.mgp.features().contains(feature)
    }

    /// Chunks came, which say more than any number: those alone are told.
    fn has_chunks(&self) -> bool {
        let stream = self.exchange.stream();
        stream.is_some_and(|stream| !stream.is_fresh())
    }

    fn send(&self, method: &str, params: &str) {
        let frame = jsonrpc::notification(method, Some(params));
        self.exchange.send(frame.into(), Delivery::Lossy);
    }
}

impl Link {
    /// The call that a message names, unless it came on the stream of another one.
    fn call_named(&self, id: &RawValue, via: Option<u64>) -> Option<u64> {
        let id = self.meant(&RequestId::from_json(id.get())?)?;
        via.is_none_or(|via| via == id).then_some(id)
    }

    /// A chunk goes to the stream of its own call, and nowhere when that has none or is over.
    pub(in crate::link) fn chunk_arrived(&self, params: Option<&str>, via: Option<u64>) {
        if self.took_chunk(params, via).is_none() {
            self.dropped();
        }
    }

    fn took_chunk(&self, params: Option<&str>, via: Option<u64>) -> Option<()> {
        let chunk: Chunk<'_> = mcp::read(params).ok()?;
        let id = self.call_named(chunk.request_id, via)?;
        self.touch(id);
        let stream = self.pending.with(id, |call| {
            let hears = call.caller.as_ref().is_none_or(|caller| caller.hears());
            call.stream.clone().filter(|_| hears)
        });
        let stream = stream.flatten()?;
        stream.chunk(params?, &chunk).then_some(())
    }

    /// Progress of a server that speaks MGP, to a client in its own words.
    pub(in crate::link) fn stream_progressed(&self, params: Option<&str>, via: Option<u64>) {
        if self.took_progress(params, via).is_none() {
            self.dropped();
        }
    }

    fn took_progress(&self, params: Option<&str>, via: Option<u64>) -> Option<()> {
        let said: Progress<'_> = mcp::read(params).ok()?;
        let id = self.call_named(said.request_id, via)?;
        self.touch(id);
        let reader = self.pending.with(id, CallReader::of).flatten()?;
        if reader.speaks(Features::PROGRESS) {
            let own = reader.exchange.request_id()?;
            let mut splice = Splice::new(params?);
            splice.replace(said.request_id.get(), own.as_json().to_owned());
            reader.send(Progress::METHOD, &splice.finish());
            return Some(());
        }
        let first = reader.token.clone()?;
        let token = reader.exchange.progress_token(first)?;
        let (done, share) = said.share()?;
        if !reader.has_chunks() && reader.exchange.progress().passes(done) {
            let params = stream::plain_progress(&token, share, stream::words(said.message));
            reader.send("notifications/progress", &params);
        }
        Some(())
    }

    /// Progress goes to the call whose token it has, under the client's own token (CMCP-061); it is
    /// dropped when that call is over (CMCP-062). A client that asked in the words of MGP reads it in them.
    pub(in crate::link) fn progressed(&self, params: Option<&str>) {
        let Some(params) = params else { return };
        let Ok(progress) = mcp::read::<mcp::Progress<'_>>(Some(params)) else {
            return;
        };
        let token = RequestId::from_answer(progress.progress_token.get());
        let Some(id) = token.and_then(|token| self.meant(&token)) else {
            return;
        };
        self.touch(id);
        let Some(reader) = self.pending.with(id, CallReader::of).flatten() else {
            return;
        };
        match reader.token.clone() {
            Some(first) => {
                let Some(token) = reader.exchange.progress_token(first) else {
                    return;
                };
                if reader.exchange.stream().is_some() && !reader.speaks(Features::STREAMING) {
                    let done = SaidProgress::read(params).done();
                    let passes = |done| reader.exchange.progress().passes(done);
                    if reader.has_chunks() || !done.is_some_and(passes) {
                        return;
                    }
                }
                let mut splice = Splice::new(params);
                splice.replace(progress.progress_token.get(), &*token);
                reader.send("notifications/progress", &splice.finish());
            }
            None if reader.reports => {
                if let Some(own) = reader.exchange.request_id() {
                    let said = SaidProgress::read(params);
                    let message = stream::words(said.message);
                    let params = stream::progress_params(own.as_json(), said.share(), message);
                    reader.send(Progress::METHOD, &params);
                }
            }
            None => {}
        }
    }

    /// The way to the server of a stream. Holds nothing of the connection.
    pub(in crate::link) fn stream_notices(
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

    /// The client stops a call (MGP §12.7): a server that knows streams is asked for what there is of the
    /// result; any other, and one that does not answer, is told as MCP has it.
    pub(in crate::link) async fn stop(self: &Arc<Self>, id: u64, call: &Call<'_>) -> Refusal {
        let stop = call.exchange.stop();
        let knows = self.mgp_in(call.era).features();
        if knows.contains(Features::STREAMING) {
            let shown = self.ids.shown(id).to_string();
            let params = stream::cancel_params(&shown, stop.reason());
            let asked = self.clone().ask_to_stop(call.era, params);
            if let Ok(Ok(answer)) = tokio::time::timeout(STOP_DEADLINE, asked).await
                && let Some(partial) = stopped(&String::from_utf8_lossy(&answer))
            {
                if let Some(partial) = partial {
                    stop.set_partial(partial);
                }
                drop(self.pending.take(id));
                self.questions.reconsider();
                return Refusal::Cancelled;
            }
        }
        self.take_back(id, stop.reason());
        Refusal::Cancelled
    }

    /// A call within a call, so its type has an end.
    fn ask_to_stop(self: Arc<Self>, era: Era, params: String) -> Asked {
        Box::pin(async move { self.ask_in(era, Cancel::METHOD, Some(&params)).await })
    }
}

type Asked = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// What a server says there was of a result; `None` when it did not cancel.
fn stopped(answer: &str) -> Option<Option<PartialResult>> {
    let answer: Cancelled = mcp::read(Some(answer)).ok()?;
    let partial = answer.partial_result.as_deref().map(RawValue::get);
    let partial = partial.filter(|text| text.starts_with('{'));
    let partial = partial.map(|text| PartialResult(text.into()));
    answer.cancelled.then_some(partial)
}
