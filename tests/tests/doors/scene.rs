//! What most stories begin with: a kernel in front of scripted servers, and somebody at its door.

use http::{HeaderMap, StatusCode};
use mgp_tests::harness::envelope::Outgoing;
use mgp_tests::harness::{Agent, DEADLINE, Envelope, HttpClient, Kernel, Program, wait_until};
use serde_json::{Value, json};

/// The newest version that opens with `initialize`.
pub(crate) const NEWEST: &str = "2025-11-25";

/// Every version that does, oldest first.
pub(crate) const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", NEWEST];

/// A kernel in front of one scripted server, `it`, connected.
pub(crate) async fn kernel() -> Kernel {
    kernel_with("", &[]).await
}

/// The same with more sections in `mgp.toml` and more flags for the server.
pub(crate) async fn kernel_with(sections: &str, flags: &[&str]) -> Kernel {
    let entry = Program::fixture(flags).entry("it");
    let kernel = Kernel::start(&format!("{sections}\n{entry}")).await;
    kernel.connected(&["it"]).await;
    kernel
}

/// A kernel in front of two scripted servers, `one` and `two`, that offer the same.
pub(crate) async fn kernel_of_two() -> Kernel {
    let fixture = Program::fixture(&[]);
    let kernel = Kernel::start(&(fixture.entry("one") + &fixture.entry("two"))).await;
    kernel.connected(&["one", "two"]).await;
    kernel
}

/// An agent at the HTTP door that can do `capabilities` (JSON): at everything, or at one server.
pub(crate) async fn http_agent(kernel: &Kernel, server: Option<&str>, capabilities: &str) -> Agent {
    let mut agent = kernel.http_agent(server);
    agent.initialize(NEWEST, capabilities).await.result();
    agent
}

/// An agent at the owner's socket, whose frames come in one order. It sees everything.
pub(crate) async fn socket_agent(kernel: &Kernel, capabilities: &str) -> Agent {
    let mut agent = Agent::over_socket(&kernel.socket()).await;
    agent.initialize(NEWEST, capabilities).await.result();
    agent
}

/// A raw client that has opened a session at everything.
pub(crate) async fn session(kernel: &Kernel, version: &str) -> HttpClient {
    session_with(kernel, version, "{}").await
}

/// The same, of a client that can do `capabilities` (JSON).
pub(crate) async fn session_with(kernel: &Kernel, version: &str, capabilities: &str) -> HttpClient {
    let mut client = HttpClient::new(kernel.url());
    client.open_session(version, capabilities).await;
    client
}

/// A request as a frame.
pub(crate) fn request(id: impl Into<Value>, method: &str, params: Value) -> String {
    let id = id.into();
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

/// A `tools/call` as a frame.
pub(crate) fn call(id: impl Into<Value>, tool: &str, arguments: Value) -> String {
    request(
        id,
        "tools/call",
        json!({"name": tool, "arguments": arguments}),
    )
}

/// A header's text; empty when it is not there.
pub(crate) fn header<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    let value = headers.get(name);
    value.map_or("", |value| value.to_str().unwrap())
}

/// What the server tells of itself: how often each method and tool was called, and more.
pub(crate) async fn counts(agent: &mut Agent, tool: &str) -> Value {
    let counted = agent.call(tool, json!({})).await;
    counted.result()["structuredContent"].take()
}

/// The raw frames that reached the server, newest last, the asking one included.
pub(crate) async fn received(agent: &mut Agent, tool: &str) -> Vec<String> {
    let received = agent.call(tool, json!({})).await.result();
    let frames = received["structuredContent"]["frames"].clone();
    serde_json::from_value(frames).unwrap()
}

/// A client of 2026-07-28 with nothing between the test and the wire.
pub(crate) struct Modern {
    /// What it sends with.
    pub(crate) client: HttpClient,
    /// What it puts around each request.
    pub(crate) envelope: Envelope,
}

impl Modern {
    /// At an endpoint, of a client that can do `capabilities` (JSON).
    pub(crate) fn at(url: &str, capabilities: &str) -> Self {
        Self {
            client: HttpClient::new(url),
            envelope: Envelope::new(capabilities),
        }
    }

    /// A request, to be spoiled.
    pub(crate) fn request(&self, id: impl Into<Value>, method: &str, params: Value) -> Outgoing {
        self.envelope.request(&id.into(), method, params)
    }

    /// A call of a tool, to be spoiled.
    pub(crate) fn call(&self, id: impl Into<Value>, tool: &str, arguments: Value) -> Outgoing {
        let params = json!({"name": tool, "arguments": arguments});
        self.request(id, "tools/call", params)
    }

    /// Sends it as it is; gives the status and the one message of the answer.
    pub(crate) async fn put(&self, request: &Outgoing) -> (StatusCode, Value) {
        let answer = self.client.put(request).await;
        let status = answer.status;
        let frames = answer.frames().await;
        let last = frames.last().map_or("null", String::as_str);
        (status, serde_json::from_str(last).unwrap())
    }

    /// Makes a request that is well-formed.
    pub(crate) async fn ask(&self, method: &str, params: Value) -> (StatusCode, Value) {
        self.put(&self.request("an id", method, params)).await
    }
}

/// Waits until the server has had `count` calls of `tool`.
pub(crate) async fn reached(watcher: &mut Agent, tool: &str, count: u64) {
    let there = async || counts(watcher, "it:count").await["calls"][tool] == count;
    wait_until(&format!("{tool} was called {count} times"), DEADLINE, there).await;
}

/// Waits until the server has seen `count` calls of `tool` taken back.
pub(crate) async fn taken_back(watcher: &mut Agent, tool: &str, count: u64) {
    let there = async || counts(watcher, "it:count").await["cancelled"][tool] == count;
    let what = format!("{tool} was taken back {count} times");
    wait_until(&what, DEADLINE, there).await;
}
