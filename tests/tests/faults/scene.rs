//! What most stories begin with: a kernel in front of scripted servers, and the owner at its socket.

use std::time::Duration;

use mgp_tests::harness::{Agent, Answer, DEADLINE, Kernel, Program, wait_until};
use serde_json::{Value, json};

/// The newest version that opens with `initialize`.
pub(crate) const NEWEST: &str = "2025-11-25";

/// Far less than any time limit of the kernel, far more than a call takes on a busy machine: who is
/// answered within this did not wait for a server that hangs.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(20);

/// A scripted server as an entry of `mgp.toml`, with flags for it and more keys for the entry.
pub(crate) fn server(id: &str, flags: &[&str], keys: &str) -> String {
    entry(id, &Program::fixture(flags), keys)
}

/// A program as an entry of `mgp.toml`, with more keys.
pub(crate) fn entry(id: &str, program: &Program, keys: &str) -> String {
    format!(
        "{}{keys}\n",
        program.entry(id).trim_end_matches('\n').to_owned() + "\n"
    )
}

/// The owner at the socket: an agent that sees everything and may ask about the servers.
pub(crate) async fn owner(kernel: &Kernel) -> Agent {
    let mut agent = Agent::over_socket(&kernel.socket()).await;
    agent.initialize(NEWEST, "{}").await.result();
    agent
}

/// Sends a call of a tool without waiting; gives its id.
pub(crate) async fn begin(agent: &mut Agent, name: &str, arguments: Value) -> Value {
    let params = json!({"name": name, "arguments": arguments});
    agent.start("tools/call", params).await
}

/// Calls `echo` of a server and sees that it answers.
pub(crate) async fn echoes(agent: &mut Agent, server: &str) {
    let answer = agent
        .call(&format!("{server}__echo"), json!({"text": "hi"}))
        .await;
    assert_eq!(answer.text(), "hi");
}

/// What a tool of the scripted server answered as structured content.
pub(crate) fn told(answer: &Answer) -> Value {
    answer.result()["structuredContent"].clone()
}

/// Waits until the server has seen so many calls of a tool cancelled.
pub(crate) async fn cancelled(agent: &mut Agent, id: &str, tool: &str, calls: u64) {
    let count = format!("{id}__count");
    let what = format!("{id} has seen {calls} calls of {tool} cancelled");
    wait_until(&what, DEADLINE, async || {
        told(&agent.call(&count, json!({})).await)["cancelled"][tool] == calls
    })
    .await;
}

/// A server as the owner is shown it.
pub(crate) async fn shown(owner: &mut Agent, id: &str) -> Value {
    let listed = owner.request("mgp/servers/list", json!({})).await.result();
    let servers = listed["servers"].as_array().unwrap().clone();
    let found = servers.into_iter().find(|server| server["id"] == id);
    found.unwrap_or(Value::Null)
}

/// Waits until a server is shown as `condition` wants it.
pub(crate) async fn until(
    owner: &mut Agent,
    id: &str,
    what: &str,
    condition: impl Fn(&Value) -> bool,
) -> Value {
    let mut server = Value::Null;
    let what = format!("{id} {what}");
    wait_until(&what, DEADLINE, async || {
        server = shown(owner, id).await;
        condition(&server)
    })
    .await;
    server
}

/// Waits until a server is in a state.
pub(crate) async fn in_state(owner: &mut Agent, id: &str, state: &str) -> Value {
    until(owner, id, &format!("is {state}"), |server| {
        server["state"] == state
    })
    .await
}

/// Waits until so many calls are under way at a server.
pub(crate) async fn in_flight(owner: &mut Agent, id: &str, calls: u64) {
    let what = format!("has {calls} calls under way");
    until(owner, id, &what, |server| server["in_flight"] == calls).await;
}

/// What `mgp servers list --json` prints of a server.
pub(crate) async fn listed(kernel: &Kernel, id: &str) -> Value {
    let listed = kernel.mgp_json(&["servers", "list"]).await;
    let servers = listed["servers"].as_array().unwrap().clone();
    let found = servers.into_iter().find(|server| server["id"] == id);
    found.unwrap_or_else(|| panic!("{id} is listed: {listed:#}"))
}
