//! Feature sets (MCPL §6).

use mgp_tests::harness::{DEADLINE, Kernel, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::scene::{Driver, Host, memory, server};

/// What `mgp mcpl sets list` says of a server's sets: the enabled ones, by name.
async fn enabled(kernel: &Kernel, server: &str) -> Vec<String> {
    let listed = kernel.mgp_json(&["mcpl", "sets", "list"]).await;
    let servers = listed["servers"].as_array().unwrap();
    let one = servers.iter().find(|one| one["server"] == server).unwrap();
    let sets = one["sets"].as_array().unwrap().iter();
    let sets = sets.filter(|set| set["enabled"] == true);
    sets.map(|set| set["set"].as_str().unwrap().to_owned())
        .collect()
}

/// A server `memory` that declares this, enabled by these rules.
async fn start(declared: &Value, rules: &str) -> (Kernel, Driver) {
    let kernel = Kernel::start(&config(declared, rules)).await;
    kernel.connected(&["memory"]).await;
    let driver = Driver::at(&kernel, "memory").await;
    (kernel, driver)
}

fn config(declared: &Value, rules: &str) -> String {
    let entry = server(declared).entry("memory");
    format!("{entry}[mcpl.servers.memory]\n{rules}\n")
}

/// The sets that the last of so many updates enabled and disabled.
async fn updated(driver: &mut Driver, count: usize) -> [Value; 2] {
    let updates = driver.hears("featureSets/update", count).await;
    let params = &updates[count - 1]["params"];
    [params["enabled"].clone(), params["disabled"].clone()]
}

/// This set is left out of those of its server, and the reason is in the server's log.
async fn assert_left_out(bad: Value, reason: &str) {
    let mut declared = memory();
    declared["featureSets"]["bad"] = bad;
    let (kernel, mut driver) = start(&declared, "enable = [\"*\"]").await;
    let [enabled, disabled] = updated(&mut driver, 1).await;
    let all = [
        "memory.consolidation",
        "memory.extraction",
        "memory.proactive",
        "memory.retrieval",
    ];
    assert_eq!((enabled, disabled), (json!(all), json!([])));
    let log = kernel.mgp(&["servers", "logs", "memory"]).await;
    let log = String::from_utf8_lossy(&log.stdout).into_owned();
    assert!(log.contains("feature set bad is left out"), "{log}");
    assert!(log.contains(reason), "{log}");
}

/// MCPL-034.
#[tokio::test]
async fn feature_set_without_uses_is_left_out_alone() {
    assert_left_out(json!({"description": "no uses"}), "uses").await;
}

/// MCPL-035.
#[tokio::test]
async fn feature_set_with_an_unknown_use_is_left_out_alone() {
    let odd = json!({"description": "d", "uses": ["everything"]});
    assert_left_out(odd, "everything").await;
}

/// MCPL-033.
#[tokio::test]
async fn declared_sets_are_listed_with_their_uses() {
    let (kernel, _) = start(&memory(), "").await;
    let listed = kernel.mgp_json(&["mcpl", "sets", "list"]).await;
    let sets = listed["servers"][0]["sets"].as_array().unwrap().iter();
    let sets: Vec<_> = sets.map(|set| json!([set["set"], set["uses"]])).collect();
    let declared = memory()["featureSets"].as_object().unwrap().clone();
    let mut expected: Vec<_> = declared
        .iter()
        .map(|(name, set)| json!([name, set["uses"]]))
        .collect();
    expected.sort_by_key(ToString::to_string);
    assert_eq!(sets, expected, "{listed}");
}

/// MCPL-003.
#[tokio::test]
async fn only_sets_that_the_operator_enables_are_enabled() {
    let rules = "enable = [\"memory.proactive\"]";
    let (kernel, mut driver) = start(&memory(), rules).await;
    let [now_enabled, _] = updated(&mut driver, 1).await;
    assert_eq!(now_enabled, json!(["memory.proactive"]));
    assert_eq!(enabled(&kernel, "memory").await, ["memory.proactive"]);
    let listed = kernel.mgp(&["mcpl", "sets", "list"]).await;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(
        listed.contains("[mcpl] of mgp.toml (memory.proactive)"),
        "{listed}"
    );
}

/// MCPL-036: and a rule for one of them goes before it.
#[tokio::test]
async fn wildcard_enables_every_set_below_a_name() {
    let mut declared = memory();
    declared["featureSets"]["other"] = json!({"description": "d", "uses": ["pushEvents"]});
    let (kernel, mut driver) = start(&declared, "disable = [\"other\"]").await;
    kernel
        .mgp_json(&["mcpl", "sets", "enable", "memory", "memory.*"])
        .await;
    let switched = kernel
        .mgp_json(&["mcpl", "sets", "disable", "memory", "memory.consolidation"])
        .await;
    let on = json!(["memory.extraction", "memory.proactive", "memory.retrieval"]);
    assert_eq!(switched["enabled"], on);
    let off = json!(["memory.consolidation", "other"]);
    assert_eq!(updated(&mut driver, 3).await, [on, off]);
}

#[tokio::test]
async fn misspelt_server_or_set_is_rejected_with_a_suggestion() {
    let (kernel, _) = start(&memory(), "").await;
    for (server, set, suggestion) in [
        ("memory", "memory.proactve", "memory.proactive"),
        ("memry", "a", "memory"),
    ] {
        let rejected = kernel.mgp(&["mcpl", "sets", "enable", server, set]).await;
        let stderr = String::from_utf8_lossy(&rejected.stderr).into_owned();
        assert!(
            !rejected.status.success() && stderr.contains(suggestion),
            "{stderr}"
        );
    }
}

/// MCPL-045.
#[tokio::test]
async fn sets_that_a_server_adds_follow_the_rules_and_removed_ones_are_gone() {
    let rules = "enable = [\"memory.*\"]\ndisable = [\"memory.consolidation\"]";
    let (_kernel, mut driver) = start(&memory(), rules).await;
    let added = json!({
        "memory.semantic": {"description": "Semantic search", "uses": ["contextHooks.beforeInference"]},
        "other.push": {"description": "o", "uses": ["pushEvents"]},
        "bad": {"uses": []}
    });
    let changed = json!({"added": added, "removed": ["memory.extraction", "never"]});
    driver.tell("featureSets/changed", changed).await;
    let [enabled, disabled] = updated(&mut driver, 2).await;
    let on = ["memory.proactive", "memory.retrieval", "memory.semantic"];
    assert_eq!(enabled, json!(on));
    assert_eq!(disabled, json!(["memory.consolidation", "other.push"]));
}

/// MCPL-018.
#[tokio::test]
async fn changes_of_sets_that_are_malformed_or_empty_change_nothing() {
    let (kernel, mut driver) = start(&memory(), "enable = [\"memory.proactive\"]").await;
    for malformed in [
        json!({"added": [1]}),
        json!({"removed": "memory.proactive"}),
        json!({"removed": ["never"]}),
    ] {
        driver.tell("featureSets/changed", malformed).await;
    }
    let removed = json!({"removed": ["memory.extraction"]});
    driver.tell("featureSets/changed", removed).await;
    let [_, disabled] = updated(&mut driver, 2).await;
    let off = json!(["memory.consolidation", "memory.retrieval"]);
    assert_eq!(disabled, off);
    assert_eq!(enabled(&kernel, "memory").await, ["memory.proactive"]);
    assert_eq!(driver.heard_of("featureSets/update").await.len(), 2);
}

/// MCPL-110: each risk of the table has its switch.
#[tokio::test]
async fn disabled_sets_stop_push_hooks_and_inference() {
    let mut declared = memory();
    declared["contextHooks"] =
        json!({"beforeInference": true, "afterInference": {"blocking": true}});
    let (kernel, mut driver) = start(&declared, "enable = [\"*\"]\ndisable = [\"memory.*\"]").await;
    let host = Host::start(&kernel).await;
    let push = json!({"featureSet": "memory.proactive", "eventId": "e1", "timestamp": "2026-01-23T14:00:00Z", "payload": {"content": "x"}});
    let infer = json!({"featureSet": "memory.consolidation", "messages": [{"role": "user", "content": "x"}]});
    for (method, params) in [("push/event", push), ("inference/request", infer)] {
        let answer = driver.ask(method, params).await;
        assert_eq!(answer["error"]["code"], -32001, "{method}: {answer}");
    }
    let model = json!({"id": "m", "vendor": "v", "contextWindow": 1, "capabilities": []});
    let before = json!({"inferenceId": "i", "conversationId": "c", "turnIndex": 0, "userMessage": "x", "model": model});
    let mut after = before.clone();
    after["assistantMessage"] = json!("y");
    after["usage"] = json!({"inputTokens": 1, "outputTokens": 1});
    for (method, params) in [
        ("context/beforeInference", before),
        ("context/afterInference", after),
    ] {
        let answer = host.request(method, params).await;
        assert!(answer.get("result").is_some(), "{method}: {answer}");
        assert!(driver.heard_of(method).await.is_empty(), "{method}");
    }
}

#[tokio::test]
async fn reloaded_rules_apply_at_once_below_switches_by_hand() {
    let (kernel, mut driver) = start(&memory(), "enable = [\"memory.proactive\"]").await;
    kernel
        .mgp_json(&["mcpl", "sets", "enable", "memory", "memory.retrieval"])
        .await;
    let rules = "enable = [\"memory.extraction\"]\ndisable = [\"memory.retrieval\"]";
    kernel.rewrite(&config(&memory(), rules));
    let [enabled, disabled] = updated(&mut driver, 3).await;
    assert_eq!(enabled, json!(["memory.extraction", "memory.retrieval"]));
    assert_eq!(
        disabled,
        json!(["memory.consolidation", "memory.proactive"])
    );
}

#[tokio::test]
async fn switches_by_hand_survive_a_restart_until_they_are_reset() {
    let (kernel, _) = start(&memory(), "disable = [\"memory.proactive\"]").await;
    kernel
        .mgp_json(&["mcpl", "sets", "enable", "memory", "memory.*"])
        .await;
    kernel
        .mgp_json(&["mcpl", "sets", "disable", "memory", "memory.consolidation"])
        .await;
    let on = enabled(&kernel, "memory").await;
    assert!(on.contains(&"memory.retrieval".to_owned()), "{on:?}");
    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    let kernel = Kernel::again(folder).await;
    kernel.connected(&["memory"]).await;
    assert_eq!(enabled(&kernel, "memory").await, on);
    let reset = ["memory", "memory.*", "memory.consolidation"];
    kernel
        .mgp_json(&[&["mcpl", "sets", "reset"][..], &reset].concat())
        .await;
    assert!(enabled(&kernel, "memory").await.is_empty());
    let audit = kernel.mgp(&["audit", "find", "--json"]).await;
    let audit = String::from_utf8_lossy(&audit.stdout).into_owned();
    assert!(audit.contains("feature_sets_switched"), "{audit}");
}

/// MCPL-044, MCPL-151, MCPL-157: an agent that is a host sees the enabled sets of the servers it may know of, is told
/// of changes, and narrows them for itself alone.
#[tokio::test]
async fn agent_narrows_the_enabled_sets_for_itself_alone() {
    let tools = json!({"version": "0.4", "featureSets": {"notes.edit": {"description": "Manage notes", "uses": ["tools"]}}});
    let notes = json!([{"tool": {"name": "add_note"}, "answers": [{"result": {"content": []}}]}]);
    let notes = server(&tools).args(&["--mcpl-tools", &notes.to_string()]);
    let servers = [server(&memory()).entry("memory"), notes.entry("my.notes")].concat();
    let kernel = Kernel::start(&servers).await;
    kernel.connected(&["memory", "my.notes"]).await;
    let (host, other) = (Host::start(&kernel).await, Host::start(&kernel).await);
    let listed = host.request("tools/list", json!({})).await;
    let listed = listed["result"]["tools"].as_array().unwrap().iter();
    let mut names = listed.filter_map(|tool| tool["name"].as_str());
    let add_note = names
        .find(|name| name.contains("add_note"))
        .unwrap()
        .to_owned();
    let declared = host.declared()["featureSets"].as_object().unwrap();
    assert_eq!(declared.keys().collect::<Vec<_>>(), ["my~notes.notes.edit"]);

    kernel
        .mgp_json(&["mcpl", "sets", "enable", "memory", "memory.proactive"])
        .await;
    let changed = host.hears("featureSets/changed").await;
    assert_eq!(
        changed["added"]["memory.memory.proactive"]["uses"],
        json!(["pushEvents"])
    );
    assert_eq!(changed["removed"], json!([]));

    // It closes the set for itself; what the operator did not enable stays closed.
    let narrowed = json!({"enabled": ["memory.memory.retrieval"], "disabled": ["my~notes.*"]});
    host.tell("featureSets/update", narrowed);
    let refused = host.call(&add_note, json!({})).await;
    let words = refused.to_string();
    assert!(words.contains("this client disabled"), "{words}");
    let passed = other.call(&add_note, json!({})).await;
    assert!(passed.get("result").is_some(), "{passed}");
    assert_eq!(enabled(&kernel, "memory").await, ["memory.proactive"]);
    host.tell(
        "featureSets/update",
        json!({"enabled": ["my~notes.notes.edit"]}),
    );
    let passed = host.call(&add_note, json!({})).await;
    assert!(passed.get("result").is_some(), "{passed}");

    // What the operator disables is gone for all.
    kernel
        .mgp_json(&["mcpl", "sets", "disable", "my.notes", "*"])
        .await;
    let changed = other.hears("featureSets/changed").await;
    assert!(
        changed.to_string().contains("memory.memory.proactive"),
        "{changed}"
    );
    let changed = other.hears("featureSets/changed").await;
    assert_eq!(
        changed,
        json!({"added": {}, "removed": ["my~notes.notes.edit"]})
    );
    let refused = other.call(&add_note, json!({})).await.to_string();
    assert!(
        refused.contains("mgp mcpl sets enable my.notes notes.edit"),
        "{refused}"
    );
    host.leave().await;
}

/// An enabled set is what was approved: what its server declares more waits for a person, also over a restart, and counts
/// only then.
#[tokio::test]
async fn enabled_set_gains_uses_only_after_approval() {
    let declared = |uses: Value| {
        json!({"version": "0.4", "pushEvents": true, "contextHooks": {"beforeInference": true},
            "featureSets": {"ci.alerts": {"description": "tells that a build failed", "uses": uses}}})
    };
    let config = |uses| {
        let entry = server(&declared(uses)).entry("ci");
        format!("{entry}[mcpl.servers.ci]\nenable = [\"ci.alerts\"]\n")
    };
    let grown = || config(json!(["pushEvents", "contextHooks.beforeInference"]));
    let mut kernel = Kernel::start(&config(json!(["pushEvents"]))).await;
    kernel.connected(&["ci"]).await;
    let uses = async |kernel: &Kernel| {
        let listed = kernel.mgp_json(&["mcpl", "sets", "list"]).await;
        listed["servers"][0]["sets"][0]["uses"].clone()
    };
    for restarts in [false, true] {
        if !restarts {
            kernel.rewrite(&grown())
        } else {
            kernel = Kernel::again(kernel.end(Signal::SIGTERM, DEADLINE).await).await
        }
        wait_until("the change waits", DEADLINE, async || {
            let pending = kernel.mgp_json(&["pending"]).await.to_string();
            pending.contains("uses is:  pushEvents, contextHooks.beforeInference")
                || pending.contains("uses is:  contextHooks.beforeInference, pushEvents")
        })
        .await;
        assert_eq!(uses(&kernel).await, json!(["pushEvents"]));
    }
    let pending = kernel.mgp_json(&["pending"]).await;
    let id = pending["pending"][0]["id"].as_str().unwrap().to_owned();
    kernel.mgp_json(&["approve", &id]).await;
    wait_until("it counts", DEADLINE, async || {
        uses(&kernel).await.as_array().unwrap().len() == 2
    })
    .await;
    assert_eq!(kernel.mgp_json(&["pending"]).await["pending"], json!([]));
}
