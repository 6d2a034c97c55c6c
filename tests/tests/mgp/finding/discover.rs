//! The kernel's own tools that find other tools, and call what they found (MGP §16.5).

use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, wait_until};
use serde_json::{Value, json};

use crate::audit::events;
use crate::scene::made::{NEWEST, operator};

const DISCOVER: &str = "mgp_tools_discover";
const CALL: &str = "mgp_tools_call";
const REQUEST: &str = "mgp_tools_request";
const SESSION: &str = "mgp_tools_session";
const EVICT: &str = "mgp_tools_session_evict";

fn tool(name: &str, description: &str, risk: &str) -> Value {
    let path = json!({"type": "string", "description": "Where it is"});
    let schema = json!({"type": "object", "properties": {"path": path}, "required": ["path"]});
    let security = json!({"risk_level": risk});
    json!({"name": name, "description": description, "inputSchema": schema, "security": security})
}

/// A server, and nobody who is asked before a call.
async fn kernel() -> Kernel {
    kernel_with("").await
}

async fn kernel_with(more: &str) -> Kernel {
    let tools = [
        tool("parchment_read", "Reads a parchment", "safe"),
        tool("parchment_burn", "Burns a parchment", "dangerous"),
        tool("parchment_copy", "Copies a parchment", "moderate"),
    ];
    let flags = tools.map(|tool| format!("--tool={tool}"));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let trusted = "[servers.mgp]\ntrust_level = \"trusted\"\n";
    let archive = Program::fixture(&flags).entry("archive") + trusted;
    let off = "[confirmation]\nenabled = false\n";
    let kernel = Kernel::start(&format!("{archive}{off}{more}")).await;
    kernel.connected(&["archive"]).await;
    // Found a moment after it is connected.
    let find = ["tools", "find", "parchment", "--strategy", "keyword"];
    wait_until("it can be found", DEADLINE, async || {
        kernel.mgp_json(&find).await["total_available"] != 0
    })
    .await;
    kernel
}

async fn agent(kernel: &Kernel, server: Option<&str>) -> Agent {
    let mut agent = kernel.http_agent(server);
    agent.initialize(NEWEST, "{}").await.result();
    agent
}

/// What an agent finds, by words.
async fn found(agent: &mut Agent, more: Value) -> Value {
    let mut asked = json!({"query": "parchment", "strategy": "keyword"});
    let members = asked.as_object_mut().unwrap();
    members.extend(more.as_object().unwrap().clone());
    agent.call(DISCOVER, asked).await.result()["structuredContent"].take()
}

