//! Peers that announce MGP 0.3 to 0.7.

use mgp_tests::harness::envelope::MODERN;
use mgp_tests::harness::mgp::{declared, declaring};
use mgp_tests::harness::{Agent, Answer, Client, DEADLINE, Kernel, Program, wait_until};
use serde_json::{Value, json};

use crate::audit::events;
use crate::scene::{ERAS, kernel_with, reported};

/// In the entry of a server that agents may use even if it is sandboxed.
const OPEN: &str = "default_policy = \"opt-out\"\n";

/// The text of a result's only block.
fn text(answer: &Answer) -> String {
    let result = answer.result();
    let text = result["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("{result}")).to_owned()
}

/// The capabilities of a client of this version of MCP and this one of MGP.
fn announcing(era: &str, mgp: &str, extensions: &[&str]) -> String {
    declaring(
        era,
        "{}",
        &json!({"version": mgp, "extensions": extensions}),
    )
}

/// What the kernel declares of MGP at the endpoint of one server.
async fn answered(kernel: &Kernel, era: &str, mgp: &str) -> Value {
    let url = kernel.server_url("it");
    let capabilities = announcing(era, mgp, &["audit"]);
    if era == MODERN {
        let mut client = Client::over_http(&url, era, &capabilities).await;
        let discovered = client.request("server/discover", json!({})).await.result();
        return declared(era, &discovered["capabilities"]);
    }
    let hello = Agent::over_http(&url).initialize(era, &capabilities).await;
    declared(era, &hello.result()["capabilities"])
}

/// EXT-160, EXT-161: each client is answered in its version, with that version's words for trust; up to 0.2 nothing has
/// changed.
#[tokio::test]
async fn client_is_answered_in_its_version_and_its_words_for_trust() {
    if crate::sandbox::starts_none().await {
        return;
    }
    for (level, old, new) in [
        ("trusted", "trusted", "core"),
        ("core", "trusted", "core"),
        ("standard", "standard", "standard"),
        ("experimental", "sandboxed", "experimental"),
        ("sandboxed", "sandboxed", "untrusted"),
        ("untrusted", "sandboxed", "untrusted"),
    ] {
        let trust = format!("{OPEN}[servers.mgp]\ntrust_level = \"{level}\"\n");
        let kernel = kernel_with(&trust, &[]).await;
        for era in ERAS {
            for (mgp, version, word) in [
                ("0.2.0", "0.2.0", old),
                ("0.5.0-draft", "0.5.0", old),
                ("0.6.3", "0.6.3", new),
                ("0.9.0", "0.7.0", new),
            ] {
                let answer = answered(&kernel, era, mgp).await;
                assert_eq!(answer["version"], version, "{era} {mgp} {level}");
                assert_eq!(answer["trust_level"], word, "{era} {mgp} {level}");
            }
        }
    }
}

/// EXT-162: a server's own level lowers what the operator gave, in the words of any version, and never raises it.
#[tokio::test]
async fn level_of_a_server_itself_only_lowers_it() {
    if crate::sandbox::starts_none().await {
        return;
    }
    for (given, said, effective) in [
        ("standard", "core", "standard"),
        ("standard", "experimental", "experimental"),
        ("experimental", "core", "experimental"),
        ("trusted", "untrusted", "untrusted"),
    ] {
        let trust = format!("{OPEN}[servers.mgp]\ntrust_level = \"{given}\"\n");
        let declares = json!({"version": "0.7.0", "extensions": [], "trust_level": said});
        let kernel = kernel_with(&trust, &["--mgp", &declares.to_string()]).await;
        // It may be started again, in a sandbox.
        wait_until(
            &format!("{said} in {given} is {effective}"),
            DEADLINE,
            async || {
                let answer = answered(&kernel, MODERN, "0.7.0").await;
                answer["trust_level"] == effective
            },
        )
        .await;
    }
}

/// EXT-163: a call that access control denies is a rejection for a client of 0.6.1 that knows denials, an error for one
/// of 0.2, and an unknown tool for whoever does not know them.
#[tokio::test]
async fn denied_call_is_a_rejection_for_a_client_that_announces_it() {
    let kernel = kernel_with("", &[]).await;
    let mut owner = Agent::over_socket(&kernel.socket()).await;
    owner.initialize("2025-11-25", "{}").await.result();
    let denied = json!({"entry_type": "tool_grant", "agent_id": "agent.anonymous", "server_id": "it",
        "tool_name": "echo", "permission": "deny"});
    owner.request("mgp/access/grant", denied).await.result();
    let knows = ["access_control", "error_handling"];
    for era in ERAS {
        for mgp in ["0.2.0", "0.6.0"] {
            let old = announcing(era, mgp, &knows);
            let mut old = Client::over_http(kernel.url(), era, &old).await;
            let no = old.call("it__echo", json!({"text": "x"})).await;
            assert_eq!(no.code(), 1001, "{era} {mgp} {}", no.frame);
        }
        let newer = announcing(era, "0.6.1", &knows);
        let mut newer = Client::over_http(kernel.url(), era, &newer).await;
        let no = newer.call("it__echo", json!({"text": "x"})).await;
        assert_eq!(no.result()["isError"], true, "{era} {}", no.frame);
        let body: Value = serde_json::from_str(&text(&no)).unwrap();
        assert_eq!(body["status"], "rejected", "{era} {body}");
        assert_eq!(body["code"], "ACCESS_DENIED", "{era} {body}");
        assert_eq!(body["retryable"], true, "{era} {body}");
        // A tool that does not exist is an error in every version, and one that is denied to a client without
        // `access_control` is one that does not exist.
        assert_eq!(newer.call("it__nothing", json!({})).await.code(), 4001);
        let other = announcing(era, "0.6.1", &["error_handling"]);
        let mut other = Client::over_http(kernel.url(), era, &other).await;
        let no = other.call("it__echo", json!({"text": "x"})).await;
        assert_eq!(no.code(), 4001, "{era} {}", no.frame);
    }
}

/// EXT-165, EXT-166: the rejection of a server that announces it is in the audit log with its text, and relayed as it is
/// to everybody; that of a server of 0.2 is an error of its tool like any other.
#[tokio::test]
async fn rejection_of_a_server_is_recorded_if_it_announces_it() {
    let body = r#"{"status":"rejected","code":"SELF_DELEGATION","reason":"no","retryable":false}"#;
    for (mgp, recorded) in [("0.6.1", 1), ("0.2.0", 0)] {
        let declares = json!({"version": mgp, "extensions": []}).to_string();
        let it = Program::fixture(&["--mgp", &declares]).entry("it");
        let kernel = Kernel::start(&it).await;
        kernel.connected(&["it"]).await;
        for era in ERAS {
            let mut client = Client::over_http(kernel.url(), era, "{}").await;
            let no = client
                .call("it__test_error_handling", json!({"text": body}))
                .await;
            assert_eq!(no.result()["isError"], true, "{}", no.frame);
            assert_eq!(text(&no), body, "{mgp} {era}");
            // A text alone is no rejection.
            client.call("it__echo", json!({"text": body})).await;
        }
        let mut all = events(&kernel).await;
        all.retain(|event| event["event_type"] == "TOOL_REJECTED");
        assert_eq!(all.len(), recorded * ERAS.len(), "{mgp} {all:#?}");
        for event in all {
            assert_eq!(event["target"]["tool_name"], "test_error_handling");
            let details = &event["details"];
            assert_eq!(details["code"], "SELF_DELEGATION", "{event:#}");
            assert_eq!(details["retryable"], false, "{event:#}");
            assert_eq!(details["rejection"], body, "{event:#}");
            assert!(details["call_id"].is_string(), "{event:#}");
        }
    }
}

/// EXT-169: a server whose file is not the sealed one is not started, and starts once it is.
#[tokio::test]
async fn server_starts_only_from_its_sealed_file() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("server.sh");
    let fixture = Program::fixture(&[]);
    let run = format!("exec {} {}\n", fixture.command, fixture.args.join(" "));
    std::fs::write(&script, format!("{run}# changed\n")).unwrap();
    let digest = ring::digest::digest(&ring::digest::SHA256, run.as_bytes());
    let digest: String = digest.as_ref().iter().map(|b| format!("{b:02x}")).collect();
    let path = script.display();
    let entry = format!(
        "[[servers]]\nid = \"it\"\ncommand = \"/bin/sh\"\nargs = [\"{path}\"]\n[servers.mgp]\nseal = \"sha256:{digest}\"\nentry_point = \"{path}\"\n"
    );
    let kernel = Kernel::start(&entry).await;
    let refused = async || {
        let server = reported(&kernel, "it").await;
        server.to_string().contains("is not the file that")
    };
    wait_until("the changed file is refused", DEADLINE, refused).await;
    std::fs::write(&script, run).unwrap();
    kernel.mgp_json(&["servers", "restart", "it"]).await;
    kernel.connected(&["it"]).await;
}

/// EXT-168: the lower trust of a server without a seal is in the audit log.
#[tokio::test]
async fn unsealed_server_is_recorded_where_seals_are_required() {
    if crate::sandbox::starts_none().await {
        return;
    }
    let trust = format!("{OPEN}[servers.mgp]\ntrust_level = \"core\"\n");
    let entry = Program::fixture(&[]).entry("it") + &trust;
    let kernel = Kernel::start(&format!("[sandbox]\nseal_required = true\n{entry}")).await;
    kernel.connected(&["it"]).await;
    assert_eq!(reported(&kernel, "it").await["trust_level"], "sandboxed");
    let mut all = events(&kernel).await;
    all.retain(|event| event["event_type"] == "TRUST_LEVEL_DOWNGRADED_NO_SEAL");
    assert_eq!(all.len(), 1, "{all:#?}");
    assert_eq!(all[0]["target"]["server_id"], "it");
    assert_eq!(all[0]["details"]["declared_trust_level"], "trusted");
    assert_eq!(all[0]["details"]["effective_trust_level"], "sandboxed");
}
