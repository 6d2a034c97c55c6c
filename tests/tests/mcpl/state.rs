//! Stateful tools: checkpoints, patches, rollbacks, and who sees them (MCPL §8).

use std::time::Duration;

use mgp_tests::harness::{Agent, Kernel, Program, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::scene::{Driver, Host, VERSION, answering};

/// A server of notes, whose host keeps its data, and of commits, whose data it keeps itself.
fn notes() -> Program {
    let set = |rollback: bool| json!({"description": "Manage notes", "uses": ["tools"], "rollback": rollback});
    let declared = json!({
        "version": "0.4",
        "featureSets": {"notes.edit": set(true), "git.commit": set(true), "notes.read": set(false)}
    });
    let undo = json!({"checkpoint": "b", "success": false, "reason": "External API call cannot be undone"});
    let pruned =
        json!({"code": -32005, "message": "Checkpoint not found", "data": {"checkpoint": "b"}});
    let answers = json!({"state/rollback": [
        {"result": {"checkpoint": "a", "success": true}},
        {"result": undo},
        {"error": pruned},
        {"result": {"checkpoint": "other", "success": true}},
        {"result": {"checkpoint": "b", "success": true, "more": 1}},
        {"result": {"checkpoint": "g1", "success": true}},
    ]});
    let tool = |name: &str, set: &str, answers: Value| {
        let tool =
            json!({"name": name, "inputSchema": {"type": "object"}, "_meta": {"featureSet": set}});
        json!({"tool": tool, "answers": answers})
    };
    let add = |n: u8| json!([{"op": "add", "path": "/notes/-", "value": n}]);
    let tools = json!([
        tool(
            "add_note",
            "notes.edit",
            json!([
                said(&json!({"checkpoint": "a", "parent": null, "data": {"notes": []}})),
                said(&json!({"checkpoint": "b", "parent": "a", "patch": add(1), "unknown": true})),
                said(&json!({"checkpoint": "c", "parent": "b", "patch": [{"op": "add", "path": "/x", "value": 1}, {"op": "remove", "path": "/none"}]})),
                said(&json!({"checkpoint": "d", "parent": "nobody", "patch": []})),
                said(&json!({"checkpoint": "x", "parent": "a", "patch": add(2)})),
                {"result": {"content": [{"type": "text", "text": "done"}]}},
            ])
        ),
        tool(
            "commit",
            "git.commit",
            json!([
                said(&json!({"checkpoint": "g1"})),
                said(&json!({"checkpoint": "g2", "parent": "g1"}))
            ])
        ),
        tool(
            "slow_commit",
            "git.commit",
            json!([
                {"result": {"content": [], "state": {"checkpoint": "s1", "data": 1}}, "after_ms": 200},
                said(&json!({"checkpoint": "s2", "data": 2})),
            ])
        ),
        tool("read", "notes.read", json!([{"result": {"content": []}}])),
    ]);
    answering(&declared, &answers).args(&["--mcpl-tools", &tools.to_string()])
}

fn said(state: &Value) -> Value {
    json!({"result": {"content": [{"type": "text", "text": "done"}], "state": state}})
}

/// What the last call of this tool carried, at its server.
async fn carried(driver: &mut Driver, tool: &str) -> Value {
    let calls = driver.heard_of("tools/call").await;
    let mut of_tool = calls.iter().filter(|call| call["params"]["name"] == tool);
    let params = &of_tool.next_back().unwrap()["params"];
    json!([
        params.get("state"),
        params.get("checkpoint"),
        params.get("scope")
    ])
}

fn note(answer: &Value) -> &Value {
    assert!(answer["result"].get("state").is_none(), "{answer}");
    &answer["result"]["_meta"]["mcpl/state"]
}

const CONFIG: &str = r#"
[mcpl.state]
tool_for = ["*"]
[mcpl.state.sets]
"notes.git.commit" = "agent"
"#;

/// MCPL-020, MCPL-060, MCPL-061, MCPL-062, MCPL-063, MCPL-064, MCPL-065, MCPL-066, MCPL-067, MCPL-068, MCPL-069, MCPL-070,
/// MCPL-071, MCPL-072, MCPL-073, MCPL-074, MCPL-075, MCPL-076, MCPL-077, MCPL-159: the story of §8.
#[tokio::test]
async fn a_state_grows_goes_back_branches_and_outlives_the_kernel() {
    let (notes, other) = (notes(), notes());
    let kernel =
        Kernel::start(&[notes.entry("notes"), other.entry("other"), CONFIG.into()].concat()).await;
    kernel.connected(&["notes", "other"]).await;
    let mut driver = Driver::at(&kernel, "notes").await;
    let host = Host::start(&kernel).await;

    grows(&host, &mut driver).await;

    goes_back(&host, &mut driver).await;

    // A server that keeps its state gets the checkpoint; another server and another session get nothing.
    let answer = host.call("notes__commit", json!({})).await;
    assert_eq!(note(&answer)["checkpoint"], "g1");
    host.call("notes__commit", json!({})).await;
    assert_eq!(
        carried(&mut driver, "commit").await,
        json!([null, "g1", null])
    );
    host.call("other__add_note", json!({})).await;
    let mut others = Driver::at(&kernel, "other").await;
    assert_eq!(
        carried(&mut others, "add_note").await,
        json!([null, null, null])
    );
    let mut plain = plain(&kernel).await;
    let answer = plain.call("notes__add_note", json!({})).await;
    assert!(!answer.frame.contains("mcpl"), "{}", answer.frame);
    assert_eq!(
        carried(&mut driver, "add_note").await,
        json!([null, null, null])
    );

    // Two calls of one state at once: the second one goes on from what the first one left.
    let (one, two) = (
        host.begin(
            "tools/call",
            json!({"name": "notes__slow_commit", "arguments": {}}),
        ),
        host.begin(
            "tools/call",
            json!({"name": "notes__slow_commit", "arguments": {}}),
        ),
    );
    one.await.unwrap();
    two.await.unwrap();
    assert_eq!(
        carried(&mut driver, "slow_commit").await,
        json!([1, null, null])
    );

    operator(&kernel).await;
    host.call("notes__add_note", json!({})).await;
    assert_eq!(
        carried(&mut driver, "add_note").await[0],
        json!({"notes": [1]})
    );

    // An agent without MCPL that was given the tool.
    let arguments = json!({"feature_set": "notes.git.commit", "checkpoint": "g1"});
    let answer = plain.call("mgp_state_rollback", arguments).await;
    assert!(
        answer.frame.contains(r#""success":true"#),
        "{}",
        answer.frame
    );

    // Killed: what was answered is there.
    drop((host, driver, others, plain));
    let folder = kernel.end(Signal::SIGKILL, Duration::from_secs(5)).await;
    let kernel = Kernel::again(folder).await;
    kernel.connected(&["notes"]).await;
    let host = Host::start(&kernel).await;
    host.call("notes__commit", json!({})).await;
    let mut driver = Driver::at(&kernel, "notes").await;
    assert_eq!(
        carried(&mut driver, "commit").await,
        json!([null, "g1", null])
    );
    // The session before has ended; what it did can still be looked at.
    wait_until(
        "the end of the session",
        Duration::from_secs(5),
        async || {
            let log = kernel
                .mgp_json(&["state", "log", "notes", "--set", "notes.edit"])
                .await;
            log["states"]
                .as_array()
                .unwrap()
                .iter()
                .all(|state| state.get("ended_at").is_some())
        },
    )
    .await;
}

/// What a state does forward.
async fn grows(host: &Host, driver: &mut Driver) {
    // Data, then a patch of it; what a caller says under these names itself stays behind.
    let first = host.call("notes__add_note", json!({})).await;
    assert_eq!(
        note(&first),
        &json!({"featureSet": "notes.notes.edit", "checkpoint": "a"})
    );
    assert_eq!(carried(driver, "add_note").await, json!([null, null, null]));
    let forged = json!({"name": "notes__add_note", "arguments": {}, "state": {"evil": 1}, "checkpoint": "z", "scope": {"label": "/"}});
    let second = host.request("tools/call", forged).await;
    assert_eq!(note(&second)["checkpoint"], "b");
    assert_eq!(
        carried(driver, "add_note").await,
        json!([{"notes": []}, null, null])
    );

    // A patch that fails in its second step, and one of an unknown parent: nothing of them is kept, and it is said.
    for why in ["operation 1", "not known"] {
        let answer = host.call("notes__add_note", json!({})).await;
        let refused = note(&answer)["refused"].as_str().unwrap();
        assert!(refused.contains(why), "{answer}");
        assert_eq!(note(&answer)["checkpoint"], "b");
        assert_eq!(carried(driver, "add_note").await[0], json!({"notes": [1]}));
    }
}

/// What it does backward.
async fn goes_back(host: &Host, driver: &mut Driver) {
    // Back, and a branch.
    let back = |set: &str, checkpoint: &str| {
        host.request(
            "state/rollback",
            json!({"featureSet": set, "checkpoint": checkpoint}),
        )
    };
    let answer = back("notes.notes.edit", "a").await;
    assert_eq!(
        answer["result"],
        json!({"checkpoint": "a", "success": true})
    );
    let asked = driver.heard_of("state/rollback").await;
    assert_eq!(
        asked[0]["params"],
        json!({"featureSet": "notes.edit", "checkpoint": "a"})
    );
    let branch = host.call("notes__add_note", json!({})).await;
    assert_eq!(note(&branch)["checkpoint"], "x");
    assert_eq!(carried(driver, "add_note").await[0], json!({"notes": []}));

    // What the server cannot undo, has pruned, or answers about something else moves nothing.
    let answer = back("notes.notes.edit", "b").await;
    assert_eq!(answer["result"]["success"], false, "{answer}");
    assert_eq!(
        answer["result"]["reason"],
        "External API call cannot be undone"
    );
    let answer = back("notes.notes.edit", "b").await;
    assert_eq!(answer["error"]["code"], -32005, "{answer}");
    assert_eq!(answer["error"]["data"]["checkpoint"], "b");
    let answer = back("notes.notes.edit", "b").await;
    assert!(answer.get("error").is_some(), "{answer}");
    host.call("notes__add_note", json!({})).await;
    assert_eq!(carried(driver, "add_note").await[0], json!({"notes": [2]}));

    // What nobody has is refused without asking; what cannot be rolled back, or is not there, by its own code.
    for (set, code) in [
        ("notes.notes.edit", -32005),
        ("notes.notes.none", -32003),
        ("nobody.a", -32003),
    ] {
        let answer = back(set, "zz").await;
        assert_eq!(answer["error"]["code"], code, "{answer}");
    }
    let answer = back("notes.notes.read", "a").await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    assert_eq!(driver.heard_of("state/rollback").await.len(), 4);
}

/// What the operator sees, and does.
async fn operator(kernel: &Kernel) {
    let log = kernel
        .mgp_json(&["state", "log", "notes", "--set", "notes.edit"])
        .await;
    let states = log["states"].as_array().unwrap();
    let told = |checkpoint: &Value| {
        json!([
            checkpoint["checkpoint"],
            checkpoint["parent_at"],
            checkpoint["current"]
        ])
    };
    let grown = states
        .iter()
        .find(|state| state["checkpoints"].as_array().unwrap().len() == 3);
    let grown: Vec<Value> = grown.unwrap()["checkpoints"]
        .as_array()
        .unwrap()
        .iter()
        .map(told)
        .collect();
    assert_eq!(
        json!(grown),
        json!([["a", null, false], ["b", 0, false], ["x", 0, true]])
    );
    let drawn = kernel.mgp(&["state", "log", "notes"]).await;
    let drawn = String::from_utf8(drawn.stdout).unwrap();
    assert!(
        drawn.contains("|- b  ") && drawn.contains("* `- x  "),
        "{drawn}"
    );
    let back = kernel.mgp(&["state", "rollback", "notes", "b"]).await;
    let said = String::from_utf8_lossy(&back.stdout);
    assert!(
        back.status.success() && said.contains("back at b"),
        "{back:?}"
    );
    let misspelt = kernel.mgp(&["state", "log", "nots"]).await;
    let said = String::from_utf8_lossy(&misspelt.stderr);
    assert!(
        !misspelt.status.success() && said.contains("did you mean notes"),
        "{said}"
    );
    let gone = kernel.mgp(&["state", "rollback", "notes", "bb"]).await;
    let said = String::from_utf8_lossy(&gone.stderr);
    assert!(
        !gone.status.success()
            && said.contains("has the checkpoint \"bb\"; did you mean b?")
            && said.contains("`mgp state log notes`"),
        "{said}"
    );
}

async fn plain(kernel: &Kernel) -> Agent {
    let mut plain = kernel.stdio_agent(None);
    plain.initialize(VERSION, "{}").await;
    plain
}
