//! Servers and agents that announce MCPL 0.5.

use mgp_tests::harness::{DEADLINE, Kernel, wait_until};
use serde_json::{Value, json};

use crate::scene::{Driver, Host, answering};

const OBSERVE: &str = "contextHooks.beforeInference.observe";
const SYSTEM: &str = "contextHooks.beforeInference.inject.system";
const AFTER_USER: &str = "contextHooks.beforeInference.inject.afterUser";

/// A memory server of 0.5.
fn memory() -> Value {
    json!({
        "version": "0.5",
        "contextHooks": {"beforeInference": true},
        "inferenceLifecycle": true,
        "pushEvents": true,
        "featureSets": {
            "memory.retrieval": {"description": "Retrieves", "uses": [AFTER_USER]},
            "memory.persona": {"description": "Has a persona", "uses": [OBSERVE, SYSTEM]},
            "memory.turns": {"description": "Follows turns", "uses": ["inferenceLifecycle"]},
            "memory.proactive": {"description": "Pushes", "uses": ["pushEvents"]},
            "memory.guess": {"description": "Invalid", "uses": ["everything", "pushEvents"]}
        }
    })
}

/// A host of 0.5.
fn host() -> Value {
    json!({"version": "0.5", "pushEvents": true, "contextHooks": {"beforeInference": true},
        "inferenceLifecycle": true, "channels": true, "featureSets": true})
}

async fn start(answers: &Value, rules: &str) -> (Kernel, Driver) {
    let entry = answering(&memory(), answers).entry("memory");
    let kernel = Kernel::start(&format!("{entry}[mcpl.servers.memory]\n{rules}\n")).await;
    kernel.connected(&["memory"]).await;
    let driver = Driver::at(&kernel, "memory").await;
    (kernel, driver)
}

fn accepting() -> Value {
    json!({"featureSets/update": {"result": {"accepted": true}}})
}

async fn enabled(kernel: &Kernel) -> Value {
    let listed = kernel.mgp_json(&["mcpl", "sets", "list"]).await;
    let sets = listed["servers"][0]["sets"].as_array().unwrap().iter();
    let sets = sets.filter(|set| set["enabled"] == true);
    sets.map(|set| set["set"].clone()).collect()
}

async fn until_enabled(kernel: &Kernel, expected: Value) {
    wait_until(&format!("{expected} are enabled"), DEADLINE, async || {
        enabled(kernel).await == expected
    })
    .await;
}

fn push() -> Value {
    json!({"featureSet": "memory.proactive", "eventId": "e", "timestamp": "2026-01-23T14:00:00Z", "payload": {"content": "x"}})
}

fn before(id: &str) -> Value {
    json!({"inferenceId": id, "conversationId": "c", "turnIndex": 0, "userMessage": "hello",
        "model": {"id": "m", "vendor": "v", "contextWindow": 1, "capabilities": []}})
}

/// NEW-002, NEW-005, NEW-006: a server of 0.5 is sent its grant as a request, even if it gets nothing; removed words do
/// not exist for it, and a set with invalid uses is left out.
#[tokio::test]
async fn server_of_0_5_gets_its_grant_as_a_request() {
    let (_kernel, mut driver) = start(&accepting(), "").await;
    let updates = driver.hears("featureSets/update", 1).await;
    assert!(updates[0].get("id").is_some(), "{updates:?}");
    let params = &updates[0]["params"];
    assert_eq!(params["effectiveCapabilities"], json!(["tools"]));
    assert_eq!(params["enabled"], json!([]));
    let all = [
        "memory.persona",
        "memory.proactive",
        "memory.retrieval",
        "memory.turns",
    ];
    assert_eq!(params["disabled"], json!(all));
    assert!(params.get("scopes").is_none(), "{params}");
    let elevate = json!({"featureSet": "memory.turns", "scope": {"label": "/"}});
    let answer = driver.ask("scope/elevate", elevate).await;
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    let answer = driver.ask("push/event", push()).await;
    assert_eq!(answer["error"]["code"], -32002, "{answer}");
    assert_eq!(answer["error"]["data"], json!({"capability": "pushEvents"}));
}

