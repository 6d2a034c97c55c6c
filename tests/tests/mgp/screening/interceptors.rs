//! Interceptors of other servers that check and change results (SEP-2624, a draft).

use mgp_tests::harness::{Agent, Answer, Kernel, Program};
use serde_json::{Value, json};

/// A server with these interceptors, which all give this answer.
fn interceptors(id: &str, declared: &Value, answer: &Value) -> String {
    let methods =
        json!({"interceptors/list": {"interceptors": declared}, "interceptor/invoke": answer});
    let said = methods.to_string();
    Program::fixture(&["--bare", "--methods", &said]).entry(id)
}

fn declared(name: &str, kind: &str, phase: &str, mode: &str) -> Value {
    json!({"name": name, "type": kind, "mode": mode,
        "hook": {"events": ["tools/call"], "phase": phase}})
}

fn guarded(id: &str, chain: &[&str]) -> String {
    let chain = json!(chain);
    let keys = format!("[servers.results]\nsecrets = false\ninterceptors = {chain}\n");
    Program::fixture(&[]).entry(id) + &keys
}

async fn echo(kernel: &Kernel, server: &str, version: &str) -> Answer {
    let mut agent: Agent = kernel.http_agent(Some(server));
    agent.initialize(version, "{}").await;
    agent.call("echo", json!({"text": "as it was"})).await
}

/// EXT-250, EXT-251: results pass the interceptors that the entry names. One that changes them is believed, one that finds
/// an error, does not answer or does not exist withholds them, and one that only audits, or is for requests, does nothing.
#[tokio::test]
async fn results_pass_the_interceptors_of_the_entry() {
    let changed = json!({"content": [{"type": "text", "text": "changed"}]});
    let changing =
        json!({"type": "mutation", "phase": "response", "modified": true, "payload": changed});
    let refusing = json!({"valid": false, "severity": "error", "messages": [{"message": "a card", "severity": "error"}]});
    let mutators = json!([
        declared("change", "mutation", "both", "enforce"),
        declared("shadow", "mutation", "response", "audit"),
        declared("before", "mutation", "request", "enforce"),
    ]);
    let validators = json!([
        declared("refuse", "validation", "response", "enforce"),
        declared("watch", "validation", "response", "audit"),
    ]);
    let config = [
        interceptors("m", &mutators, &changing),
        interceptors("v", &validators, &refusing),
        interceptors("broken", &validators, &json!({"no": "verdict"})),
        guarded("changed", &["m:change"]),
        guarded("same", &["v:watch", "m:shadow", "m:before"]),
        guarded("refused", &["m:change", "v:refuse"]),
        guarded("unreadable", &["broken:refuse"]),
        guarded("missing", &["v:nobody"]),
        guarded("nowhere", &["nobody:x"]),
    ];
    let kernel = Kernel::start(&config.concat()).await;
    let all = [
        "m",
        "v",
        "broken",
        "changed",
        "same",
        "refused",
        "unreadable",
        "missing",
        "nowhere",
    ];
    kernel.connected(&all).await;
    for version in ["2024-11-05", "2025-11-25"] {
        assert_eq!(echo(&kernel, "changed", version).await.text(), "changed");
        assert_eq!(echo(&kernel, "same", version).await.text(), "as it was");
        for (server, why) in [
            ("refused", "interceptor v:refuse refuses it: a card"),
            ("unreadable", "interceptor broken:refuse does not work"),
            ("missing", "there is no interceptor v:nobody"),
            ("nowhere", "interceptor nobody:x does not work"),
        ] {
            let answer = echo(&kernel, server, version).await;
            assert!(answer.is_error(), "{}", answer.frame);
            assert!(answer.frame.contains(why), "{why}: {}", answer.frame);
            assert!(
                answer.frame.contains("the call was made"),
                "{}",
                answer.frame
            );
            assert!(!answer.frame.contains("as it was"), "{}", answer.frame);
        }
    }
    let log = kernel.mgp(&["servers", "logs", "refused"]).await;
    let log = String::from_utf8(log.stdout).unwrap();
    assert!(log.contains("v:refuse refuses it"), "{log}");
    let records = kernel
        .mgp(&["audit", "find", "--server", "changed", "--json"])
        .await;
    let records = String::from_utf8(records.stdout).unwrap();
    assert!(records.contains("\"intercepted\":true"), "{records}");
}
