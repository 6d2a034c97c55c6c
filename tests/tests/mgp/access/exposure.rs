//! What of all tools an agent is shown (MGP §16.2, §16.3), by default and by what is set for it.

use mgp_tests::harness::mgp::{declaration, declared, declaring};
use mgp_tests::harness::{Agent, Client, DEADLINE, Kernel, Program, wait_until};
use serde_json::{Value, json};

use crate::scene::ERAS;
use crate::scene::made::{NEWEST, operator};

/// The default in everything but the model.
const DEFAULT: &str = "[discovery]\nembedding = \"off\"\n";
const CHANGED: &str = "notifications/tools/list_changed";
/// The kernel's own tools of a list that is cut.
const OWN: [&str; 5] = [
    "mgp_tools_discover",
    "mgp_tools_request",
    "mgp_tools_call",
    "mgp_tools_session",
    "mgp_tools_session_evict",
];
/// The scripted server has so many tools besides those it is told to have.
const BARE: usize = 7;

/// A server of exactly so many tools.
fn server(id: &str, tools: usize) -> String {
    let more = (tools - BARE).to_string();
    Program::fixture(&["--bare", "--tools", &more]).entry(id)
}

async fn kernel(tools: usize, discovery: &str) -> Kernel {
    let kernel = Kernel::start(&format!("{}{DEFAULT}{discovery}", server("it", tools))).await;
    kernel.connected(&["it"]).await;
    // Found a moment after it is connected.
    let find = ["tools", "find", "redefine", "--strategy", "keyword"];
    wait_until("it can be found", DEADLINE, async || {
        kernel.mgp_json(&find).await["total_available"] != 0
    })
    .await;
    kernel
}

