//! What every answer of `mgp/*` has beside its own members.

use mgp_tests::harness::Program;
use serde_json::{Value, json};

use crate::health::lifecycle;
use crate::scene::{DOORS, ERAS, kernel_with, of_kind};

/// MCP 2026-07-28, results: each says that it is one and whole, in whatever way the kernel came to it; one
/// for a client of sessions never does.
#[tokio::test]
async fn every_result_of_mgp_is_one_of_its_callers_era() {
    let said = lifecycle();
    let well =
        json!({"mgp/health/status": {"result": {"status": "healthy", "resultType": "complete"}}});
    let flags = ["--mgp", &said, "--mgp-answers", &well.to_string()];
    let asks = Program::fixture(&flags).entry("asks");
    let sections = "[discovery]\nembedding = \"off\"\nmay_register = [\"agent.anonymous\"]\n";
    let kernel = kernel_with(&(asks + sections), &[]).await;
    kernel.connected(&["asks"]).await;
    let about = json!({"agent_id": "agent.anonymous", "server_id": "it"});
    let code = json!({"language": "javascript", "text": "const a = 1;"});
    let preview = json!({"id": "dynamic.a", "command": "node", "code": code, "preview": true});
    let asked = [
        ("mgp/access/query", about),
        ("mgp/discovery/list", json!({})),
        ("mgp/discovery/register", preview),
        ("mgp/health/ping", json!({})),
        ("mgp/health/status", json!({})),
        ("mgp/health/status", json!({"server_id": "asks"})),
        ("mgp/tools/discover", json!({"query": "echo"})),
        (
            "mgp/tools/call",
            json!({"name": "it__echo", "arguments": {"text": "a"}}),
        ),
        (
            "mgp/tools/request",
            json!({"requirements": {"capabilities": ["echo"]}}),
        ),
        ("mgp/tools/session", json!({})),
        ("mgp/tools/session/evict", json!({"tools": []})),
    ];
    let operators = [
        "mgp/access/list",
        "mgp/kernel/status",
        "mgp/agents/list",
        "mgp/servers/list",
        "mgp/audit/replay",
        "mgp/audit/find",
        "mgp/approvals/list",
    ];
    for version in ERAS {
        for door in DOORS {
            let expected = if version == ERAS[1] {
                json!("complete")
            } else {
                Value::Null
            };
            let mut client = of_kind(&kernel, door, version, true).await;
            for (method, params) in &asked {
                let answer = client.request(method, params.clone()).await;
                let kind = &answer.result()["resultType"];
                assert_eq!(
                    *kind, expected,
                    "{version} {door:?} {method}: {}",
                    answer.frame
                );
            }
            for method in operators {
                let answer = client.request(method, json!({})).await;
                if !answer.is_error() {
                    let kind = &answer.result()["resultType"];
                    assert_eq!(*kind, expected, "{version} {door:?} {method}");
                }
            }
        }
    }
}
