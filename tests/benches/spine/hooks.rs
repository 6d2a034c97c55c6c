//! `context/beforeInference` of one agent, fanned out to many servers.

use std::io;
use std::time::Instant;

use mgp_tests::harness::{Kernel, Program};
use mgp_tests::load::latency::Latencies;
use mgp_tests::load::{Cell, LineLoad, Table, Usage};
use serde_json::json;

use super::Options;

/// Servers that take part, and how long the slowest of them takes to answer, in milliseconds.
const RUNS: [(usize, u64); 3] = [(1, 20), (20, 20), (20, 0)];
const INFERENCES: u64 = 300;

/// One kernel; one agent asks again and again. What the kernel may take: 30 µs of its processor a server, and 2 ms
/// over the slowest server at the median.
pub(crate) async fn table(options: &Options) -> Table {
    let mut rows = Vec::new();
    for (servers, slowest) in RUNS {
        let inferences = options.bounds(INFERENCES, 60).calls;
        let run = run(servers, slowest, inferences).await;
        rows.push(run.expect("the kernel goes on"));
    }
    Table {
        title: "Hooks before an inference",
        columns: &[
            "servers",
            "slowest, ms",
            "p50 over the slowest, ms",
            "p99 over the slowest, ms",
            "kernel µs a server",
        ],
        rows,
    }
}

async fn run(servers: usize, slowest: u64, inferences: u64) -> io::Result<Vec<Cell>> {
    let ids: Vec<String> = (0..servers).map(|n| format!("s{n:02}")).collect();
    let hooked = |n: usize| {
        let after = if n == 0 { slowest } else { 0 };
        let declares = json!({
            "version": "0.4", "contextHooks": {"beforeInference": true},
            "featureSets": {"a": {"description": "x", "uses": ["contextHooks.beforeInference"]}},
        });
        let answers = json!({"context/beforeInference": {"after_ms": after, "result": {
            "featureSet": "a",
            "contextInjections": [{"namespace": "n", "position": "system", "content": "x".repeat(500)}],
        }}});
        let (declares, answers) = (declares.to_string(), answers.to_string());
        let flags = ["--mcpl", &declares, "--mcpl-answers", &answers];
        Program::fixture(&flags).entry(&ids[n])
    };
    let entries: String = (0..servers).map(hooked).collect();
    let each = |id: &String| format!("[mcpl.servers.{id}]\nenable = [\"*\"]\n");
    let rules: String = ids.iter().map(each).collect();
    let kernel = Kernel::start(&format!("{entries}{rules}")).await;
    kernel
        .connected(&ids.iter().map(String::as_str).collect::<Vec<_>>())
        .await;
    let host = json!({"experimental": {"mcpl": {
        "version": "0.4", "contextHooks": {"beforeInference": true}, "featureSets": true,
    }}});
    let mut agent = LineLoad::declaring(&kernel.socket(), &host.to_string()).await?;
    let ask = |n: u64| {
        let params = json!({
            "inferenceId": format!("inf_{n}"), "conversationId": "conv_1", "turnIndex": n,
            "userMessage": "How is the project going? ".repeat(8),
            "model": {"id": "m", "vendor": "v", "contextWindow": 200_000, "capabilities": []},
        });
        json!({"jsonrpc": "2.0", "id": format!("ask-{n}"), "method": "context/beforeInference", "params": params})
            .to_string()
    };
    let mut latencies = Latencies::with_room(inferences);
    let pids = [kernel.pid()];
    let mut before = Usage::of(&pids);
    // The first ones are not counted.
    let warm = inferences / 10;
    for n in 0..warm + inferences {
        if n == warm {
            before = Usage::of(&pids);
        }
        let (question, id) = (ask(n), format!("\"ask-{n}\""));
        let began = Instant::now();
        agent.send(&question).await?;
        let answer = agent.until(&id).await?;
        let took = began.elapsed();
        assert_eq!(answer.matches("\"namespace\"").count(), servers, "{answer}");
        if n >= warm {
            latencies.add(took);
        }
    }
    let cpu = (Usage::of(&pids).cpu - before.cpu).as_secs_f64() * 1e6;
    let over = |percent| latencies.percentile(percent) / 1000.0 - slowest as f64;
    Ok(vec![
        Cell::Number(servers as f64, 0),
        Cell::Number(slowest as f64, 0),
        Cell::Number(over(50.0), 2),
        Cell::Number(over(99.0), 2),
        Cell::Number(cpu / (inferences * servers as u64) as f64, 1),
    ])
}