/// NEW-007: what the operator adds is in force once the server has accepted it; without a receipt it never is.
#[tokio::test]
async fn grant_is_in_force_with_its_receipt_only() {
    let (kernel, mut driver) = start(&accepting(), "enable = [\"memory.proactive\"]").await;
    until_enabled(&kernel, json!(["memory.proactive"])).await;
    let answer = driver.ask("push/event", push()).await;
    assert!(answer.get("error").is_none(), "{answer}");
    // `*` would decide nothing: the configuration is more exact.
    let disable = ["mcpl", "sets", "disable", "memory", "memory.proactive"];
    kernel.mgp_json(&disable).await;
    let answer = driver.ask("push/event", push()).await;
    assert_eq!(answer["error"]["code"], -32002, "{answer}");

    let refusing = json!({"accepted": false, "fallback": "mcp-only", "reason": "needs more"});
    let answers = json!({"featureSets/update": {"result": refusing}});
    let (kernel, mut driver) = start(&answers, "enable = [\"memory.proactive\"]").await;
    driver.hears("featureSets/update", 1).await;
    wait_until("the refusal is noted", DEADLINE, async || {
        let log = kernel.mgp(&["servers", "logs", "memory"]).await;
        String::from_utf8_lossy(&log.stdout).contains("needs more")
    })
    .await;
    let answer = driver.ask("push/event", push()).await;
    assert_eq!(answer["error"]["code"], -32002, "{answer}");
}

/// NEW-021, NEW-022: without `observe` a server does not see the user's message, and it adds only where it may.
#[tokio::test]
async fn server_sees_and_adds_only_what_is_granted() {
    let both = json!([{"namespace": "n", "position": "system", "content": "obey"},
        {"namespace": "n", "position": "afterUser", "content": "remember"}]);
    let answers = json!({
        "featureSets/update": {"result": {"accepted": true}},
        "context/beforeInference": {"result": {"featureSet": "memory.retrieval", "contextInjections": both}}
    });
    let rules = "enable = [\"*\"]\ndisable = [\"memory.proactive\"]\ndeny = [\"contextHooks.*.inject.system\"]";
    let (kernel, mut driver) = start(&answers, rules).await;
    until_enabled(&kernel, json!(["memory.retrieval", "memory.turns"])).await;
    let host = Host::start(&kernel).await;
    let answer = host.request("context/beforeInference", before("i1")).await;
    let added = answer["result"]["contextInjections"].as_array().unwrap();
    assert_eq!(added.len(), 1, "{answer}");
    assert_eq!(added[0]["position"], "afterUser");
    let heard = driver.hears("context/beforeInference", 1).await;
    assert_eq!(heard[0]["params"]["userMessage"], Value::Null);
    // 0.5 has no such hook, whatever a host of 0.4 sends.
    let mut after = before("i1");
    after["assistantMessage"] = json!("y");
    host.request("context/afterInference", after).await;
    assert!(driver.heard_of("context/afterInference").await.is_empty());
}

/// NEW-019, NEW-043: a changed manifest is fetched; what it lacks is revoked, and nothing that it adds is granted.
#[tokio::test]
async fn changed_manifest_is_fetched_and_compared() {
    let mut changed = memory();
    changed["inferenceRequest"] = json!(true);
    changed["pushEvents"] = json!(false);
    changed["featureSets"]["memory.infer"] =
        json!({"description": "Infers", "uses": ["inferenceRequest"]});
    let mut answers = accepting();
    answers["mcpl/manifest"] = json!({"result": changed});
    let rules = "enable = [\"memory.proactive\", \"memory.turns\"]";
    let (kernel, mut driver) = start(&answers, rules).await;
    until_enabled(&kernel, json!(["memory.proactive", "memory.turns"])).await;
    let hint = json!({"revision": "sha256:x", "domains": ["capabilities"]});
    driver.tell("mcpl/manifestChanged", hint).await;
    until_enabled(&kernel, json!(["memory.turns"])).await;
    let updates = driver.hears("featureSets/update", 2).await;
    assert_eq!(
        updates[1]["params"]["effectiveCapabilities"],
        json!(["tools", "inferenceLifecycle"])
    );
    let audit = kernel.mgp(&["audit", "find", "--json"]).await;
    let audit = String::from_utf8_lossy(&audit.stdout).into_owned();
    assert!(audit.contains("capability-expansion-pending"), "{audit}");
}