fn names(found: &Value) -> Vec<&str> {
    let tools = found["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap()).collect()
}

/// MGP-241, MGP-242, MGP-243, MGP-244, MGP-247: what is found has its whole schema, the best first, and
/// is called without another look; as a tool and as a method alike.
#[tokio::test]
async fn what_is_found_can_be_called_at_once() {
    let kernel = kernel().await;
    let mut agent = agent(&kernel, None).await;
    let all = found(&mut agent, json!({})).await;
    assert_eq!(all["search_strategy"], "keyword");
    assert!(all["total_available"].as_u64().unwrap() >= 3);
    let tools = all["tools"].as_array().unwrap();
    let scores: Vec<f64> = tools
        .iter()
        .map(|t| t["relevance_score"].as_f64().unwrap())
        .collect();
    assert!(scores.is_sorted_by(|one, next| one >= next), "{scores:?}");
    assert!(scores.iter().all(|score| (0.0..=1.0).contains(score)));
    let read = json!({"query": "reads a parchment", "strategy": "keyword", "max_results": 1});
    let one = found(&mut agent, read.clone()).await;
    let tool = &one["tools"][0];
    assert_eq!(one["tools"].as_array().unwrap().len(), 1);
    assert_eq!(tool["name"], "archive__parchment_read");
    assert_eq!(tool["server_id"], "archive");
    assert_eq!(tool["tool_id"], "archive:parchment_read");
    assert_eq!(tool["inputSchema"]["required"], json!(["path"]));
    assert_eq!(tool["security"]["effective_risk_level"], "safe");
    let arguments = json!({"path": "/scroll"});
    let name = tool["name"].as_str().unwrap();
    let answer = agent.call(name, arguments.clone()).await;
    let through = agent
        .call(CALL, json!({"name": name, "arguments": arguments}))
        .await;
    assert_eq!(answer.text(), r#"{"path":"/scroll"}"#);
    assert_eq!(through.text(), answer.text());
    let mut owner = operator(&kernel).await;
    let mut method = owner.request("mgp/tools/discover", read).await.result();
    let mut one = one;
    for answer in [&mut method, &mut one] {
        answer["query_time_ms"] = Value::Null;
    }
    assert_eq!(method, one);
}

/// A request that nothing does says so, whoever asks and in whatever way; of a long one the beginning is
/// read, and that is told as well.
#[tokio::test]
async fn what_nothing_does_and_what_is_cut_is_said() {
    let kernel = kernel().await;
    let mut agent = agent(&kernel, None).await;
    let mut owner = operator(&kernel).await;
    let fitting = found(&mut agent, json!({})).await;
    assert_eq!(fitting["tools"][0]["fits"], true);
    assert!(fitting.get("note").is_none(), "{fitting:#}");
    let long = format!("parchment {}", "\u{fffd} ".repeat(10_000));
    let cut = "only the first 16384 bytes";
    for (query, note) in [("tune a guitar", "no tool fits"), (&*long, cut)] {
        let asked = json!({"query": query, "strategy": "keyword"});
        let by_tool = found(&mut agent, asked.clone()).await;
        let by_method = owner.request("mgp/tools/discover", asked).await.result();
        for told in [&by_tool, &by_method] {
            let told = told["note"].as_str().unwrap();
            assert!(told.starts_with(note), "{told}");
        }
        let found = ["tools", "find", query, "--strategy", "keyword"];
        let shown = kernel.mgp(&found).await;
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(shown.contains(note), "{shown}");
        let json = kernel.mgp_json(&found).await;
        assert_eq!(json["note"], by_tool["note"]);
    }
}

/// MGP-241, MGP-245, MGP-246: a filter takes away what is too dangerous, and what is elsewhere.
#[tokio::test]
async fn a_filter_takes_away() {
    let kernel = kernel().await;
    let mut at_its_door = agent(&kernel, Some("archive")).await;
    let of = |most: &str| json!({"filter": {"risk_level_max": most}});
    let safe = found(&mut at_its_door, of("safe")).await;
    assert_eq!(names(&safe), ["parchment_read"]);
    let moderate = found(&mut at_its_door, of("moderate")).await;
    assert_eq!(names(&moderate).len(), 2, "{moderate:#}");
    assert!(!names(&moderate).contains(&"parchment_burn"));
    let stopped = json!({"filter": {"status": "disconnected"}});
    assert!(names(&found(&mut at_its_door, stopped).await).is_empty());
    let wrong = at_its_door
        .call(DISCOVER, json!({"query": "x", "strategy": "luck"}))
        .await;
    assert_eq!(wrong.code(), -32602);
    let empty = at_its_door.call(DISCOVER, json!({"query": " "})).await;
    assert_eq!(empty.code(), -32602);
}

/// MGP-066, MGP-080, MGP-081, MGP-236: what an agent may not call it does not find, nor can it be called by the way round;
/// a call that was found stands in the log under its own name.
#[tokio::test]
async fn nothing_is_found_or_called_that_is_denied() {
    let kernel = kernel().await;
    let mut agent = agent(&kernel, None).await;
    let denied = [
        "grants",
        "add",
        "agent.anonymous",
        "archive/parchment_burn",
        "--deny",
    ];
    kernel.mgp_json(&denied).await;
    let seen = found(&mut agent, json!({})).await;
    assert_eq!(names(&seen).len(), 2, "{seen:#}");
    assert!(!seen.to_string().contains("burn"));
    let around = |name: &str| json!({"name": name, "arguments": {"path": "/x"}});
    let burn = agent
        .call(CALL, around("archive__parchment_burn"))
        .await
        .error();
    let nothing = agent
        .call(CALL, around("archive__parchment_bury"))
        .await
        .error();
    assert_eq!(burn["code"], nothing["code"]);
    let words = |error: &Value| error["message"].as_str().unwrap().replace("bury", "burn");
    assert_eq!(words(&burn), words(&nothing));
    let itself = agent.call(CALL, around(CALL)).await;
    assert_eq!(itself.code(), -32602);
    agent
        .call(CALL, around("archive__parchment_copy"))
        .await
        .result();
    let of = |written: &[Value], kind: &str, name: &str| {
        let it = |e: &&Value| e["event_type"] == kind && e["target"]["tool_name"] == name;
        written.iter().filter(it).count()
    };
    let mut written = Vec::new();
    wait_until("the call is written down", DEADLINE, async || {
        written = events(&kernel).await;
        of(&written, "TOOL_EXECUTED", "parchment_copy") == 1
    })
    .await;
    assert_eq!(of(&written, "TOOL_BLOCKED", "parchment_burn"), 1);
}

/// MGP-233, MGP-234, MGP-257, MGP-281: an agent that is to search is shown the tools for that and what is
/// pinned for all; what is not listed can be called; without a word about it everything is listed.
#[tokio::test]
async fn an_agent_that_searches_is_shown_little() {
    const PINNED: &str = "archive__parchment_read";
    let config = |exposure: &str| {
        let pinned = "pinned = [\"archive/parchment_read\"]";
        format!("[discovery]\nembedding = \"off\"\nexposure = \"{exposure}\"\n{pinned}\n")
    };
    let listed = async |agent: &mut Agent| -> Vec<String> {
        let list = agent.request("tools/list", json!({})).await.result();
        assert!(list["nextCursor"].is_null(), "{list:#}");
        let tools = list["tools"].as_array().unwrap().iter();
        tools
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let pinned = kernel_with(&config("pinned")).await;
    let mut searching = agent(&pinned, None).await;
    let shown = listed(&mut searching).await;
    assert_eq!(shown, [DISCOVER, REQUEST, CALL, SESSION, EVICT, PINNED]);
    let hidden = searching
        .call("archive__parchment_copy", json!({"path": "/x"}))
        .await;
    assert!(!hidden.is_error());
    assert_eq!(names(&found(&mut searching, json!({})).await).len(), 3);
    assert!(listed(&mut operator(&pinned).await).await.len() > 40);
    pinned
        .mgp_json(&[
            "grants",
            "add",
            "agent.anonymous",
            "archive/parchment_read",
            "--deny",
        ])
        .await;
    // What was called is held, and what is denied is not shown.
    let copied = "archive__parchment_copy";
    let shown = listed(&mut searching).await;
    assert_eq!(shown, [DISCOVER, REQUEST, CALL, SESSION, EVICT, copied]);
    let alone = kernel_with(&config("discovery")).await;
    assert_eq!(
        listed(&mut agent(&alone, None).await).await,
        [DISCOVER, REQUEST, CALL]
    );
    let plain = kernel().await;
    let all = listed(&mut agent(&plain, None).await).await;
    assert!(all.len() > 40 && !all.contains(&DISCOVER.to_owned()));
}
