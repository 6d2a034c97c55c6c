//! What servers say of their tools, and what the kernel makes of it (MGP §2.3, §4).

use mgp_tests::harness::envelope::MODERN;
use mgp_tests::harness::mgp::{declaration, declaring, speaks_mgp};
use mgp_tests::harness::{Client, Kernel};
use serde_json::{Value, json};

use crate::scene::made::{NEWEST, kernel, tool};

async fn listed(kernel: &Kernel, version: &str, capabilities: &str) -> Vec<Value> {
    let mut client = Client::over_http(&kernel.server_url("it"), version, capabilities).await;
    let list = client.request("tools/list", json!({})).await.result();
    client.close().await;
    list["tools"].as_array().cloned().unwrap_or_default()
}

fn named<'a>(tools: &'a [Value], name: &str) -> &'a Value {
    let found = tools.iter().find(|tool| tool["name"] == name);
    found.unwrap_or_else(|| panic!("{name} is not listed"))
}

/// MGP-047, MGP-051, MGP-053: the server's own object goes through as it is; beside it, who negotiated
/// tool security reads the kernel's level, and nobody else does.
#[tokio::test]
async fn security_of_a_tool_is_relayed_beside_the_kernels_risk_level() {
    let said = json!({
        "risk_level": "safe", "side_effects": ["filesystem", "x-own"], "reversible": true,
        "permissions_required": ["shell.execute"], "x-more": {"n": 1.50},
    });
    let kernel = kernel(
        &[
            tool("made", said.clone()),
            json!({"name": "bare", "inputSchema": {"type": "object"}}),
        ],
        "",
    )
    .await;
    for version in [NEWEST, MODERN] {
        let plain = listed(&kernel, version, "{}").await;
        assert_eq!(named(&plain, "made")["security"], said);
        assert!(named(&plain, "bare").get("security").is_none());
        let without = declaring(version, "{}", &declaration(&["audit"]));
        assert_eq!(listed(&kernel, version, &without).await, plain);
        let told = listed(&kernel, version, &speaks_mgp(version)).await;
        let mut security = named(&told, "made")["security"].clone();
        let level = security
            .as_object_mut()
            .unwrap()
            .remove("effective_risk_level");
        assert_eq!(level, Some(json!("dangerous")));
        assert_eq!(security, said);
        let bare = &named(&told, "bare")["security"];
        assert_eq!(*bare, json!({"effective_risk_level": "moderate"}));
        // Only the kernel's own tools are more for who speaks MGP.
        let of_servers = told.iter().filter(|tool| {
            let kernels = tool["name"]
                .as_str()
                .is_some_and(|name| name.starts_with("mgp"));
            !kernels || plain.iter().any(|other| other["name"] == tool["name"])
        });
        assert_eq!(of_servers.count(), plain.len());
    }
}

/// MGP-024, MGP-025, MGP-049, A-20, A-21: the level rests on how far the server is trusted, and a server
/// that says nothing of a tool, or says it wrongly, does not make it safe.
#[tokio::test]
async fn the_level_rests_on_trust() {
    let tools = [
        tool("safe", json!({"risk_level": "safe"})),
        tool("silent", json!({})),
        tool("odd", json!({"risk_level": "harmless"})),
    ];
    for (trust, levels) in [
        ("trusted", ["safe", "moderate", "dangerous"]),
        ("standard", ["moderate", "moderate", "dangerous"]),
    ] {
        let kernel = kernel(&tools, &format!("[servers.mgp]\ntrust_level = {trust:?}\n")).await;
        let told = listed(&kernel, NEWEST, &speaks_mgp(NEWEST)).await;
        let shown = ["safe", "silent", "odd"].map(|name| {
            named(&told, name)["security"]["effective_risk_level"]
                .as_str()
                .unwrap()
                .to_owned()
        });
        assert_eq!(shown, levels, "{trust}");
    }
}

/// MGP-052: the five validators of the document are taken; a list of them adds up.
#[tokio::test]
async fn validators_add_up() {
    let tools = [tool(
        "both",
        json!({"validator": ["readonly", "network_restricted"]}),
    )];
    let kernel = kernel(&tools, "").await;
    let mut client = Client::over_http(&kernel.server_url("it"), NEWEST, "{}").await;
    for (arguments, validator) in [
        (json!({"sql": "DROP TABLE users"}), "readonly"),
        (json!({"url": "http://0x7f.1/"}), "network_restricted"),
    ] {
        let blocked = client.call("both", arguments).await;
        assert!(blocked.text().contains(validator), "{}", blocked.text());
    }
    assert_eq!(
        client.call("both", json!({"sql": "SELECT 1"})).await.text(),
        r#"{"sql":"SELECT 1"}"#
    );
}
