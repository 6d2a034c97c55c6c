//! Extensions of MCP (SEP-2133): what each side is told of the other's, and methods that the kernel does not know.

use mgp_tests::harness::envelope::MODERN;
use mgp_tests::harness::{Agent, Client, DEADLINE, Kernel, Program, wait_until};
use serde_json::{Value, json};

use crate::scene::{self, NEWEST};

const VERSIONS: [&str; 2] = [NEWEST, MODERN];
const DECLARED: &str = r#"{"com.example/jobs":{"n":1.0},"io.modelcontextprotocol/ui":{}}"#;
const CLIENT: &str = r#"{"extensions":{"com.example/jobs":{"depth":3},"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}"#;
const METHODS: &str = r#"{"jobs/run":{"ran":[1.0]},"tools/extra":{"no":true}}"#;

/// A server with an extension and its methods.
fn program(era: &str) -> Program {
    let flags = ["--era", era, "--extensions", DECLARED, "--methods", METHODS];
    Program::fixture(&flags)
}

async fn start(era: &str, keys: &str) -> Kernel {
    let kernel = Kernel::start(&(program(era).entry("it") + keys)).await;
    kernel.connected(&["it"]).await;
    kernel
}

/// The capabilities that a client of this version is told.
async fn told(url: &str, version: &str) -> Value {
    if version == MODERN {
        let mut client = Client::over_http(url, version, CLIENT).await;
        let discovered = client.request("server/discover", json!({})).await;
        return discovered.result()["capabilities"].take();
    }
    let mut agent = Agent::over_http(url);
    let welcome = agent.initialize(version, CLIENT).await;
    welcome.result()["capabilities"].take()
}

/// The frames of this method that reached the server, newest last.
async fn frames(kernel: &Kernel, method: &str) -> Vec<Value> {
    let mut watcher = scene::http_agent(kernel, Some("it"), "{}").await;
    let all = scene::received(&mut watcher, "received").await;
    let all = all
        .iter()
        .filter_map(|frame| serde_json::from_str(frame).ok());
    all.filter(|frame: &Value| frame["method"] == method)
        .collect()
}

