//! The kernel's own tools that find other tools, and call what they found (MGP §16.5).

use mgp_tests::harness::{Agent, Answer, DEADLINE, Kernel, Program, wait_until};
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

/// A search whose best result is `parchment_read`.
fn read_parchment() -> Value {
    json!({"query": "reads a parchment", "strategy": "keyword", "max_results": 1})
}

/// MGP-244: a score is between 0 and 1.
#[tokio::test]
async fn discovered_tools_are_sorted_by_relevance() {
    let kernel = kernel().await;
    let mut agent = agent(&kernel, None).await;
    let all = found(&mut agent, json!({})).await;
    let tools = all["tools"].as_array().unwrap();
    let scores: Vec<f64> = tools
        .iter()
        .map(|t| t["relevance_score"].as_f64().unwrap())
        .collect();
    assert!(
        scores.len() > 1 && scores.is_sorted_by(|one, next| one >= next),
        "{scores:?}"
    );
    assert!(scores.iter().all(|score| (0.0..=1.0).contains(score)));
}

/// MGP-241.
#[tokio::test]
async fn discovery_applies_the_query_and_the_limit() {
    let kernel = kernel().await;
    let mut agent = agent(&kernel, None).await;
    let all = found(&mut agent, json!({})).await;
    assert!(all["tools"].as_array().unwrap().len() >= 3, "{all:#}");
    let one = found(&mut agent, read_parchment()).await;
    assert_eq!(one["tools"].as_array().unwrap().len(), 1);
    assert_eq!(one["tools"][0]["name"], "archive__parchment_read");
}

/// MGP-242.
#[tokio::test]
async fn discovery_returns_each_tool_with_its_server_and_security() {
    let kernel = kernel().await;
    let mut agent = agent(&kernel, None).await;
    let one = found(&mut agent, read_parchment()).await;
    assert_eq!(one["search_strategy"], "keyword");
    assert!(one["total_available"].as_u64().unwrap() >= 3);
    assert!(one["query_time_ms"].is_number(), "{one:#}");
    let tool = &one["tools"][0];
    assert_eq!(tool["server_id"], "archive");
    assert_eq!(tool["tool_id"], "archive:parchment_read");
    assert_eq!(tool["description"], "Reads a parchment");
    assert!(tool["relevance_score"].is_number(), "{tool:#}");
    assert_eq!(tool["security"]["effective_risk_level"], "safe");
}

