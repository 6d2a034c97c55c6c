//! The kernel's log for programs.

use mgp_tests::harness::{DEADLINE, Kernel, Program, wait_until};
use serde_json::{Value, json};

/// Decision 0066: with `format = "json"` each line of the log is an object of its own, and no secret is in any.
#[tokio::test]
async fn each_line_of_the_log_is_an_object() {
    let entry = Program::fixture(&[]).env("KEY", "a-secret").entry("it");
    let away = "[[servers]]\nid = \"away\"\nurl = \"http://127.0.0.1:1/mcp\"\nheaders = { Authorization = \"Bearer a-secret\" }\n";
    let log = "[log]\nformat = \"json\"\nlevel = \"debug\"\n";
    let told = "[telemetry]\nendpoint = \"http://127.0.0.1:1\"\ninterval_ms = 10\nheaders = { Authorization = \"Bearer a-secret\" }\n";
    let mut kernel = Kernel::start(&format!("{log}{told}{entry}{away}")).await;
    kernel.connected(&["it"]).await;
    let mut agent = kernel.stdio_agent(None);
    agent.initialize("2025-11-25", "{}").await.result();
    let text = json!({"text": "a-secret"});
    agent.call("it:echo", text).await.result();
    wait_until("the collector is missed", DEADLINE, async || {
        kernel.process().stderr().contains("collector of telemetry")
    })
    .await;
    let said = kernel.process().stderr();
    assert!(!said.contains("a-secret"), "{said}");
    let (lines, words): (Vec<_>, Vec<_>) = said
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).map_err(|_| line))
        .partition(Result::is_ok);
    // What is said to a person is no line of the log.
    let words: Vec<&str> = words.into_iter().filter_map(Result::err).collect();
    assert!(
        words
            .iter()
            .all(|line| line.starts_with("the kernel is up")),
        "{words:?}"
    );
    let lines: Vec<Value> = lines.into_iter().flatten().collect();
    let steps = lines.iter().filter(|line| line["message"] == "lifecycle");
    let states: Vec<&Value> = steps.map(|line| &line["fields"]["to"]).collect();
    assert!(states.iter().any(|state| **state == "connected"), "{said}");
    assert!(
        lines
            .iter()
            .all(|line| line["level"].is_string() && line["timestamp"].is_string())
    );
}
