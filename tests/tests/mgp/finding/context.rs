//! What lists of tools cost an agent, with real tools behind a real kernel.

use std::collections::BTreeSet;
use std::path::Path;

use mgp_engine::callers::token_cost;
use mgp_tests::harness::{Kernel, Program};
use serde_json::{Value, json};

use crate::scene::made::NEWEST;

/// How many tools the figures of §16.1 and §16.3 speak of.
const TOOLS: usize = 300;
/// They are spread over so many servers.
const SERVERS: usize = 10;

/// Definitions that public servers list, each name once.
fn real_tools() -> Vec<Value> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/tool_discovery/tools.json");
    let tools: Vec<Value> = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let mut seen = BTreeSet::new();
    let new = |tool: &&Value| seen.insert(tool["name"].to_string());
    let definition = |tool: &Value| json!({"name": tool["name"], "description": tool["description"], "inputSchema": tool["inputSchema"]});
    let tools = tools.iter().filter(new).map(definition);
    tools.take(TOOLS).collect()
}

/// What all pages of an agent's list cost, and how many definitions they have.
async fn listed(kernel: &Kernel) -> (usize, u64) {
    let mut agent = kernel.http_agent(None);
    agent.initialize(NEWEST, "{}").await.result();
    let (mut count, mut cost, mut cursor) = (0, 0, Value::Null);
    loop {
        let page = if cursor.is_null() {
            json!({})
        } else {
            json!({"cursor": cursor})
        };
        let page = agent.request("tools/list", page).await.result();
        let tools = page["tools"].as_array().unwrap();
        count += tools.len();
        cost += tools
            .iter()
            .map(|tool| token_cost::estimate_definition(&tool.to_string()))
            .sum::<u64>();
        cursor = page["nextCursor"].clone();
        if cursor.is_null() {
            return (count, cost);
        }
    }
}

/// MGP-232, MGP-235: of 300 real tools a list costs 66,000 tokens and more; what stands in its place costs
/// less than the figures of §16.3, and the saving is what §16.1 promises.
#[tokio::test]
async fn a_cut_list_costs_a_hundredth() {
    let tools = real_tools();
    assert_eq!(tools.len(), TOOLS);
    let servers = tools.chunks(TOOLS / SERVERS).enumerate().map(|(n, tools)| {
        let flags: Vec<String> = tools.iter().map(|tool| format!("--tool={tool}")).collect();
        let flags: Vec<&str> = flags.iter().map(String::as_str).chain(["--bare"]).collect();
        Program::fixture(&flags).entry(&format!("s{n}"))
    });
    let servers: String = servers.collect();
    let ids: Vec<String> = (0..SERVERS).map(|n| format!("s{n}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    // Two of middling size.
    let mut by_cost: Vec<usize> = (0..TOOLS).collect();
    by_cost.sort_by_key(|n| token_cost::estimate_definition(&tools[*n].to_string()));
    let pinned = [by_cost[TOOLS / 2 - 1], by_cost[TOOLS / 2]].map(|n| {
        let (server, tool) = (n * SERVERS / TOOLS, tools[n]["name"].as_str().unwrap());
        format!("s{server}/{tool}")
    });
    let mut whole = 0;
    for (exposure, most, share) in [
        ("all", 150_000, 1.0),
        ("categories", 5_000, 0.02),
        ("discovery", 1_000, 0.01),
        ("pinned", 2_000, 0.03),
    ] {
        let discovery = format!(
            "\n[discovery]\nembedding = \"off\"\nexposure = \"{exposure}\"\npinned = {pinned:?}\n"
        );
        let kernel = Kernel::start(&format!("{servers}{discovery}")).await;
        kernel.connected(&ids).await;
        let (count, cost) = listed(&kernel).await;
        if exposure == "all" {
            assert!(count >= TOOLS && cost > 60_000, "{count} tools cost {cost}");
            whole = cost;
        }
        assert!(
            cost <= most,
            "{exposure}: {count} definitions cost {cost} tokens"
        );
        let saved = cost as f64 / whole as f64;
        assert!(saved <= share, "{exposure}: {cost} of {whole}");
    }
}
