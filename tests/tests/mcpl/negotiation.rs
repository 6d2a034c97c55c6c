//! Servers and agents with MCPL and without, side by side (MCPL §3 to §5).

use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::scene::{Driver, Host, VERSION, host, memory, server};

/// Every request of servers.
const SERVER_REQUESTS: [&str; 7] = [
    "push/event",
    "inference/request",
    "model/info",
    "scope/elevate",
    "channels/register",
    "channels/list",
    "channels/incoming",
];

/// A server of this version of MCPL.
fn server_of_version(version: &str) -> Program {
    let mut declared = memory();
    declared["version"] = json!(version);
    server(&declared)
}

fn plain_server() -> Program {
    Program::fixture(&["--mcpl-answers", "{}"])
}

/// A server with MCPL and one without.
async fn start_kernel() -> Kernel {
    let servers = [
        server(&memory()).entry("memory"),
        plain_server().entry("plain"),
    ];
    let kernel = Kernel::start(&servers.concat()).await;
    kernel.connected(&["memory", "plain"]).await;
    kernel
}

async fn plain_agent(kernel: &Kernel) -> Agent {
    let mut plain = kernel.stdio_agent(None);
    plain
        .initialize(VERSION, r#"{"experimental":{"x":{}}}"#)
        .await;
    plain
}

/// The whole frames that reached a server.
async fn frames(driver: &mut Driver) -> Vec<Value> {
    let received = driver.called("received", json!({})).await;
    let frames = received["frames"].as_array().unwrap().iter();
    frames
        .map(|frame| serde_json::from_str(frame.as_str().unwrap()).unwrap())
        .collect()
}

/// Nothing reached this server but the beginning of its session and calls.
async fn assert_no_mcpl_messages(driver: &mut Driver) {
    let heard = driver.heard().await;
    let own = ["tools/call", "notifications/initialized"];
    let of_mcpl = heard
        .iter()
        .filter(|message| !own.iter().any(|own| message["method"] == *own));
    assert_eq!(of_mcpl.count(), 0, "{heard:?}");
}

/// MCPL-030, MCPL-037, MCPL-150: though none is enabled, and before any other message.
#[tokio::test]
async fn feature_sets_are_sent_to_a_server_right_after_initialization() {
    let kernel = start_kernel().await;
    let mut driver = Driver::at(&kernel, "memory").await;
    let updates = driver.hears("featureSets/update", 1).await;
    let all = [
        "memory.consolidation",
        "memory.extraction",
        "memory.proactive",
        "memory.retrieval",
    ];
    assert_eq!(
        updates[0]["params"],
        json!({"enabled": [], "disabled": all})
    );
    let heard = driver.heard().await;
    let first: Vec<_> = heard
        .iter()
        .take(2)
        .map(|message| &message["method"])
        .collect();
    assert_eq!(first, ["notifications/initialized", "featureSets/update"]);
}

/// MCPL-017.
#[tokio::test]
async fn feature_sets_update_is_a_notification_in_both_directions() {
    let kernel = start_kernel().await;
    let mut driver = Driver::at(&kernel, "memory").await;
    let updates = driver.hears("featureSets/update", 1).await;
    assert!(updates[0].get("id").is_none(), "{updates:?}");
    let host = Host::start(&kernel).await;
    let answer = host.request("featureSets/update", json!({})).await;
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
}

/// MCPL-009: the frames that a server and an agent get.
#[tokio::test]
async fn mcpl_messages_are_json_rpc_2_0() {
    let kernel = start_kernel().await;
    let host = Host::start(&kernel).await;
    let mut driver = Driver::at(&kernel, "memory").await;
    kernel
        .mgp_json(&["mcpl", "sets", "enable", "memory", "memory.*"])
        .await;
    driver.hears("featureSets/update", 2).await;
    let frames = frames(&mut driver).await;
    let of_mcpl = frames
        .iter()
        .filter(|frame| frame["method"] == "featureSets/update");
    assert_eq!(of_mcpl.count(), 2, "{frames:?}");
    for frame in &frames {
        assert_eq!(frame["jsonrpc"], "2.0", "{frame}");
    }
    host.hears("featureSets/changed").await;
    let answer = host.request("channels/list", json!({})).await;
    assert_eq!(answer["jsonrpc"], "2.0", "{answer}");
}

/// MCPL-010.
#[tokio::test]
async fn requests_are_answered_under_their_ids_and_notifications_are_not() {
    let kernel = start_kernel().await;
    let mut agent = kernel.stdio_agent(None);
    let declared = json!({"experimental": {"mcpl": host()}});
    agent.initialize(VERSION, &declared.to_string()).await;
    for id in [json!("x \u{e9}"), json!(7)] {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": "channels/list", "params": {}});
        agent.send(&request.to_string()).await;
        agent.answer_to(&id).await.result();
    }
    for (method, params) in [
        ("featureSets/update", json!({"disabled": ["*"]})),
        ("featureSets/update", json!([1])),
        ("channels/publish", json!({})),
        ("context/afterInference", json!({})),
    ] {
        agent.notify(method, params).await;
    }
    let next = agent.request("ping", json!({})).await;
    assert_eq!(next.result(), json!({}));
    assert!(agent.all_heard().is_empty(), "{:?}", agent.all_heard());
}

/// MCPL-149.
#[tokio::test]
async fn every_request_of_a_server_is_answered_at_once() {
    let servers = [
        server(&memory()).entry("memory"),
        server_of_version("0.3").entry("older"),
    ];
    let kernel = Kernel::start(&servers.concat()).await;
    kernel.connected(&["memory", "older"]).await;
    for id in ["memory", "older"] {
        let mut driver = Driver::at(&kernel, id).await;
        for method in SERVER_REQUESTS.into_iter().chain(["no/such"]) {
            let began = Instant::now();
            let answer = driver.ask(method, json!({})).await;
            let took = began.elapsed();
            assert!(took < DEADLINE / 10, "{method}: {took:?}");
            let answered = answer.get("result").is_some() || answer.get("error").is_some();
            assert!(answered, "{id} {method}: {answer}");
        }
    }
}

/// MCPL-032: a draft before ours is taken, a version with another major number is not.
#[tokio::test]
async fn server_of_an_earlier_draft_is_accepted_and_of_another_major_version_is_not() {
    let servers =
        ["0.3", "1.0"].map(|version| server_of_version(version).entry(&version.replace('.', "_")));
    let kernel = Kernel::start(&servers.concat()).await;
    kernel.connected(&["0_3", "1_0"]).await;
    let mut earlier = Driver::at(&kernel, "0_3").await;
    earlier.hears("featureSets/update", 1).await;
    let mut other = Driver::at(&kernel, "1_0").await;
    for method in SERVER_REQUESTS {
        let params = json!({"featureSet": "memory.proactive"});
        let answer = other.ask(method, params).await;
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
    }
    assert_no_mcpl_messages(&mut other).await;
}

/// MCPL-007: nor is one whose entry turns MCPL off.
#[tokio::test]
async fn server_without_mcpl_is_sent_no_mcpl_message() {
    let muted = server(&memory())
        .entry("muted")
        .replace("[[servers]]", "[[servers]]\nmcpl = false");
    let enabled = "[mcpl.servers.muted]\nenable = [\"*\"]\n";
    let entries = [plain_server().entry("plain"), muted, enabled.to_owned()];
    let kernel = Kernel::start(&entries.concat()).await;
    kernel.connected(&["plain", "muted"]).await;
    let host = Host::start(&kernel).await;
    let before = json!({
        "inferenceId": "i", "conversationId": "c", "turnIndex": 0, "userMessage": "hi",
        "model": {"id": "m", "vendor": "v", "contextWindow": 1, "capabilities": []},
    });
    let answer = host.request("context/beforeInference", before).await;
    assert_eq!(answer["result"]["contextInjections"], json!([]), "{answer}");
    for id in ["plain", "muted"] {
        let mut driver = Driver::at(&kernel, id).await;
        assert_no_mcpl_messages(&mut driver).await;
        let initialize = frames(&mut driver).await;
        let told = initialize
            .iter()
            .any(|frame| frame["params"]["capabilities"]["experimental"]["mcpl"].is_object());
        assert_eq!(told, id == "plain", "{initialize:?}");
    }
}

/// MCPL-008.
#[tokio::test]
async fn mcpl_request_of_a_server_without_mcpl_returns_method_not_found() {
    let kernel = start_kernel().await;
    let mut driver = Driver::at(&kernel, "plain").await;
    for method in SERVER_REQUESTS {
        let params = json!({"featureSet": "memory.proactive"});
        let answer = driver.ask(method, params).await;
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
    }
}

/// MCPL-004.
#[tokio::test]
async fn mcpl_is_declared_as_an_experimental_capability_and_no_protocol_version() {
    let kernel = start_kernel().await;
    let host = Host::start(&kernel).await;
    assert_eq!(host.hello["protocolVersion"], VERSION);
    assert_eq!(host.declared()["version"], "0.4");
}

/// MCPL-029.
#[tokio::test]
async fn kernel_declares_a_whole_host_to_servers() {
    let kernel = start_kernel().await;
    let mut driver = Driver::at(&kernel, "memory").await;
    let frames = frames(&mut driver).await;
    let mut initialize = frames
        .iter()
        .filter(|frame| frame["method"] == "initialize");
    let params = &initialize.next().unwrap()["params"];
    let mut whole = host();
    whole["versions"] = json!(["0.4", "0.5"]);
    whole["inferenceLifecycle"] = json!(true);
    whole["channels"]["incoming"] = json!(true);
    assert_eq!(params["capabilities"]["experimental"]["mcpl"], whole);
}

/// MCPL-151: see also `feature_sets`.
#[tokio::test]
async fn agent_is_shown_the_enabled_sets_of_all_servers_by_qualified_names() {
    let kernel = start_kernel().await;
    let host = Host::start(&kernel).await;
    assert_eq!(host.declared()["pushEvents"], true);
    assert_eq!(host.declared()["featureSets"], json!({}));
    kernel
        .mgp_json(&["mcpl", "sets", "enable", "memory", "memory.proactive"])
        .await;
    host.hears("featureSets/changed").await;
    let later = Host::start(&kernel).await;
    let sets = later.declared()["featureSets"].as_object().unwrap();
    let names: Vec<&String> = sets.keys().collect();
    assert_eq!(names, ["memory.memory.proactive"]);
}

/// MCPL-006.
#[tokio::test]
async fn agent_without_mcpl_is_shown_nothing_of_it() {
    let kernel = start_kernel().await;
    let mut plain = kernel.stdio_agent(None);
    let hello = plain
        .initialize(VERSION, r#"{"experimental":{"x":{}}}"#)
        .await;
    assert!(!hello.frame.contains("mcpl"), "{}", hello.frame);
    for method in [
        "context/beforeInference",
        "state/rollback",
        "channels/list",
        "channels/publish",
    ] {
        let answer = plain.request(method, json!({})).await;
        assert_eq!(answer.code(), -32601, "{method}: {}", answer.frame);
    }
    let update = json!({"enabled": ["memory.memory.proactive"]});
    plain.notify("featureSets/update", update).await;
    plain.request("ping", json!({})).await.result();
    assert!(plain.all_heard().is_empty(), "{:?}", plain.all_heard());
}

/// MCPL-001.
#[tokio::test]
async fn servers_and_agents_with_mcpl_and_without_call_each_other() {
    let kernel = start_kernel().await;
    let host = Host::start(&kernel).await;
    let mut plain = plain_agent(&kernel).await;
    for server in ["memory", "plain"] {
        let tool = format!("{server}__mcpl_heard");
        let answer = host.call(&tool, json!({})).await;
        assert!(answer.get("result").is_some(), "{tool}: {answer}");
        plain.call(&tool, json!({})).await.result();
    }
}

/// MCPL-002.
#[tokio::test]
async fn methods_of_mcp_answer_alike_with_mcpl_and_without() {
    let kernel = start_kernel().await;
    let host = Host::start(&kernel).await;
    let mut plain = plain_agent(&kernel).await;
    for method in ["tools/list", "prompts/list", "resources/list", "ping"] {
        let answer = host.request(method, json!({})).await;
        let expected = plain.request(method, json!({})).await.result();
        assert_eq!(answer["result"], expected, "{method}");
    }
    let params = json!({"name": "nobody__none", "arguments": {}});
    let answer = host.request("tools/call", params.clone()).await;
    let expected = plain.request("tools/call", params).await;
    assert_eq!(answer["error"]["code"], expected.code(), "{answer}");
}
