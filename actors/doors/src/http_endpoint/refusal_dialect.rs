//! The dialect in which an unauthenticated caller is refused, as declared by its request if that is short.

use std::time::Duration;

use bytestring::ByteString;
use http::{Method, Request};
use mgp_protocol::dialect::{Dialect, Version};
use mgp_protocol::jsonrpc::{self, Message, RequestId};
use mgp_protocol::mcp;
use mgp_transports::http::body::{RequestBody, collect};
use serde_json::value::RawValue;

use crate::message_budgets::MessageBudgets;
use crate::stateless;
use mgp_callers::negotiation::negotiate_with_client;

/// The longest message that is read for this; a handshake has a few hundred bytes.
const MESSAGE_BYTES_MAX: u64 = 64 << 10;

/// How long the message may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(2);

/// The id of the request and the caller's dialect, if it declares MGP. `None` for all others, who get a
/// plain HTTP error, and when too many unauthenticated requests are being read.
pub(super) async fn refusal_dialect(
    request: Request<RequestBody>,
    bodies: &MessageBudgets,
) -> Option<(RequestId, Dialect)> {
    let length = request.headers().get(http::header::CONTENT_LENGTH)?;
    let len: u64 = length.to_str().ok()?.parse().ok()?;
    if request.method() != Method::POST || len > MESSAGE_BYTES_MAX {
        return None;
    }
    let longest = usize::try_from(MESSAGE_BYTES_MAX).ok()?;
    let budget = || bodies.anonymous_budget();
    let body = collect(request.into_body(), longest, BODY_TIMEOUT, budget);
    let body = body.await.ok()?;
    let text = ByteString::try_from(body).ok()?;
    parse_dialect(&text).filter(|(_, dialect)| dialect.mgp)
}

fn parse_dialect(text: &ByteString) -> Option<(RequestId, Dialect)> {
    let Ok(Message::Request {
        id, method, params, ..
    }) = jsonrpc::parse_text(text)
    else {
        return None;
    };
    let params = params.map(RawValue::get);
    let dialect = if method == "initialize" {
        let hello: mcp::Initialize<'_> = mcp::parse_params(params).ok()?;
        let version = Version::negotiate(&hello.protocol_version);
        Dialect {
            version,
            mgp: negotiate_with_client(Some(hello.capabilities), version).has_error_codes(),
        }
    } else {
        stateless::parse_request_meta(&method, params)
            .ok()?
            .0
            .dialect()
    };
    Some((id, dialect))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declares_mgp(text: &str) -> Option<bool> {
        parse_dialect(&ByteString::from(text)).map(|(_, dialect)| dialect.mgp)
    }

    #[test]
    fn handshake_declares_the_dialect() {
        let hello = |capabilities: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"2025-11-25","capabilities":{capabilities},"clientInfo":{{"name":"a","version":"1"}}}}}}"#
            )
        };
        let mgp = r#"{"mgp":{"version":"0.2.0","extensions":["error_handling"]}}"#;
        assert_eq!(declares_mgp(&hello(mgp)), Some(true));
        assert_eq!(declares_mgp(&hello("{}")), Some(false));
        for other in [
            "",
            "[]",
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
        ] {
            assert_eq!(declares_mgp(other), None, "{other}");
        }
    }
}
