//! Converts a peer's error for a caller of the other protocol.

use std::borrow::Cow;

use mgp_json::{Splice, lookalike, member};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::dialect::{ProtocolFamily, Version};
use crate::jsonrpc::{INTERNAL_ERROR, INVALID_PARAMS};
use crate::mcp::{Method as _, resources};
use crate::refusal::{
    HEADER_MISMATCH, MISSING_CAPABILITY, RESOURCE_NOT_FOUND, UNSUPPORTED_VERSION,
    URL_ELICITATION_REQUIRED, legacy_code,
};

#[derive(Deserialize)]
struct ErrorText<'a> {
    #[serde(borrow)]
    code: &'a RawValue,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

/// Converts the error object of a peer with the protocol `from`, for a caller of version `to` that
/// requested `method`: another code if the protocols differ, all else unchanged. Within a protocol nothing
/// changes.
///
/// [`URL_ELICITATION_REQUIRED`] should be converted to a callback before; otherwise it becomes -32602 for a
/// stateless caller.
#[must_use]
pub fn convert_error<'a>(
    error: &'a RawValue,
    from: ProtocolFamily,
    to: Version,
    method: &str,
) -> Cow<'a, str> {
    let text = error.get();
    if from == to.family() {
        return Cow::Borrowed(text);
    }
    let Ok(parsed) = lookalike::from_object::<ErrorText<'_>>(text) else {
        return Cow::Borrowed(text);
    };
    let Ok(code) = parsed.code.get().parse::<i64>() else {
        return Cow::Borrowed(text);
    };
    let other = match from {
        ProtocolFamily::Legacy => to_stateless_code(code),
        ProtocolFamily::Stateless => to_legacy_code(code, method, parsed.data),
    };
    let mut splice = Splice::new(text);
    if other != code {
        splice.replace(parsed.code.get(), other.to_string());
    }
    splice.finish()
}

fn to_stateless_code(code: i64) -> i64 {
    match code {
        RESOURCE_NOT_FOUND | URL_ELICITATION_REQUIRED => INVALID_PARAMS,
        // A legacy server has its own meaning of these codes; its caller would read the protocol's.
        HEADER_MISMATCH | MISSING_CAPABILITY | UNSUPPORTED_VERSION => INTERNAL_ERROR,
        code => code,
    }
}

fn to_legacy_code(code: i64, method: &str, data: Option<&RawValue>) -> i64 {
    let names_uri = || data.is_some_and(|data| member(data.get(), "uri").is_some());
    if code == INVALID_PARAMS && method == resources::Read::METHOD && names_uri() {
        return RESOURCE_NOT_FOUND;
    }
    legacy_code(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(error: &str, from: ProtocolFamily, to: Version, method: &str) -> String {
        let raw: &RawValue = serde_json::from_str(error).unwrap();
        convert_error(raw, from, to, method).into_owned()
    }

    /// MCP-089: each protocol has its own code for an unknown resource; `data.uri` is kept.
    #[test]
    fn unknown_resource_has_the_code_of_the_callers_protocol() {
        let old = r#"{"code": -32002,"message":"no","data":{"uri":"a://b"}}"#;
        let new = r#"{"code": -32602,"message":"no","data":{"uri":"a://b"}}"#;
        let read = "resources/read";
        assert_eq!(
            converted(old, ProtocolFamily::Legacy, Version::STATELESS, read),
            new
        );
        assert_eq!(
            converted(new, ProtocolFamily::Stateless, Version::V2024_11_05, read),
            old
        );
        assert_eq!(
            converted(
                new,
                ProtocolFamily::Stateless,
                Version::V2024_11_05,
                "tools/call"
            ),
            new
        );
        let bare = r#"{"code":-32602,"message":"no"}"#;
        assert_eq!(
            converted(bare, ProtocolFamily::Stateless, Version::V2024_11_05, read),
            bare
        );
    }

    #[test]
    fn reserved_codes_do_not_cross_protocols() {
        let error = |code: i64| format!(r#"{{"message":"m","code":{code}}}"#);
        let cross = |code: i64, from: ProtocolFamily, to: Version| {
            converted(&error(code), from, to, "tools/call")
        };
        let legacy = Version::V2025_11_25;
        for (code, other) in [
            (-32020, -32600),
            (-32021, -32600),
            (-32022, -32602),
            (-7, -7),
        ] {
            assert_eq!(cross(code, ProtocolFamily::Stateless, legacy), error(other));
        }
        for (code, other) in [(-32042, -32602), (-32020, -32603), (-32001, -32001)] {
            assert_eq!(
                cross(code, ProtocolFamily::Legacy, Version::STATELESS),
                error(other)
            );
        }
    }

    #[test]
    fn error_is_unchanged_within_a_protocol() {
        for (from, to) in [
            (ProtocolFamily::Legacy, Version::V2024_11_05),
            (ProtocolFamily::Stateless, Version::STATELESS),
        ] {
            for text in [
                r#"{ "code" : -32002.0 }"#,
                r#"{"code":-32042}"#,
                r#"{"code":-32020}"#,
            ] {
                assert_eq!(converted(text, from, to, "resources/read"), text);
            }
        }
    }
}
