//! Finding tools: by words at once, by meaning soon after, and never what is not for the caller.

mod aside;
mod context;
mod discover;
mod effects;
mod process;
mod provider;
mod session_tools;

use std::time::{Duration, Instant};

use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::scene::made::operator;
use provider::Provider;

const BUILTIN: &str = "\n[discovery]\nembedding = \"builtin\"\n";

/// A server with these tools.
fn entry(id: &str, tools: &[Value]) -> String {
    let flags: Vec<String> = tools.iter().map(|tool| format!("--tool={tool}")).collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    Program::fixture(&flags).entry(id)
}

fn tool(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description, "inputSchema": {"type": "object"}})
}

fn weather() -> Value {
    tool("sky_report", "Tells the forecast of tomorrow")
}

async fn search(owner: &mut Agent, params: Value) -> Value {
    let answer = owner.request("mgp/index/search", params).await;
    answer.result()
}

/// Names of what was found, the best first.
fn names(found: &Value) -> Vec<&str> {
    let tools = found["tools"].as_array().unwrap();
    tools
        .iter()
        .map(|tool| tool["tool_id"].as_str().unwrap())
        .collect()
}

async fn by(owner: &mut Agent, strategy: &str, query: &str) -> Value {
    search(owner, json!({"query": query, "strategy": strategy})).await
}

/// Waits until these tools are in the index.
async fn indexed(owner: &mut Agent, tools: &[&str]) {
    for tool in tools {
        wait_until("it is in the index", DEADLINE, async || {
            let found = by(owner, "keyword", tool).await;
            found["tools"][0]["name"] == *tool
        })
        .await;
    }
}

/// Waits until the meaning of every tool is known: the model comes after all others that need the processor.
async fn embedded(owner: &mut Agent) -> Value {
    let mut index = Value::Null;
    wait_until("every tool has its meaning", 4 * DEADLINE, async || {
        index = by(owner, "keyword", "x").await["index"].take();
        index["by_meaning"] == index["tools"] && index["waiting"] == 0 && index["tools"] != 0
    })
    .await;
    index
}

/// The same once the index has the tools of `it`, too: it gets them a moment after the server is connected.
async fn embedded_with_server(owner: &mut Agent) -> Value {
    wait_until("the server's tools are indexed", DEADLINE, async || {
        let found = by(owner, "keyword", "sky_report").await;
        names(&found).contains(&"it:sky_report")
    })
    .await;
    embedded(owner).await
}

/// MGP-236, MGP-237, MGP-238, MGP-246: a server that comes is found by its words, misspelt ones too, as
/// soon as agents see it, and not any more when it has stopped.
#[tokio::test]
async fn index_follows_added_and_removed_servers() {
    let kernel = Kernel::start(&entry("first", &[])).await;
    kernel.connected(&["first"]).await;
    let mut owner = operator(&kernel).await;
    let mut before = Value::Null;
    wait_until("the first is found", DEADLINE, async || {
        before = by(&mut owner, "keyword", "sky_report").await;
        before["index"]["tools"] != 0
    })
    .await;
    assert!(!names(&before).contains(&"late:sky_report"), "{before:#}");
    let late = entry("late", &[weather()]);
    kernel.rewrite(&format!("{}{late}", entry("first", &[])));
    wait_until("agents see the server", DEADLINE, async || {
        let list = owner.request("tools/list", json!({})).await;
        list.result().to_string().contains("late__sky_report")
    })
    .await;
    let seen = Instant::now();
    wait_until("it is found", DEADLINE, async || {
        let found = by(&mut owner, "keyword", "sky_report").await;
        names(&found).first() == Some(&"late:sky_report")
    })
    .await;
    let took = seen.elapsed();
    println!("found {took:?} after agents saw it");
    // Far above what it takes, on a machine that does other things.
    assert!(took < Duration::from_secs(15), "{took:?}");
    for query in ["sky_reprot", "forecast tomorrow", "skyreport"] {
        let found = by(&mut owner, "keyword", query).await;
        assert_eq!(names(&found)[0], "late:sky_report", "{query}: {found:#}");
        assert_eq!(found["search_strategy"], "keyword");
    }
    let found = kernel
        .mgp(&["tools", "find", "forecast", "--max", "1"])
        .await;
    let said = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(
        said.contains("late:sky_report") && said.contains("by keyword"),
        "{said}"
    );
    kernel.mgp(&["servers", "stop", "late"]).await;
    let found = by(&mut owner, "keyword", "sky_report forecast").await;
    assert!(!names(&found).contains(&"late:sky_report"), "{found:#}");
    wait_until("the index lets go of it", DEADLINE, async || {
        let found = by(&mut owner, "keyword", "x").await;
        found["index"]["tools"] == before["index"]["tools"]
    })
    .await;
}

