//! The trace of a request: the caller's own, or a new one (MGP §6.5).

mod spans;

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use mgp_protocol::mgp::audit::{TraceId, TraceParent};
use serde_json::value::RawValue;

use crate::randomness;

pub use self::spans::{PartSpan, RequestSpan, current};

/// The trace that connects a request with all it causes.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The id.
    pub id: TraceId,
    /// The caller sent it; a new one is shown only to those that negotiated MGP.
    pub said: bool,
    /// What the caller says of its own span.
    caller: Option<Arc<RemoteSpan>>,
    /// The span of the request, while it is sampled.
    pub span: Option<Arc<RequestSpan>>,
}

/// The span of who sent a request (W3C Trace Context).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteSpan {
    /// Its number.
    pub span: u64,
    /// Whether it is sampled there.
    pub sampled: bool,
    /// `tracestate`, empty for none.
    pub state: Box<str>,
}

impl Trace {
    /// The trace of a request with these params; `top` stands beside them in the envelope.
    #[must_use]
    pub fn of(params: Option<&str>, top: Option<&RawValue>) -> Self {
        let Some(id) = TraceId::find(params, top) else {
            return Self::minted();
        };
        let (parent, state) = TraceParent::find(params).unzip();
        Self::said(id).below(parent, state.flatten().as_deref())
    }

    /// The same with what HTTP headers of the request say: what it says itself counts before them.
    #[must_use]
    pub fn or_of(self, traceparent: &str, tracestate: Option<&str>) -> Self {
        match TraceParent::parse(traceparent) {
            Some(parent) if !self.said => {
                Self::said(parent.id.clone()).below(Some(parent), tracestate)
            }
            parent if self.caller.is_none() => self.below(parent, tracestate),
            Some(_) | None => self,
        }
    }

    fn said(id: TraceId) -> Self {
        Self {
            id,
            said: true,
            caller: None,
            span: None,
        }
    }

    /// Below this span, where it is of the same trace.
    fn below(mut self, parent: Option<TraceParent>, state: Option<&str>) -> Self {
        let same = parent.filter(|parent| parent.id.number() == self.id.number());
        self.caller = same.map(|parent| {
            Arc::new(RemoteSpan {
                span: parent.span,
                sampled: parent.sampled,
                state: TraceParent::state(state.unwrap_or_default()).into(),
            })
        });
        self
    }

    /// `traceparent` and `tracestate` as the caller sent them, for whoever is asked by a request that is not sampled
    /// here; `None` where it sent none.
    #[must_use]
    pub fn passed_on(&self) -> Option<(String, Option<&str>)> {
        let caller = self.caller.as_deref()?;
        let state = Some(&*caller.state).filter(|state| !state.is_empty());
        Some((caller.traceparent(&self.id)?, state))
    }

    /// Whether this JSON text is its id.
    #[must_use]
    pub fn is(&self, json: &str) -> bool {
        serde_json::from_str::<Cow<'_, str>>(json).is_ok_and(|text| text == self.id.as_str())
    }

    /// A new trace.
    #[must_use]
    pub fn minted() -> Self {
        Self {
            said: false,
            ..Self::said(TraceId::mint(scattered()))
        }
    }
}

impl RemoteSpan {
    /// The `traceparent` that it was said by, for a request of this trace; `None` where that is no UUID.
    fn traceparent(&self, trace: &TraceId) -> Option<String> {
        let (number, flags) = (trace.number()?, u8::from(self.sampled));
        Some(format!("00-{number:032x}-{:016x}-{flags:02x}", self.span))
    }
}

/// Bytes that look random, without a system call for each.
fn scattered() -> [u8; 16] {
    static KEY: LazyLock<[u8; blake3::KEY_LEN]> = LazyLock::new(randomness::bytes);
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
pub fn span() -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = scattered();
    u64::from_le_bytes([a, b, c, d, e, f, g, h]).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MGP-102: a caller's own is kept, and one is made where there is none, or none that is a UUID.
    #[test]
    fn a_request_has_its_callers_trace_or_a_new_one() {
        let (one, two) = (Trace::of(Some("{}"), None), Trace::minted());
        assert!(!one.said && one.id != two.id);
        let params = format!(r#"{{"trace_id":"{}"}}"#, two.id);
        let said = Trace::of(Some(&params), None);
        assert!(said.said && said.id == two.id);
        let other = Trace::of(Some(r#"{"trace_id":"abc"}"#), None);
        assert!(!other.said && other.id.as_str() != "abc");
    }

    /// Decision 0066: a header says whose request it is where the request itself does not, and a span of another
    /// trace is nobody's parent.
    #[test]
    fn headers_count_where_the_request_says_nothing() {
        let header = "00-550e8400e29b41d4a716446655440000-00f067aa0ba902b7-01";
        let of_header = Trace::of(Some("{}"), None).or_of(header, Some("a=b"));
        assert_eq!(
            of_header.id.as_str(),
            "550e8400-e29b-41d4-a716-446655440000"
        );
        let caller = of_header.caller().unwrap();
        assert!(of_header.said && caller.sampled && &*caller.state == "a=b");
        let own = TraceId::mint([7; 16]);
        let params = format!(r#"{{"trace_id":"{own}"}}"#);
        let of_body = Trace::of(Some(&params), None).or_of(header, None);
        assert!(of_body.id == own && of_body.caller().is_none());
        let nonsense = Trace::of(Some("{}"), None).or_of("00-x", None);
        assert!(!nonsense.said && nonsense.caller().is_none());
    }
}
