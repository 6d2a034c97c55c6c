//! How far a call at another node is.

use mgp_tests::harness::envelope::MODERN;
use mgp_tests::harness::kernel::nodes::JoinedNodes;
use mgp_tests::harness::{Client, Program};
use serde_json::{Value, json};

use crate::scene::NEWEST;

const PROGRESS: &str = "notifications/progress";

/// CMCP-061, CMCP-062, PRJ-013, FED-064: progress comes under the agent's own token, in order, before the answer; what a
/// server says of a call that it has answered reaches nobody.
#[tokio::test(flavor = "multi_thread")]
async fn progress_comes_in_order_and_none_after_the_answer() {
    for era in ["legacy", "modern"] {
        let server = Program::fixture(&["--era", era]).entry("demo");
        let nodes = JoinedNodes::sharing(&server, &["demo"]).await;
        for version in [NEWEST, MODERN] {
            let case = format!("{version} at {era}");
            let mut client = Client::over_socket(&nodes.desk.socket(), version, "{}").await;
            for (tool, arguments, wanted) in [
                (
                    "progress",
                    json!({"steps": 100}),
                    (1..=100).collect::<Vec<u64>>(),
                ),
                ("late_progress", json!({}), vec![1]),
            ] {
                let name = format!("nas__demo__{tool}");
                let meta = json!({"progressToken": tool});
                let params = json!({"name": name, "arguments": arguments, "_meta": meta});
                client.request("tools/call", params).await.result();
                // It comes over the same connection, behind whatever the server said before.
                let echo = client.call("nas__demo__echo", json!({"text": "behind"}));
                assert_eq!(echo.await.text(), "behind");
                let heard = client.heard(PROGRESS).into_iter();
                let heard: Vec<&Value> = heard.map(|heard| &heard["params"]).collect();
                assert!(heard.iter().all(|params| params["progressToken"] == tool));
                let steps = heard
                    .iter()
                    .filter_map(|params| params["progress"].as_u64());
                assert_eq!(steps.collect::<Vec<_>>(), wanted, "{case}");
                client.forget();
            }
            client.close().await;
        }
    }
}