/// MGP-239, A-10: by the model in the program, a tool is found by a text that shares no word with it, and
/// of what no tool does that is said.
#[tokio::test]
async fn tool_is_found_by_its_meaning() {
    let tools = [
        tool("load_contents", "Load text from disk"),
        tool("add_numbers", "Sum of two integers"),
    ];
    let kernel = Kernel::start(&format!("{}{BUILTIN}", entry("it", &tools))).await;
    kernel.connected(&["it"]).await;
    let mut owner = operator(&kernel).await;
    embedded(&mut owner).await;
    let query = "show me what a file says";
    let words = by(&mut owner, "keyword", query).await;
    assert!(!names(&words).contains(&"it:load_contents"), "{words:#}");
    for strategy in ["semantic", "hybrid"] {
        let found = by(&mut owner, strategy, query).await;
        assert_eq!(found["search_strategy"], strategy);
        assert!(names(&found).contains(&"it:load_contents"), "{found:#}");
    }
    let fits = |found: &Value| found["tools"][0]["fits"].as_bool().unwrap();
    let near = by(&mut owner, "hybrid", "load a text from the disk").await;
    assert!(fits(&near) && near.get("note").is_none(), "{near:#}");
    let far = by(&mut owner, "hybrid", "water the plants on the balcony").await;
    let note = far["note"].as_str().unwrap();
    assert!(
        !fits(&far) && note.contains("these are the nearest"),
        "{far:#}"
    );
    let again = by(&mut owner, "hybrid", query).await;
    println!(
        "a search that was asked before: {} ms",
        again["query_time_ms"]
    );
}

/// MGP-237: a tool that is added while its server runs is found, and one that is another now is found
/// as what it is.
#[tokio::test]
async fn changed_tool_is_found_by_its_new_definition() {
    let provider = Provider::start().await;
    let kernel = Kernel::start(&format!("{}{}", entry("it", &[]), provider.section())).await;
    kernel.connected(&["it"]).await;
    let mut owner = operator(&kernel).await;
    embedded(&mut owner).await;
    let mut fits = Vec::new();
    for (description, query) in [("Where is my paper", "folder"), ("A forecast", "umbrella")] {
        let redefined = json!({"description": description});
        owner.call("it:redefine", redefined).await.result();
        wait_until("it is found by its meaning", DEADLINE, async || {
            let found = by(&mut owner, "semantic", query).await;
            let best = &found["tools"][0];
            best["name"] == "test_dynamic_tool" && best["relevance_score"].as_f64() > Some(0.4)
        })
        .await;
        let all = json!({"query": "folder", "strategy": "semantic", "max_results": 100});
        let found = search(&mut owner, all).await;
        let mut tools = found["tools"].as_array().unwrap().iter();
        let it = tools
            .find(|tool| tool["name"] == "test_dynamic_tool")
            .unwrap();
        fits.push(it["relevance_score"].as_f64().unwrap());
    }
    assert!(
        fits[1] < fits[0] - 0.2,
        "it is not about that any more: {fits:?}"
    );
}

