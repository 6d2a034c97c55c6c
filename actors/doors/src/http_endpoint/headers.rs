//! Parses MCP's HTTP headers.

use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName};
use mgp_protocol::dialect::Version;

use mgp_runtime::trace::Trace;
use mgp_transports::http::names::{TRACEPARENT, TRACESTATE};

pub(super) use mgp_transports::http::names::{LAST_EVENT, SESSION, VERSION};

/// Adds the trace context of the headers to the trace; headers that occur twice are ignored (W3C Trace
/// Context, section 3.2.1).
pub(crate) fn read_trace(headers: &HeaderMap, trace: Trace) -> Trace {
    let mut parents = headers.get_all(TRACEPARENT).iter();
    let parent = match (parents.next(), parents.next()) {
        (Some(parent), None) => parent.to_str().ok(),
        (None | Some(_), _) => None,
    };
    let Some(parent) = parent else { return trace };
    let states = headers.get_all(TRACESTATE).iter();
    let states: Option<Vec<&str>> = states.map(|state| state.to_str().ok()).collect();
    trace.or_from_headers(parent, states.map(|states| states.join(",")).as_deref())
}

/// True if the client accepts an event stream.
pub(super) fn accepts_events(headers: &HeaderMap) -> bool {
    is_accepted(headers, "text/event-stream")
}

/// What nearly all clients send; other texts are read range by range.
const USUAL_ACCEPT: &str = "application/json, text/event-stream";

/// True if the client accepts both JSON and an event stream, as every POST must (MCP-077).
pub(super) fn accepts_both(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(ACCEPT).iter();
    if values.next().is_some_and(|value| value == USUAL_ACCEPT) && values.next().is_none() {
        return true;
    }
    is_accepted(headers, "application/json") && is_accepted(headers, "text/event-stream")
}

/// True if the media type is accepted: the narrowest matching range decides, and `q=0` excludes it (RFC
/// 9110, 12.5.1). Without `Accept` everything is accepted.
fn is_accepted(headers: &HeaderMap, kind: &str) -> bool {
    let mut values = headers.get_all(ACCEPT).iter().peekable();
    if values.peek().is_none() {
        return true;
    }
    let ranges = values
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','));
    let deciding = ranges.filter_map(|range| match_range(range, kind)).max();
    deciding.is_some_and(|(_, is_wanted)| is_wanted)
}

/// The weight of the media type in thousandths, and how narrow its range is; 0 if it is not accepted.
pub(super) fn accept_weight(headers: &HeaderMap, kind: &str) -> (u16, u8) {
    let values = headers.get_all(ACCEPT).iter();
    let ranges = values
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','));
    let named = ranges.filter_map(|range| {
        let (narrow, is_wanted) = match_range(range, kind)?;
        let weight = range.split(';').skip(1).find_map(parse_weight);
        let weight = if is_wanted { weight.unwrap_or(1000) } else { 0 };
        Some((narrow, weight))
    });
    named
        .max()
        .map_or((0, 0), |(narrow, weight)| (weight, narrow))
}

/// Parses `q=0.5` to thousandths (RFC 9110, 12.4.2).
fn parse_weight(parameter: &str) -> Option<u16> {
    let (name, value) = parameter.split_once('=')?;
    if !name.trim().eq_ignore_ascii_case("q") {
        return None;
    }
    let weight: f32 = value.trim().parse().ok()?;
    Some((weight.clamp(0.0, 1.0) * 1000.0).round() as u16)
}

/// How narrow a range is that matches the media type, and whether it accepts it.
fn match_range(range: &str, kind: &str) -> Option<(u8, bool)> {
    let (family, _) = kind.split_once('/')?;
    let mut parts = range.split(';').map(str::trim);
    let narrow = match parts.next()? {
        "*/*" => 0,
        named if named.eq_ignore_ascii_case(kind) => 2,
        named => {
            let kind_prefix = named.strip_suffix("/*")?;
            kind_prefix.eq_ignore_ascii_case(family).then_some(1)?
        }
    };
    Some((narrow, !parts.any(is_zero)))
}

