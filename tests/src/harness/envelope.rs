//! What every request of 2026-07-28 brings along: its client in `_meta`, and over HTTP the headers
//! that say the same.

use std::collections::HashMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value, json};

/// The one version without a handshake.
pub const MODERN: &str = "2026-07-28";
/// `_meta` key: the version a request is written in.
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// `_meta` key: what its client can do.
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// `_meta` key: who its client is.
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// `_meta` key: the least severe log messages its client wants.
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// `_meta` key of results: who answered.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// `_meta` key of what a listen stream carries: the id of the request that opened it.
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// The tasks extension.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

/// Who sends a request, and how.
#[derive(Debug, Clone)]
pub struct Envelope {
    /// The version it says it is written in.
    pub version: String,
    /// What the client can do.
    pub capabilities: Value,
    /// Who the client is; `None` leaves it out.
    pub client: Option<Value>,
    /// The least severe log messages the client wants; `None` for none.
    pub log_level: Option<String>,
    /// The input schemas of tools, by name: they say which arguments become headers.
    pub schemas: HashMap<String, Value>,
}

/// A request before it is sent, so that a test can spoil it.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// The headers that mirror the body.
    pub headers: HeaderMap,
    /// The whole message.
    pub body: Value,
}

impl Envelope {
    /// That of a client which can do `capabilities` (JSON).
    ///
    /// # Panics
    /// When `capabilities` are no JSON.
    #[must_use]
    pub fn new(capabilities: &str) -> Self {
        Self {
            version: MODERN.to_owned(),
            capabilities: serde_json::from_str(capabilities).expect("a test gives JSON"),
            client: Some(json!({"name": "mgp-tests", "version": "1"})),
            log_level: None,
            schemas: HashMap::new(),
        }
    }

    /// Remembers the input schemas of a `tools/list` result.
    pub fn learn(&mut self, list: &Value) {
        for tool in list["tools"].as_array().into_iter().flatten() {
            let name = tool["name"].as_str().unwrap_or_default();
            let schema = tool["inputSchema"].clone();
            self.schemas.insert(name.to_owned(), schema);
        }
    }

    /// A request with everything around it.
    #[must_use]
    pub fn request(&self, id: &Value, method: &str, params: Value) -> Outgoing {
        let params = self.around(params);
        Outgoing {
            headers: self.headers(method, &params),
            body: json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}),
        }
    }

    /// The params with `_meta`; what they already say of themselves stays.
    fn around(&self, mut params: Value) -> Value {
        let mut meta = Map::new();
        meta.insert(PROTOCOL_VERSION.into(), self.version.clone().into());
        meta.insert(CLIENT_CAPABILITIES.into(), self.capabilities.clone());
        let level = self.log_level.clone().map(Value::from);
        for (key, value) in [(CLIENT_INFO, self.client.clone()), (LOG_LEVEL, level)] {
            meta.extend(value.map(|value| (key.to_owned(), value)));
        }
        if let Some(own) = params["_meta"].as_object() {
            meta.extend(own.clone());
        }
        params["_meta"] = meta.into();
        params
    }

    fn headers(&self, method: &str, params: &Value) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let mut add = |name: &str, value: &str| {
            let name: HeaderName = name.parse().expect("a test names a header");
            let value = HeaderValue::from_str(&encode(value)).expect("it is encoded");
            headers.insert(name, value);
        };
        add("mcp-protocol-version", &self.version);
        add("mcp-method", method);
        let subject = match method {
            "tools/call" | "prompts/get" => &params["name"],
            "resources/read" => &params["uri"],
            "tasks/get" | "tasks/update" | "tasks/cancel" => &params["taskId"],
            _ => &Value::Null,
        };
        if let Some(subject) = subject.as_str() {
            add("mcp-name", subject);
        }
        let schema = subject.as_str().and_then(|tool| self.schemas.get(tool));
        if let Some(schema) = schema.filter(|_| method == "tools/call") {
            mirror(schema, &params["arguments"], &mut |name, value| {
                add(&format!("mcp-param-{name}"), value);
            });
        }
        headers
    }
}

impl Outgoing {
    /// The body as it is sent.
    #[must_use]
    pub fn frame(&self) -> String {
        self.body.to_string()
    }

    /// Sets a header.
    ///
    /// # Panics
    /// When it cannot be one.
    pub fn set(&mut self, name: &'static str, value: &str) {
        let value = value.parse().expect("a test gives a header's value");
        self.headers.insert(HeaderName::from_static(name), value);
    }
}

/// Tells `add` every argument that `schema` wants as a header.
fn mirror(schema: &Value, arguments: &Value, add: &mut impl FnMut(&str, &str)) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let value = &arguments[name];
        match (property["x-mcp-header"].as_str(), value) {
            (Some(_), Value::Null) => {}
            (Some(header), Value::String(text)) => add(header, text),
            (Some(header), other) => add(header, &other.to_string()),
            (None, _) => mirror(property, value, add),
        }
    }
}

/// A value as it may stand in a header: as it is, or coded when it could not be read back.
#[must_use]
pub fn encode(value: &str) -> String {
    let plain = value.bytes().all(|b| matches!(b, b' '..=b'~'));
    let whole = value.trim() == value && !value.starts_with("=?base64?");
    if plain && whole {
        value.to_owned()
    } else {
        format!("=?base64?{}?=", BASE64_STANDARD.encode(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_say_what_the_body_says() {
        let mut envelope = Envelope::new(r#"{"sampling":{}}"#);
        let properties = json!({
            "where": {"type": "string", "x-mcp-header": "Where"},
            "none": {"type": "string", "x-mcp-header": "None"},
            "deep": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
        });
        let tool =
            json!({"name": "t", "inputSchema": {"type": "object", "properties": properties}});
        envelope.learn(&json!({"tools": [tool]}));
        let arguments = json!({"where": "Zürich", "none": null, "deep": {"n": 7}});
        let params = json!({"name": "t", "arguments": arguments, "_meta": {"progressToken": 1}});
        let request = envelope.request(&json!(1), "tools/call", params);
        let header = |name: &str| request.headers.get(name).map(|v| v.to_str().unwrap());
        assert_eq!(header("mcp-method"), Some("tools/call"));
        assert_eq!(header("mcp-name"), Some("t"));
        assert_eq!(header("mcp-param-where"), Some("=?base64?WsO8cmljaA==?="));
        assert_eq!(header("mcp-param-n"), Some("7"));
        assert_eq!(header("mcp-param-none"), None);
        let meta = &request.body["params"]["_meta"];
        assert_eq!(meta[PROTOCOL_VERSION], MODERN);
        assert_eq!(meta[CLIENT_CAPABILITIES], json!({"sampling": {}}));
        assert_eq!(meta["progressToken"], 1);
        assert_eq!(meta.get(LOG_LEVEL), None);
    }

    #[test]
    fn what_could_not_be_read_back_is_coded() {
        for plain in ["", "a b", "~!"] {
            assert_eq!(encode(plain), plain);
        }
        for coded in [" a", "a\t", "a\nb", "é", "=?base64?x?="] {
            assert!(encode(coded).starts_with("=?base64?"), "{coded}");
        }
    }
}
