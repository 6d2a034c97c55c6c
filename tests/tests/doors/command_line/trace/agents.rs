//! What an agent says and hears, at every door.

use http::header::ACCEPT;
use mgp_tests::harness::{Agent, HttpClient, Kernel, ModernAgent, Program};
use serde_json::{Value, json};

use super::{interrupted, shows, stdio_agent, told, tracing};
use crate::scene;

/// What is shown of the agent, as [`told`] says it.
const WANTED: [&str; 12] = [
    "agent request initialize -",
    "kernel answer initialize -",
    "agent notification notifications/initialized -",
    "agent request tools/call it:test_elicitation",
    "kernel request elicitation/create -",
    "agent answer elicitation/create -",
    "kernel notification notifications/progress -",
    "kernel answer tools/call it:test_elicitation",
    "agent request ping -",
    "kernel answer ping -",
    "kernel error no/such -",
    "kernel answer tools/call it:echo",
];

/// Decision 0068: an agent is followed at all doors and in all eras: what it asks and is answered, what it is told
/// and asked. What another agent says is not shown.
#[tokio::test]
async fn trace_follows_an_agent_at_every_endpoint() {
    let entry = Program::fixture(&[]).entry("it");
    let kernel = Kernel::start(&format!("[lite]\nenabled = true\n{entry}")).await;
    kernel.connected(&["it"]).await;
    kernel.mgp_json(&["agents", "add", "other"]).await;
    let mut trace = tracing(&kernel, &["--agent", "anonymous", "--json", "--full"]).await;
    let mut of_lines = tracing(&kernel, &["--agent", "local", "--full"]).await;

    // Sessions over HTTP: a question, progress and news on the way.
    let mut session = scene::http_agent(&kernel, None, r#"{"elicitation":{}}"#).await;
    let content = json!({"username": "ada", "email": "a@b"});
    session.answers(
        "elicitation/create",
        json!({"action": "accept", "content": content}),
    );
    let asking = json!({"message": "who?"});
    session.call("it:test_elicitation", asking).await.result();
    let params =
        json!({"name": "it:progress", "arguments": {"steps": 2}, "_meta": {"progressToken": "p"}});
    session.request("tools/call", params).await.result();
    session.request("ping", json!({})).await.result();
    session.request("no/such", json!({})).await.error();
    // Stateless requests: the question goes with the answer.
    let mut modern = ModernAgent::over_http(kernel.url(), r#"{"elicitation":{}}"#);
    let content = json!({"username": "bob", "email": "b@b"});
    modern.answers(
        "elicitation/create",
        json!({"action": "accept", "content": content}),
    );
    let asking = json!({"message": "and you?"});
    modern.call("it:test_elicitation", asking).await.result();
    // Lines, and another agent.
    let mut lines = stdio_agent(&kernel).await;
    lines
        .call("it:echo", json!({"text": "over lines"}))
        .await
        .result();
    // One POST of MCP-lite.
    let door = kernel.url().replace("/mcp", "/mcp-lite/v1/calltools");
    let call = json!({"jsonrpc": "2.0", "id": "c", "method": "tools/call",
        "params": {"name": "it:echo", "arguments": {"text": "over lite"}}});
    let mut lite = HttpClient::new(&door);
    lite.headers.remove(ACCEPT);
    let answer = lite.post(call.to_string()).await;
    assert!(answer.text().await.contains("over lite"));
    // Somebody else, and the operator, who are not it.
    let other = kernel.program(&["stdio", "--agent", "other"]);
    let mut other = Agent::over_stdio(&other);
    other.initialize(scene::NEWEST, "{}").await.result();
    other.request("tools/list", json!({})).await.result();
    let mut operator = scene::socket_agent(&kernel, "{}").await;
    let secret = json!({"text": "of the operator"});
    operator.call("it:echo", secret).await.result();
    let last = json!({"text": "the last"});
    lines.call("it:echo", last.clone()).await.result();
    session.call("it:echo", last).await.result();
    shows(&mut of_lines, "the last").await;
    let of_lines = interrupted(of_lines).await;
    assert!(
        of_lines.contains("over lines") && of_lines.contains("initialize"),
        "{of_lines}"
    );
    assert!(
        !of_lines.contains("ada") && !of_lines.contains("of the operator"),
        "{of_lines}"
    );
    shows(&mut trace, "the last").await;
    let out = interrupted(trace).await;

    let messages: Vec<Value> = out
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let said: Vec<String> = messages.iter().map(told).collect();
    for wanted in WANTED {
        assert!(
            said.iter().any(|line| line == wanted),
            "{wanted}: {said:#?}"
        );
    }
    let texts = |text: &str| {
        messages
            .iter()
            .filter(|m| m.to_string().contains(text))
            .count()
    };
    assert!(texts("input_required") == 1, "{out}");
    for told in ["ada", "bob", "over lite"] {
        assert!(texts(told) > 0, "{told}: {out}");
    }
    assert_eq!(texts("of the operator") + texts("over lines"), 0, "{out}");
    let connections = messages.iter().map(|m| m["connection"].as_u64().unwrap());
    assert!(
        connections.max().unwrap() < 1 << 53,
        "every reader has them exactly"
    );
    let lists = said.iter().filter(|line| line.contains("tools/list"));
    assert_eq!(lists.count(), 0, "another agent is not shown: {said:#?}");
}
