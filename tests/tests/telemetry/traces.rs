//! Traces, across nodes and with nobody to take them.

use std::time::{Duration, Instant};

use http::HeaderName;
use mgp_tests::harness::kernel::nodes::{JoinedNodes, config};
use mgp_tests::harness::{HttpClient, Kernel, Need, Peers, Program, wait_until};
use serde_json::{Value, json};

use crate::collector::Collector;
use crate::scrape::{figure, figures};

const TRACE: &str = "550e8400e29b41d4a716446655440000";
const CALLERS: &str = "00f067aa0ba902b7";

fn call(id: u64, tool: &str, arguments: Value) -> String {
    let params = json!({"name": tool, "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

fn spans<'t>(told: &'t Value, node: &str) -> Vec<&'t Value> {
    let all = told["spans"].as_array().unwrap().iter();
    let of = all.filter(|span| span["trace"] == TRACE && span["node"] == node);
    of.collect()
}

fn named<'t>(spans: &[&'t Value], name: &str, kind: u64) -> &'t Value {
    let mut found = spans
        .iter()
        .filter(|span| span["name"] == name && span["kind"] == kind);
    found
        .next()
        .unwrap_or_else(|| panic!("{name} of kind {kind} is in {spans:#?}"))
}

/// Decision 0066: a call from one node to a server of another one is one trace: below the caller's span the one of the
/// first node, below its request that of the second, and the server is told of the last. Names are told, and nothing of
/// what was sent or answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_across_two_nodes_is_one_trace() {
    let Some(peers) = Peers::find(&[Need::Collector]) else {
        return;
    };
    let collector = Collector::start(&peers).await;
    let telemetry =
        collector.section("logs = true\nheaders = { Authorization = \"Bearer of-the-collector\" }");
    let entry = Program::fixture(&[]).entry("it");
    let nas =
        Kernel::with_config(&config("nas", "127.0.0.1:0", &(telemetry.clone() + &entry))).await;
    let desk = Kernel::with_config(&config("desk", "127.0.0.1:0", &telemetry)).await;
    let nodes = JoinedNodes::joined(nas, desk, &["it"]).await;
    let mut client = HttpClient::new(nodes.desk.url());
    client.open_session("2025-11-25", "{}").await;
    client.set(
        HeaderName::from_static("traceparent"),
        &format!("00-{TRACE}-{CALLERS}-01"),
    );
    client.set(HeaderName::from_static("tracestate"), "vendor=kept");
    let echo = client
        .post(call(1, "nas/it:echo", json!({"text": "a-secret"})))
        .await;
    assert!(echo.frames().await[0].contains("a-secret"));
    client.headers.remove("traceparent");
    let seen = client
        .post(call(2, "nas/it:received", json!({})))
        .await
        .frames()
        .await;

    let whole = |told: &Value| spans(told, "desk").len() >= 4 && spans(told, "nas").len() >= 4;
    let told = collector
        .is_told("both nodes have told their spans", whole)
        .await;
    let (desk, nas) = (spans(&told, "desk"), spans(&told, "nas"));
    let server_there = named(&desk, "tools/call echo", 2);
    assert_eq!(server_there["parent"], CALLERS);
    let asked_there = named(&desk, "tools/call echo", 3);
    assert_eq!(asked_there["parent"], server_there["id"]);
    let server_here = named(&nas, "tools/call echo", 2);
    assert_eq!(
        server_here["parent"], asked_there["id"],
        "the second node is below the first"
    );
    let asked_here = named(&nas, "tools/call echo", 3);
    assert_eq!(asked_here["parent"], server_here["id"]);
    for part in ["checks", "answer"] {
        assert_eq!(named(&nas, part, 1)["parent"], server_here["id"]);
    }
    let said = &server_here["attributes"];
    assert_eq!(said["mcp.method.name"], "tools/call");
    assert_eq!(said["gen_ai.tool.name"], "echo");
    assert_eq!(said["gen_ai.operation.name"], "execute_tool");
    assert_eq!(said["mgp.server.id"], "it");
    assert_eq!(asked_here["attributes"]["network.transport"], "pipe");
    assert_eq!(asked_there["attributes"]["network.transport"], "quic");
    assert!(
        nas.iter()
            .chain(&desk)
            .all(|span| span["state"] == "vendor=kept")
    );
    assert!(
        nas.iter()
            .all(|span| span["end"].as_u64() >= span["start"].as_u64())
    );
    // The server reads below which span it was asked.
    let below = format!("00-{TRACE}-{}-01", asked_here["id"].as_str().unwrap());
    assert!(seen[0].contains(&below), "{below}: {seen:?}");
    assert!(seen[0].contains("vendor=kept"), "{seen:?}");

    let counted = |told: &Value| {
        let points = told["metrics"]["mgp_calls"]["points"].as_array();
        points.is_some_and(|points| points.iter().any(|point| point["labels"]["tool"] == "echo"))
    };
    let told = collector.is_told("the figures are told", counted).await;
    assert_eq!(told["metrics"]["mgp_calls"]["kind"], "sum");
    assert_eq!(told["metrics"]["mgp_call_duration_seconds"]["unit"], "s");
    let bounds = &told["metrics"]["mgp_call_duration_seconds"]["points"][0]["value"];
    assert_eq!(bounds["buckets"].as_array().unwrap().len(), 15);
    assert_eq!(bounds["bounds"].as_array().unwrap().len(), 14);
    assert!(
        told["logs"]
            .as_array()
            .unwrap()
            .iter()
            .any(|line| line["body"] == "lifecycle")
    );
    let headers = told["headers"].as_array().unwrap();
    assert!(
        headers
            .iter()
            .all(|headers| headers["authorization"] == "Bearer of-the-collector")
    );
    let names: Value = told["spans"].clone();
    assert!(
        !names.to_string().contains("a-secret")
            && !told["logs"].to_string().contains("of-the-collector")
    );
}

