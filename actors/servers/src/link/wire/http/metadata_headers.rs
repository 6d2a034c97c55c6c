//! HTTP headers that mirror parts of a stateless request.

use std::borrow::Cow;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use mgp_protocol::mcp::request_headers::RequestHeaders;

use crate::link::MetadataHeaders;

/// Builds the headers of one request from those of every request.
///
/// # Errors
/// The header whose name or value is not valid in HTTP.
pub(super) fn build_headers(
    every: &HeaderMap,
    mirror: MetadataHeaders<'_>,
) -> Result<HeaderMap, String> {
    let mut headers = every.clone();
    let request_headers = RequestHeaders {
        method: mirror.method,
        name: mirror.name.map(Cow::Borrowed),
    };
    for (name, value) in request_headers.headers() {
        insert_header(&mut headers, name, &value)?;
    }
    for (name, value) in mirror.params {
        insert_header(&mut headers, name, value)?;
    }
    Ok(headers)
}

fn insert_header(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), String> {
    let key: HeaderName = name.parse().map_err(|_| name.to_owned())?;
    let value = HeaderValue::from_str(value).map_err(|_| name.to_owned())?;
    headers.insert(key, value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEP-2243: values that headers cannot represent are encoded; configured headers stay.
    #[test]
    fn request_is_mirrored_in_headers() {
        let mut every = HeaderMap::new();
        every.insert("authorization", HeaderValue::from_static("Bearer x"));
        let params = [("Mcp-Param-Region".to_owned(), "eu".to_owned())];
        let mirror = MetadataHeaders {
            method: "tools/call",
            name: Some("gr\u{fc}n"),
            params: &params,
        };
        let made = build_headers(&every, mirror).unwrap();
        assert_eq!(made["mcp-method"], "tools/call");
        assert_eq!(made["mcp-name"], "=?base64?Z3LDvG4=?=");
        assert_eq!(made["mcp-param-region"], "eu");
        assert_eq!(made["authorization"], "Bearer x");
        let bad = [("Mcp-Param-A b".to_owned(), String::new())];
        assert!(
            build_headers(
                &every,
                MetadataHeaders {
                    params: &bad,
                    ..mirror
                }
            )
            .is_err()
        );
    }
}
