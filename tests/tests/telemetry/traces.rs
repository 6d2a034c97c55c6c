//! Traces, across nodes.

use http::HeaderName;
use mgp_tests::harness::kernel::nodes::{JoinedNodes, config};
use mgp_tests::harness::{DEADLINE, HttpClient, Kernel, Need, Peers, Program};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::collector::Collector;

/// A trace that its caller does not sample.
const UNTOLD: &str = "0af7651916cd43dd8448eb211c80319c";
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

/// Decisions 0066 and 0070: a call from one node to a server of another one is one trace, though one tells over HTTP and
/// the other one over gRPC: below the caller's span the one of the first node, below its request that of the second, and
/// the server is told of the last. Names are told, and nothing of what was sent or answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_across_two_nodes_is_one_trace() {
    let Some(peers) = Peers::find(&[Need::Collector]) else {
        return;
    };
    let collector = Collector::start(&peers).await;
    let keys = "logs = true\nheaders = { Authorization = \"Bearer of-the-collector\" }";
    let entry = Program::fixture(&[]).entry("it");
    let far = collector.grpc_section(keys) + &entry;
    let nas = Kernel::with_config(&config("nas", "127.0.0.1:0", &far)).await;
    let near = collector.section(keys);
    let desk = Kernel::with_config(&config("desk", "127.0.0.1:0", &near)).await;
    let nodes = JoinedNodes::joined(nas, desk, &["it"]).await;
    let mut client = HttpClient::new(nodes.desk.url());
    client.open_session("2025-11-25", "{}").await;
    let parent = HeaderName::from_static("traceparent");
    let unsampled = format!("00-{UNTOLD}-{CALLERS}-00");
    client.set(parent.clone(), &unsampled);
    let untold = client
        .post(call(9, "nas/it:echo", json!({"text": "x"})))
        .await;
    assert!(untold.frames().await[0].contains("result"));
    client.set(parent, &format!("00-{TRACE}-{CALLERS}-01"));
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
    conventions(server_here, asked_here, asked_there);
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
    // What its caller did not sample no node told, and the server was told that, too.
    assert!(seen[0].contains(&unsampled), "{unsampled}: {seen:?}");
    assert!(!told["spans"].to_string().contains(UNTOLD), "{told:#}");

    let counted = |told: &Value| {
        let points = told["metrics"]["mgp_calls"]["points"].as_array();
        points.is_some_and(|points| points.iter().any(|point| point["labels"]["tool"] == "echo"))
    };
    let told = collector.is_told("the figures are told", counted).await;
    figures_and_lines(&told);
    let services = ["TraceService", "MetricsService", "LogsService"];
    let by_grpc = |told: &Value| {
        let posts = told["posts"].as_array().unwrap();
        let taken = |service| posts.iter().any(|post| post["path"] == service);
        services.into_iter().all(taken)
    };
    let all = "traces, figures and lines came over gRPC";
    collector.is_told(all, by_grpc).await;
}

/// The names of OpenTelemetry's conventions for MCP and GenAI.
fn conventions(server_here: &Value, asked_here: &Value, asked_there: &Value) {
    let said = &server_here["attributes"];
    assert_eq!(said["mcp.method.name"], "tools/call");
    assert_eq!(said["gen_ai.tool.name"], "echo");
    assert_eq!(said["gen_ai.operation.name"], "execute_tool");
    assert_eq!(said["mgp.server.id"], "it");
    assert_eq!(asked_here["attributes"]["network.transport"], "pipe");
    assert_eq!(asked_there["attributes"]["network.transport"], "quic");
}

/// What is told beside spans, and that no secret is in any of it.
fn figures_and_lines(told: &Value) {
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
    let plain = &told["metrics"]["mgp_calls"]["unit"];
    assert_eq!(plain, "", "a unit of 1 becomes a ratio");
}

/// Decision 0066: a caller that says that its trace is not sampled is followed, and without a word of a caller as many
/// are told as was said.
#[tokio::test]
async fn unsampled_trace_is_not_exported() {
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
    let unknown = client.post(call(4, "it:no-such-secret", json!({}))).await;
    assert!(unknown.status.is_success());
    let of_requests = |told: &Value| {
        let spans = told["spans"].as_array().unwrap().iter();
        spans.filter(|span| span["kind"] == 2).count()
    };
    let told = collector
        .is_told("the sampled ones are told", |told| of_requests(told) == 2)
        .await;
    let all = told["spans"].as_array().unwrap();
    assert!(all.iter().all(|span| span["trace"] == TRACE));
    // A name that is none is the caller's own text.
    let failed: Vec<&Value> = all.iter().filter(|span| span["failed"] == true).collect();
    assert_eq!(failed.len(), 1, "{told:#}");
    assert_eq!(failed[0]["name"], "tools/call");
    assert_eq!(failed[0]["attributes"]["error.type"], "unknown");
    assert_eq!(
        failed[0]["attributes"]["rpc.response.status_code"],
        "-32602"
    );
    assert!(!told.to_string().contains("no-such-secret"), "{told:#}");
}

/// Decision 0066: what waits is told when the kernel ends, and who is told what it is.
#[tokio::test]
async fn buffered_spans_are_exported_at_shutdown() {
    let Some(peers) = Peers::find(&[Need::Collector]) else {
        return;
    };
    let collector = Collector::start(&peers).await;
    let keys = "logs = true\nservice = \"of-the-test\"\n[tuning.telemetry]\ninterval_ms = 60000\nmetrics_interval_secs = 3600";
    let entry = Program::fixture(&[]).entry("it");
    let kernel = Kernel::start(&(collector.named(keys) + &entry)).await;
    kernel.connected(&["it"]).await;
    let mut agent = kernel.stdio_agent(None);
    agent.initialize("2025-11-25", "{}").await.result();
    agent.call("it:echo", json!({"text": "x"})).await.result();
    assert_eq!(collector.told().await["posts"], json!([]), "it still waits");
    drop(agent);
    drop(kernel.end(Signal::SIGTERM, DEADLINE).await);
    let told = collector.told().await;
    let named = |span: &Value| span["name"] == "tools/call echo";
    assert!(
        told["spans"].as_array().unwrap().iter().any(named),
        "{told:#}"
    );
    assert!(!told["logs"].as_array().unwrap().is_empty());
    assert_eq!(told["metrics"]["mgp_calls"]["kind"], "sum");
    let resource = &told["resources"][0];
    assert_eq!(resource["service.name"], "of-the-test", "{resource}");
    assert_eq!(resource["telemetry.sdk.language"], "rust");
    let instance = resource["service.instance.id"].as_str().unwrap();
    assert_eq!(
        instance.split('-').map(str::len).collect::<Vec<_>>(),
        [8, 4, 4, 4, 12]
    );
}
