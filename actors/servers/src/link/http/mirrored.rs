//! The headers that repeat what a modern request says.

use std::borrow::Cow;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use mgp_protocol::request_headers::RequestHeaders;

use crate::link::Mirror;

/// The headers of a request on top of those of every request.
///
/// # Errors
/// The name of a header that cannot be one, or whose value cannot.
pub(super) fn headers(every: &HeaderMap, mirror: Mirror<'_>) -> Result<HeaderMap, String> {
    let mut headers = every.clone();
    let said = RequestHeaders {
        method: mirror.method,
        name: mirror.name.map(Cow::Borrowed),
    };
    for (name, value) in said.headers() {
        put(&mut headers, name, &value)?;
    }
    for (name, value) in mirror.params {
        put(&mut headers, name, value)?;
    }
    Ok(headers)
}

fn put(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), String> {
    let key: HeaderName = name.parse().map_err(|_| name.to_owned())?;
    let value = HeaderValue::from_str(value).map_err(|_| name.to_owned())?;
    headers.insert(key, value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEP-2243: what no header may hold is encoded; what was configured stays.
    #[test]
    fn a_request_is_mirrored_in_its_headers() {
        let mut every = HeaderMap::new();
        every.insert("authorization", HeaderValue::from_static("Bearer x"));
        let params = [("Mcp-Param-Region".to_owned(), "eu".to_owned())];
        let mirror = Mirror {
            method: "tools/call",
            name: Some("gr\u{fc}n"),
            params: &params,
        };
        let made = headers(&every, mirror).unwrap();
        assert_eq!(made["mcp-method"], "tools/call");
        assert_eq!(made["mcp-name"], "=?base64?Z3LDvG4=?=");
        assert_eq!(made["mcp-param-region"], "eu");
        assert_eq!(made["authorization"], "Bearer x");
        let bad = [("Mcp-Param-A b".to_owned(), String::new())];
        assert!(
            headers(
                &every,
                Mirror {
                    params: &bad,
                    ..mirror
                }
            )
            .is_err()
        );
    }
}
