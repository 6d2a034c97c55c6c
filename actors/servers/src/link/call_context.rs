//! What goes along with a call, beside its frame: what the headers of its request say, and what is asked again
//! before it is made once more.

use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName};
use mgp_callers::ForwardedHeaders;
use mgp_protocol::refusal::Refusal;
use mgp_runtime::trace::{ChildSpan, Trace};
use mgp_transports::http::names::{TRACEPARENT, TRACESTATE};
use serde_json::value::RawValue;

/// A check made right before a call is written, after it waited its turn: rights may have been taken back
/// meanwhile.
pub trait FinalCheck: std::fmt::Debug + Sync {
    /// Whether the call may still be sent.
    ///
    /// # Errors
    /// The refusal for the caller.
    fn recheck(&self) -> Result<(), Refusal>;

    /// Whether the call may be sent once more with these arguments, which its caller was asked for meanwhile.
    /// What cannot be judged may not.
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

/// What goes along with a call, beside its frame.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::link) struct CallContext<'a> {
    /// Headers of its agent's request that may be handed on.
    pub(in crate::link) forwarded: Option<&'a ForwardedHeaders>,
    /// Its span, where its request is sampled.
    pub(in crate::link) span: Option<&'a ChildSpan>,
    /// The trace of its request.
    pub(in crate::link) trace: Option<&'a Trace>,
    /// Asked again where the kernel makes the call once more.
    pub(in crate::link) final_check: Option<&'a dyn FinalCheck>,
}

impl CallContext<'_> {
    /// Adds to a request's headers those of `passes` that its agent sent, and the span that it is below.
    pub(in crate::link) fn add_headers(&self, headers: &mut HeaderMap, passes: &[HeaderName]) {
        if let Some(forwarded) = self.forwarded {
            forwarded.copy_to(passes, headers);
        }
        let Some((parent, state)) = self.trace_parent() else {
            return;
        };
        // Of another span than this one nobody else may say that it is the parent.
        headers.remove(TRACESTATE);
        for (name, value) in [(TRACEPARENT, Some(&*parent)), (TRACESTATE, state)] {
            if let Some(value) = value.and_then(|value| value.parse().ok()) {
                headers.insert(name, value);
            }
        }
    }

    /// `traceparent` and `tracestate`: of the span that asks, else what the caller said of its own.
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

    /// Decision 0066: whoever reads headers alone learns the same as who reads `_meta`: below which span it is asked,
    /// or what the caller said of its own; never that of another.
    #[test]
    fn headers_say_below_which_span_a_server_is_asked() {
        let parent = "00-550e8400e29b41d4a716446655440000-00f067aa0ba902b7-00";
        let said = Trace::from_params(None, None).or_from_headers(parent, Some("a=b"));
        let sent = |beside: CallContext<'_>| {
            let mut headers = HeaderMap::new();
            headers.insert(TRACESTATE, http::HeaderValue::from_static("of=another"));
            beside.add_headers(&mut headers, &[]);
            let text = |name| {
                headers
                    .get(name)
                    .map(|value| value.to_str().unwrap().to_owned())
            };
            (text(TRACEPARENT), text(TRACESTATE))
        };
        assert_eq!(sent(with(&said)), (Some(parent.into()), Some("a=b".into())));
        let without = Trace::from_params(None, None).or_from_headers(parent, None);
        assert_eq!(sent(with(&without)), (Some(parent.into()), None));
        assert_eq!(
            sent(with(&Trace::generate())).0,
            None,
            "nobody said anything"
        );

        let mut sampled = said.clone();
        let sink = EventSink::new(drop);
        sampled.span = RequestSpan::begin(&sampled, "tools/call", &sink);
        let span = sampled.start_client_span("tools/call", Some("t")).unwrap();
        let beside = CallContext {
            span: Some(&span),
            ..with(&sampled)
        };
        assert_eq!(sent(beside), (Some(span.traceparent()), Some("a=b".into())));
        assert_ne!(span.traceparent(), parent);
    }

    fn with(trace: &Trace) -> CallContext<'_> {
        CallContext {
            trace: Some(trace),
            ..CallContext::default()
        }
    }
}
