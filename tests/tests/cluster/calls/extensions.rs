//! Methods of extensions of a server of another node.

use mgp_tests::harness::envelope::MODERN;
use mgp_tests::harness::kernel::nodes::{JoinedNodes, config};
use mgp_tests::harness::{Client, DEADLINE, Kernel, Program, wait_until};
use serde_json::{Value, json};

use crate::scene::NEWEST;

const DECLARED: &str = r#"{"com.example/jobs":{"n":1.0}}"#;
const METHODS: &str = r#"{"jobs/run":{"ran":[1.0]},"tools/extra":{"no":true}}"#;
const HOST: &str = r#"{"extensions":{"com.example/jobs":{}}}"#;

/// More than what is called before the limit is tried.
const CALLS_PER_MINUTE: usize = 40;

/// `nas` shares a server with an extension and one without, to agents that may call so many times a minute.
async fn start(era: &str) -> JoinedNodes {
    let flags = ["--era", era, "--methods", METHODS];
    let jobs = Program::fixture(&flags).args(&["--extensions", DECLARED]);
    let servers = jobs.entry("jobs") + &Program::fixture(&flags).entry("plain");
    let limits = format!("[limits]\nagent_calls_per_minute = {CALLS_PER_MINUTE}\n");
    let nas = format!("{limits}{servers}");
    let nas = Kernel::with_config(&config("nas", "127.0.0.1:0", &nas)).await;
    let desk = Kernel::with_config(&config("desk", "127.0.0.1:0", "")).await;
    JoinedNodes::joined(nas, desk, &["jobs", "plain"]).await
}

/// The newest record of this node about the method.
async fn record(kernel: &Kernel, server: &str) -> Value {
    let mut record = Value::Null;
    wait_until("the request is recorded", DEADLINE, async || {
        let found = ["audit", "find", "--json", "--server", server];
        let found = kernel.mgp(&found).await;
        let found = String::from_utf8_lossy(&found.stdout).into_owned();
        let records = found
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let mut records = records.filter(|one: &Value| one.to_string().contains("jobs/run"));
        record = records.next().unwrap_or_default();
        !record.is_null()
    })
    .await;
    record
}

/// EXT-032, EXT-033: a method of a shared server's extension is relayed over the link at the endpoint of that server, if the
/// server declares an extension; names of MCP and of the kernel are not. The owner records it for the agent, counts it, and
/// decides it by its grants.
#[tokio::test(flavor = "multi_thread")]
async fn method_of_an_extension_is_relayed_over_a_link() {
    for era in ["legacy", "modern"] {
        let nodes = start(era).await;
        let url = nodes.desk.server_url("nas/jobs");
        for version in [NEWEST, MODERN] {
            let mut own = Client::over_http(&url, version, HOST).await;
            let ran = own.request("jobs/run", json!({"deep": {"n": 1}})).await;
            let text = ran.result_text();
            assert!(text.contains(r#""ran":[1.0]"#), "{era} {version}: {text}");
            let unknown = own.request("jobs/none", json!({})).await;
            assert_eq!(unknown.code(), -32601, "{unknown:?}");
            for closed in ["tools/extra", "skills/list", "mgp/x"] {
                let closed = own.request(closed, json!({})).await;
                assert_eq!(closed.code(), -32601, "{closed:?}");
            }
            let plain = nodes.desk.server_url("nas/plain");
            let mut plain = Client::over_http(&plain, version, "{}").await;
            let closed = plain.request("jobs/run", json!({})).await;
            assert_eq!(closed.code(), -32601, "the server declares no extension");
            let mut merged = Client::over_http(nodes.desk.url(), version, HOST).await;
            assert_eq!(merged.request("jobs/run", json!({})).await.code(), -32601);
        }
        let (there, here) =
            tokio::join!(record(&nodes.nas, "jobs"), record(&nodes.desk, "nas/jobs"));
        assert!(there.to_string().contains("agent.anonymous@"), "{there:#}");
        assert!(here.to_string().contains("agent.anonymous"), "{here:#}");
        let mut own = Client::over_http(&url, NEWEST, HOST).await;
        let denied = ["grants", "remove", "anonymous@desk", "jobs"];
        nodes.nas.mgp_json(&denied).await;
        wait_until("the method is closed", DEADLINE, async || {
            own.request("jobs/run", json!({})).await.is_error()
        })
        .await;
        let denied = own.request("jobs/run", json!({})).await.error();
        let absent = own.request("jobs/none", json!({})).await.error();
        assert_eq!(denied, absent, "a closed server does not say what it has");
        let granted = ["grants", "add", "anonymous@desk", "jobs"];
        nodes.nas.mgp_json(&granted).await;
        wait_until("the method is open again", DEADLINE, async || {
            !own.request("jobs/run", json!({})).await.is_error()
        })
        .await;
        let mut limited = false;
        for _ in 0..CALLS_PER_MINUTE {
            limited |= own.request("jobs/run", json!({})).await.is_error();
        }
        assert!(limited, "so many calls a minute, with those before");
    }
}
