//! The kernel's log for programs.

use mgp_tests::harness::envelope::Envelope;
use mgp_tests::harness::{DEADLINE, HttpClient, Kernel, Need, Peers, Program, wait_until};
use serde_json::{Value, json};

use crate::collector::Collector;
use crate::scrape::{figure, figures};

/// Decision 0066: with `format = "json"` each line of the log is an object of its own, and no secret is in any.
#[tokio::test]
async fn each_line_of_the_log_is_an_object() {
    let entry = Program::fixture(&[]).env("KEY", "a-secret").entry("it");
    let away = "[[servers]]\nid = \"away\"\nurl = \"http://127.0.0.1:1/mcp\"\nheaders = { Authorization = \"Bearer a-secret\" }\n";
    let log = "[log]\nformat = \"json\"\nlevel = \"debug\"\n";
    let told = "[telemetry]\nendpoint = \"http://127.0.0.1:1\"\nheaders = { Authorization = \"Bearer a-secret\" }\n[tuning.telemetry]\ninterval_ms = 10\n";
    let mut kernel = Kernel::start(&format!("{log}{told}{entry}{away}")).await;
    kernel.connected(&["it"]).await;
    let mut agent = kernel.stdio_agent(None);
    agent.initialize("2025-11-25", "{}").await.result();
    let text = json!({"text": "a-secret"});
    agent.call("it:echo", text).await.result();
    wait_until("the collector is missed", DEADLINE, async || {
        kernel.process().stderr().contains("telemetry collector")
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

/// Decision 0066: a line that is written while a sampled request is handled says which one, on stderr and at the
/// collector. A call whose client goes away ends so in its span, and in that of what was asked for it, whether it had a
/// session or stands alone.
#[tokio::test]
async fn log_line_names_its_request() {
    let Some(peers) = Peers::find(&[Need::Collector]) else {
        return;
    };
    let collector = Collector::start(&peers).await;
    let telemetry = collector.section("logs = true\nmetrics = false");
    let entry = Program::fixture(&[]).entry("it");
    let dangerous = "[servers.tools.echo]\nrisk_level = \"dangerous\"\n";
    let log = "[log]\nformat = \"json\"\n";
    let mut kernel = Kernel::start(&format!("{log}{telemetry}{entry}{dangerous}")).await;
    kernel.connected(&["it"]).await;
    let mut agent = kernel.stdio_agent(None);
    agent.initialize("2025-11-25", "{}").await.result();
    for tool in ["it:hang", "it:echo"] {
        let params = json!({"name": tool, "arguments": {"text": "x"}});
        agent.start("tools/call", params).await;
    }
    let asks = |text: &Value| {
        let text = text.as_str().unwrap_or_default();
        text.starts_with("waits for the operator (")
    };
    let line = |stderr: &str| {
        let mut lines = stderr
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.find(|line| asks(&line["message"]))
    };
    wait_until("the operator is asked", DEADLINE, async || {
        line(&kernel.process().stderr()).is_some()
    })
    .await;
    let hang = json!({"name": "it__hang", "arguments": {}});
    let stateless = Envelope::new("{}").request(&json!(1), "tools/call", hang);
    let client = HttpClient::new(kernel.url());
    let asking = tokio::spawn(async move { client.put(&stateless).await });
    let in_flight = "mgp_server_calls_in_flight{server=\"it\"}";
    wait_until("both are asked", DEADLINE, async || {
        figure(&figures(&kernel).await, in_flight) == Some(2.0)
    })
    .await;
    asking.abort();
    drop(agent);

    let of = |told: &Value, name: &str, kind: u64| {
        let spans = told["spans"].as_array().unwrap().iter();
        let named = spans.filter(|span| span["name"] == name && span["kind"] == kind);
        named.cloned().collect::<Vec<_>>()
    };
    let cancelled = [
        ("tools/call echo", 2, 1),
        ("tools/call hang", 2, 2),
        ("tools/call hang", 3, 2),
    ];
    let told = collector
        .is_told("the calls have ended, and the line came", |told| {
            let mut lines = told["logs"].as_array().unwrap().iter();
            let ended = |(name, kind, many)| of(told, name, kind).len() == many;
            cancelled.into_iter().all(ended) && lines.any(|line| asks(&line["body"]))
        })
        .await;
    for (name, kind, _) in cancelled {
        for span in of(&told, name, kind) {
            assert_eq!(span["failed"], true, "{span}");
            assert_eq!(span["attributes"]["error.type"], "cancelled", "{span}");
        }
    }
    let span = &of(&told, "tools/call echo", 2)[0];
    let here = line(&kernel.process().stderr()).unwrap();
    assert_eq!(
        [&here["trace_id"], &here["span_id"]],
        [&span["trace"], &span["id"]]
    );
    let mut lines = told["logs"].as_array().unwrap().iter();
    let there = lines.find(|line| asks(&line["body"])).unwrap();
    assert_eq!(
        [&there["trace"], &there["span"]],
        [&span["trace"], &span["id"]]
    );
    let others = told["logs"].as_array().unwrap().iter();
    let mut lifecycle = others.filter(|line| line["body"] == "lifecycle");
    assert!(lifecycle.all(|line| line["trace"] == "" && line["span"] == ""));
}