/// MGP-243: under its name, and through the kernel's own tool.
#[tokio::test]
async fn discovered_tool_has_its_whole_schema_and_can_be_called() {
    let kernel = kernel().await;
    let mut agent = agent(&kernel, None).await;
    let one = found(&mut agent, read_parchment()).await;
    let tool = &one["tools"][0];
    assert_eq!(tool["inputSchema"]["required"], json!(["path"]));
    let arguments = json!({"path": "/scroll"});
    let name = tool["name"].as_str().unwrap();
    let answer = agent.call(name, arguments.clone()).await;
    let through = agent
        .call(CALL, json!({"name": name, "arguments": arguments}))
        .await;
    assert_eq!(answer.text(), r#"{"path":"/scroll"}"#);
    assert_eq!(through.text(), answer.text());
}

/// MGP-247.
#[tokio::test]
async fn discovery_answers_alike_as_a_tool_and_as_a_method() {
    let kernel = kernel().await;
    let mut agent = agent(&kernel, None).await;
    let mut tool = found(&mut agent, read_parchment()).await;
    let mut owner = operator(&kernel).await;
    let method = owner.request("mgp/tools/discover", read_parchment()).await;
    let mut method = method.result();
    for answer in [&mut method, &mut tool] {
        answer["query_time_ms"] = Value::Null;
    }
    assert_eq!(method, tool);
}

/// A request that nothing does says so, whoever asks and in whatever way; of a long one the beginning is
/// read, and that is told as well.
#[tokio::test]
async fn discovery_reports_no_match_and_truncated_queries() {
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

/// A kernel and an agent that is denied `parchment_burn`.
async fn without_burn() -> (Kernel, Agent) {
    let kernel = kernel().await;
    let agent = agent(&kernel, None).await;
    let denied = [
        "grants",
        "add",
        "agent.anonymous",
        "archive/parchment_burn",
        "--deny",
    ];
    kernel.mgp_json(&denied).await;
    (kernel, agent)
}

/// A call through the kernel's own tool.
async fn call_through(agent: &mut Agent, name: &str) -> Answer {
    let call = json!({"name": name, "arguments": {"path": "/x"}});
    agent.call(CALL, call).await
}

/// MGP-081.
#[tokio::test]
async fn denied_tool_is_not_discovered() {
    let (_kernel, mut agent) = without_burn().await;
    let seen = found(&mut agent, json!({})).await;
    assert_eq!(names(&seen).len(), 2, "{seen:#}");
    assert!(!seen.to_string().contains("burn"));
}

/// MGP-080: it reads as an unknown one; nor does the kernel's own tool call itself.
#[tokio::test]
async fn denied_tool_is_not_called_through_the_kernels_own() {
    let (_kernel, mut agent) = without_burn().await;
    let denied = call_through(&mut agent, "archive__parchment_burn").await;
    let unknown = call_through(&mut agent, "archive__parchment_bury").await;
    let (denied, unknown) = (denied.error(), unknown.error());
    assert_eq!(denied["code"], unknown["code"]);
    let words = |error: &Value| error["message"].as_str().unwrap().replace("bury", "burn");
    assert_eq!(words(&denied), words(&unknown));
    assert_eq!(call_through(&mut agent, CALL).await.code(), -32602);
}

/// MGP-066.
#[tokio::test]
async fn call_through_the_kernels_own_tool_is_recorded_under_its_name() {
    let (kernel, mut agent) = without_burn().await;
    call_through(&mut agent, "archive__parchment_burn")
        .await
        .error();
    call_through(&mut agent, "archive__parchment_copy")
        .await
        .result();
    let of = |written: &[Value], kind: &str, name: &str| {
        let it = |e: &&Value| e["event_type"] == kind && e["target"]["tool_name"] == name;
        written.iter().filter(it).count()
    };
    let mut written = Vec::new();
    wait_until("the call is recorded", DEADLINE, async || {
        written = events(&kernel).await;
        of(&written, "TOOL_EXECUTED", "parchment_copy") == 1
    })
    .await;
    assert_eq!(of(&written, "TOOL_BLOCKED", "parchment_burn"), 1);
}

const PINNED: &str = "archive__parchment_read";

/// A kernel with this exposure, which pins a tool.
async fn exposing(exposure: &str) -> Kernel {
    let pinned = "pinned = [\"archive/parchment_read\"]";
    kernel_with(&format!(
        "[discovery]\nembedding = \"off\"\nexposure = \"{exposure}\"\n{pinned}\n"
    ))
    .await
}

/// The names in the one page of an agent's list.
async fn listed(agent: &mut Agent) -> Vec<String> {
    let list = agent.request("tools/list", json!({})).await.result();
    assert!(list["nextCursor"].is_null(), "{list:#}");
    let tools = list["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

/// MGP-257: what is called since is there as well, and not what is denied since.
#[tokio::test]
async fn pinned_exposure_shows_search_pinned_and_called_tools() {
    let kernel = exposing("pinned").await;
    let mut searching = agent(&kernel, None).await;
    let shown = listed(&mut searching).await;
    assert_eq!(shown, [DISCOVER, REQUEST, CALL, SESSION, EVICT, PINNED]);
    let copied = "archive__parchment_copy";
    let hidden = searching.call(copied, json!({"path": "/x"})).await;
    assert!(!hidden.is_error());
    assert_eq!(names(&found(&mut searching, json!({})).await).len(), 3);
    let denied = [
        "grants",
        "add",
        "agent.anonymous",
        "archive/parchment_read",
        "--deny",
    ];
    kernel.mgp_json(&denied).await;
    let shown = listed(&mut searching).await;
    assert_eq!(shown, [DISCOVER, REQUEST, CALL, SESSION, EVICT, copied]);
}

/// Whatever agents are shown.
#[tokio::test]
async fn operator_is_shown_every_tool_under_pinned_exposure() {
    let kernel = exposing("pinned").await;
    assert!(listed(&mut operator(&kernel).await).await.len() > 40);
}

/// MGP-233.
#[tokio::test]
async fn discovery_exposure_shows_search_tools_alone() {
    let kernel = exposing("discovery").await;
    let mut agent = agent(&kernel, None).await;
    assert_eq!(listed(&mut agent).await, [DISCOVER, REQUEST, CALL]);
}

/// MGP-234.
#[tokio::test]
async fn exposure_all_shows_every_tool_and_no_search() {
    let kernel = kernel().await;
    let all = listed(&mut agent(&kernel, None).await).await;
    assert!(all.len() > 40 && !all.contains(&DISCOVER.to_owned()));
}
