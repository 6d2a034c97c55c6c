//! The tools of a session, and requests for tools that are missing (MGP §16.6, §16.7, §16.8).

use mgp_tests::harness::mgp::{declaration, declaring, trace};
use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, wait_until};
use serde_json::{Value, json};

use crate::audit::events;
use crate::permissions::{id, question};
use crate::scene::made::{NEWEST, operator};

const REQUEST: &str = "mgp_tools_request";
const SESSION: &str = "mgp_tools_session";
const EVICT: &str = "mgp_tools_session_evict";

fn tool(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description, "inputSchema": {"type": "object"}})
}

fn tools() -> Vec<Value> {
    vec![
        tool("parchment_read", "Reads a parchment"),
        tool("parchment_copy", "Copies a parchment"),
        tool("seal_break", "Breaks a seal"),
        tool("ink_mix", "Mixes ink"),
    ]
}

/// A server of these tools, and nobody who is asked before a call.
async fn kernel_of(tools: &[Value], server: &str, discovery: &str) -> Kernel {
    let flags: Vec<String> = tools.iter().map(|tool| format!("--tool={tool}")).collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let archive = Program::fixture(&flags).entry("archive") + server;
    let off = "[confirmation]\nenabled = false\n[discovery]\nembedding = \"off\"\n";
    let kernel = Kernel::start(&format!("{archive}{off}{discovery}")).await;
    kernel.connected(&["archive"]).await;
    let find = ["tools", "find", "ink", "--strategy", "keyword"];
    wait_until("it can be found", DEADLINE, async || {
        kernel.mgp_json(&find).await["tools"]
            .to_string()
            .contains("ink_mix")
    })
    .await;
    kernel
}

const TRUSTED: &str = "[servers.mgp]\ntrust_level = \"trusted\"\n";
const PINNED: &str = "exposure = \"pinned\"\npinned = [\"archive/ink_mix\"]\n";

async fn kernel() -> Kernel {
    kernel_of(&tools(), TRUSTED, PINNED).await
}

async fn agent(kernel: &Kernel) -> Agent {
    let mut agent = kernel.http_agent(None);
    agent.initialize(NEWEST, "{}").await.result();
    agent
}

async fn own(agent: &mut Agent, tool: &str, arguments: Value) -> Value {
    agent.call(tool, arguments).await.result()["structuredContent"].take()
}

async fn held(agent: &mut Agent) -> Value {
    own(agent, SESSION, json!({})).await
}

async fn requested(agent: &mut Agent, capabilities: &[&str]) -> Value {
    let needs = json!({"requirements": {"capabilities": capabilities}});
    own(agent, REQUEST, needs).await
}

