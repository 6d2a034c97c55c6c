//! The trace id, which connects everything that one request caused (MGP §6.5).

use std::borrow::Cow;
use std::fmt;

use mgp_json::can_contain_string;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// The trace of a request: passed unchanged to servers, nodes and audit events.
///
/// It is a UUID (§6.3): generated ones are random, and a caller's own valid one is used verbatim. Logs of
/// earlier kernels contain others, which are parsed unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct TraceId(Box<str>);

/// An invalid trace id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a trace id is a UUID other than the nil one, such as 550e8400-e29b-41d4-a716-446655440000"
)]
pub struct BadTrace;

impl TraceId {
    /// The longest id read from a log, in bytes.
    pub(crate) const MAX_LEN: usize = 128;

    /// Validates a caller's id.
    ///
    /// # Errors
    /// [`BadTrace`] for a text that is no UUID, and for the nil UUID.
    pub fn parse(text: &str) -> Result<Self, BadTrace> {
        parse_uuid(text).map(|_| Self(text.into())).ok_or(BadTrace)
    }

    /// Creates a UUID of version 4 from 16 random bytes.
    #[must_use]
    pub fn from_random(mut random: [u8; 16]) -> Self {
        random[6] = random[6] & 0x0f | 0x40;
        random[8] = random[8] & 0x3f | 0x80;
        Self::from_u128(u128::from_be_bytes(random))
    }

    fn from_u128(number: u128) -> Self {
        let mut text = String::with_capacity(36);
        for (at, byte) in number.to_be_bytes().into_iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            let digit = |half: u8| char::from(b"0123456789abcdef"[usize::from(half)]);
            text.push(digit(byte >> 4));
            text.push(digit(byte & 0x0f));
        }
        Self(text.into())
    }

    /// The id of a request, in `params.trace_id`, `params._meta.trace_id` or beside `params`, in this order
    /// (A-05); otherwise the one in `params._meta.traceparent` (W3C Trace Context). An invalid one counts
    /// as absent.
    #[must_use]
    pub fn from_params(params: Option<&str>, top: Option<&RawValue>) -> Option<Self> {
        // A request without these words has no trace, and params may be long.
        let may_have_trace = |p: &&str| can_contain_string(p.as_bytes(), "trace");
        let params = parse_fields(params.filter(may_have_trace));
        let meta = parse_fields(params.meta.map(RawValue::get));
        let is_valid = |raw: &RawValue| {
            let text: Cow<'_, str> = serde_json::from_str(raw.get()).ok()?;
            Self::parse(&text).ok()
        };
        let candidates = [params.trace_id, meta.trace_id, top];
        let parent = || {
            Self::from_traceparent(&serde_json::from_str::<String>(meta.traceparent?.get()).ok()?)
        };
        candidates
            .into_iter()
            .flatten()
            .find_map(is_valid)
            .or_else(parent)
    }

    /// The id in a `traceparent`, formatted as a UUID.
    #[must_use]
    pub(crate) fn from_traceparent(traceparent: &str) -> Option<Self> {
        let mut parts = traceparent.split('-');
        let (version, id) = (parts.next()?, parts.next()?);
        let hex = |text: &str, len| {
            text.len() == len && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        let is_valid =
            hex(version, 2) && hex(id, 32) && parts.next().is_some_and(|span| hex(span, 16));
        let number = u128::from_str_radix(id, 16)
            .ok()
            .filter(|n| is_valid && *n != 0)?;
        Some(Self::from_u128(number))
    }

    /// A `traceparent` with this id and a span; `None` if the id is no UUID.
    #[must_use]
    pub fn to_traceparent(&self, span: u64) -> Option<String> {
        let number = parse_uuid(&self.0)?;
        Some(format!("00-{number:032x}-{:016x}-01", span.max(1)))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id as in W3C Trace Context; `None` if it is no UUID.
    #[must_use]
    pub fn as_u128(&self) -> Option<u128> {
        parse_uuid(&self.0)
    }
}

/// A parsed `traceparent` (W3C Trace Context, section 3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub id: TraceId,
    /// The span of the sender; never 0.
    pub span: u64,
    /// True if the span is sampled.
    pub sampled: bool,
}

