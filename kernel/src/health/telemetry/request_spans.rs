//! The spans of sampled requests.

use std::sync::Arc;

use mgp_callers::request::{AnswerFuture, Outcome, Request};
use mgp_engine::calls::telemetry::sampling::Sampler;
use mgp_engine::calls::telemetry::spans::FinishedSpan;
use mgp_json::member;
use mgp_protocol::dialect::Dialect;
use mgp_protocol::refusal::{RefusalReason, Rendered};
use mgp_runtime::EventSink;
use mgp_runtime::trace::RequestSpan;

/// Starts the spans of sampled requests.
#[derive(Debug, Clone)]
pub(crate) struct Tracing {
    rule: Sampler,
    sink: Option<EventSink<FinishedSpan>>,
}

impl Tracing {
    /// For a kernel without a collector.
    #[must_use]
    pub(crate) fn disabled() -> Self {
        Self {
            rule: Sampler {
                percent: 0,
                parent_based: false,
            },
            sink: None,
        }
    }

    /// Samples by this rule.
    pub(super) fn with_rule(rule: Sampler, sink: EventSink<FinishedSpan>) -> Self {
        Self {
            rule,
            sink: Some(sink),
        }
    }

    /// Starts the span of a request, if it is sampled; it ends with the request.
    pub(crate) fn start_span(&self, request: &mut Request) -> Option<RequestSpanGuard> {
        let sink = self.sink.as_ref()?;
        let trace = &request.trace;
        let caller = trace.caller().map(|caller| caller.sampled);
        // Pings are not traced.
        if request.method == "ping" || !self.rule.should_sample(trace.id.as_u128()?, caller) {
            return None;
        }
        let span = RequestSpan::begin(trace, &request.method, sink)?;
        span.set_attribute("mcp.method.name", &*request.method);
        span.set_attribute("mcp.protocol.version", request.caller.version.as_str());
        span.set_attribute("mgp.agent.id", request.caller.agent.as_str());
        request.trace.span = Some(span.clone());
        Some(RequestSpanGuard {
            span,
            dialect: request.caller.dialect(),
            is_answered: false,
        })
    }
}

/// A sampled request without its answer. If dropped, it has lost its client, which the span records.
#[derive(Debug)]
pub(crate) struct RequestSpanGuard {
    span: Arc<RequestSpan>,
    dialect: Dialect,
    is_answered: bool,
}

impl RequestSpanGuard {
    /// Ends the span with the answer, or when the answer is no longer awaited.
    pub(crate) fn wrap(mut self, pending_answer: AnswerFuture) -> AnswerFuture {
        Box::pin(async move {
            let outcome = self.span.instrument(pending_answer).await;
            self.record_outcome(&outcome);
            outcome
        })
    }

    fn record_outcome(&mut self, outcome: &Outcome) {
        self.is_answered = true;
        let Err(refusal) = outcome else { return };
        self.span.set_error(refusal.spec().reason.as_str());
        if let Rendered::Error(error) = refusal.render_for_dialect(self.dialect)
            && let Some(code) = member(&error, "code")
        {
            self.span.set_attribute("rpc.response.status_code", code);
        }
    }
}

impl Drop for RequestSpanGuard {
    fn drop(&mut self) {
        if !self.is_answered {
            self.span.set_error(RefusalReason::Cancelled.as_str());
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

    /// Decision 0066: a span records how its request ended: successfully, with a refusal, or without its client.
    #[tokio::test]
    async fn a_span_records_how_its_request_ended() {
        let ended: Arc<Mutex<Vec<FinishedSpan>>> = Arc::default();
        let taken = ended.clone();
        let sink = EventSink::new(move |span| taken.lock().unwrap().push(span));
        let until = |pending_answer| {
            let unanswered = RequestSpanGuard {
                span: RequestSpan::begin(&Trace::generate(), "tools/list", &sink).unwrap(),
                dialect: Version::STATELESS.into(),
                is_answered: false,
            };
            unanswered.wrap(pending_answer)
        };
        let ready = |outcome| -> AnswerFuture { Box::pin(std::future::ready(outcome)) };
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
