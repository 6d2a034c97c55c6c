//! Collectors that are away, slow, full, or take a part.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use mgp_tests::harness::{Agent, DEADLINE, Kernel, Need, Peers, Program, wait_until};
use serde_json::json;

use crate::collector::Collector;
use crate::scrape::{figure, figures};

/// Decision 0066: with nobody to take them spans are dropped and counted, and no call waits; what comes when the
/// collector is back is told.
#[tokio::test]
async fn nobody_waits_for_a_collector_that_is_away() {
    let Some(peers) = Peers::find(&[Need::Collector]) else {
        return;
    };
    let collector = Collector::start(&peers).await;
    collector.answers(json!({"status": 503})).await;
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
    collector.answers(json!({})).await;
    wait_until("spans are told again", DEADLINE, async || {
        agent.call("it:echo", json!({"text": "x"})).await.result();
        !collector.told().await["spans"]
            .as_array()
            .unwrap()
            .is_empty()
    })
    .await;
}

/// OTLP 1.x, "Failures": what can be tried again is, five times and no more; what cannot is dropped at once; what was
/// taken in part is counted so, and the collector's words are one line of the log; and no call waits for one that is
/// slow.
#[tokio::test]
async fn whatever_a_collector_answers_is_borne() {
    let Some(peers) = Peers::find(&[Need::Collector]) else {
        return;
    };
    let collector = Collector::start(&peers).await;
    let telemetry = collector.section("timeout_ms = 300\nmetrics = false");
    let entry = Program::fixture(&[]).entry("it");
    let door = "[http]\nlisten = \"127.0.0.1:0\"\n";
    let mut kernel = Kernel::with_config(&format!("{door}{telemetry}{entry}")).await;
    kernel.connected(&["it"]).await;
    let mut agent = kernel.stdio_agent(None);
    agent.initialize("2025-11-25", "{}").await.result();

    for (how, tries) in [
        (json!({"status": 400}), 1),
        (json!({"status": 429, "after": 0}), 5),
    ] {
        collector.answers(how.clone()).await;
        let before = counted(&kernel, "dropped").await;
        echo(&mut agent).await;
        wait_until("what was not taken is dropped", DEADLINE, async || {
            counted(&kernel, "dropped").await > before
        })
        .await;
        let mut tried: HashMap<String, u32> = HashMap::new();
        for post in collector.told().await["posts"].as_array().unwrap() {
            if post["status"] == how["status"] {
                *tried.entry(post["body"].to_string()).or_default() += 1;
            }
        }
        assert!(
            tried.values().all(|times| *times <= tries),
            "{how}: {tried:?}"
        );
        assert!(
            tried.values().any(|times| *times == tries),
            "{how}: {tried:?}"
        );
    }

    collector
        .answers(json!({"rejected": "too\nold \u{1b}[2J"}))
        .await;
    let (dropped, told) = (
        counted(&kernel, "dropped").await,
        counted(&kernel, "told").await,
    );
    echo(&mut agent).await;
    wait_until("a part is taken", DEADLINE, async || {
        counted(&kernel, "told").await > told && counted(&kernel, "dropped").await > dropped
    })
    .await;
    let said = kernel.process().stderr();
    let line = said.lines().find(|line| line.contains("does not take all"));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    assert!(
        line.contains("too\\u{a}old") && !line.contains('\u{1b}'),
        "{line}"
    );

    collector.answers(json!({"delay": 2})).await;
    let began = Instant::now();
    for _ in 0..20 {
        echo(&mut agent).await;
    }
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
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