impl TraceParent {
    /// The longest `tracestate` that is forwarded, in bytes: the minimum that the specification requires.
    const STATE_MAX: usize = 512;

    /// Parses version 00, or the beginning of a later version.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let hex = |text: &str| text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let (known, rest) = text.split_at_checked(55)?;
        let mut parts = known.split('-');
        let (version, id) = (parts.next()?, parts.next()?);
        let (span, flags) = (parts.next()?, parts.next()?);
        let lengths = [version, id, span, flags].map(str::len) == [2, 32, 16, 2];
        let later = version != "00" && rest.starts_with('-');
        if !lengths || version == "ff" || !(rest.is_empty() || later) {
            return None;
        }
        if ![version, span, flags].into_iter().all(hex) {
            return None;
        }
        Some(Self {
            id: TraceId::from_traceparent(text)?,
            span: u64::from_str_radix(span, 16).ok().filter(|n| *n != 0)?,
            sampled: u8::from_str_radix(flags, 16).ok()? & 1 == 1,
        })
    }

    /// The `traceparent` in `params._meta`, and the `tracestate` beside it.
    #[must_use]
    pub fn from_params(params: Option<&str>) -> Option<(Self, Option<String>)> {
        let may_have_trace = |p: &&str| can_contain_string(p.as_bytes(), "traceparent");
        let params = params.filter(may_have_trace)?;
        let meta = parse_fields(parse_fields(Some(params)).meta.map(RawValue::get));
        let text = |raw: &RawValue| serde_json::from_str::<String>(raw.get()).ok();
        let parent = Self::parse(&text(meta.traceparent?)?)?;
        Some((parent, meta.tracestate.and_then(text)))
    }

    /// The `tracestate` to forward: empty if it is too long or invalid in a header.
    #[must_use]
    pub fn valid_state(text: &str) -> &str {
        let plain = text.bytes().all(|b| matches!(b, b' '..=b'~'));
        if text.len() <= Self::STATE_MAX && plain {
            text.trim()
        } else {
            ""
        }
    }
}

/// Parses a UUID in its form of 36 characters; `None` for other forms, and for the nil UUID.
fn parse_uuid(text: &str) -> Option<u128> {
    let fits = |(at, b): (usize, u8)| match at {
        8 | 13 | 18 | 23 => b == b'-',
        _ => b.is_ascii_hexdigit(),
    };
    let is_valid = text.len() == 36 && text.bytes().enumerate().all(fits);
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    u128::from_str_radix(&digits, 16)
        .ok()
        .filter(|n| is_valid && *n != 0)
}

#[derive(Default, Deserialize)]
struct TraceFields<'a> {
    #[serde(borrow, default)]
    trace_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    traceparent: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tracestate: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

/// The trace fields of an object; a malformed one has none, and the request stays valid.
fn parse_fields(object: Option<&str>) -> TraceFields<'_> {
    let carrier = object.and_then(|text| serde_json::from_str(text).ok());
    carrier.unwrap_or_default()
}

