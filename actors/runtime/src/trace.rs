//! The trace of a request: the caller's own, or a new one (MGP §6.5).

mod spans;

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use mgp_protocol::mgp::audit::{TraceId, TraceParent};
use serde_json::value::RawValue;

use crate::randomness;

pub use self::spans::{ChildSpan, RequestSpan, current_span};

/// The trace that connects a request with all it causes.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The id.
    pub id: TraceId,
    /// The caller sent it; a new one is shown only to those that negotiated MGP.
    pub is_caller_supplied: bool,
    /// The caller's description of its own span.
    caller: Option<Arc<RemoteSpan>>,
    /// The span of the request, while it is sampled.
    pub span: Option<Arc<RequestSpan>>,
}

/// The span of who sent a request (W3C Trace Context).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteSpan {
    /// Its number.
    pub id: u64,
    /// Whether it is sampled there.
    pub sampled: bool,
    /// `tracestate`, empty for none.
    pub state: Box<str>,
}

impl Trace {
    /// The trace of a request with these params; `top` holds their neighbours in the envelope.
    #[must_use]
    pub fn from_params(params: Option<&str>, top: Option<&RawValue>) -> Self {
        let Some(id) = TraceId::from_params(params, top) else {
            return Self::generate();
        };
        let (parent, state) = TraceParent::from_params(params).unzip();
        Self::from_caller_id(id).with_parent(parent, state.flatten().as_deref())
    }

    /// The same with the request's HTTP headers: its own members take precedence.
    #[must_use]
    pub fn or_from_headers(self, traceparent: &str, tracestate: Option<&str>) -> Self {
        match TraceParent::parse(traceparent) {
            Some(parent) if !self.is_caller_supplied => {
                Self::from_caller_id(parent.id.clone()).with_parent(Some(parent), tracestate)
            }
            parent if self.caller.is_none() => self.with_parent(parent, tracestate),
            Some(_) | None => self,
        }
    }

    fn from_caller_id(id: TraceId) -> Self {
        Self {
            id,
            is_caller_supplied: true,
            caller: None,
            span: None,
        }
    }

    /// Below this span, where it is of the same trace.
    fn with_parent(mut self, parent: Option<TraceParent>, state: Option<&str>) -> Self {
        let same = parent.filter(|parent| parent.id.as_u128() == self.id.as_u128());
        self.caller = same.map(|parent| {
            Arc::new(RemoteSpan {
                id: parent.span,
                sampled: parent.sampled,
                state: TraceParent::valid_state(state.unwrap_or_default()).into(),
            })
        });
        self
    }

    /// `traceparent` and `tracestate` as the caller sent them, for upstream requests of a call that is not sampled
    /// here; `None` if it sent none.
    #[must_use]
    pub fn caller_headers(&self) -> Option<(String, Option<&str>)> {
        let caller = self.caller.as_deref()?;
        let state = Some(&*caller.state).filter(|state| !state.is_empty());
        Some((caller.traceparent(&self.id)?, state))
    }

    /// Whether this JSON text is its id.
    #[must_use]
    pub fn matches_id(&self, json: &str) -> bool {
        serde_json::from_str::<Cow<'_, str>>(json).is_ok_and(|text| text == self.id.as_str())
    }

    /// A new trace.
    #[must_use]
    pub fn generate() -> Self {
        Self {
            is_caller_supplied: false,
            ..Self::from_caller_id(TraceId::from_random(fast_random_bytes()))
        }
    }
}

impl RemoteSpan {
    /// The `traceparent` that it was said by, for a request of this trace; `None` where that is no UUID.
    fn traceparent(&self, trace: &TraceId) -> Option<String> {
        let (number, flags) = (trace.as_u128()?, u8::from(self.sampled));
        Some(format!("00-{number:032x}-{:016x}-{flags:02x}", self.id))
    }
}

/// Bytes that look random, without a system call for each.
fn fast_random_bytes() -> [u8; 16] {
    static KEY: LazyLock<[u8; blake3::KEY_LEN]> = LazyLock::new(randomness::random_bytes);
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let hash = blake3::keyed_hash(&KEY, &count.to_le_bytes());
    let (first, _) = hash
        .as_bytes()
        .split_first_chunk()
        .expect("a hash has 32 bytes");
    *first
}

/// A new span id: the kernel's own part of a trace.
#[must_use]
pub fn new_span_id() -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = fast_random_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h]).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MGP-102: a caller's own is kept, and one is made where there is none, or none that is a UUID.
    #[test]
    fn a_request_has_its_callers_trace_or_a_new_one() {
        let (one, two) = (Trace::from_params(Some("{}"), None), Trace::generate());
        assert!(!one.is_caller_supplied && one.id != two.id);
        let params = format!(r#"{{"trace_id":"{}"}}"#, two.id);
        let said = Trace::from_params(Some(&params), None);
        assert!(said.is_caller_supplied && said.id == two.id);
        let other = Trace::from_params(Some(r#"{"trace_id":"abc"}"#), None);
        assert!(!other.is_caller_supplied && other.id.as_str() != "abc");
    }

    /// Decision 0066: a header says whose request it is where the request itself does not, and a span of another
    /// trace is nobody's parent.
    #[test]
    fn headers_count_where_the_request_says_nothing() {
        let header = "00-550e8400e29b41d4a716446655440000-00f067aa0ba902b7-01";
        let of_header = Trace::from_params(Some("{}"), None).or_from_headers(header, Some("a=b"));
        assert_eq!(
            of_header.id.as_str(),
            "550e8400-e29b-41d4-a716-446655440000"
        );
        let caller = of_header.caller().unwrap();
        assert!(of_header.is_caller_supplied && caller.sampled && &*caller.state == "a=b");
        let own = TraceId::from_random([7; 16]);
        let params = format!(r#"{{"trace_id":"{own}"}}"#);
        let of_body = Trace::from_params(Some(&params), None).or_from_headers(header, None);
        assert!(of_body.id == own && of_body.caller().is_none());
        let nonsense = Trace::from_params(Some("{}"), None).or_from_headers("00-x", None);
        assert!(!nonsense.is_caller_supplied && nonsense.caller().is_none());
    }
}
