//! The spans of a sampled request. Each is exported when it ends, so that memory stays bounded for long requests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mgp_engine::calls::telemetry::spans::{AttributeValue, FinishedSpan, SpanContext, SpanKind};
use mgp_engine::clock::MonotonicTime;

use super::{RemoteSpan, Trace, new_span_id};
use crate::event_sink::EventSink;
use crate::time::{monotonic_now, unix_ns};

tokio::task_local! {
    /// The span of the sampled request that is being handled; set by [`RequestSpan::instrument`].
    static CURRENT: SpanContext;
}

/// The span of the current sampled request; `None` outside of one.
#[must_use]
pub fn current_span() -> Option<SpanContext> {
    CURRENT.try_with(|context| *context).ok()
}

/// Longest name of a span, in characters: longer tool names are truncated.
const NAME_MAX: usize = 160;

/// The span of a whole request. It ends when it is dropped.
#[derive(Debug)]
pub struct RequestSpan {
    open: Mutex<OpenSpan>,
    trace: u128,
    id: u64,
    state: Box<str>,
    sink: EventSink<FinishedSpan>,
}

/// The state of a span that has not ended.
#[derive(Debug)]
struct OpenSpan {
    id: u64,
    /// The parent span; 0 for none.
    parent: u64,
    name: Box<str>,
    kind: SpanKind,
    start_ns: u64,
    started_at: MonotonicTime,
    attributes: Vec<(&'static str, AttributeValue)>,
    error: Option<&'static str>,
}

impl OpenSpan {
    fn begin(name: &str, kind: SpanKind, parent: u64) -> Self {
        Self {
            id: new_span_id(),
            parent,
            name: truncate_name(name),
            kind,
            start_ns: unix_ns(),
            started_at: monotonic_now(),
            attributes: Vec::new(),
            error: None,
        }
    }

    fn end(&mut self, trace: u128, state: &str) -> FinishedSpan {
        let duration_ns = to_nanos(monotonic_now().duration_since(self.started_at));
        FinishedSpan {
            trace,
            id: self.id,
            parent: self.parent,
            state: state.into(),
            name: std::mem::take(&mut self.name),
            kind: self.kind,
            start_ns: self.start_ns,
            end_ns: self.start_ns.saturating_add(duration_ns),
            attributes: std::mem::take(&mut self.attributes),
            error: self.error,
        }
    }
}

impl RequestSpan {
    /// Starts the span of a request of this trace, below the span of its sender.
    #[must_use]
    pub fn begin(trace: &Trace, name: &str, sink: &EventSink<FinishedSpan>) -> Option<Arc<Self>> {
        let number = trace.id.as_u128()?;
        let caller = trace.caller.as_deref();
        let open = OpenSpan::begin(name, SpanKind::Server, caller.map_or(0, |caller| caller.id));
        Some(Arc::new(Self {
            trace: number,
            id: open.id,
            open: Mutex::new(open),
            state: caller.map_or_else(Box::default, |caller| caller.state.clone()),
            sink: sink.clone(),
        }))
    }

    /// Renames the span once more is known.
    pub fn set_name(&self, name: &str) {
        self.lock_open_span().name = truncate_name(name);
    }

    /// Sets an attribute.
    pub fn set_attribute(&self, name: &'static str, value: impl Into<AttributeValue>) {
        let mut open = self.lock_open_span();
        open.attributes.retain(|(known, _)| *known != name);
        open.attributes.push((name, value.into()));
    }

    /// Marks the span as failed, for this reason.
    pub fn set_error(&self, why: &'static str) {
        self.lock_open_span().error = Some(why);
    }

    /// Runs a future as part of the request: [`current_span`] returns the request's span. Tasks that it spawns are not
    /// included.
    pub fn instrument<F: Future>(&self, handling: F) -> impl Future<Output = F::Output> + use<F> {
        let context = SpanContext {
            trace: self.trace,
            span: self.id,
        };
        CURRENT.scope(context, handling)
    }

