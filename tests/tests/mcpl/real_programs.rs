//! What programs on mcpl-core write, and what they are answered.

use mgp_tests::harness::Kernel;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use crate::scene::{Driver, Host, answering, server};

const CONFIG: &str = "[mcpl.servers.beat]\nenable = [\"*\"]\n";

/// As heartbeat-mcpl declares itself.
fn beat() -> Value {
    json!({
        "version": "0.4",
        "pushEvents": true,
        "featureSets": [
            {"name": "heartbeat", "description": "Wakes the agent", "uses": ["pushEvents", "stateUpdate"], "rollback": false, "hostState": false},
            {"name": "reminders", "uses": ["tools"]}
        ]
    })
}

/// As mcpl-harness declares itself.
fn harness() -> Value {
    json!({"version": "0.4", "pushEvents": true, "channels": true, "modelInfo": true, "scopedAccess": true})
}

fn event(set: &str, id: &str) -> Value {
    json!({"featureSet": set, "eventId": id, "timestamp": "2026-01-23T10:30:00Z", "payload": {"content": [{"type": "text", "text": "x"}]}})
}

/// MCPL-041, MCPL-157: the form of mcpl-core both ways, what a set lacks by name, and an update with a wrong member.
#[tokio::test]
async fn feature_sets_declared_as_an_array_are_accepted_and_answered_as_one() {
    let kernel = Kernel::start(&[&*server(&beat()).entry("beat"), CONFIG].concat()).await;
    kernel.connected(&["beat"]).await;
    let mut beat = Driver::at(&kernel, "beat").await;
    let update = beat.hears("featureSets/update", 1).await;
    assert_eq!(
        update[0]["params"]["enabled"],
        json!(["heartbeat", "reminders"])
    );

    let host = Host::declaring(&kernel, &harness(), &[]).await;
    host.answers("push/event", json!({"result": {"accepted": true}}));
    let sets = host.declared()["featureSets"].as_array().unwrap();
    assert_eq!(sets[0]["name"], "beat.heartbeat", "{sets:?}");
    assert_eq!(sets[0]["uses"], json!(["pushEvents"]));
    assert_eq!(host.declared()["channels"], true);
    host.request("ping", json!({})).await;
    let taken = beat.ask("push/event", event("heartbeat", "e1")).await;
    assert_eq!(taken["result"]["accepted"], true, "{taken}");

    let refused = beat.ask("push/event", event("reminders", "e2")).await;
    assert_eq!(refused["error"]["code"], -32001, "{refused}");
    assert_eq!(refused["error"]["data"]["missing"], "pushEvents");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("pushEvents"), "{message}");

    // Changes have the names as keys, and in the sets.
    for (word, member) in [("disable", "removed"), ("enable", "added")] {
        let done = kernel
            .mgp(&["mcpl", "sets", word, "beat", "heartbeat"])
            .await;
        assert!(done.status.success(), "{done:?}");
        let changed = host.hears("featureSets/changed").await;
        let expected = match member {
            "removed" => changed["removed"] == json!(["beat.heartbeat"]),
            _ => changed["added"]["beat.heartbeat"]["name"] == "beat.heartbeat",
        };
        assert!(expected, "{changed}");
    }

    // One wrong member does not take the others with it.
    host.tell(
        "featureSets/update",
        json!({"disabled": ["beat.heartbeat", 7], "enabled": [5]}),
    );
    host.request("ping", json!({})).await;
    let alone = beat.ask("push/event", event("heartbeat", "e3")).await;
    assert_eq!(alone["result"]["accepted"], false, "{alone}");
}

/// MCPL-074, MCPL-149: nobody waits longer for a rollback than for a call.
#[tokio::test]
async fn rollback_of_a_silent_server_fails_at_its_call_timeout() {
    let declared = json!({
        "version": "0.4",
        "featureSets": {"notes": {"description": "d", "uses": ["tools"], "rollback": true}}
    });
    let state = json!({"checkpoint": "a", "parent": null, "data": {}});
    let tools = json!([{
        "tool": {"name": "note", "inputSchema": {"type": "object"}, "_meta": {"featureSet": "notes"}},
        "answers": [{"result": {"content": [], "state": state}}]
    }]);
    let silent = json!({"state/rollback": {"silent": true}});
    let entry = answering(&declared, &silent)
        .args(&["--mcpl-tools", &tools.to_string()])
        .entry("notes")
        .replace("[[servers]]", "[[servers]]\ncall_timeout_secs = 2");
    let config = "[mcpl.servers.notes]\nenable = [\"*\"]\n";
    let kernel = Kernel::start(&[&*entry, config].concat()).await;
    kernel.connected(&["notes"]).await;
    let host = Host::start(&kernel).await;
    let noted = host.call("notes__note", json!({})).await;
    let state = &noted["result"]["_meta"]["mcpl/state"];
    assert_eq!(state["checkpoint"], "a", "{noted}");
    let began = Instant::now();
    let answer = host
        .request(
            "state/rollback",
            json!({"featureSet": "notes.notes", "checkpoint": "a"}),
        )
        .await;
    let took = began.elapsed();
    assert!(answer.get("error").is_some(), "{answer}");
    // A minute is what a server has whose calls have no limit.
    assert!(took < Duration::from_secs(30), "{took:?}");
}
