//! Kernels that join each other.

use mgp_tests::harness::kernel::nodes::config;
use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, wait_until};
use serde_json::{Value, json};

/// The newest version with sessions.
pub(crate) const NEWEST: &str = "2025-11-25";

/// A kernel that is to be called so, on the loopback.
pub(crate) async fn node(name: &str, servers: &str) -> Kernel {
    Kernel::with_config(&config(name, "127.0.0.1:0", servers)).await
}

/// A server with a tool `echo`.
pub(crate) fn demo() -> String {
    Program::fixture(&[]).entry("demo")
}

/// A ticket of this node.
pub(crate) async fn ticket(host: &Kernel, more: &[&str]) -> String {
    let invited = host.mgp_json(&[&["nodes", "invite"], more].concat()).await;
    invited["ticket"].as_str().unwrap().to_owned()
}

/// A node joins by a ticket, and a person lets it in who compares the words.
pub(crate) async fn join(host: &Kernel, guest: &Kernel, more: &[&str]) {
    let ticket = ticket(host, more).await;
    let joining = guest.program(&["nodes", "join", &ticket, "--json"]);
    let approving = async {
        let waiting = waiting(host).await;
        let shown = shown_words(guest).await;
        assert_eq!(shown["words"], waiting["words"], "{shown:#} {waiting:#}");
        let words = waiting["words"].as_str().unwrap();
        host.mgp_json(&["approve", words]).await
    };
    let (joined, approved) = tokio::join!(joining.output(DEADLINE), approving);
    assert_eq!(approved["verdict"], "approved");
    let told = String::from_utf8_lossy(&joined.stderr).into_owned();
    assert!(joined.status.success(), "{told}");
    linked(host, guest).await;
}

/// How far a node's join is, once it shows the words.
pub(crate) async fn shown_words(guest: &Kernel) -> Value {
    let (mut operator, mut shown) = (operator(guest).await, Value::Null);
    wait_until(
        "the node that joins shows its words",
        DEADLINE,
        async || {
            shown = admission(&mut operator).await;
            !shown["words"].is_null()
        },
    )
    .await;
    shown
}

/// The node that waits to be let in.
pub(crate) async fn waiting(host: &Kernel) -> Value {
    let mut waiting = Value::Null;
    wait_until("a node waits to be let in", DEADLINE, async || {
        let status = host.mgp_json(&["cluster", "status"]).await;
        waiting = status["waiting"][0].clone();
        !waiting.is_null()
    })
    .await;
    waiting
}

/// Waits until both see each other as linked.
pub(crate) async fn linked(one: &Kernel, other: &Kernel) {
    for kernel in [one, other] {
        wait_until("the nodes are linked", DEADLINE, async || {
            let status = kernel.mgp_json(&["cluster", "status"]).await;
            let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
            nodes.len() > 1 && nodes.iter().all(|node| node["standing"] != "away")
        })
        .await;
    }
}

/// How the first node sees the second one.
pub(crate) async fn standing(of: &Kernel, name: &str) -> Value {
    let status = of.mgp_json(&["cluster", "status"]).await;
    let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
    let node = nodes.into_iter().find(|node| node["name"] == name);
    node.map_or(Value::Null, |node| node["standing"].clone())
}

/// Calls a tool of another node, as the operator; true when it answers.
pub(crate) async fn call(kernel: &Kernel, tool: &str) -> bool {
    kernel
        .mgp(&["tools", "call", tool, "{}"])
        .await
        .status
        .success()
}

/// Waits until this kernel shows the tool.
pub(crate) async fn shows(kernel: &Kernel, tool: &str) {
    wait_until(&format!("{tool} is shown"), DEADLINE, async || {
        tools(kernel).await.iter().any(|shown| shown == tool)
    })
    .await;
}

/// Waits until it does not.
pub(crate) async fn shows_no_more(kernel: &Kernel, tool: &str) {
    wait_until(&format!("{tool} is gone"), DEADLINE, async || {
        tools(kernel).await.iter().all(|shown| shown != tool)
    })
    .await;
}

/// What an agent of this kernel is shown.
pub(crate) async fn tools(kernel: &Kernel) -> Vec<String> {
    let mut agent = operator(kernel).await;
    let listed = agent.request("tools/list", json!({})).await.result();
    let tools = listed["tools"].as_array().cloned().unwrap_or_default();
    let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
    tools.iter().map(name).collect()
}

/// The operator of a kernel, at its socket.
pub(crate) async fn operator(kernel: &Kernel) -> Agent {
    let mut agent = Agent::over_socket(&kernel.socket()).await;
    agent.initialize(NEWEST, "{}").await.result();
    agent
}

/// How far this kernel's own joining is.
pub(crate) async fn admission(operator: &mut Agent) -> Value {
    let asked = operator.request("mgp/kernel/nodes/admission", json!({}));
    asked.await.result()
}
