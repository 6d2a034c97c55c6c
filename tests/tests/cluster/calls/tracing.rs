//! What passes between two nodes, for who looks on.

use mgp_tests::harness::kernel::trace::{all_told, interrupted, tracing};
use mgp_tests::harness::{DEADLINE, wait_until};
use serde_json::json;

use crate::scene::{call, demo, join, node, operator, shows};

/// Decision 0071: a server of another node is followed at the node whose agent calls it, and that agent at the node
/// that has the server; a misspelt one names the nearest.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_between_nodes_is_followed_at_both() {
    let (nas, desk) = (node("nas", &demo()).await, node("desk", "").await);
    nas.connected(&["demo"]).await;
    join(&nas, &desk, &[]).await;
    nas.mgp_json(&["shares", "add", "demo", "--to", "cluster"])
        .await;
    shows(&desk, "nas__demo__echo").await;
    nas.mgp_json(&["grants", "add", "local@desk", "demo"]).await;
    wait_until("it may be called", DEADLINE, async || {
        call(&desk, "nas/demo:test_simple_text").await
    })
    .await;
    let mut of_server = tracing(&desk, &["nas/demo", "--json", "--full"]).await;
    let mut of_agent = tracing(&nas, &["--agent", "local@desk", "--json", "--full"]).await;
    let mut at_home = tracing(&nas, &["demo", "--json", "--full"]).await;
    let mut agent = operator(&desk).await;
    agent
        .call("nas__demo__test_error_handling", json!({}))
        .await;
    let said = json!({"text": "over the link"});
    agent.call("nas__demo__echo", said).await.result();
    for (trace, asks, answers) in [
        (&mut of_server, "kernel", "server"),
        (&mut of_agent, "agent", "kernel"),
        (&mut at_home, "kernel", "server"),
    ] {
        let answered = format!(r#""from":"{answers}","kind":"answer","method":"tools/call""#);
        let both = |said: &str| (said.matches(&answered).count() == 2).then_some(());
        trace.says("both answers", DEADLINE, both).await;
        assert!(trace.stdout().contains("over the link"));
        let out = trace.stdout();
        let told = all_told(&out);
        let of = |whose: &str| told.iter().filter(|line| line.starts_with(whose)).count();
        let (asked, heard) = (of(asks), of(answers));
        assert!(asked >= 2 && heard >= 2, "{told:#?}");
        assert!(
            told.iter().all(|line| line.contains("tools/call")),
            "{told:#?}"
        );
    }
    for trace in [of_server, of_agent, at_home] {
        interrupted(trace).await;
    }
    let wrong = desk.mgp(&["trace", "nas/deno"]).await;
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(said.contains("did you mean nas/demo?"), "{said}");
}
