//! A kernel in front of a server with tools of a test's own making, which answer their arguments.

use mgp_tests::harness::{Agent, Kernel, Program};
use serde_json::{Value, json};

/// The newest version that opens with `initialize`.
pub(crate) const NEWEST: &str = "2025-11-25";

/// The server is `it`; `more` follows its entry, and may be tables of it or sections of the kernel.
pub(crate) async fn kernel(tools: &[Value], more: &str) -> Kernel {
    let flags: Vec<String> = tools.iter().map(|tool| format!("--tool={tool}")).collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let entry = Program::fixture(&flags).entry("it");
    let kernel = Kernel::start(&format!("{entry}{more}")).await;
    kernel.connected(&["it"]).await;
    kernel
}

/// A tool with this `security`, and any arguments.
pub(crate) fn tool(name: &str, security: Value) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}, "security": security})
}

/// An agent at the server's own door.
pub(crate) async fn agent(kernel: &Kernel) -> Agent {
    agent_of(kernel, NEWEST, "{}").await
}

pub(crate) async fn agent_of(kernel: &Kernel, version: &str, capabilities: &str) -> Agent {
    let mut agent = kernel.http_agent(Some("it"));
    agent.initialize(version, capabilities).await.result();
    agent
}

/// The operator, at the owner's socket: everything is open to it.
pub(crate) async fn operator(kernel: &Kernel) -> Agent {
    let mut agent = Agent::over_socket(&kernel.socket()).await;
    agent.initialize(NEWEST, "{}").await.result();
    agent
}

/// How many calls of a tool have reached the server.
pub(crate) async fn reached(agent: &mut Agent, tool: &str) -> usize {
    let seen = agent.call("received", json!({})).await.result();
    let frames = seen["structuredContent"]["frames"].as_array();
    let call = |frame: &&Value| {
        let frame: Value = serde_json::from_str(frame.as_str().unwrap_or("")).unwrap_or_default();
        frame["method"] == "tools/call" && frame["params"]["name"] == tool
    };
    frames.into_iter().flatten().filter(call).count()
}