fn names(list: &Value) -> Vec<String> {
    assert!(list["nextCursor"].is_null(), "{list:#}");
    let tools = list["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

async fn listed(agent: &mut Agent) -> Vec<String> {
    names(&agent.request("tools/list", json!({})).await.result())
}

/// The list after the next news of it.
async fn after_news(agent: &mut Agent) -> Vec<String> {
    agent.hears(CHANGED).await;
    listed(agent).await
}

/// MGP-233, MGP-234, MGP-235: an agent that did not agree to search reads all tools, up to 40 that it
/// may call; with one more it reads what finds them, and it hears of either change, whether a server
/// grew, came, went, or a grant is another one.
#[tokio::test]
async fn list_above_the_limit_shows_search_tools_and_notifies_its_client() {
    let kernel = kernel(40, "").await;
    let mut owner = operator(&kernel).await;
    let mut agent = kernel.http_agent(None);
    agent.initialize(NEWEST, "{}").await.result();
    assert_eq!(listed(&mut agent).await.len(), 40);
    owner.call("it:grow", json!({})).await.result();
    assert_eq!(after_news(&mut agent).await, OWN);
    assert_eq!(listed(&mut owner).await.len(), 41);
    let denied = ["grants", "add", "agent.anonymous", "it/echo_0", "--deny"];
    kernel.mgp_json(&denied).await;
    let all = after_news(&mut agent).await;
    assert!(all.len() == 40 && !all.contains(&"it__echo_0".to_owned()));
    let taken_back = ["grants", "remove", "agent.anonymous", "it/echo_0"];
    kernel.mgp_json(&taken_back).await;
    assert_eq!(after_news(&mut agent).await, OWN);
    kernel.rewrite(&server("other", 20));
    while listed(&mut agent).await.len() != 20 {
        agent.hears(CHANGED).await;
    }
    kernel.rewrite(&(server("other", 20) + &server("third", 21)));
    while listed(&mut agent).await != OWN {
        agent.hears(CHANGED).await;
    }
}

/// MGP-021, MGP-233, MGP-234: who agreed to search is shown what finds tools, however few there are, and
/// searches by method; who agreed to something else, or to nothing, is shown all and knows no such method.
#[tokio::test]
async fn agent_that_negotiated_discovery_is_shown_search_tools() {
    let kernel = kernel(BARE + 1, "pinned = [\"it/grow\"]\n").await;
    for version in ERAS {
        for (extension, searches) in [("tool_discovery", true), ("audit", false)] {
            let said = declaring(version, "{}", &declaration(&[extension]));
            let mut client = Client::over_http(kernel.url(), version, &said).await;
            let list = client.request("tools/list", json!({})).await.result();
            let find = json!({"query": "adds a tool", "strategy": "keyword"});
            let found = client.request("mgp/tools/discover", find).await;
            if searches {
                let shown = names(&list);
                assert_eq!(shown[..5], OWN, "{version}");
                assert_eq!(shown[5..], ["it__grow"], "{version}");
                assert_eq!(found.result()["tools"][0]["name"], "it__grow");
            } else {
                assert_eq!(names(&list).len(), BARE + 1, "{version}");
                assert_eq!(found.code(), -32601, "{version}");
            }
        }
        let mut plain = Client::over_http(kernel.url(), version, "{}").await;
        let list = plain.request("tools/list", json!({})).await.result();
        assert_eq!(names(&list).len(), BARE + 1, "{version}");
        assert!(declared(version, &list).is_null());
    }
}

/// MGP-234, MGP-260: whoever asks for one server by its name is shown all of it: more tools than are read
/// at the merged door, whatever is set there for all or for the agent, over HTTP and `mgp stdio --server`,
/// with search agreed to or not; unless something is set for that very door.
#[tokio::test]
async fn endpoint_of_one_server_lists_all_of_its_tools() {
    for set in [
        "",
        "exposure = \"discovery\"\n",
        "[discovery.agents.\"agent.anonymous\"]\nexposure = \"pinned\"\n",
    ] {
        let kernel = kernel(41, set).await;
        for version in ERAS {
            let said = declaring(version, "{}", &declaration(&["tool_discovery"]));
            for said in ["{}", &said] {
                let mut merged = Client::over_http(kernel.url(), version, said).await;
                let list = merged.request("tools/list", json!({})).await.result();
                assert!(names(&list).len() <= OWN.len(), "{set} {version}");
                let mut one = Client::over_http(&kernel.server_url("it"), version, said).await;
                let list = one.request("tools/list", json!({})).await.result();
                let shown = names(&list);
                assert_eq!(shown.len(), 41, "{set} {version}: {shown:?}");
                assert!(shown.contains(&"grow".to_owned()), "under its own names");
            }
        }
        let mut line = kernel.stdio_agent(Some("it"));
        line.initialize(NEWEST, "{}").await.result();
        assert_eq!(listed(&mut line).await.len(), 41, "{set}");
    }
    let kernel = kernel(41, "[discovery.servers.it]\nexposure = \"auto\"\n").await;
    let mut one = kernel.http_agent(Some("it"));
    one.initialize(NEWEST, "{}").await.result();
    assert_eq!(listed(&mut one).await, OWN);
}

/// MGP-257: what is pinned for one agent stands in its list beside what is pinned for all, and in nobody
/// else's.
#[tokio::test]
async fn tool_pinned_for_one_agent_is_shown_to_it_alone() {
    let own = "[discovery.agents.\"agent.anonymous\"]\npinned = [\"it/notify\"]\n";
    let kernel = kernel(41, &format!("pinned = [\"it/grow\"]\n{own}")).await;
    let (mut one, mut other) = (kernel.http_agent(None), kernel.stdio_agent(None));
    for (agent, pinned) in [
        (&mut one, vec!["it__grow", "it__notify"]),
        (&mut other, vec!["it__grow"]),
    ] {
        agent.initialize(NEWEST, "{}").await.result();
        let shown = listed(agent).await;
        assert_eq!(shown[..5], OWN);
        assert_eq!(shown[5..], pinned);
        let held = agent.call("mgp_tools_session", json!({})).await.result();
        assert_eq!(held["structuredContent"]["pinned"], json!(pinned));
    }
}

/// MGP-249, MGP-258, MGP-260, MGP-261: a request that stands alone is answered as any other, is told that
/// it has no session, and nothing is held of it.
#[tokio::test]
async fn stateless_request_has_no_tool_session() {
    let kernel = kernel(41, "pinned = [\"it/grow\"]\n").await;
    let mut alone = Client::over_http(kernel.url(), ERAS[1], "{}").await;
    let mut own = async |tool: &str, arguments: Value| {
        let mut answer = alone.call(tool, arguments).await.result();
        answer["structuredContent"].take()
    };
    own("it__echo_0", json!({"text": "hello"})).await;
    let needs = json!({"requirements": {"capabilities": ["redefine"]}});
    let loaded = own("mgp_tools_request", needs).await;
    assert_eq!(loaded["status"], "fulfilled", "{loaded:#}");
    assert_eq!(loaded["tools_loaded"][0]["name"], "it__redefine");
    assert_eq!(loaded["session_tools_count"], 1);
    let held = own("mgp_tools_session", json!({})).await;
    assert_eq!(held["pinned"], json!(["it__grow"]));
    assert_eq!(held["cached"], json!([]));
    for answer in [&loaded, &held] {
        let note = answer["note"].as_str().unwrap();
        assert!(note.contains("have no session"), "{note}");
    }
    let go = json!({"tools": ["it__redefine", "it__grow"]});
    let gone = own("mgp_tools_session_evict", go).await;
    assert_eq!(gone["evicted"], json!([]));
    assert_eq!(gone["pinned"], json!(["it__grow"]));
    assert_eq!(gone["not_cached"], json!(["it__redefine"]));
    let list = alone.request("tools/list", json!({})).await.result();
    assert_eq!(names(&list).len(), 6, "{list:#}");
}
