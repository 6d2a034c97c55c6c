//! Collectors that are away, slow, full, or take a part.

use std::collections::HashMap;

use mgp_tests::harness::{Agent, DEADLINE, Kernel, Need, Peers, Program, wait_until};
use serde_json::{Value, json};

use crate::collector::Collector;
use crate::scrape::{figure, figures};

/// A kernel that tells as these keys say, and an agent that calls at it.
async fn telling(telemetry: &str) -> (Kernel, Agent) {
    let entry = Program::fixture(&[]).entry("it");
    let door = "[http]\nlisten = \"127.0.0.1:0\"\n";
    let kernel = Kernel::with_config(&format!("{door}{telemetry}{entry}")).await;
    kernel.connected(&["it"]).await;
    let mut agent = kernel.stdio_agent(None);
    agent.initialize("2025-11-25", "{}").await.result();
    (kernel, agent)
}

/// Decision 0066: while a collector takes its time spans are dropped and counted, and no call waits: all are answered
/// before it answers once. What comes afterwards is told.
#[tokio::test]
async fn slow_collector_delays_no_call() {
    let Some(peers) = Peers::find(&[Need::Collector]) else {
        return;
    };
    let collector = Collector::start(&peers).await;
    collector.answers(json!({"hold": true})).await;
    let telemetry = collector.section("queue = 4\nmetrics = false\ntimeout_ms = 60000");
    let (kernel, mut agent) = telling(&telemetry).await;
    let held = |told: &Value| !told["posts"].as_array().unwrap().is_empty();
    collector.is_told("a message is held", held).await;
    for _ in 0..100 {
        echo(&mut agent).await;
    }
    assert!(counted(&kernel, "dropped").await > 100.0);
    assert_eq!(counted(&kernel, "told").await, 0.0);
    let posts = collector.told().await["posts"].clone();
    assert_eq!(posts.as_array().map(Vec::len), Some(1), "{posts}");
    collector.answers(json!({})).await;
    wait_until("spans are told again", DEADLINE, async || {
        echo(&mut agent).await;
        counted(&kernel, "told").await > 4.0
    })
    .await;
}

/// OTLP 1.x, "Failures": what can be tried again is, five times and no more; what cannot is dropped at once; what was
/// taken in part is counted so, and the collector's words are one line of the log.
#[tokio::test]
async fn whatever_a_collector_answers_is_borne() {
    let Some(peers) = Peers::find(&[Need::Collector]) else {
        return;
    };
    let collector = Collector::start(&peers).await;
    let telemetry = collector.section("timeout_ms = 300\nmetrics = false");
    let (mut kernel, mut agent) = telling(&telemetry).await;
    for (how, tries) in [
        (json!({"status": 400}), 1),
        (json!({"status": 429, "after": 0}), 5),
    ] {
        tried(&collector, &kernel, &mut agent, how, tries).await;
    }
    in_part_and_too_late(&collector, &mut kernel, &mut agent).await;
}

/// OTLP 1.x, "Failures" of OTLP/gRPC: the same for codes, of which one can be tried again if the collector says when.
#[tokio::test]
async fn whatever_a_collector_of_grpc_answers_is_borne() {
    let Some(peers) = Peers::find(&[Need::Collector]) else {
        return;
    };
    let collector = Collector::start(&peers).await;
    let telemetry = collector.grpc_section("timeout_ms = 300\nmetrics = false");
    let (mut kernel, mut agent) = telling(&telemetry).await;
    for (how, tries) in [
        (
            json!({"code": "INVALID_ARGUMENT", "words": "grüße\n\u{1b}[2J %"}),
            1,
        ),
        (json!({"code": "UNAVAILABLE", "after": 0}), 5),
        (json!({"code": "RESOURCE_EXHAUSTED"}), 1),
        (json!({"code": "RESOURCE_EXHAUSTED", "after": 0.001}), 5),
    ] {
        tried(&collector, &kernel, &mut agent, how, tries).await;
    }
    let said = kernel.process().stderr();
    let line = said.lines().find(|line| line.contains("INVALID_ARGUMENT"));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains("grüße\\u{a} %"), "{line}");
    in_part_and_too_late(&collector, &mut kernel, &mut agent).await;
}

/// A message that is answered so is sent so often, and then dropped.
async fn tried(collector: &Collector, kernel: &Kernel, agent: &mut Agent, how: Value, most: usize) {
    collector.answers(how.clone()).await;
    let dropped = counted(kernel, "dropped").await;
    let before = collector.told().await["posts"].as_array().unwrap().len();
    let tries = |told: &Value| {
        let mut tries: HashMap<String, usize> = HashMap::new();
        for post in &told["posts"].as_array().unwrap()[before..] {
            *tries.entry(post["body"].to_string()).or_default() += 1;
        }
        tries
    };
    echo(agent).await;
    let often = |told: &Value| tries(told).into_values().any(|times| times == most);
    collector
        .is_told(&format!("{how}, {most} times"), often)
        .await;
    wait_until("what was not taken is dropped", DEADLINE, async || {
        counted(kernel, "dropped").await > dropped
    })
    .await;
    let tries = tries(&collector.told().await);
    assert!(
        tries.values().all(|times| *times <= most),
        "{how}: {tries:?}"
    );
}

/// A message that is taken in part, and one that is not answered in time.
async fn in_part_and_too_late(collector: &Collector, kernel: &mut Kernel, agent: &mut Agent) {
    collector
        .answers(json!({"rejected": "too\nold \u{1b}[2J"}))
        .await;
    let dropped = counted(kernel, "dropped").await;
    let told = counted(kernel, "told").await;
    echo(agent).await;
    wait_until("a part is taken", DEADLINE, async || {
        counted(kernel, "told").await > told && counted(kernel, "dropped").await > dropped
    })
    .await;
    let said = kernel.process().stderr();
    let line = said.lines().find(|line| line.contains("rejected a part"));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    assert!(
        line.contains("too\\u{a}old") && !line.contains('\u{1b}'),
        "{line}"
    );
    collector.answers(json!({"hold": true})).await;
    echo(agent).await;
    wait_until("its slowness is told", DEADLINE, async || {
        kernel.process().stderr().contains("did not answer in time")
    })
    .await;
}

async fn echo(agent: &mut Agent) {
    agent.call("it:echo", json!({"text": "x"})).await.result();
}

/// How many spans the collector took, or did not.
async fn counted(kernel: &Kernel, what: &str) -> f64 {
    let text = figures(kernel).await;
    let name = format!("mgp_telemetry_{what}_total{{signal=\"traces\"}}");
    figure(&text, &name).unwrap_or_else(|| panic!("{name}: {text}"))
}