/// True for `q=0`, with up to three decimal zeros.
fn is_zero(parameter: &str) -> bool {
    let weight = parameter
        .split_once('=')
        .filter(|(name, _)| name.trim().eq_ignore_ascii_case("q"))
        .map(|(_, weight)| weight.trim());
    weight.is_some_and(|weight| {
        let digits = weight.strip_prefix('0');
        digits.is_some_and(|rest| rest.bytes().all(|b| matches!(b, b'.' | b'0')))
    })
}

/// True for `Content-Type: application/json`, with or without parameters.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let kind = header_text(headers, &CONTENT_TYPE).unwrap_or("");
    kind.split(';')
        .next()
        .unwrap_or("")
        .trim()
        .eq_ignore_ascii_case("application/json")
}

/// `MCP-Protocol-Version` must name a supported version, and that of the session; if absent, the session's
/// is assumed.
pub(super) fn check_version(headers: &HeaderMap, session: Version) -> Result<(), String> {
    let Some(value) = headers.get(VERSION) else {
        return Ok(());
    };
    let text = value.to_str().unwrap_or("");
    match parse_version(text)? {
        version if version == session => Ok(()),
        version => Err(format!(
            "`MCP-Protocol-Version: {version}`, but this session speaks {session}"
        )),
    }
}

/// True for a request with the headers of a stateless one, well-formed or not: `MCP-Protocol-Version` names
/// the stateless version, or an unknown one outside a session.
pub(super) fn is_stateless(headers: &HeaderMap) -> bool {
    header_text(headers, &VERSION).is_some_and(|text| {
        text == Version::STATELESS.as_str()
            || (parse_version(text).is_err() && !headers.contains_key(SESSION))
    })
}

/// Parses a version that the kernel supports in sessions.
pub(super) fn parse_version(text: &str) -> Result<Version, String> {
    Version::parse(text)
        .filter(|v| v.is_legacy())
        .ok_or_else(|| {
            let known: Vec<_> = Version::LEGACY.iter().map(|v| v.as_str()).collect();
            format!(
                "`MCP-Protocol-Version: {text}` is not supported; supported are {}",
                known.join(", ")
            )
        })
}

/// A header as text.
pub(super) fn header_text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    /// MCP-077: both media types, in any order and with parameters.
    #[test]
    fn post_must_accept_json_and_events() {
        assert!(accepts_both(&with(
            ACCEPT,
            "text/event-stream;q=0.9, application/json"
        )));
        assert!(accepts_both(&with(ACCEPT, "*/*")));
        assert!(accepts_both(&HeaderMap::new()));
        assert!(!accepts_both(&with(ACCEPT, "application/json")));
        assert!(!accepts_both(&with(ACCEPT, "text/html")));
    }

    /// MCP-077: `q=0` excludes, and a specific range overrides a general one.
    #[test]
    fn zero_weight_excludes_a_media_type() {
        let both = |value: &str| accepts_both(&with(ACCEPT, value));
        for excluded in [
            "application/json, text/event-stream;q=0",
            "application/json; Q=0.000, text/event-stream",
            "*/*;q=0",
            "*/*, text/event-stream; q=0.0",
            "application/json, */*, text/*;q=0",
            "application/json;charset=utf-8;q=0, text/event-stream",
        ] {
            assert!(!both(excluded), "{excluded}");
        }
        for accepted in [
            "application/json;q=0.1, text/event-stream;q=0.001",
            "*/*;q=0, application/json, text/event-stream",
            "text/*;q=0, application/json, text/event-stream",
            "application/json, */*;q=0.5",
            "application/json;q=1.0, text/event-stream;q=1",
        ] {
            assert!(both(accepted), "{accepted}");
        }
    }

    /// MCP-078, CMCP-031, A-16.
    #[test]
    fn version_header_must_match_the_session() {
        let session = Version::V2025_06_18;
        let check = |v: &str| check_version(&with(VERSION, v), session).is_ok();
        assert!(check("2025-06-18"));
        assert!(!check("2025-03-26"));
        assert!(!check("1999-01-01"));
        assert!(check_version(&HeaderMap::new(), session).is_ok());
    }
}
