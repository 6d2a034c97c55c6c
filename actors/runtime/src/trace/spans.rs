//! The spans of a sampled request. Each is exported when it ends, so nothing gathers in memory however long the
//! request takes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mgp_engine::calls::telemetry::spans::{AttributeValue, FinishedSpan, SpanContext, SpanKind};
use mgp_engine::clock::MonotonicTime;

use super::{RemoteSpan, Trace, new_span_id};
use crate::event_sink::EventSink;
use crate::time::{monotonic_now, unix_ns};

tokio::task_local! {
    /// The span of the sampled request that is being handled; set by [`RequestSpan::within`].
    static CURRENT: SpanContext;
}

/// The span of the sampled request that this is part of; `None` outside of all.
#[must_use]
pub fn current_span() -> Option<SpanContext> {
    CURRENT.try_with(|context| *context).ok()
}

/// Longest name of a span, in characters: what servers name their tools is cut there.
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

/// What is known of a span that has not ended.
#[derive(Debug)]
struct OpenSpan {
    id: u64,
    /// The span that it is part of; 0 for none.
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
        let lasted = to_nanos(monotonic_now().duration_since(self.started_at));
        FinishedSpan {
            trace,
            id: self.id,
            parent: self.parent,
            state: state.into(),
            name: std::mem::take(&mut self.name),
            kind: self.kind,
            start_ns: self.start_ns,
            end_ns: self.start_ns.saturating_add(lasted),
            attributes: std::mem::take(&mut self.attributes),
            error: self.error,
        }
    }
}

impl RequestSpan {
    /// Begins the span of a request of this trace, below the span of who sent it.
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

    /// Names it anew: more is known by now.
    pub fn set_name(&self, name: &str) {
        self.lock_open_span().name = truncate_name(name);
    }

    /// Says something of it.
    pub fn set_attribute(&self, name: &'static str, value: impl Into<AttributeValue>) {
        let mut open = self.lock_open_span();
        open.attributes.retain(|(known, _)| *known != name);
        open.attributes.push((name, value.into()));
    }

    /// It failed, for this reason.
    pub fn set_error(&self, why: &'static str) {
        self.lock_open_span().error = Some(why);
    }

    /// This future's work is part of the request: [`current_span`] returns its span. Tasks it spawns are not
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
        let ended = self.lock_open_span().end(self.trace, &self.state);
        self.sink.send(ended);
    }
}

/// A part of a request. It ends when it is dropped.
#[derive(Debug)]
pub struct ChildSpan {
    request_span: Arc<RequestSpan>,
    open: OpenSpan,
}

impl ChildSpan {
    /// Says something of it.
    pub fn set_attribute(&mut self, name: &'static str, value: impl Into<AttributeValue>) {
        self.open.attributes.push((name, value.into()));
    }

    /// It failed, for this reason; for none where it did not.
    pub fn set_error(&mut self, why: Option<&'static str>) {
        self.open.error = why;
    }

    /// The `traceparent` for requests made within it.
    #[must_use]
    pub fn traceparent(&self) -> String {
        let (trace, id) = (self.request_span.trace, self.open.id);
        format!("00-{trace:032x}-{id:016x}-01")
    }

    /// The `tracestate` that goes with it; none where the caller sent none.
    #[must_use]
    pub fn tracestate(&self) -> Option<&str> {
        Some(&*self.request_span.state).filter(|state| !state.is_empty())
    }
}

impl Drop for ChildSpan {
    fn drop(&mut self) {
        let ended = self
            .open
            .end(self.request_span.trace, &self.request_span.state);
        self.request_span.sink.send(ended);
    }
}

impl Trace {
    /// Begins a part of the request within the kernel; `None` where the request is not sampled.
    #[must_use]
    pub fn start_child_span(&self, name: &'static str) -> Option<ChildSpan> {
        let of = self.span.clone()?;
        let open = OpenSpan::begin(name, SpanKind::Internal, of.id);
        Some(ChildSpan {
            request_span: of,
            open,
        })
    }

    /// Begins a request of the kernel to somebody else, as part of this one.
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

    /// The caller's description of its own span, if its trace is this one.
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

    /// Decision 0066: the parts of a request are below its span, that is below its caller's, and what is asked
    /// further is told of the part, with what the caller wants passed on.
    #[test]
    fn spans_of_a_request_hang_together() {
        let ended: Arc<Mutex<Vec<FinishedSpan>>> = Arc::default();
        let taken = ended.clone();
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
        let ended = ended.lock().unwrap();
        let names: Vec<_> = ended.iter().map(|span| &*span.name).collect();
        assert_eq!(names, ["checks", "tools/call t", "tools/call"]);
        assert_eq!(ended[2].parent, 0x00f0_67aa_0ba9_02b7);
        assert!(ended[..2].iter().all(|part| part.parent == ended[2].id));
        let own = format!("{:016x}", ended[1].id);
        assert_eq!(passed_on, format!("{}{own}-01", &parent[..36]));
        assert_eq!(ended[2].error, Some("timeout"));
        assert!(Trace::generate().start_child_span("checks").is_none());
    }
}