/// MGP-079, MGP-282: what an agent may not call it does not find, and its searches do not show by any
/// number that it is there.
#[tokio::test]
async fn a_hidden_tool_leaves_no_trace() {
    let provider = Provider::start().await;
    let (open, hidden) = (
        entry(
            "open",
            &[weather(), tool("sort_paper", "Sorts what lies in a folder")],
        ),
        entry(
            "hidden",
            &[tool(
                "sky_watch",
                "Another forecast of tomorrow, forecast of rain",
            )],
        ),
    );
    let kernel = Kernel::start(&format!("{open}{hidden}{}", provider.section())).await;
    kernel.connected(&["open", "hidden"]).await;
    let mut owner = operator(&kernel).await;
    indexed(&mut owner, &["sort_paper", "sky_watch"]).await;
    embedded(&mut owner).await;
    let asked = |agent: &str, strategy: &str| json!({"query": "forecast of tomorrow", "strategy": strategy, "agent": agent, "max_results": 50});
    let strategies = ["keyword", "semantic", "hybrid", "category"];
    kernel
        .mgp_json(&[
            "grants",
            "add",
            "agent.curious",
            "hidden",
            "--deny",
            "--yet-unknown",
        ])
        .await;
    let mut answers = Vec::new();
    for strategy in strategies {
        let free = search(&mut owner, asked("agent.free", strategy)).await;
        assert!(
            names(&free).contains(&"hidden:sky_watch"),
            "{strategy}: {free:#}"
        );
        let found = search(&mut owner, asked("agent.curious", strategy)).await;
        assert!(
            !found["tools"].to_string().contains("sky_watch"),
            "{found:#}"
        );
        answers.push((found["tools"].clone(), found["total_available"].clone()));
    }
    kernel.mgp(&["servers", "stop", "hidden"]).await;
    for (strategy, (tools, total)) in strategies.into_iter().zip(answers) {
        let found = search(&mut owner, asked("agent.curious", strategy)).await;
        assert_eq!(
            (&found["tools"], &found["total_available"]),
            (&tools, &total),
            "{strategy}"
        );
    }
}

/// Meanings are made once: a restart finds them in their file, a damaged one is made anew, and the
/// endpoint gets the key and no more texts at once than it was said.
#[tokio::test]
async fn embeddings_survive_a_restart() {
    let provider = Provider::start().await;
    let config = format!("{}{}", entry("it", &[weather()]), provider.section());
    let kernel = Kernel::start(&config).await;
    kernel.connected(&["it"]).await;
    let mut owner = operator(&kernel).await;
    let first = embedded_with_server(&mut owner).await;
    let made = provider.texts();
    assert_eq!(first["embedded"], made);
    assert!(made > 20, "{made} texts");
    let seen = &provider.seen;
    assert_eq!(seen.largest.load(std::sync::atomic::Ordering::SeqCst), 4);
    assert!(
        seen.keys
            .lock()
            .unwrap()
            .iter()
            .all(|key| key == "Bearer sk-hush")
    );
    let kernel = again(kernel, |_| {}).await;
    let mut owner = operator(&kernel).await;
    let second = embedded_with_server(&mut owner).await;
    assert_eq!(
        (second["embedded"].as_u64(), provider.texts()),
        (Some(0), made),
        "{:?}",
        provider.seen.order.lock().unwrap().split_off(made)
    );
    let found = by(&mut owner, "semantic", "umbrella").await;
    assert_eq!(names(&found)[0], "it:sky_report");
    assert_eq!(
        provider.texts(),
        made + 2,
        "the query, and what definitions say"
    );
    by(&mut owner, "semantic", "umbrella").await;
    assert_eq!(provider.texts(), made + 2, "the same query again");
    by(&mut owner, "semantic", "Umbrella").await;
    assert_eq!(
        provider.texts(),
        made + 3,
        "what definitions say is the same"
    );
    let kernel = again(kernel, |file| {
        let middle = file.len() / 2;
        file[middle] ^= 0x10;
    })
    .await;
    let mut owner = operator(&kernel).await;
    let third = embedded_with_server(&mut owner).await["embedded"]
        .as_u64()
        .unwrap();
    assert!(third > 0 && third < made as u64, "{third} of {made}");
    let kernel = again(kernel, Vec::clear).await;
    let mut owner = operator(&kernel).await;
    assert_eq!(embedded_with_server(&mut owner).await["embedded"], made);
}