    fn lock_open_span(&self) -> MutexGuard<'_, OpenSpan> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RequestSpan {
    fn drop(&mut self) {
        let finished = self.lock_open_span().end(self.trace, &self.state);
        self.sink.send(finished);
    }
}

/// A part of a request. It ends when it is dropped.
#[derive(Debug)]
pub struct ChildSpan {
    request_span: Arc<RequestSpan>,
    open: OpenSpan,
}

impl ChildSpan {
    /// Sets an attribute.
    pub fn set_attribute(&mut self, name: &'static str, value: impl Into<AttributeValue>) {
        self.open.attributes.push((name, value.into()));
    }

    /// Marks the span as failed for this reason; `None` for success.
    pub fn set_error(&mut self, why: Option<&'static str>) {
        self.open.error = why;
    }

    /// The `traceparent` for requests within the span.
    #[must_use]
    pub fn traceparent(&self) -> String {
        let (trace, id) = (self.request_span.trace, self.open.id);
        format!("00-{trace:032x}-{id:016x}-01")
    }

    /// The matching `tracestate`; `None` if the caller sent none.
    #[must_use]
    pub fn tracestate(&self) -> Option<&str> {
        Some(&*self.request_span.state).filter(|state| !state.is_empty())
    }
}

impl Drop for ChildSpan {
    fn drop(&mut self) {
        let finished = self
            .open
            .end(self.request_span.trace, &self.request_span.state);
        self.request_span.sink.send(finished);
    }
}

impl Trace {
    /// Starts a span of the kernel's own work; `None` if the request is not sampled.
    #[must_use]
    pub fn start_child_span(&self, name: &'static str) -> Option<ChildSpan> {
        let of = self.span.clone()?;
        let open = OpenSpan::begin(name, SpanKind::Internal, of.id);
        Some(ChildSpan {
            request_span: of,
            open,
        })
    }

    /// Starts a span for a request of the kernel to another party.
    #[must_use]
    pub fn start_client_span(&self, method: &str, of: Option<&str>) -> Option<ChildSpan> {
        let request = self.span.clone()?;
        let name = match of {
            Some(of) => format!("{method} {of}"),
            None => method.to_owned(),
        };
        let open = OpenSpan::begin(&name, SpanKind::Client, request.id);
        let mut part = ChildSpan {
            request_span: request,
            open,
        };
        part.set_attribute("mcp.method.name", method);
        Some(part)
    }

    /// The caller's own span, if its trace is this one.
    #[must_use]
    pub fn caller(&self) -> Option<&RemoteSpan> {
        self.caller.as_deref()
    }
}

fn truncate_name(name: &str) -> Box<str> {
    match name.char_indices().nth(NAME_MAX) {
        Some((at, _)) => name[..at].into(),
        None => name.into(),
    }
}

fn to_nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decision 0066: child spans are below the request's span, which is below its caller's; outgoing requests carry the child
    /// span with the caller's `tracestate`.
    #[test]
    fn spans_of_a_request_form_a_tree() {
        let finished: Arc<Mutex<Vec<FinishedSpan>>> = Arc::default();
        let taken = finished.clone();
        let sink = EventSink::new(move |span| taken.lock().unwrap().push(span));
        let parent = "00-550e8400e29b41d4a716446655440000-00f067aa0ba902b7-01";
        let params = format!(r#"{{"_meta":{{"traceparent":"{parent}","tracestate":"a=b"}}}}"#);
        let mut trace = Trace::from_params(Some(&params), None);
        trace.span = RequestSpan::begin(&trace, "tools/call", &sink);
        drop(trace.start_child_span("checks"));
        let asking = trace.start_client_span("tools/call", Some("t")).unwrap();
        let passed_on = asking.traceparent();
        assert_eq!(asking.tracestate(), Some("a=b"));
        drop(asking);
        trace.span.as_ref().unwrap().set_error("timeout");
        drop(trace);
        let finished = finished.lock().unwrap();
        let names: Vec<_> = finished.iter().map(|span| &*span.name).collect();
        assert_eq!(names, ["checks", "tools/call t", "tools/call"]);
        assert_eq!(finished[2].parent, 0x00f0_67aa_0ba9_02b7);
        assert!(
            finished[..2]
                .iter()
                .all(|part| part.parent == finished[2].id)
        );
        let own = format!("{:016x}", finished[1].id);
        assert_eq!(passed_on, format!("{}{own}-01", &parent[..36]));
        assert_eq!(finished[2].error, Some("timeout"));
        assert!(Trace::generate().start_child_span("checks").is_none());
    }
}