async fn listed(agent: &mut Agent) -> Vec<String> {
    let list = agent.request("tools/list", json!({})).await.result();
    let tools = list["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

/// MGP-258: until the session ends, in this session alone, and it is in the list.
#[tokio::test]
async fn called_tools_are_cached_for_the_session() {
    let kernel = kernel().await;
    let mut one = agent(&kernel).await;
    let mut other = agent(&kernel).await;
    let first = held(&mut one).await;
    for name in [
        "archive__parchment_read",
        "archive:parchment_copy",
        "archive__ink_mix",
    ] {
        one.call(name, json!({})).await.result();
    }
    let after = held(&mut one).await;
    let cached = json!(["archive__parchment_copy", "archive__parchment_read"]);
    assert_eq!(after["cached"], cached);
    assert!(after["total_tokens"].as_u64() > first["total_tokens"].as_u64());
    let copy = "archive__parchment_copy".to_owned();
    assert!(listed(&mut one).await.contains(&copy));
    assert_eq!(held(&mut other).await["cached"], json!([]));
    assert!(!listed(&mut other).await.contains(&copy));
    let mut again = agent(&kernel).await;
    assert_eq!(held(&mut again).await["cached"], json!([]));
}

/// MGP-259.
#[tokio::test]
async fn discovered_tools_are_not_cached() {
    let kernel = kernel().await;
    let mut agent = agent(&kernel).await;
    let found = json!({"query": "seal", "strategy": "keyword"});
    let found = own(&mut agent, "mgp_tools_discover", found).await;
    assert!(found.to_string().contains("archive__seal_break"));
    assert_eq!(held(&mut agent).await["cached"], json!([]));
    let list = listed(&mut agent).await;
    assert!(
        !list.contains(&"archive__seal_break".to_owned()),
        "{list:?}"
    );
}

/// MGP-257: before any call, and in the list.
#[tokio::test]
async fn pinned_tools_are_always_in_the_session() {
    let kernel = kernel().await;
    let mut agent = agent(&kernel).await;
    let session = held(&mut agent).await;
    assert_eq!(session["pinned"], json!(["archive__ink_mix"]));
    let list = listed(&mut agent).await;
    assert!(list.contains(&"archive__ink_mix".to_owned()), "{list:?}");
}

/// MGP-260, MGP-263: with the defaults of the document.
#[tokio::test]
async fn session_reports_its_tools_and_its_token_budget() {
    let kernel = kernel().await;
    let mut agent = agent(&kernel).await;
    let session = held(&mut agent).await;
    assert_eq!(session["pinned"], json!(["archive__ink_mix"]));
    assert_eq!(session["cached"], json!([]));
    assert!(session["total_tokens"].is_u64(), "{session}");
    assert_eq!(session["max_tokens"], 8000);
    let budget = json!({"max_tokens": 8000, "pinned_reserve": 2000, "discovery_reserve": 3000, "cache_limit": 3000});
    assert_eq!(session["tool_context_budget"], budget);
}

/// MGP-261, MGP-262, MGP-266: what is cached goes when its agent lets go of it, what is pinned stays; a
/// tool that is denied from now on is held no longer.
#[tokio::test]
async fn evicted_and_denied_tools_leave_the_session_and_pinned_ones_stay() {
    let kernel = kernel().await;
    let mut agent = agent(&kernel).await;
    for name in [
        "archive__parchment_read",
        "archive__parchment_copy",
        "archive__seal_break",
    ] {
        agent.call(name, json!({})).await.result();
    }
    let go = json!({"tools": ["archive:seal_break", "archive__ink_mix", "nothing"], "reason": "no_longer_needed"});
    let gone = own(&mut agent, EVICT, go).await;
    assert_eq!(gone["evicted"], json!(["archive:seal_break"]));
    assert_eq!(gone["pinned"], json!(["archive__ink_mix"]));
    assert_eq!(gone["not_cached"], json!(["nothing"]));
    let now = held(&mut agent).await;
    assert_eq!(now["pinned"], json!(["archive__ink_mix"]));
    let cached = json!(["archive__parchment_copy", "archive__parchment_read"]);
    assert_eq!(now["cached"], cached);
    assert_eq!(now["total_tokens"], gone["total_tokens"]);
    // The tool that was let go is the one that was called last; called again it is held again.
    let sealed = "archive__seal_break";
    agent.call(sealed, json!({})).await.result();
    assert_eq!(held(&mut agent).await["cached"][0], sealed);
    own(&mut agent, EVICT, json!({"tools": [sealed]})).await;
    let denied = [
        "grants",
        "add",
        "agent.anonymous",
        "archive/parchment_copy",
        "--deny",
    ];
    kernel.mgp_json(&denied).await;
    let now = held(&mut agent).await;
    assert_eq!(now["cached"], json!(["archive__parchment_read"]));
}

/// MGP-249, MGP-250: with whole schemas, and they are cached.
#[tokio::test]
async fn request_for_existing_tools_is_fulfilled() {
    let kernel = kernel().await;
    let mut agent = agent(&kernel).await;
    let all = json!({
        "reason": "capability_gap", "context": "A letter came",
        "requirements": {"capabilities": ["seal_break", "parchment_read"], "preferred_risk_level": "dangerous"}
    });
    let all = own(&mut agent, REQUEST, all).await;
    assert_eq!(all["status"], "fulfilled", "{all:#}");
    let loaded = all["tools_loaded"].as_array().unwrap();
    assert_eq!(loaded.len(), 2);
    assert_eq!(loaded[0]["name"], "archive__seal_break");
    assert_eq!(loaded[0]["inputSchema"], json!({"type": "object"}));
    assert_eq!(all["tools_unavailable"], json!([]));
    assert_eq!(all["session_tools_count"], 3);
    assert!(all["context_tokens_added"].as_u64().unwrap() >= 200);
    let session = held(&mut agent).await;
    assert_eq!(session["cached"].as_array().unwrap().len(), 2);
}

/// MGP-251.
#[tokio::test]
async fn request_for_some_existing_tools_is_partial() {
    let kernel = kernel().await;
    let mut agent = agent(&kernel).await;
    let some = requested(&mut agent, &["ink_mix", "xylophone quux"]).await;
    assert_eq!(some["status"], "partial", "{some:#}");
    assert_eq!(some["tools_loaded"].as_array().unwrap().len(), 1);
    assert_eq!(some["tools_unavailable"], json!(["xylophone quux"]));
}

/// MGP-252: many tools have the first word, which does not make one of them a match.
#[tokio::test]
async fn request_for_no_existing_tool_is_unavailable() {
    let kernel = kernel().await;
    let mut agent = agent(&kernel).await;
    let none = requested(&mut agent, &["test the xylophone"]).await;
    assert_eq!(none["status"], "unavailable", "{none:#}");
    assert_eq!(none["tools_loaded"], json!([]));
}

#[tokio::test]
async fn request_without_capabilities_is_rejected() {
    let kernel = kernel().await;
    let mut agent = agent(&kernel).await;
    let nothing = json!({"requirements": {"capabilities": []}});
    assert_eq!(agent.call(REQUEST, nothing).await.code(), -32602);
}

/// MGP-256: as a tool and as a method.
#[tokio::test]
async fn request_is_recorded_once_with_the_trace_of_its_task() {
    let kernel = kernel().await;
    let mut agent = agent(&kernel).await;
    let mut owner = operator(&kernel).await;
    let traced = |words: &str| json!({"requirements": {"capabilities": ["seal_break"]}, "task_trace_id": trace(words)});
    own(&mut agent, REQUEST, traced("the letter")).await;
    let method = owner.request("mgp/tools/request", traced("the owner"));
    assert_eq!(method.await.result()["status"], "fulfilled");
    for words in ["the letter", "the owner"] {
        let trace = trace(words);
        let it =
            |e: &&Value| e["trace_id"] == trace.as_str() && e["target"]["tool_name"] == REQUEST;
        let written = async || events(&kernel).await.iter().filter(it).count();
        wait_until(words, DEADLINE, async || written().await > 0).await;
        assert_eq!(written().await, 1, "{words}");
    }
}

/// MGP-248: what is asked for in one request counts as if it had been asked for one by one, as a tool and
/// as a method; one that counts too much is refused whole.
#[tokio::test]
async fn each_capability_of_a_request_counts_as_a_call() {
    let limits = "[limits]\nagent_calls_per_minute = 6\n";
    let kernel = kernel_of(&tools(), &format!("{TRUSTED}{limits}"), PINNED).await;
    let said = declaring(NEWEST, "{}", &declaration(&["tool_discovery"]));
    let mut agent = kernel.http_agent(None);
    agent.initialize(NEWEST, &said).await.result();
    let needs = |capabilities: &[&str]| json!({"requirements": {"capabilities": capabilities}});
    let three = needs(&["seal", "ink", "parchment"]);
    assert!(!agent.call(REQUEST, three.clone()).await.is_error());
    let find = json!({"query": "seal", "strategy": "keyword"});
    assert!(!agent.request("mgp/tools/discover", find).await.is_error());
    let many = agent.request("mgp/tools/request", three).await;
    assert_eq!(many.code(), 3000, "{}", many.frame);
}

/// MGP-264, MGP-265, MGP-266: above the limit the tool that was not used for longest goes first; what is
/// pinned does not.
#[tokio::test]
async fn least_recently_used_tool_is_evicted_over_budget() {
    // A short tool costs 100 tokens and its schema: two of them fit.
    let budget = "[tuning.discovery.budget]\nmax_tokens = 700\npinned_reserve = 200\ndiscovery_reserve = 250\ncache_limit = 250\n";
    let kernel = kernel_of(&tools(), TRUSTED, &format!("{PINNED}{budget}")).await;
    let mut agent = agent(&kernel).await;
    for name in [
        "parchment_read",
        "parchment_copy",
        "parchment_read",
        "seal_break",
    ] {
        agent
            .call(&format!("archive__{name}"), json!({}))
            .await
            .result();
    }
    let now = held(&mut agent).await;
    let cached = json!(["archive__seal_break", "archive__parchment_read"]);
    assert_eq!(now["cached"], cached, "{now:#}");
    assert_eq!(now["pinned"], json!(["archive__ink_mix"]));
    assert_eq!(now["max_tokens"], 700);
    assert!(now["total_tokens"].as_u64().unwrap() <= 700);
    let found = json!({"query": "parchment seal ink", "strategy": "keyword", "max_results": 4});
    let found = own(&mut agent, "mgp_tools_discover", found).await;
    assert_eq!(found["tools"].as_array().unwrap().len(), 2, "{found:#}");
    assert!(found["left_out"].as_u64().unwrap() >= 1);
}

/// MGP-267: what a session holds stays within its limit whatever is called and asked at once.
#[tokio::test]
async fn session_stays_within_its_budget_under_parallel_use() {
    let mut tools = tools();
    tools.extend((0..40).map(|n| tool(&format!("page_{n}"), "A page")));
    let kernel = kernel_of(&tools, TRUSTED, PINNED).await;
    let mut agent = agent(&kernel).await;
    let mut waiting = Vec::new();
    for round in 0..3 {
        for n in 0..40 {
            let name = format!("archive__page_{}", (n * 7 + round) % 40);
            let call = json!({"name": name, "arguments": {}});
            waiting.push(agent.start("tools/call", call).await);
            if n % 4 == 0 {
                let call = json!({"name": SESSION, "arguments": {}});
                waiting.push(agent.start("tools/call", call).await);
            }
        }
    }
    let mut told = 0;
    for id in waiting {
        let answer = agent.answer_to(&id).await.result();
        if let Some(total) = answer["structuredContent"]["total_tokens"].as_u64() {
            assert!(total <= 8000, "{answer:#}");
            told += 1;
        }
    }
    assert_eq!(told, 30);
    let now = held(&mut agent).await;
    let cached = now["cached"].as_array().unwrap();
    assert!(cached.len() > 10 && cached.len() < 40, "{now:#}");
}

/// MGP-253: a tool whose server waits for a permission is told of, and loaded once a person has allowed it.
#[tokio::test]
async fn request_for_a_tool_without_its_permission_is_pending_approval() {
    let mut tools = tools();
    let mut waits = tool("vault_open", "Opens the vault");
    waits["security"] = json!({"risk_level": "safe", "permissions_required": ["shell.execute"]});
    tools.push(waits);
    let kernel = kernel_of(&tools, TRUSTED, PINNED).await;
    let mut agent = agent(&kernel).await;
    let asked = question(&kernel).await;
    let waits = requested(&mut agent, &["vault"]).await;
    assert_eq!(waits["status"], "pending_approval", "{waits:#}");
    assert_eq!(waits["tools_loaded"], json!([]));
    let pending = &waits["tools_pending"][0];
    assert_eq!(pending["name"], "archive__vault_open");
    assert_eq!(pending["permissions"], json!(["shell.execute"]));
    assert_eq!(held(&mut agent).await["cached"], json!([]));
    kernel.mgp(&["approve", &id(&asked)]).await;
    wait_until("it is loaded", DEADLINE, async || {
        requested(&mut agent, &["vault"]).await["status"] == "fulfilled"
    })
    .await;
    let now = held(&mut agent).await;
    assert_eq!(now["cached"], json!(["archive__vault_open"]));
}

/// MGP-233, MGP-235, MGP-257: an agent with a word of its own is shown what that says; by itself only a
/// long list is cut; the kinds of tools stand where the tools do not.
#[tokio::test]
async fn exposure_of_tools_is_configured_per_agent() {
    let own =
        "exposure = \"auto\"\n[discovery.agents.\"agent.anonymous\"]\nexposure = \"categories\"\n";
    let kernel = kernel_of(&tools(), TRUSTED, own).await;
    let mut one = agent(&kernel).await;
    let list = one.request("tools/list", json!({})).await.result();
    let described = list["tools"][0]["description"].as_str().unwrap();
    assert_eq!(listed(&mut one).await.len(), 3);
    assert!(described.contains("archive ("), "{described}");
    drop(one);
    let kernel = kernel_of(&tools(), TRUSTED, "").await;
    let mut all = agent(&kernel).await;
    let many = listed(&mut all).await;
    assert!(
        many.len() <= 5 && many.contains(&SESSION.to_owned()),
        "{many:?}"
    );
}

/// MGP-258: a client that has read its list hears when its session makes it another one.
#[tokio::test]
async fn client_is_notified_when_its_session_changes_its_list() {
    let kernel = kernel().await;
    let mut agent = kernel.stdio_agent(None);
    agent.initialize(NEWEST, "{}").await.result();
    listed(&mut agent).await;
    agent.call("archive__seal_break", json!({})).await.result();
    agent.hears("notifications/tools/list_changed").await;
    assert!(
        listed(&mut agent)
            .await
            .contains(&"archive__seal_break".to_owned())
    );
}