/// The same kernel in its next life, with its file of meanings changed before.
async fn again(kernel: Kernel, change: impl FnOnce(&mut Vec<u8>)) -> Kernel {
    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    let path = folder.path().join("data/vectors");
    let mut file = std::fs::read(&path).unwrap();
    change(&mut file);
    std::fs::write(&path, file).unwrap();
    let kernel = Kernel::again(folder).await;
    kernel.connected(&["it"]).await;
    kernel
}

/// a tool's own vector counts for more than its text where it can be compared, and a provider that
/// fails leaves the words, and comes back.
#[tokio::test]
async fn vector_of_a_tool_counts_and_a_failed_provider_falls_back_to_keywords() {
    let provider = Provider::start().await;
    let given = |name: &str, vector: Value| {
        let mut tool = tool(name, "Sorts paper in a folder");
        tool["embedding"] = vector;
        tool
    };
    let tools = [
        given("with_its_own", json!([1.0, 0.0, 0.0])),
        given("with_another", json!([1.0, 0.0])),
    ];
    provider
        .seen
        .broken
        .store(true, std::sync::atomic::Ordering::SeqCst);
    let kernel = Kernel::start(&format!("{}{}", entry("it", &tools), provider.section())).await;
    kernel.connected(&["it"]).await;
    let mut owner = operator(&kernel).await;
    wait_until("it is found by its words", DEADLINE, async || {
        let found = by(&mut owner, "semantic", "paper folder").await;
        assert_eq!(found["search_strategy"], "keyword");
        names(&found).contains(&"it:with_another")
    })
    .await;
    provider
        .seen
        .broken
        .store(false, std::sync::atomic::Ordering::SeqCst);
    embedded(&mut owner).await;
    let found = by(&mut owner, "semantic", "umbrella").await;
    assert_eq!(names(&found)[0], "it:with_its_own", "{found:#}");
    let found = by(&mut owner, "semantic", "folder").await;
    assert_eq!(names(&found)[0], "it:with_another", "{found:#}");
}

/// MGP-240: a server stands where its entry says, and a tool where it says itself; each category has
/// those below it. Without a model, words are what is left.
#[tokio::test]
async fn tools_are_found_by_where_they_stand() {
    let mut placed = weather();
    placed["categories"] = json!(["Weather/forecast"]);
    let other = entry("other", &[placed]);
    let files = entry("files", &[tool("peek", "Looks inside")]);
    let files = files.replacen(
        "[[servers]]\n",
        "[[servers]]\ncategories = [\"filesystem/read\"]\n",
        1,
    );
    let kernel = Kernel::start(&format!("{other}{files}")).await;
    kernel.connected(&["other", "files"]).await;
    let mut owner = operator(&kernel).await;
    indexed(&mut owner, &["peek", "sky_report"]).await;
    for (category, tool, not) in [
        ("filesystem", "files:peek", "other:sky_report"),
        ("filesystem/read", "files:peek", "other:sky_report"),
        ("files", "files:peek", "other:sky_report"),
        ("weather", "other:sky_report", "files:peek"),
    ] {
        for strategy in ["category", "hybrid"] {
            let wanted = json!({"query": "peek sky", "strategy": strategy,
                "categories": [category], "max_results": 100});
            let found = search(&mut owner, wanted).await;
            assert!(names(&found).contains(&tool), "{category}: {found:#}");
            assert!(!names(&found).contains(&not), "{category}: {found:#}");
        }
    }
    let none = search(&mut owner, json!({"query": "peek", "categories": ["file"]})).await;
    assert_eq!(none["total_available"], 0);
    assert_eq!(none["search_strategy"], "keyword", "there is no model");
    let refused = owner.request(
        "mgp/index/search",
        json!({"query": "x", "strategy": "magic"}),
    );
    assert_eq!(refused.await.error()["code"], -32602);
}