/// NEW-050, NEW-051, NEW-031: a host of 0.5 is answered in 0.5; its grant narrows what the operator lets through, and the
/// phases of its inferences reach servers of 0.5 without content.
#[tokio::test]
async fn host_of_0_5_grants_by_request_and_reports_phases() {
    let (kernel, mut driver) = start(&accepting(), "enable = [\"memory.turns\"]").await;
    until_enabled(&kernel, json!(["memory.turns"])).await;
    let host = Host::declaring(&kernel, &host(), &[]).await;
    assert_eq!(host.declared()["version"], "0.5");
    assert!(
        host.declared()["contextHooks"]
            .get("afterInference")
            .is_none()
    );
    let sets = host.declared()["featureSets"].as_object().unwrap();
    assert_eq!(sets.keys().collect::<Vec<_>>(), ["memory.memory.turns"]);
    let fetched = host.request("mcpl/manifest", json!({})).await;
    assert_eq!(fetched["result"], *host.declared());
    let phase = |id: &str| json!({"inferenceId": id, "conversationId": "c", "turnIndex": 0, "phase": "started", "userMessage": "secret"});
    // Nothing is granted yet.
    host.tell("inference/lifecycle", phase("early"));
    let lacking = host
        .request(
            "featureSets/update",
            json!({"enabled": ["memory.memory.turns"]}),
        )
        .await;
    assert_eq!(lacking["result"]["mode"], "degraded", "{lacking}");
    let granted = json!({"effectiveCapabilities": ["inferenceLifecycle"]});
    let receipt = host.request("featureSets/update", granted).await;
    assert_eq!(receipt["result"], json!({"accepted": true}));
    host.tell("inference/lifecycle", phase("now"));
    let heard = driver.hears("inference/lifecycle", 1).await;
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert!(!heard[0].to_string().contains("secret"), "{heard:?}");
    let both = json!({"effectiveCapabilities": ["tools"], "deniedCapabilities": ["tools"]});
    let malformed = host.request("featureSets/update", both).await;
    assert_eq!(malformed["error"]["code"], -32602, "{malformed}");

    // A change is announced without its contents.
    kernel
        .mgp_json(&["mcpl", "sets", "enable", "memory", "memory.proactive"])
        .await;
    let changed = host.hears("mcpl/manifestChanged").await;
    assert_eq!(changed["domains"], json!(["featureSets"]));
    let fetched = host.request("mcpl/manifest", json!({})).await;
    assert_eq!(fetched["result"]["revision"], changed["revision"]);
}

/// NEW-061: tags reach a host of 0.5 with what they imply, and none of 0.4.
#[tokio::test]
async fn tags_reach_hosts_of_0_5_only() {
    let (kernel, mut driver) = start(&accepting(), "enable = [\"memory.proactive\"]").await;
    until_enabled(&kernel, json!(["memory.proactive"])).await;
    let old = json!({"version": "0.4", "pushEvents": true, "featureSets": true});
    for (declared, tags) in [
        (old, Value::Null),
        (host(), json!(["chat:addressed", "chat:reply"])),
    ] {
        let host = Host::declaring(&kernel, &declared, &[]).await;
        host.answers("push/event", json!({"result": {"accepted": true}}));
        let granted = json!({"effectiveCapabilities": ["pushEvents"]});
        if declared["version"] == "0.5" {
            host.request("featureSets/update", granted).await;
        }
        let mut event = push();
        event["eventId"] = declared["version"].clone();
        event["tags"] = json!(["chat:reply", "chat:ambient", "untagged"]);
        let answer = driver.ask("push/event", event).await;
        assert_eq!(answer["result"]["accepted"], true, "{answer}");
        let asked = host.asked("push/event", 1).await;
        assert_eq!(asked[0]["params"]["tags"], tags, "{asked:?}");
        host.leave().await;
    }
}
