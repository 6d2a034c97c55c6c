//! The trace of a request: the caller's own, or a new one (MGP §6.5).

use std::borrow::Cow;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use mgp_protocol::mgp::audit::TraceId;
use serde_json::value::RawValue;

use crate::randomness;

/// The trace that connects a request with all it causes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The id.
    pub id: TraceId,
    /// The caller sent it; a new one is shown only to those that negotiated MGP.
    pub said: bool,
}

impl Trace {
    /// The trace of a request with these params; `top` stands beside them in the envelope.
    #[must_use]
    pub fn of(params: Option<&str>, top: Option<&RawValue>) -> Self {
        match TraceId::find(params, top) {
            Some(id) => Self { id, said: true },
            None => Self::minted(),
        }
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
            id: TraceId::mint(scattered()),
            said: false,
        }
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
}
