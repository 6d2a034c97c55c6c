//! `mgp/discovery/list`: which servers there are, for agents.

use mgp_tests::harness::{Kernel, Program};
use serde_json::json;

use crate::registering::agent;

fn entry(id: &str, keys: &str, declared: &str, flags: &[&str]) -> String {
    let entry = Program::fixture(flags).entry(id);
    let entry = entry.replacen("[[servers]]\n", &format!("[[servers]]\n{keys}\n"), 1);
    format!("{entry}[servers.mgp]\n{declared}\n")
}

/// MGP-220, MGP-221, MGP-223: without a filter all are listed, also those that were never connected, with
/// what their configuration says of them; several filters all have to be met.
#[tokio::test]
async fn servers_are_listed_and_filtered() {
    let spoken = json!({"version": "0.2.0", "extensions": ["security", "audit"],
        "permissions_required": ["network.outbound"]});
    let said = "permissions_required = [\"network.outbound\"]\nextensions = [\"audit\"]";
    let permitted = "permissions = [\"network.outbound\"]";
    let config = [
        "[permissions]\npolicy = \"config_only\"\n",
        &entry("plain", "", "", &[]),
        &entry("spoken", permitted, "", &["--mgp", &spoken.to_string()]),
        &entry("resting", "autostart = false", said, &[]),
    ];
    let kernel = Kernel::start(&config.concat()).await;
    kernel.connected(&["plain", "spoken"]).await;
    let mut agent = agent(&kernel).await;
    for (filter, expected) in [
        (json!({}), &["plain", "resting", "spoken"][..]),
        (json!({"status": "connected"}), &["plain", "spoken"]),
        (json!({"status": "registered"}), &["resting"]),
        (json!({"extensions": ["audit"]}), &["resting", "spoken"]),
        (json!({"extensions": ["audit", "security"]}), &["spoken"]),
        (
            json!({"permissions": ["network.outbound"]}),
            &["resting", "spoken"],
        ),
        (
            json!({"permissions": ["network.outbound"], "status": "registered"}),
            &["resting"],
        ),
        (
            json!({"extensions": ["security"], "status": "registered"}),
            &[],
        ),
    ] {
        let params = json!({"filter": filter});
        let found = agent.request("mgp/discovery/list", params).await.result();
        let found = found["servers"].as_array().unwrap().iter();
        let ids: Vec<&str> = found.filter_map(|server| server["id"].as_str()).collect();
        assert_eq!(ids, expected, "{filter}");
    }
    let all = agent
        .request("mgp/discovery/list", json!({}))
        .await
        .result();
    let of = |id: &str| {
        let mut all = all["servers"].as_array().unwrap().iter();
        all.rfind(|server| server["id"] == id).unwrap().clone()
    };
    let resting = of("resting");
    assert_eq!(resting["extensions"], json!(["audit"]));
    assert!(resting["mgp_version"].is_null(), "{resting:#}");
    assert_eq!(of("spoken")["mgp_version"], "0.2.0");
    assert!(of("plain")["tools"].to_string().contains("echo"));
    let unknown = json!({"filter": {"status": "asleep"}});
    let unknown = agent.request("mgp/discovery/list", unknown).await;
    assert_eq!(unknown.code(), -32602, "{}", unknown.frame);
}
