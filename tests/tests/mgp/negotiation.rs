//! What of MGP the kernel says to whom: in both faces, in both eras.

use mgp_tests::harness::envelope::MODERN;
use mgp_tests::harness::mgp::{NINE, declaration, declared, declaring, speaks_mgp};
use mgp_tests::harness::{Client, Kernel, Program};
use serde_json::{Value, json};

/// The newest version of each era.
const ERAS: [&str; 2] = ["2025-11-25", MODERN];

/// The extensions of 0.2 that are there; the other four of [`NINE`] are held back until they are.
const BUILT: [&str; 5] = [
    "security",
    "access_control",
    "audit",
    "code_safety",
    "lifecycle",
];

async fn kernel_with(sections: &str, flags: &[&str]) -> Kernel {
    let entry = Program::fixture(flags).entry("it");
    let kernel = Kernel::start(&format!("{entry}{sections}")).await;
    kernel.connected(&["it"]).await;
    kernel
}

/// The capabilities the kernel answers a client with.
async fn answered(url: &str, version: &str, capabilities: &str) -> Value {
    let client = Client::over_http(url, version, capabilities).await;
    let Client::Modern(mut client) = client else {
        let mut client = mgp_tests::harness::Agent::over_http(url);
        let hello = client.initialize(version, capabilities).await.result();
        return hello["capabilities"].clone();
    };
    let discovered = client.request("server/discover", json!({})).await.result();
    discovered["capabilities"].clone()
}

/// What the kernel tells of its server.
async fn reported(kernel: &Kernel) -> Value {
    let servers = kernel.mgp_json(&["servers", "list"]).await;
    servers["servers"][0].clone()
}

/// MGP-016, MGP-021, MGP-023, MGP-026: an agent that declares MGP is answered with what both know.
#[tokio::test]
async fn an_agent_that_declares_mgp_is_answered_in_its_era() {
    let kernel = kernel_with("", &[]).await;
    for version in ERAS {
        let capabilities = answered(kernel.url(), version, &speaks_mgp(version)).await;
        let said = declared(version, &capabilities);
        assert_eq!(
            said,
            json!({"version": "0.2.0", "extensions": BUILT}),
            "{version}"
        );
        let some = declaring(
            version,
            "{}",
            &declaration(&["audit", "com.x.foo", "streaming"]),
        );
        let one = kernel.server_url("it");
        let said = declared(version, &answered(&one, version, &some).await);
        let want = json!({"version": "0.2.0", "extensions": ["audit"], "server_id": "it", "trust_level": "standard"});
        assert_eq!(said, want, "{version}");
    }
    assert!(BUILT.iter().all(|word| NINE.contains(word)));
}

/// MGP-018, MGP-024, MGP-025: what a server declares is seen by the operator; its trust can only sink.
#[tokio::test]
async fn what_a_server_declares_is_shown() {
    let said = json!({"version": "0.2.0", "extensions": ["security", "audit", "com.x.foo"],
        "permissions_required": ["shell"], "server_id": "mind", "trust_level": "god"});
    for era in ["legacy", "modern"] {
        let flags = ["--era", era, "--mgp", &said.to_string()];
        let kernel = kernel_with("", &flags).await;
        let server = reported(&kernel).await;
        assert_eq!(server["trust_level"], "sandboxed", "{server:#}");
        let want = json!({"version": "0.2.0", "extensions": ["security", "audit"],
            "server_id": "mind", "permissions_required": ["shell"], "trust_level": "god"});
        assert_eq!(server["mgp"], want, "{era}");
    }
}
