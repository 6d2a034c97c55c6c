//! The spans of sampled requests: which there are, and how each ends.

use std::sync::Arc;

use mgp_callers::request::{Answering, Outcome, Request};
use mgp_engine::calls::telemetry::refusal_reasons::RefusalReason;
use mgp_engine::calls::telemetry::sampling::SamplingRule;
use mgp_engine::calls::telemetry::spans::EndedSpan;
use mgp_protocol::dialect::Dialect;
use mgp_protocol::refusal::Rendered;
use mgp_protocol::splice::member;
use mgp_runtime::event_sink::EventSink;
use mgp_runtime::trace::RequestSpan;

/// Begins the spans of sampled requests.
#[derive(Debug, Clone)]
pub struct Tracing {
    rule: SamplingRule,
    sink: Option<EventSink<EndedSpan>>,
}

impl Tracing {
    /// Of a kernel that tells nobody.
    #[must_use]
    pub fn off() -> Self {
        Self {
            rule: SamplingRule {
                percent: 0,
                follows_callers: false,
            },
            sink: None,
        }
    }

    /// Of one that tells there what this rule samples.
    pub(super) fn of(rule: SamplingRule, sink: EventSink<EndedSpan>) -> Self {
        Self {
            rule,
            sink: Some(sink),
        }
    }

    /// Begins the span of a request, if it is sampled; it ends with the request.
    pub(crate) fn begin(&self, request: &mut Request) -> Option<UnansweredRequest> {
        let sink = self.sink.as_ref()?;
        let trace = &request.trace;
        let caller = trace.caller().map(|caller| caller.sampled);
        // A ping is no work of anybody's.
        if request.method == "ping" || !self.rule.samples(trace.id.number()?, caller) {
            return None;
        }
        let span = RequestSpan::begin(trace, &request.method, sink)?;
        span.set("mcp.method.name", &*request.method);
        span.set("mcp.protocol.version", request.caller.version.as_str());
        span.set("mgp.agent.id", request.caller.agent.as_str());
        request.trace.span = Some(span.clone());
        Some(UnansweredRequest {
            span,
            dialect: request.caller.dialect(),
            answered: false,
        })
    }
}

/// A sampled request without its answer. Dropped so it has lost its client, which its span says.
#[derive(Debug)]
pub(crate) struct UnansweredRequest {
    span: Arc<RequestSpan>,
    dialect: Dialect,
    answered: bool,
}

impl UnansweredRequest {
    /// The answer, whose time is told: the span ends with it, or with who waits for it.
    pub(crate) fn until(mut self, answering: Answering) -> Answering {
        Box::pin(async move {
            let outcome = self.span.within(answering).await;
            self.ended(&outcome);
            outcome
        })
    }

    fn ended(&mut self, outcome: &Outcome) {
        self.answered = true;
        let Err(refusal) = outcome else { return };
        self.span.failed(RefusalReason::of(refusal).as_str());
        if let Rendered::Error(error) = refusal.render_in(self.dialect)
            && let Some(code) = member(&error, "code")
        {
            self.span.set("rpc.response.status_code", code);
        }
    }
}

impl Drop for UnansweredRequest {
    fn drop(&mut self) {
        if !self.answered {
            self.span.failed(RefusalReason::Cancelled.as_str());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use bytes::Bytes;
    use mgp_protocol::dialect::Version;
    use mgp_protocol::refusal::Refusal;
    use mgp_runtime::trace::Trace;

    use super::*;

    /// Decision 0066: a span says how its request ended, whatever its method: well, with a refusal, or without its
    /// client.
    #[tokio::test]
    async fn a_span_says_how_its_request_ended() {
        let ended: Arc<Mutex<Vec<EndedSpan>>> = Arc::default();
        let taken = ended.clone();
        let sink = EventSink::new(move |span| taken.lock().unwrap().push(span));
        let until = |answering| {
            let unanswered = UnansweredRequest {
                span: RequestSpan::begin(&Trace::minted(), "tools/list", &sink).unwrap(),
                dialect: Version::MODERN.into(),
                answered: false,
            };
            unanswered.until(answering)
        };
        let ready = |outcome| -> Answering { Box::pin(std::future::ready(outcome)) };
        assert!(until(ready(Ok(Bytes::new()))).await.is_ok());
        assert!(until(ready(Err(Refusal::BadCursor))).await.is_err());
        let mut gone = until(Box::pin(std::future::pending()));
        tokio::select! {
            biased;
            _ = &mut gone => panic!("nobody answers"),
            () = std::future::ready(()) => {}
        }
        drop(gone);
        drop(until(ready(Ok(Bytes::new()))));
        let ended = ended.lock().unwrap();
        let errors: Vec<_> = ended.iter().map(|span| span.error).collect();
        let cancelled = Some("cancelled");
        assert_eq!(errors, [None, Some("unknown"), cancelled, cancelled]);
        let codes = ended.iter().map(|span| span.attributes.len());
        assert_eq!(codes.collect::<Vec<_>>(), [0, 1, 0, 0]);
    }
}
