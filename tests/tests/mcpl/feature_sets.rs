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

/// A misspelt name of a server or a set is refused with the nearest.
async fn names_that_nobody_has_are_not_taken(kernel: &Kernel) {
    let misspelt = [
        ("memory", "memory.proactve", "memory.proactive"),
        ("memry", "a", "memory"),
    ];
    for (server, set, near) in misspelt {
        let refused = kernel.mgp(&["mcpl", "sets", "enable", server, set]).await;
        let words = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && words.contains(near), "{words}");
    }
}

fn sets(list: &[&str]) -> Value {
    json!(list)
}

/// MCPL-003, MCPL-018, MCPL-033, MCPL-034, MCPL-035, MCPL-036, MCPL-045, MCPL-110: the operator says which sets are
/// enabled, in the configuration and by hand, and what was said by hand lasts.
#[tokio::test]
async fn the_operator_says_which_sets_are_enabled() {
    let mut declared = memory();
    declared["featureSets"]["broken"] = json!({"description": "no uses"});
    declared["featureSets"]["odd"] = json!({"description": "d", "uses": ["everything"]});
    let entry = server(&declared).entry("memory");
    let rules = "[mcpl.servers.memory]\nenable = [\"memory.proactive\"]\n";
    let kernel = Kernel::start(&format!("{entry}{rules}")).await;
    kernel.connected(&["memory"]).await;
    let mut driver = Driver::at(&kernel, "memory").await;
    let heard = driver.hears("featureSets/update", 1).await;
    assert_eq!(heard[0]["params"]["enabled"], sets(&["memory.proactive"]));
    // What is broken is left out alone, and told in the server's log.
    let log = kernel.mgp(&["servers", "logs", "memory"]).await;
    let log = String::from_utf8_lossy(&log.stdout).into_owned();
    assert!(log.contains("feature set broken is left out"), "{log}");
    assert!(log.contains("everything"), "{log}");
    let listed = kernel.mgp(&["mcpl", "sets", "list"]).await;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(
        listed.contains("[mcpl] of mgp.toml (memory.proactive)"),
        "{listed}"
    );

    // By hand, for all below a name, and against one of them.
    kernel
        .mgp_json(&["mcpl", "sets", "enable", "memory", "memory.*"])
        .await;
    let switched = kernel
        .mgp_json(&["mcpl", "sets", "disable", "memory", "memory.consolidation"])
        .await;
    let on = ["memory.extraction", "memory.proactive", "memory.retrieval"];
    assert_eq!(switched["enabled"], sets(&on));
    let heard = driver.hears("featureSets/update", 3).await;
    assert_eq!(heard[2]["params"]["enabled"], sets(&on));
    assert_eq!(
        heard[2]["params"]["disabled"],
        sets(&["memory.consolidation"])
    );
    names_that_nobody_has_are_not_taken(&kernel).await;

    // The server declares others: they follow what was said.
    let added = json!({
        "memory.semantic": {"description": "Semantic search", "uses": ["contextHooks.beforeInference"]},
        "other.push": {"description": "o", "uses": ["pushEvents"]},
        "bad": {"uses": []}
    });
    driver
        .tell(
            "featureSets/changed",
            json!({"added": added, "removed": ["memory.extraction", "never"]}),
        )
        .await;
    let heard = driver.hears("featureSets/update", 4).await;
    assert_eq!(
        heard[3]["params"]["enabled"],
        sets(&["memory.proactive", "memory.retrieval", "memory.semantic"])
    );
    assert_eq!(
        heard[3]["params"]["disabled"],
        sets(&["memory.consolidation", "other.push"])
    );
    // What changes nothing is not answered, and what cannot be read neither.
    driver
        .tell("featureSets/changed", json!({"added": [1]}))
        .await;
    driver
        .tell(
            "featureSets/changed",
            json!({"removed": "memory.proactive"}),
        )
        .await;
    driver
        .tell("featureSets/changed", json!({"removed": ["never"]}))
        .await;
    assert_eq!(enabled(&kernel, "memory").await.len(), 3);
    assert_eq!(driver.heard_of("featureSets/update").await.len(), 4);

    // The configuration says something else while the kernel runs; the last word by hand still counts.
    let rules =
        "[mcpl.servers.memory]\nenable = [\"other.push\"]\ndisable = [\"memory.proactive\"]\n";
    kernel.rewrite(&format!("{entry}{rules}"));
    let heard = driver.hears("featureSets/update", 5).await;
    assert_eq!(
        heard[4]["params"]["enabled"],
        sets(&["memory.retrieval", "memory.semantic", "other.push"])
    );

    // What was switched by hand is there after a restart; what the server says then is new.
    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    let kernel = Kernel::again(folder).await;
    kernel.connected(&["memory"]).await;
    assert_eq!(
        enabled(&kernel, "memory").await,
        ["memory.extraction", "memory.retrieval"]
    );
    kernel
        .mgp_json(&[
            "mcpl",
            "sets",
            "reset",
            "memory",
            "memory.*",
            "memory.consolidation",
        ])
        .await;
    assert!(enabled(&kernel, "memory").await.is_empty());
    let audit = kernel.mgp(&["audit", "find", "--json"]).await;
    let audit = String::from_utf8_lossy(&audit.stdout).into_owned();
    assert!(audit.contains("feature_sets_switched"), "{audit}");
}

/// MCPL-044, MCPL-151, MCPL-157: an agent that is a host sees the enabled sets of the servers it may know of, is told
/// of changes, and narrows them for itself alone.
#[tokio::test]
async fn an_agent_that_is_a_host_only_narrows() {
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
async fn an_enabled_set_grows_only_by_approval() {
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