/// Decision 0066: a caller that says that its trace is not sampled is followed, and without a word of a caller as many
/// are told as was said.
#[tokio::test]
async fn what_is_not_sampled_is_not_told() {
    let Some(peers) = Peers::find(&[Need::Collector]) else {
        return;
    };
    let collector = Collector::start(&peers).await;
    let telemetry = collector.section("sample_percent = 0\nmetrics = false");
    let entry = Program::fixture(&[]).entry("it");
    let kernel = Kernel::start(&(telemetry + &entry)).await;
    kernel.connected(&["it"]).await;
    let mut client = HttpClient::new(kernel.url());
    client.open_session("2025-11-25", "{}").await;
    for (id, header) in [(1, None), (2, Some("00")), (3, Some("01"))] {
        if let Some(flags) = header {
            let parent = format!("00-{TRACE}-{CALLERS}-{flags}");
            client.set(HeaderName::from_static("traceparent"), &parent);
        }
        let answer = client.post(call(id, "it:echo", json!({"text": "x"}))).await;
        assert!(answer.status.is_success());
    }
    let told = collector.is_told("the sampled one is told", |told| {
        let spans = told["spans"].as_array().unwrap().iter();
        spans.filter(|span| span["kind"] == 2).count() == 1
    });
    let told = told.await;
    assert!(
        told["spans"]
            .as_array()
            .unwrap()
            .iter()
            .all(|span| span["trace"] == TRACE)
    );
}

/// Decision 0066: with nobody to take them spans are dropped and counted, and no call waits; what comes when the
/// collector is back is told.
#[tokio::test]
async fn nobody_waits_for_a_collector_that_is_away() {
    let Some(peers) = Peers::find(&[Need::Collector]) else {
        return;
    };
    let collector = Collector::start(&peers).await;
    collector.answers(503).await;
    let telemetry = collector.section("queue = 4\nmetrics = false");
    let entry = Program::fixture(&[]).entry("it");
    let kernel = Kernel::with_config(&format!(
        "[http]\nlisten = \"127.0.0.1:0\"\n{telemetry}{entry}"
    ))
    .await;
    kernel.connected(&["it"]).await;
    let mut agent = kernel.stdio_agent(None);
    agent.initialize("2025-11-25", "{}").await.result();
    let mut slowest = Duration::ZERO;
    for _ in 0..100 {
        let began = Instant::now();
        agent.call("it:echo", json!({"text": "x"})).await.result();
        slowest = slowest.max(began.elapsed());
    }
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    let dropped = "mgp_telemetry_dropped_total{signal=\"traces\"}";
    let text = figures(&kernel).await;
    assert!(
        figure(&text, dropped).is_some_and(|dropped| dropped > 100.0),
        "{text}"
    );
    assert_eq!(
        figure(&text, "mgp_telemetry_told_total{signal=\"traces\"}"),
        Some(0.0)
    );
    collector.answers(200).await;
    wait_until(
        "spans are told again",
        mgp_tests::harness::DEADLINE,
        async || {
            agent.call("it:echo", json!({"text": "x"})).await.result();
            !collector.told().await["spans"]
                .as_array()
                .unwrap()
                .is_empty()
        },
    )
    .await;
}
