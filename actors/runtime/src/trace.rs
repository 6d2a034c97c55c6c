//! The trace of a request: the caller's own, or a new one (MGP §6.5).

mod spans;

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use mgp_protocol::mgp::audit::{TraceId, TraceParent};
use serde_json::value::RawValue;

use crate::randomness;

pub use self::spans::{ChildSpan, RequestSpan, current_span};

/// The trace that connects a request with all its effects.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The id.
    pub id: TraceId,
    /// The caller sent it; a new one is disclosed only to those that negotiated MGP.
    pub is_caller_supplied: bool,
    /// The caller's own span.
    caller: Option<Arc<RemoteSpan>>,
    /// The span of the request, if it is sampled.
    pub span: Option<Arc<RequestSpan>>,
}

/// The span of a request's sender (W3C Trace Context).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteSpan {
    /// Its id.
    pub id: u64,
    /// Whether the sender samples it.
    pub sampled: bool,
    /// `tracestate`, empty for none.
    pub state: Box<str>,
}

impl Trace {
    /// The trace of a request with these params; `top` has the other members of the envelope.
    #[must_use]
    pub fn from_params(params: Option<&str>, top: Option<&RawValue>) -> Self {
        let Some(id) = TraceId::from_params(params, top) else {
            return Self::generate();
        };
        let (parent, state) = TraceParent::from_params(params).unzip();
        Self::from_caller_id(id).with_parent(parent, state.flatten().as_deref())
    }

    /// Uses the request's HTTP headers if the request itself has no trace.
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

    /// Adds the parent span, if it is of the same trace.
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
    /// The sender's `traceparent`, for a request of this trace; `None` if that is no UUID.
    fn traceparent(&self, trace: &TraceId) -> Option<String> {
        let (number, flags) = (trace.as_u128()?, u8::from(self.sampled));
        Some(format!("00-{number:032x}-{:016x}-{flags:02x}", self.id))
    }
}

/// Unpredictable bytes without a system call for each.
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

/// A new span id.
#[must_use]
pub fn new_span_id() -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = fast_random_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h]).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MGP-102: a caller's id is kept, and a new one is made for a missing or malformed one.
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

    /// Decision 0066: headers count only if the request itself has no trace, and a span of another trace is no parent.
    #[test]
    fn headers_count_only_without_a_trace_in_the_request() {
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