fn stated(frame: &Value) -> &Value {
    &frame["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]["extensions"]
}

/// EXT-002: a shared server is told a configured set of client extensions, at `initialize` and in requests of the kernel:
/// by default those that the kernel relays.
#[tokio::test]
async fn shared_server_is_told_the_configured_extensions() {
    let ui = json!({"mimeTypes": ["text/html;profile=mcp-app"]});
    let own = "client_extensions = { \"com.example/a\" = { n = 1, deep = { x = [true] } } }\n";
    let configured = json!({"n": 1, "deep": {"x": [true]}});
    for (keys, id, settings) in [
        ("", "io.modelcontextprotocol/ui", &ui),
        (own, "com.example/a", &configured),
    ] {
        let kernel = start("legacy", keys).await;
        let mut agent = scene::http_agent(&kernel, None, CLIENT).await;
        agent.call("it__count", json!({})).await.result();
        let opening = &frames(&kernel, "initialize").await[0]["params"]["capabilities"];
        let mut extensions = opening["extensions"].as_object().unwrap().clone();
        extensions.remove("dev.cloto/mgp");
        assert_eq!(Value::Object(extensions), json!({id: settings}));
        let kernel = start("modern", keys).await;
        let listing = frames(&kernel, "tools/list").await;
        assert_eq!(&stated(&listing[0])[id], settings);
    }
}

/// EXT-003: a server of 2026-07-28 is told with each call what its caller declared, and no more, whatever version that
/// speaks.
#[tokio::test]
async fn each_call_states_the_extensions_of_its_caller() {
    let kernel = start("modern", "").await;
    let declared: Value = serde_json::from_str(CLIENT).unwrap();
    for version in VERSIONS {
        for (capabilities, expected) in
            [(CLIENT, declared["extensions"].clone()), ("{}", json!({}))]
        {
            let mut client = Client::over_http(kernel.url(), version, capabilities).await;
            client.call("it__count", json!({})).await.result();
            let calls = frames(&kernel, "tools/call").await;
            let call = calls.iter().rfind(|call| call["params"]["name"] == "count");
            let mut stated = stated(call.unwrap())
                .as_object()
                .cloned()
                .unwrap_or_default();
            stated.retain(|id, _| id != "dev.cloto/mgp" && id != "io.modelcontextprotocol/tasks");
            assert_eq!(Value::Object(stated), expected, "{version}");
        }
    }
}

/// EXT-004: a server with an instance for each agent is told exactly what that agent's client declared.
#[tokio::test]
async fn instance_is_told_the_extensions_of_its_client() {
    let kernel = start("legacy", "instances = \"agent\"\n").await;
    let mut client = Client::over_http(&kernel.server_url("it"), NEWEST, CLIENT).await;
    let received = client.call("received", json!({})).await.result();
    let frames = received["structuredContent"]["frames"].as_array().unwrap();
    let frames = frames.iter().map(|frame| frame.as_str().unwrap());
    let mut frames = frames.map(|frame| serde_json::from_str::<Value>(frame).unwrap());
    let opening = frames
        .find(|frame| frame["method"] == "initialize")
        .unwrap();
    let mut told = opening["params"]["capabilities"]["extensions"].clone();
    told.as_object_mut().unwrap().remove("dev.cloto/mgp");
    let declared: Value = serde_json::from_str(CLIENT).unwrap();
    assert_eq!(told, declared["extensions"]);
}

/// EXT-005, EXT-006: the extensions of a server reach its clients at its endpoint, to the byte, for every pair of versions;
/// at the merged endpoint MCP Apps do, and those whose methods the operator allows.
#[tokio::test]
async fn extensions_of_servers_reach_clients() {
    let declared: Value = serde_json::from_str(DECLARED).unwrap();
    for era in ["legacy", "modern", "dual"] {
        for (keys, allowed) in [("", false), ("merged_methods = [\"jobs/run\"]\n", true)] {
            let kernel = start(era, keys).await;
            for version in VERSIONS {
                let mut own = told(&kernel.server_url("it"), version).await["extensions"].take();
                let own = own.as_object_mut().unwrap();
                own.remove("io.modelcontextprotocol/tasks");
                assert_eq!(Value::Object(own.clone()), declared, "{era} {version}");
                let merged = told(kernel.url(), version).await["extensions"].take();
                assert_eq!(merged["io.modelcontextprotocol/ui"], json!({}));
                assert_eq!(
                    merged["com.example/jobs"].is_object(),
                    allowed,
                    "{era} {version}"
                );
            }
        }
    }
}

/// EXT-007, EXT-008, EXT-009: a method that the kernel does not know is relayed at the endpoint of a server that declares
/// an extension, and at the merged one where the operator allows it by name; names of MCP and of the kernel never are.
#[tokio::test]
async fn unknown_methods_are_relayed_where_they_belong() {
    for era in ["legacy", "modern"] {
        for (keys, allowed) in [("", false), ("merged_methods = [\"jobs/run\"]\n", true)] {
            let plain = Program::fixture(&["--methods", METHODS]).entry("plain");
            let kernel = Kernel::start(&(program(era).entry("it") + keys + &plain)).await;
            kernel.connected(&["it", "plain"]).await;
            for version in VERSIONS {
                let mut own = Client::over_http(&kernel.server_url("it"), version, CLIENT).await;
                let params = json!({"deep": {"n": 1}});
                let ran = own.request("jobs/run", params.clone()).await;
                assert!(
                    ran.result_text().contains(r#""ran":[1.0]"#),
                    "{era} {version}"
                );
                let ran = frames(&kernel, "jobs/run").await;
                assert_eq!(ran.last().unwrap()["params"]["deep"], params["deep"]);
                let unknown = own.request("jobs/none", json!({})).await;
                assert_eq!(unknown.code(), -32601, "the server's own answer");
                for closed in ["tools/extra", "Jobs Run", "mgp/x"] {
                    assert_eq!(
                        own.request(closed, json!({})).await.code(),
                        -32601,
                        "{closed}"
                    );
                }
                let mut merged = Client::over_http(kernel.url(), version, CLIENT).await;
                let relayed = merged.request("jobs/run", json!({})).await;
                assert_eq!(relayed.is_error(), !allowed, "{era} {version}");
                let mut plain = Client::over_http(&kernel.server_url("plain"), version, "{}").await;
                let closed = plain.request("jobs/run", json!({})).await;
                assert_eq!(closed.code(), -32601, "the server declares no extension");
            }
        }
    }
}

/// EXT-010: a method that the operator allows for two servers belongs to neither.
#[tokio::test]
async fn method_of_two_servers_is_not_relayed() {
    let keys = "merged_methods = [\"jobs/run\"]\n";
    let entry = |id| program("dual").entry(id) + keys;
    let kernel = Kernel::start(&(entry("one") + &entry("two"))).await;
    kernel.connected(&["one", "two"]).await;
    for version in VERSIONS {
        let mut merged = Client::over_http(kernel.url(), version, CLIENT).await;
        assert_eq!(merged.request("jobs/run", json!({})).await.code(), -32601);
    }
}

/// EXT-011: rights, rates and records hold for a request of an extension as for a call.
#[tokio::test]
async fn relayed_requests_are_checked_and_recorded_like_calls() {
    let limits = "[limits]\nagent_calls_per_minute = 3\n";
    let entry = program("dual").entry("it") + "merged_methods = [\"jobs/run\"]\n";
    let kernel = Kernel::start(&format!("{limits}{entry}")).await;
    kernel.connected(&["it"]).await;
    let mut own = Client::over_http(kernel.url(), NEWEST, CLIENT).await;
    own.request("jobs/run", json!({})).await.result();
    let mut record = Value::Null;
    wait_until("the request is recorded", DEADLINE, async || {
        let found = kernel
            .mgp(&["audit", "find", "--json", "--server", "it"])
            .await;
        let found = String::from_utf8_lossy(&found.stdout).into_owned();
        let records = found
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let mut records = records.filter(|record: &Value| record.to_string().contains("jobs/run"));
        record = records.next().unwrap_or_default();
        !record.is_null()
    })
    .await;
    let text = record.to_string();
    assert!(
        text.contains(r#""server_id":"it""#) && text.contains("agent.anonymous"),
        "{record:#}"
    );
    kernel
        .mgp_json(&["grants", "add", "agent.anonymous", "it", "--deny"])
        .await;
    assert_eq!(own.request("jobs/run", json!({})).await.code(), -32601);
    kernel
        .mgp_json(&["grants", "remove", "agent.anonymous", "it"])
        .await;
    let mut refused = false;
    for _ in 0..4 {
        refused |= own.request("jobs/run", json!({})).await.is_error();
    }
    assert!(refused, "three calls a minute");
}

/// EXT-012: a notification of a client reaches the server of its endpoint; at the merged endpoint it belongs to none.
#[tokio::test]
async fn notifications_of_extensions_reach_the_server_of_the_endpoint() {
    let kernel = start("legacy", "").await;
    let name = "notifications/com.example/changed";
    let mut merged = scene::http_agent(&kernel, None, CLIENT).await;
    merged.notify(name, json!({"from": "merged"})).await;
    merged.call("it__count", json!({})).await.result();
    let mut own = scene::http_agent(&kernel, Some("it"), CLIENT).await;
    own.notify(name, json!({"from": "own"})).await;
    own.notify("notifications/tools/list_changed", json!({}))
        .await;
    own.call("count", json!({})).await.result();
    let seen = frames(&kernel, name).await;
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(seen[0]["params"], json!({"from": "own"}));
    assert!(
        frames(&kernel, "notifications/tools/list_changed")
            .await
            .is_empty()
    );
}
