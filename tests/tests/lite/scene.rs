//! A kernel with servers behind it, and a lite caller at its HTTP door.

use std::path::Path;

use http::header::{ACCEPT, AUTHORIZATION, HeaderName};
use http::{HeaderMap, StatusCode};
use mgp_tests::harness::http::events::{Event, Events};
use mgp_tests::harness::{HttpClient, Kernel, Program};
use serde_json::{Value, json};

/// Where the HTTP binding begins.
pub(crate) const BASE: &str = "/mcp-lite/v1";
/// A door that asks who comes in.
pub(crate) const TOKENS: &str = "[http]\nlisten = \"127.0.0.1:0\"\n";
/// The header by which a caller says how long it waits.
pub(crate) const PREFER: HeaderName = HeaderName::from_static("prefer");

/// A kernel in front of one scripted server, `it`, with these sections and flags.
pub(crate) async fn kernel(sections: &str, flags: &[&str]) -> Kernel {
    let entry = Program::fixture(flags).entry("it");
    let kernel = Kernel::start(&format!("{sections}\n{entry}")).await;
    kernel.connected(&["it"]).await;
    kernel
}

/// The same with a door that asks for tokens.
pub(crate) async fn guarded(sections: &str, flags: &[&str]) -> Kernel {
    let entry = Program::fixture(flags).entry("it");
    let kernel = Kernel::with_config(&format!("{TOKENS}{sections}\n{entry}")).await;
    kernel.connected(&["it"]).await;
    kernel
}

/// The token of a new agent.
pub(crate) async fn token(kernel: &Kernel, agent: &str) -> String {
    let added = kernel.mgp(&["agents", "add", agent]).await;
    assert!(added.status.success(), "{added:?}");
    String::from_utf8(added.stdout).unwrap().trim().to_owned()
}

/// The URL of a path of this kernel.
pub(crate) fn url(kernel: &Kernel, path: &str) -> String {
    let door = kernel.url().strip_suffix("/mcp").unwrap();
    format!("{door}{path}")
}

/// A lite caller at the endpoint for calls, with nothing between the test and the wire.
#[derive(Clone)]
pub(crate) struct LiteClient {
    /// What it sends with.
    pub(crate) http: HttpClient,
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Said {
    /// The result of a call.
    pub(crate) fn result(&self) -> &Value {
        let result = &self.body["result"];
        assert!(result.is_object(), "{self:?}");
        result
    }

    /// What kind of an answer it is.
    pub(crate) fn kind(&self) -> &str {
        let kind = self.result()["_meta"]["response_type"].as_str();
        kind.unwrap_or_else(|| panic!("no kind: {self:?}"))
    }

    /// What MCP-lite says of it.
    pub(crate) fn meta(&self) -> &Value {
        &self.result()["_meta"]
    }

    /// The first text of a result.
    pub(crate) fn text(&self) -> &str {
        let text = self.result()["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("no text: {self:?}"))
    }

    /// The error of a call.
    pub(crate) fn error(&self) -> &Value {
        let error = &self.body["error"];
        assert!(error.is_object(), "{self:?}");
        error
    }

    /// Its token, where it is a promise.
    pub(crate) fn promise(&self) -> String {
        assert_eq!(self.kind(), "promise", "{self:?}");
        self.meta()["promise_token"].as_str().unwrap().to_owned()
    }
}

impl LiteClient {
    /// At the endpoint for calls.
    pub(crate) fn new(kernel: &Kernel) -> Self {
        Self::at(kernel, &format!("{BASE}/calltools"))
    }

    /// At another path.
    pub(crate) fn at(kernel: &Kernel, path: &str) -> Self {
        let mut http = HttpClient::new(&url(kernel, path));
        http.headers.remove(ACCEPT);
        Self { http }
    }

    /// The same, as the agent with this token.
    pub(crate) fn with_token(mut self, token: &str) -> Self {
        self.http.set(AUTHORIZATION, &format!("Bearer {token}"));
        self
    }

    /// The same, with what it prefers.
    pub(crate) fn prefers(&self, preference: &str) -> Self {
        let mut this = self.clone();
        this.http.set(PREFER, preference);
        this
    }

    /// Sends a body as it is.
    pub(crate) async fn post(&self, body: impl Into<bytes::Bytes>) -> Said {
        let answer = self.http.post(body).await;
        let (status, headers) = (answer.status, answer.headers.clone());
        let text = answer.text().await;
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Said {
            status,
            headers,
            body,
        }
    }

    /// Calls a tool.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Said {
        self.call_with(tool, arguments, json!({})).await
    }

    /// Calls a tool with this `_meta`.
    pub(crate) async fn call_with(&self, tool: &str, arguments: Value, meta: Value) -> Said {
        self.post(body(tool, arguments, meta)).await
    }

    /// Redeems a promise.
    pub(crate) async fn redeem(&self, promise: &str) -> Said {
        self.call("redeem", json!({"promise": promise})).await
    }

    /// Calls a tool, and reads what comes as events.
    pub(crate) async fn events(&self, tool: &str, arguments: Value) -> Events {
        let mut this = self.clone();
        this.http.set(ACCEPT, "text/event-stream");
        let answer = this.http.post(body(tool, arguments, json!({}))).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert!(answer.is_stream(), "{:?}", answer.headers);
        answer.events()
    }
}

/// A call as a body.
pub(crate) fn body(tool: &str, arguments: Value, meta: Value) -> String {
    let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
    json!({"jsonrpc": "2.0", "id": "call-001", "method": "tools/call", "params": params})
        .to_string()
}

/// All events up to the end.
pub(crate) async fn all(mut events: Events) -> Vec<Event> {
    let mut all = Vec::new();
    while let Some(event) = events.next().await {
        all.push(event);
    }
    all
}

/// The name and the data of an event.
pub(crate) fn read(event: &Event) -> (&str, Value) {
    let name = event.event.as_deref().unwrap_or_default();
    (name, serde_json::from_str(&event.data).unwrap())
}

/// A certificate of this machine, in the folder: its file, and the section by which a kernel shows it.
pub(crate) fn certified(folder: &Path) -> (String, String) {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let at = |name: &str| folder.join(name).display().to_string();
    let (certificate, key) = (at("cert.pem"), at("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let section = format!("[http.tls]\ncert = {certificate:?}\nkey = {key:?}\n");
    (certificate, section)
}
