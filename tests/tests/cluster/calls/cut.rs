//! A link that is cut in the middle of a stream.

use mgp_tests::harness::kernel::network::Network;
use mgp_tests::harness::kernel::nodes::{JoinedNodes, config};
use mgp_tests::harness::mgp::{NINE, declaration, speaks_mgp};
use mgp_tests::harness::{Client, DEADLINE, Kernel, Program, wait_until};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::scene::NEWEST;

const CHUNK: &str = "notifications/mgp.stream.chunk";

async fn kernel(network: &Network, machine: usize, name: &str, servers: &str) -> Kernel {
    let behind = network.on(machine);
    let behind: Vec<&str> = behind.iter().map(String::as_str).collect();
    let config = config(name, "[::]:7332", servers);
    Kernel::behind(&behind, TempDir::new().unwrap(), &config, &[]).await
}

/// PRJ-007, PRJ-013, FED-067: who waits for a call learns once that nobody knows what became of it; when the link is back,
/// nothing more is said of that call, and it was made once.
#[tokio::test(flavor = "multi_thread")]
async fn call_whose_link_is_cut_ends_once_and_is_not_retried() {
    let network = match Network::new(2) {
        Ok(network) => network,
        Err(why) => return println!("NOT SHOWN, for want of network namespaces: {why}"),
    };
    let said = declaration(&NINE).to_string();
    let server = Program::fixture(&["--mgp", &said]).entry("demo");
    let nas = kernel(&network, 0, "nas", &server).await;
    let desk = kernel(&network, 1, "desk", "").await;
    let nodes = JoinedNodes::joined(nas, desk, &["demo"]).await;
    let mut client = Client::over_socket(&nodes.desk.socket(), NEWEST, &speaks_mgp(NEWEST)).await;
    let steps: Vec<Value> = (0..400)
        .flat_map(|n| [json!({"chunk": n, "text": "x"}), json!({"ms": 50})])
        .collect();
    let params = json!({
        "name": "nas/demo:stream",
        "arguments": {"steps": steps},
        "_mgp": {"stream": true},
    });
    let id = client.start("tools/call", params).await;
    client.hears(CHUNK).await;
    client.hears(CHUNK).await;
    network.cut(0);
    let lost = client.answer_to(&id).await;
    let details = lost.error()["data"]["_mgp"]["details"].take();
    assert_eq!(details["outcome"], "unknown", "{}", lost.frame);
    let call = details["call_id"].as_str().unwrap().to_owned();
    let shown = nodes.desk.mgp_json(&["calls", "show", &call]).await;
    assert_eq!(shown["outcome"], "unknown", "{shown:#}");
    client.forget();
    network.heal(0);
    wait_until("the tool is called again", DEADLINE, async || {
        let echo = client.call("nas/demo:echo", json!({"text": "again"}));
        let echo = echo.await;
        !echo.is_error() && echo.text() == "again"
    })
    .await;
    assert_eq!(
        client.heard(CHUNK),
        [&Value::Null; 0],
        "chunks of a call that is over"
    );
    let counts = client.call("nas/demo:count", json!({})).await.result();
    let calls = &counts["structuredContent"]["calls"]["stream"];
    assert_eq!(*calls, 1, "{counts}");
}
