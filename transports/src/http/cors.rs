//! Cross-origin requests (Fetch, section 3.3) of pages at the configured origins, such as MCP hosts in a browser.
//!
//! Cookies and the console's key are never allowed: such a page authenticates with a token, as any client.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, VARY,
};
use http::{Method, Request, Response, StatusCode};

use super::body::ReplyBody;
use super::names::{LAST_EVENT, TRACEPARENT, TRACESTATE};

/// Request headers that such a page may send, besides those of MCP.
const REQUEST_HEADERS: [HeaderName; 5] = [
    AUTHORIZATION,
    CONTENT_TYPE,
    LAST_EVENT,
    TRACEPARENT,
    TRACESTATE,
];
/// Start of MCP's request headers: `Mcp-Session-Id`, `Mcp-Param-*` and others.
const MCP_PREFIX: &str = "mcp-";

/// The answer to a preflight request; `None` for any other request.
pub(super) fn preflight_response<B>(request: &Request<B>) -> Option<Response<ReplyBody>> {
    let headers = request.headers();
    let is_preflight =
        request.method() == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    if !is_preflight {
        return None;
    }
    let requested = headers.get(ACCESS_CONTROL_REQUEST_HEADERS);
    let requested = requested
        .and_then(|names| names.to_str().ok())
        .unwrap_or("");
    let names: Vec<&str> = requested
        .split(',')
        .map(str::trim)
        .filter(|name| is_allowed_header(name))
        .collect();
    let mut response = Response::new(ReplyBody::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    if let Ok(names) = HeaderValue::from_str(&names.join(", ")) {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, names);
    }
    let methods = HeaderValue::from_static("GET, POST, DELETE");
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    Some(response)
}

/// Lets pages of this origin read a response.
pub(super) fn allow_origin(response: &mut Response<ReplyBody>, origin: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    let exposed = "mcp-session-id, mcp-protocol-version, www-authenticate, retry-after";
    headers.insert(
        ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static(exposed),
    );
    headers.append(VARY, HeaderValue::from_static("origin"));
}

fn is_allowed_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with(MCP_PREFIX)
        || REQUEST_HEADERS
            .iter()
            .any(|allowed| allowed.as_str() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preflight(method: Method, names: &str) -> Option<String> {
        let request = Request::builder().method(method).uri("/mcp");
        let request = request.header(ACCESS_CONTROL_REQUEST_METHOD, "POST");
        let request = request.header(ACCESS_CONTROL_REQUEST_HEADERS, names);
        let response = preflight_response(&request.body(()).unwrap())?;
        let names = &response.headers()[ACCESS_CONTROL_ALLOW_HEADERS];
        Some(names.to_str().unwrap().to_owned())
    }

    /// EXT-030: a page may send what clients of MCP send, and never the console's key.
    #[test]
    fn preflight_allows_only_headers_of_clients() {
        let all = "authorization,content-type, Mcp-Session-Id,mcp-param-region,mgp-console,x-other, cookie";
        let allowed = "authorization, content-type, Mcp-Session-Id, mcp-param-region";
        assert_eq!(preflight(Method::OPTIONS, all), Some(allowed.to_owned()));
        assert_eq!(
            preflight(Method::OPTIONS, "mgp-console"),
            Some(String::new())
        );
        assert_eq!(preflight(Method::POST, all), None);
    }
}
