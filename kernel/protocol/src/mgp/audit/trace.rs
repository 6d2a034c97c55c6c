//! The id that ties together what one request caused (MGP §6.5).

use std::borrow::Cow;
use std::fmt;

use mgp_json::can_contain_string;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// A request's trace: passed on unchanged to servers, nodes and audit events.
///
/// It is a UUID (§6.3): minted ones are random, and a caller's own is taken as it is written when it is
/// one. Logs of earlier kernels hold others, which are read as they are.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct TraceId(Box<str>);

/// A text that is no trace id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a trace id is a UUID other than the nil one, such as 550e8400-e29b-41d4-a716-446655440000"
)]
pub struct BadTrace;

impl TraceId {
    /// Longest id read from a log, in bytes.
    pub(crate) const MAX_LEN: usize = 128;

    /// Judges a caller's id.
    ///
    /// # Errors
    /// [`BadTrace`] for one that is no UUID, and for the nil one, which says that there is none.
    pub fn parse(text: &str) -> Result<Self, BadTrace> {
        parse_uuid(text).map(|_| Self(text.into())).ok_or(BadTrace)
    }

    /// A new one out of 16 random bytes: a UUID of version 4.
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

    /// The id a request carries, in `params.trace_id`, `params._meta.trace_id` or beside `params`, in
    /// this order (A-05); else the one in `params._meta.traceparent` (W3C Trace Context). One that is
    /// not good counts as none.
    #[must_use]
    pub fn from_params(params: Option<&str>, top: Option<&RawValue>) -> Option<Self> {
        // Both words are in no request that carries none, and params may be long.
        let said = |p: &&str| can_contain_string(p.as_bytes(), "trace");
        let params = parse_fields(params.filter(said));
        let meta = parse_fields(params.meta.map(RawValue::get));
        let good = |raw: &RawValue| {
            let text: Cow<'_, str> = serde_json::from_str(raw.get()).ok()?;
            Self::parse(&text).ok()
        };
        let places = [params.trace_id, meta.trace_id, top];
        let parent = || {
            Self::from_traceparent(&serde_json::from_str::<String>(meta.traceparent?.get()).ok()?)
        };
        places.into_iter().flatten().find_map(good).or_else(parent)
    }

    /// The id in a `traceparent`, written as a UUID.
    #[must_use]
    pub(crate) fn from_traceparent(traceparent: &str) -> Option<Self> {
        let mut parts = traceparent.split('-');
        let (version, id) = (parts.next()?, parts.next()?);
        let hex = |text: &str, len| {
            text.len() == len && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        let good = hex(version, 2) && hex(id, 32) && parts.next().is_some_and(|span| hex(span, 16));
        let number = u128::from_str_radix(id, 16)
            .ok()
            .filter(|n| good && *n != 0)?;
        Some(Self::from_u128(number))
    }

    /// A `traceparent` of this id with a span of its own; `None` for an id that is no UUID.
    #[must_use]
    pub fn to_traceparent(&self, span: u64) -> Option<String> {
        let number = parse_uuid(&self.0)?;
        Some(format!("00-{number:032x}-{:016x}-01", span.max(1)))
    }

    /// The text itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same as W3C Trace Context has it; `None` for an id that is no UUID.
    #[must_use]
    pub fn as_u128(&self) -> Option<u128> {
        parse_uuid(&self.0)
    }
}

/// What a `traceparent` says (W3C Trace Context, section 3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub id: TraceId,
    /// The span of who sent it; never 0.
    pub span: u64,
    /// Whether that is sampled.
    pub sampled: bool,
}

impl TraceParent {
    /// Longest `tracestate` that is passed on, in bytes: as much as each participant has to pass on.
    const STATE_MAX: usize = 512;

    /// Reads one of version 00, or the beginning of one of a later version.
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

    /// That of `params._meta`, and the `tracestate` beside it.
    #[must_use]
    pub fn from_params(params: Option<&str>) -> Option<(Self, Option<String>)> {
        let said = |p: &&str| can_contain_string(p.as_bytes(), "traceparent");
        let params = params.filter(said)?;
        let meta = parse_fields(parse_fields(Some(params)).meta.map(RawValue::get));
        let text = |raw: &RawValue| serde_json::from_str::<String>(raw.get()).ok();
        let parent = Self::parse(&text(meta.traceparent?)?)?;
        Some((parent, meta.tracestate.and_then(text)))
    }

    /// What of a `tracestate` is passed on: all of it, or nothing where it is too long or no header could say it.
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

/// The number that a UUID writes, in its one form of 36 characters; `None` for anything else, and for
/// the nil one.
fn parse_uuid(text: &str) -> Option<u128> {
    let fits = |(at, b): (usize, u8)| match at {
        8 | 13 | 18 | 23 => b == b'-',
        _ => b.is_ascii_hexdigit(),
    };
    let good = text.len() == 36 && text.bytes().enumerate().all(fits);
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    u128::from_str_radix(&digits, 16)
        .ok()
        .filter(|n| good && *n != 0)
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

/// What an object carries; what is no object carries nothing, and the request is no worse for it.
fn parse_fields(object: Option<&str>) -> TraceFields<'_> {
    let carrier = object.and_then(|text| serde_json::from_str(text).ok());
    carrier.unwrap_or_default()
}

impl<'de> Deserialize<'de> for TraceId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let good =
            (1..=Self::MAX_LEN).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        if good {
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

    /// MGP-085, MGP-102: a UUID that a caller sends is taken unchanged, anything else is not, and what is
    /// missing is minted as one.
    #[test]
    fn a_trace_is_taken_as_it_is_or_minted() {
        let given = "550E8400-e29b-41d4-A716-446655440000";
        assert_eq!(TraceId::parse(given).unwrap().as_str(), given);
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
    fn the_three_places_are_read_in_their_order() {
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

    /// A trace of W3C Trace Context is the same trace, on the way in and on the way out.
    #[test]
    fn a_traceparent_is_a_trace() {
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
    /// W3C Trace Context, section 3.2: what is none is nobody's parent; of a later version the beginning counts.
    #[test]
    fn a_parent_is_read_as_the_document_has_it() {
        let good = "00-550e8400e29b41d4a716446655440000-00f067aa0ba902b7-01";
        let parent = TraceParent::parse(good).unwrap();
        assert!(parent.sampled && parent.span == 0x00f0_67aa_0ba9_02b7);
        assert!(
            !TraceParent::parse(&good.replace("-01", "-00"))
                .unwrap()
                .sampled
        );
        let later = good.replacen("00", "cc", 1) + "-what-comes";
        assert!(TraceParent::parse(&later).is_some());
        let bad = [
            format!("{good}-x"),
            good.replacen("00", "ff", 1),
            good.replace("00f067aa0ba902b7", "0000000000000000"),
            good.to_uppercase(),
            good.replace("-01", "-0g"),
            good[..54].to_owned(),
            format!("{}é", &good[..54]),
        ];
        for bad in bad {
            assert_eq!(TraceParent::parse(&bad), None, "{bad}");
        }
        let params = format!(r#"{{"_meta":{{"traceparent":"{good}","tracestate":"a=1"}}}}"#);
        let found = TraceParent::from_params(Some(&params)).unwrap();
        assert_eq!(found, (parent, Some("a=1".into())));
        assert_eq!(TraceParent::valid_state("a=1\n"), "");
        assert_eq!(TraceParent::valid_state(&"a".repeat(513)), "");
    }
}
