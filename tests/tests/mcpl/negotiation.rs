//! Who declares MCPL, and who hears a word of it (MCPL §3 to §5).

use mgp_tests::harness::{DEADLINE, Kernel, Program};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::scene::{Driver, Host, VERSION, memory, server};

/// Every request of servers.
const ASKED: [&str; 7] = [
    "push/event",
    "inference/request",
    "model/info",
    "scope/elevate",
    "channels/register",
    "channels/list",
    "channels/incoming",
];

/// Every request is answered, and at once.
async fn every_request_is_answered(driver: &mut Driver, id: &str) {
    for method in ASKED {
        let began = Instant::now();
        let answer = driver.ask(method, json!({})).await;
        let took = began.elapsed();
        assert!(took < DEADLINE / 10, "{method}: {took:?}");
        let answered = answer.get("result").is_some() || answer.get("error").is_some();
        assert!(answered, "{id} {method}: {answer}");
    }
}

/// MCPL-001, MCPL-002, MCPL-004, MCPL-006, MCPL-007, MCPL-008, MCPL-009, MCPL-010, MCPL-017, MCPL-029, MCPL-030, MCPL-032,
/// MCPL-037, MCPL-145, MCPL-149, MCPL-150, MCPL-151: servers and agents with MCPL and without, side by side.
#[tokio::test]
async fn who_speaks_mcpl_hears_it_and_nobody_else() {
    let mut older = memory();
    older["version"] = json!("0.3");
    let mut other = memory();
    other["version"] = json!("1.0");
    let muted = server(&memory())
        .entry("muted")
        .replace("[[servers]]", "[[servers]]\nmcpl = false");
    let servers = [
        server(&memory()).entry("memory"),
        server(&older).entry("older"),
        server(&other).entry("other"),
        Program::fixture(&["--mcpl-answers", "{}"]).entry("plain"),
        muted,
    ];
    let kernel = Kernel::start(&servers.concat()).await;
    kernel
        .connected(&["memory", "older", "other", "plain", "muted"])
        .await;

    // The first word of MCPL says which sets are enabled: none, as nobody said otherwise.
    for id in ["memory", "older"] {
        let mut driver = Driver::at(&kernel, id).await;
        let heard = driver.hears("featureSets/update", 1).await;
        let all = [
            "memory.consolidation",
            "memory.extraction",
            "memory.proactive",
            "memory.retrieval",
        ];
        assert_eq!(
            heard[0]["params"],
            json!({"enabled": [], "disabled": all}),
            "{id}"
        );
        assert!(heard[0].get("id").is_none(), "{id}: {heard:?}");
        // Nothing stands between the end of the handshake and it.
        let first = driver.heard().await;
        let first: Vec<_> = first
            .iter()
            .take(2)
            .map(|message| &message["method"])
            .collect();
        assert_eq!(
            first,
            ["notifications/initialized", "featureSets/update"],
            "{id}"
        );
        every_request_is_answered(&mut driver, id).await;
    }
    // To a server that is not spoken to in it, there is no such method.
    for id in ["plain", "muted", "other"] {
        let mut driver = Driver::at(&kernel, id).await;
        for method in ASKED {
            let answer = driver
                .ask(method, json!({"featureSet": "memory.proactive"}))
                .await;
            assert_eq!(answer["error"]["code"], -32601, "{id} {method}: {answer}");
        }
        let heard = driver.heard().await;
        let own = ["tools/call", "notifications/initialized"];
        let of_mcpl = heard
            .iter()
            .filter(|message| !own.iter().any(|own| message["method"] == *own));
        assert_eq!(of_mcpl.count(), 0, "{id}: {heard:?}");
    }

    // A host reads one server made of all; a plain agent not a word of it.
    let host = Host::start(&kernel).await;
    assert_eq!(host.hello["protocolVersion"], VERSION);
    assert_eq!(host.declared()["version"], "0.4");
    assert_eq!(host.declared()["pushEvents"], true);
    assert_eq!(host.declared()["featureSets"], json!({}));
    let mut plain = kernel.stdio_agent(None);
    let hello = plain
        .initialize(VERSION, r#"{"experimental":{"x":{}}}"#)
        .await;
    assert!(!hello.frame.contains("mcpl"), "{}", hello.frame);
    for method in [
        "context/beforeInference",
        "state/rollback",
        "channels/list",
        "channels/publish",
    ] {
        let answer = plain.request(method, json!({})).await;
        let answer: Value = serde_json::from_str(&answer.frame).unwrap();
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
    }
    plain
        .notify(
            "featureSets/update",
            json!({"enabled": ["memory.memory.proactive"]}),
        )
        .await;
    assert!(
        plain
            .request("ping", json!({}))
            .await
            .frame
            .contains("result")
    );
    assert!(plain.all_heard().is_empty());
}
