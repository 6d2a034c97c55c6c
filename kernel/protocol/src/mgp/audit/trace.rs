//! The id that ties together what one request caused (MGP §6.5).

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// A request's trace: passed on unchanged to servers, nodes and audit events.
///
/// Minted ones are random UUIDs. A caller's own is taken as it is when it is short and visible, since it
/// goes into logs and frames.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct TraceId(Box<str>);

/// A text that is no trace id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a trace id has 1 to {max} visible ASCII characters", max = TraceId::MAX_LEN)]
pub struct BadTrace;

impl TraceId {
    /// Longest id taken from a caller, in bytes.
    pub const MAX_LEN: usize = 128;

    /// Judges a caller's id.
    ///
    /// # Errors
    /// [`BadTrace`] for one that is empty, longer than [`TraceId::MAX_LEN`] or not visible ASCII.
    pub fn parse(text: &str) -> Result<Self, BadTrace> {
        let good =
            (1..=Self::MAX_LEN).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        good.then(|| Self(text.into())).ok_or(BadTrace)
    }

    /// A new one out of 16 random bytes: a UUID of version 4.
    #[must_use]
    pub fn mint(mut random: [u8; 16]) -> Self {
        random[6] = random[6] & 0x0f | 0x40;
        random[8] = random[8] & 0x3f | 0x80;
        let n = u128::from_be_bytes(random);
        let text = format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            n >> 96,
            n >> 80 & 0xffff,
            n >> 64 & 0xffff,
            n >> 48 & 0xffff,
            n & 0xffff_ffff_ffff
        );
        Self(text.into())
    }

    /// The id a request carries, in `params.trace_id`, `params._meta.trace_id` or beside `params`, in
    /// this order (A-05). One that is not good counts as none.
    #[must_use]
    pub fn find(params: Option<&str>, top: Option<&RawValue>) -> Option<Self> {
        let params = params.filter(|p| p.contains("trace_id"));
        let (direct, meta) = read(params);
        let (in_meta, _) = read(meta);
        let good = |raw: &str| serde_json::from_str::<Self>(raw).ok();
        let places = [direct, in_meta, top.map(RawValue::get)];
        places.into_iter().flatten().find_map(good)
    }

    /// The text itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[derive(Deserialize)]
struct Carrier<'a> {
    #[serde(borrow, default)]
    trace_id: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

/// `trace_id` and `_meta` of an object; what is no object has neither, and the request is no worse for it.
fn read(object: Option<&str>) -> (Option<&str>, Option<&str>) {
    let carrier = object.and_then(|text| serde_json::from_str::<Carrier<'_>>(text).ok());
    carrier.map_or((None, None), |c| {
        (c.trace_id.map(RawValue::get), c.meta.map(RawValue::get))
    })
}

impl<'de> Deserialize<'de> for TraceId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(d)?).map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MGP-102: what a caller sends is taken unchanged, and what is missing is minted as a UUID.
    #[test]
    fn a_trace_is_taken_as_it_is_or_minted() {
        let given = "550E8400-e29b-41d4-A716-446655440000";
        assert_eq!(TraceId::parse(given).unwrap().as_str(), given);
        let minted = TraceId::mint([0xff; 16]);
        assert_eq!(minted.as_str(), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(
            TraceId::mint([0; 16]).as_str(),
            "00000000-0000-4000-8000-000000000000"
        );
        for bad in ["", "a b", "a\n", "é", &"x".repeat(129)] {
            assert_eq!(TraceId::parse(bad), Err(BadTrace), "{bad}");
        }
    }

    /// MGP-101, A-05: all three places are read, `params` before `_meta` before the envelope.
    #[test]
    fn the_three_places_are_read_in_their_order() {
        let top = RawValue::from_string(r#""top""#.into()).unwrap();
        let find =
            |params: &str| TraceId::find(Some(params), Some(&top)).map(|t| t.as_str().to_owned());
        let all = r#"{"name":"x","_meta":{"trace_id":"meta"},"trace_id":"params"}"#;
        assert_eq!(find(all).as_deref(), Some("params"));
        assert_eq!(
            find(r#"{"_meta":{"trace_id":"meta"}}"#).as_deref(),
            Some("meta")
        );
        assert_eq!(
            find(r#"{"trace_id":7,"_meta":{"trace_id":"a b"}}"#).as_deref(),
            Some("top")
        );
        assert_eq!(
            TraceId::find(Some(r#"{"arguments":{"trace_id":"no"}}"#), None),
            None
        );
        assert_eq!(TraceId::find(None, None), None);
    }
}
