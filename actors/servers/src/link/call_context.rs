//! What accompanies a call besides its message: forwarded headers, trace context and the final policy check.

use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName};
use mgp_callers::ForwardedHeaders;
use mgp_protocol::refusal::Refusal;
use mgp_runtime::trace::{ChildSpan, Trace};
use mgp_transports::http::names::{TRACEPARENT, TRACESTATE};
use serde_json::value::RawValue;

/// A policy check right before a call is written. The call may have been queued, and its grants revoked
/// meanwhile.
pub trait FinalCheck: std::fmt::Debug + Sync {
    /// Checks that the call may still be sent.
    ///
    /// # Errors
    /// The refusal for the caller.
    fn recheck(&self) -> Result<(), Refusal>;

    /// Checks that the call may be sent again with new arguments, which the caller supplied meanwhile. Arguments
    /// that cannot be checked are rejected.
    ///
    /// # Errors
    /// The future resolves to the refusal for the caller.
    fn recheck_arguments<'a>(
        &'a self,
        arguments: &'a RawValue,
    ) -> BoxFuture<'a, Result<(), Refusal>> {
        let _ = arguments;
        let why = "the arguments that were added cannot be checked";
        Box::pin(async move { Err(Refusal::Forbidden(why.into())) })
    }
}

/// What accompanies a call besides its message.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::link) struct CallContext<'a> {
    /// Headers of the agent's request that may be forwarded.
    pub(in crate::link) forwarded: Option<&'a ForwardedHeaders>,
    /// The span of the call, if its request is sampled.
    pub(in crate::link) span: Option<&'a ChildSpan>,
    /// The trace of the request.
    pub(in crate::link) trace: Option<&'a Trace>,
    /// Runs again before the kernel repeats the call.
    pub(in crate::link) final_check: Option<&'a dyn FinalCheck>,
}

impl CallContext<'_> {
    /// Adds the headers of `passes` that the agent sent, and the trace context.
    pub(in crate::link) fn add_headers(
        &self,
        headers: &mut HeaderMap,
        forwarded_names: &[HeaderName],
    ) {
        if let Some(forwarded) = self.forwarded {
            forwarded.copy_to(forwarded_names, headers);
        }
        let Some((parent, state)) = self.trace_parent() else {
            return;
        };
        // The caller's `tracestate` does not belong to the kernel's span.
        headers.remove(TRACESTATE);
        for (name, value) in [(TRACEPARENT, Some(&*parent)), (TRACESTATE, state)] {
            if let Some(value) = value.and_then(|value| value.parse().ok()) {
                headers.insert(name, value);
            }
        }
    }

    /// `traceparent` and `tracestate`: of the kernel's span, else those the caller sent.
    fn trace_parent(&self) -> Option<(String, Option<&str>)> {
        match (self.span, self.trace) {
            (Some(span), _) => Some((span.traceparent(), span.tracestate())),
            (None, Some(trace)) => trace.caller_headers(),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use mgp_runtime::EventSink;
    use mgp_runtime::trace::RequestSpan;

    use super::*;

    /// Decision 0066: headers and `_meta` carry the same trace context.
    #[test]
    fn headers_carry_the_same_trace_context_as_meta() {
        let parent = "00-550e8400e29b41d4a716446655440000-00f067aa0ba902b7-00";
        let unsampled = Trace::from_params(None, None).or_from_headers(parent, Some("a=b"));
        let sent = |context: CallContext<'_>| {
            let mut headers = HeaderMap::new();
            headers.insert(TRACESTATE, http::HeaderValue::from_static("of=another"));
            context.add_headers(&mut headers, &[]);
            let text = |name| {
                headers
                    .get(name)
                    .map(|value| value.to_str().unwrap().to_owned())
            };
            (text(TRACEPARENT), text(TRACESTATE))
        };
        assert_eq!(
            sent(context_with(&unsampled)),
            (Some(parent.into()), Some("a=b".into()))
        );
        let without = Trace::from_params(None, None).or_from_headers(parent, None);
        assert_eq!(sent(context_with(&without)), (Some(parent.into()), None));
        assert_eq!(
            sent(context_with(&Trace::generate())).0,
            None,
            "nobody said anything"
        );

        let mut sampled = unsampled.clone();
        let sink = EventSink::new(drop);
        sampled.span = RequestSpan::begin(&sampled, "tools/call", &sink);
        let span = sampled.start_client_span("tools/call", Some("t")).unwrap();
        let context = CallContext {
            span: Some(&span),
            ..context_with(&sampled)
        };
        assert_eq!(
            sent(context),
            (Some(span.traceparent()), Some("a=b".into()))
        );
        assert_ne!(span.traceparent(), parent);
    }

    fn context_with(trace: &Trace) -> CallContext<'_> {
        CallContext {
            trace: Some(trace),
            ..CallContext::default()
        }
    }
}