impl<'de> Deserialize<'de> for TraceId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let is_valid =
            (1..=Self::MAX_LEN).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        if is_valid {
            Ok(Self(text.into()))
        } else {
            Err(serde::de::Error::custom(BadTrace))
        }
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

    /// MGP-085, MGP-102: a UUID of a caller is used unchanged, any other text is ignored, and a missing id
    /// is generated.
    #[test]
    fn trace_is_used_unchanged_or_generated() {
        let uuid = "550E8400-e29b-41d4-A716-446655440000";
        assert_eq!(TraceId::parse(uuid).unwrap().as_str(), uuid);
        let minted = TraceId::from_random([0xff; 16]);
        assert_eq!(minted.as_str(), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(
            TraceId::from_random([0; 16]).as_str(),
            "00000000-0000-4000-8000-000000000000"
        );
        for bad in [
            "",
            "not-a-uuid",
            "550e8400e29b41d4a716446655440000",
            "{550e8400-e29b-41d4-a716-446655440000}",
            "550e8400-e29b-41d4-a716-44665544000",
            "550e8400-e29b-41d4-a716-44665544000g",
            "550e8400-e29b-41d4-a716-44665544000é",
            "+50e8400-e29b-41d4-a716-446655440000",
            "550e84-00e29b-41d4-a716-446655440000",
            "00000000-0000-0000-0000-000000000000",
        ] {
            assert_eq!(TraceId::parse(bad), Err(BadTrace), "{bad}");
        }
        let logged: TraceId = serde_json::from_str("\"not-a-uuid\"").unwrap();
        assert_eq!(logged.as_str(), "not-a-uuid", "an older log stays readable");
        assert!(serde_json::from_str::<TraceId>("\"a b\"").is_err());
    }

    /// MGP-101, A-05: all three places are read, `params` before `_meta` before the envelope.
    #[test]
    fn places_of_the_trace_are_read_in_order() {
        let id = |n: u8| TraceId::from_random([n; 16]);
        let top = RawValue::from_string(format!("\"{}\"", id(3))).unwrap();
        let find = |params: &str| TraceId::from_params(Some(params), Some(&top));
        let meta = format!(r#"{{"trace_id":"{}"}}"#, id(2));
        let all = format!(r#"{{"name":"x","_meta":{meta},"trace_id":"{}"}}"#, id(1));
        assert_eq!(find(&all), Some(id(1)));
        assert_eq!(find(&format!(r#"{{"_meta":{meta}}}"#)), Some(id(2)));
        let bad = r#"{"trace_id":7,"_meta":{"trace_id":"a"}}"#;
        assert_eq!(find(bad), Some(id(3)));
        let deep = format!(r#"{{"arguments":{meta}}}"#);
        assert_eq!(TraceId::from_params(Some(&deep), None), None);
        assert_eq!(TraceId::from_params(None, None), None);
    }

    /// A W3C trace is preserved in both directions.
    #[test]
    fn traceparent_converts_to_a_trace() {
        let parent = "00-550e8400e29b41d4a716446655440000-00f067aa0ba902b7-01";
        let params = format!(r#"{{"_meta":{{"traceparent":"{parent}"}}}}"#);
        let found = TraceId::from_params(Some(&params), None).unwrap();
        assert_eq!(found.as_str(), "550e8400-e29b-41d4-a716-446655440000");
        assert_eq!(
            found.to_traceparent(0x00f0_67aa_0ba9_02b7).as_deref(),
            Some(parent)
        );
        let logged: TraceId = serde_json::from_str("\"not-a-uuid\"").unwrap();
        assert_eq!(logged.to_traceparent(1), None);
        for bad in [
            "",
            "00",
            "00-x-00f067aa0ba902b7-01",
            &parent[..40],
            &format!("00-{:032}-00f067aa0ba902b7-01", 0),
        ] {
            assert_eq!(TraceId::from_traceparent(bad), None, "{bad}");
        }
    }
    /// W3C Trace Context, section 3.2: an invalid parent is ignored; of a later version the beginning is
    /// read.
    #[test]
    fn traceparent_is_parsed_as_in_the_specification() {
        let traceparent = "00-550e8400e29b41d4a716446655440000-00f067aa0ba902b7-01";
        let parent = TraceParent::parse(traceparent).unwrap();
        assert!(parent.sampled && parent.span == 0x00f0_67aa_0ba9_02b7);
        assert!(
            !TraceParent::parse(&traceparent.replace("-01", "-00"))
                .unwrap()
                .sampled
        );
        let later = traceparent.replacen("00", "cc", 1) + "-what-comes";
        assert!(TraceParent::parse(&later).is_some());
        let bad = [
            format!("{traceparent}-x"),
            traceparent.replacen("00", "ff", 1),
            traceparent.replace("00f067aa0ba902b7", "0000000000000000"),
            traceparent.to_uppercase(),
            traceparent.replace("-01", "-0g"),
            traceparent[..54].to_owned(),
            format!("{}é", &traceparent[..54]),
        ];
        for bad in bad {
            assert_eq!(TraceParent::parse(&bad), None, "{bad}");
        }
        let params = format!(r#"{{"_meta":{{"traceparent":"{traceparent}","tracestate":"a=1"}}}}"#);
        let found = TraceParent::from_params(Some(&params)).unwrap();
        assert_eq!(found, (parent, Some("a=1".into())));
        assert_eq!(TraceParent::valid_state("a=1\n"), "");
        assert_eq!(TraceParent::valid_state(&"a".repeat(513)), "");
    }
}
