//! The card of this gateway (SEP-2127, a draft), without authentication: its name, version, address and protocol versions.
//! It does not say which servers, tools and agents there are.

use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use http::{Method, Request, Response, StatusCode};
use mgp_protocol::dialect::Version;
use mgp_transports::http::body::{ReplyBody, RequestBody};
use serde_json::{Value, json};

use super::{empty_response, method_not_allowed, request_address, responses};

/// Where the draft has the card: the URL of the endpoint, with this at its end.
const CARD_PATH: &str = "/mcp/server-card";
/// The list of the cards of this host.
const CATALOG_PATH: &str = "/.well-known/ai-catalog.json";
const CARD_TYPE: &str = "application/mcp-server-card+json";
const CATALOG_TYPE: &str = "application/ai-catalog+json";
const SCHEMA: &str = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json";

/// What the operator publishes of this gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerCard {
    /// `com.example/gateway`.
    pub name: String,
    /// The URL of `/mcp` as clients know it; by default that of the request.
    pub url: Option<String>,
}

impl ServerCard {
    /// The answer to a request for the card or the list of cards; `None` for any other one. A client that opens an event
    /// stream means a server of that name.
    pub(super) fn answer(
        &self,
        request: &Request<RequestBody>,
        secure: bool,
    ) -> Option<Response<ReplyBody>> {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let url = self.endpoint_url(request, secure);
        match request.uri().path() {
            CARD_PATH if is_read && !opens_stream(request) => {
                Some(document(request, CARD_TYPE, &self.card(&url)))
            }
            CATALOG_PATH if is_read => Some(document(request, CATALOG_TYPE, &self.catalog(&url))),
            CATALOG_PATH => Some(method_not_allowed("GET")),
            _ => None,
        }
    }

    fn endpoint_url(&self, request: &Request<RequestBody>, secure: bool) -> String {
        if let Some(url) = &self.url {
            return url.clone();
        }
        let address = request_address(request.uri(), request.headers(), secure);
        format!("{address}/mcp")
    }

    fn card(&self, url: &str) -> Value {
        let versions = Version::LEGACY.into_iter().chain([Version::STATELESS]);
        let versions: Vec<&str> = versions.map(Version::as_str).collect();
        json!({
            "$schema": SCHEMA,
            "name": self.name,
            "title": "MGP kernel",
            "description": "A gateway for MCP servers",
            "version": env!("CARGO_PKG_VERSION"),
            "remotes": [{
                "type": "streamable-http",
                "url": url,
                "supportedProtocolVersions": versions,
            }],
        })
    }

    fn catalog(&self, url: &str) -> Value {
        let (namespace, name) = self.name.split_once('/').unwrap_or_default();
        let publisher: Vec<&str> = namespace.rsplit('.').collect();
        json!({
            "specVersion": "1.0",
            "entries": [{
                "identifier": format!("urn:air:{}:mcp:{name}", publisher.join(".")),
                "type": CARD_TYPE,
                "url": format!("{url}/server-card"),
            }],
        })
    }
}

fn opens_stream(request: &Request<RequestBody>) -> bool {
    let mut accepted = request.headers().get_all(ACCEPT).iter();
    accepted.any(|it| it.to_str().is_ok_and(|it| it.contains("text/event-stream")))
}

/// A document that clients may keep for an hour, and revalidate (RFC 9110, 13.1.2).
fn document(
    request: &Request<RequestBody>,
    media_type: &'static str,
    value: &Value,
) -> Response<ReplyBody> {
    let text = value.to_string();
    let tag = format!("\"{}\"", &blake3::hash(text.as_bytes()).to_hex()[..32]);
    let known = request.headers().get_all(IF_NONE_MATCH).iter();
    let mut known = known.filter_map(|it| it.to_str().ok());
    let is_known = known.any(|tags| {
        let mut tags = tags.split(',').map(str::trim);
        tags.any(|it| it == "*" || it.strip_prefix("W/").unwrap_or(it) == tag)
    });
    let mut response = match is_known {
        true => empty_response(StatusCode::NOT_MODIFIED),
        false => responses::json_response(StatusCode::OK, ReplyBody::full(text)),
    };
    let headers = response.headers_mut();
    if !is_known {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    }
    let caching = HeaderValue::from_static("public, max-age=3600");
    headers.insert(CACHE_CONTROL, caching);
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    response
}
