//! What goes along with a call, beside its frame: what the headers of its request say, and what is asked again
//! before it is made once more.

use http::{HeaderMap, HeaderName};
use mgp_callers::exchange::forwarded::ForwardedHeaders;
use mgp_runtime::trace::PartSpan;
use mgp_transports::http::names::{TRACEPARENT, TRACESTATE};

use super::FinalCheck;

/// What goes along with a call, beside its frame.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::link) struct Alongside<'a> {
    /// Headers of its agent's request that may be handed on.
    pub(in crate::link) forwarded: Option<&'a ForwardedHeaders>,
    /// Its span, where its request is sampled.
    pub(in crate::link) span: Option<&'a PartSpan>,
    /// Asked again where the kernel makes the call once more.
    pub(in crate::link) final_check: Option<&'a dyn FinalCheck>,
}

impl Alongside<'_> {
    /// Adds to a request's headers those of `passes` that its agent sent, and the span that it is below.
    pub(in crate::link) fn add_to(&self, headers: &mut HeaderMap, passes: &[HeaderName]) {
        if let Some(forwarded) = self.forwarded {
            forwarded.hand(passes, headers);
        }
        let Some(span) = self.span else {
            return;
        };
        // Of another span than this one nobody else may say that it is the parent.
        headers.remove(TRACESTATE);
        let state = span.tracestate().map(str::to_owned);
        let said = [(TRACEPARENT, Some(span.traceparent())), (TRACESTATE, state)];
        for (name, value) in said {
            if let Some(value) = value.and_then(|value| value.try_into().ok()) {
                headers.insert(name, value);
            }
        }
    }
}
