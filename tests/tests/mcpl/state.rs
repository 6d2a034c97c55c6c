//! Stateful tools: checkpoints, patches, rollbacks, and who sees them (MCPL §8).

use std::time::Duration;

use mgp_tests::harness::{Agent, Kernel, Program, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::scene::{Driver, Host, VERSION, answering};

/// A server of notes, whose host stores its data, and of commits, whose data it stores itself. `add_note` answers with
/// these states in turn, and `state/rollback` with these answers.
fn notes(states: &[Value], rollbacks: &Value) -> Program {
    let set = |rollback: bool| json!({"description": "Manage notes", "uses": ["tools"], "rollback": rollback});
    let declared = json!({
        "version": "0.4",
        "featureSets": {"notes.edit": set(true), "git.commit": set(true), "notes.read": set(false)}
    });
    let tool = |name: &str, set: &str, answers: Value| {
        let tool =
            json!({"name": name, "inputSchema": {"type": "object"}, "_meta": {"featureSet": set}});
        json!({"tool": tool, "answers": answers})
    };
    let states: Vec<Value> = states.iter().map(result).collect();
    let tools = json!([
        tool("add_note", "notes.edit", json!(states)),
        tool(
            "commit",
            "git.commit",
            json!([
                result(&json!({"checkpoint": "g1"})),
                result(&json!({"checkpoint": "g2", "parent": "g1"}))
            ])
        ),
        tool(
            "slow_commit",
            "git.commit",
            json!([
                {"result": {"content": [], "state": {"checkpoint": "s1", "data": 1}}, "after_ms": 200},
                result(&json!({"checkpoint": "s2", "data": 2})),
            ])
        ),
        tool(
            "read",
            "notes.read",
            json!([result(&json!({"checkpoint": "r1", "data": {"read": 1}}))])
        ),
    ]);
    let answers = json!({"state/rollback": rollbacks});
    answering(&declared, &answers).args(&["--mcpl-tools", &tools.to_string()])
}

/// The result of a call, with this state if it is one.
fn result(state: &Value) -> Value {
    let mut result = json!({"content": [{"type": "text", "text": "done"}]});
    if !state.is_null() {
        result["state"] = state.clone();
    }
    json!({"result": result})
}

/// The first state.
fn a() -> Value {
    json!({"checkpoint": "a", "parent": null, "data": {"notes": []}})
}

/// A state that adds a note to the data of its parent.
fn patched(checkpoint: &str, parent: &str, note: u8) -> Value {
    let patch = json!([{"op": "add", "path": "/notes/-", "value": note}]);
    json!({"checkpoint": checkpoint, "parent": parent, "patch": patch})
}

/// The answer of a server that has rolled back.
fn rolled_back(checkpoint: &str) -> Value {
    json!({"result": {"checkpoint": checkpoint, "success": true}})
}

const CONFIG: &str = r#"
[mcpl.state]
tool_for = ["*"]
[mcpl.state.sets]
"notes.git.commit" = "agent"
"#;

/// A kernel with that server, and an agent that is an MCPL host.
struct Stateful {
    kernel: Kernel,
    host: Host,
    driver: Driver,
}

impl Stateful {
    async fn start(states: &[Value], rollbacks: Value) -> Self {
        Self::with_config(states, rollbacks, CONFIG).await
    }

    async fn with_config(states: &[Value], rollbacks: Value, config: &str) -> Self {
        let server = notes(states, &rollbacks).entry("notes");
        let kernel = Kernel::start(&format!("{server}{config}")).await;
        kernel.connected(&["notes"]).await;
        Self {
            host: Host::start(&kernel).await,
            driver: Driver::at(&kernel, "notes").await,
            kernel,
        }
    }

    /// Calls this tool; the note about its state in the answer.
    async fn call(&self, tool: &str) -> Value {
        let answer = self.host.call(&format!("notes__{tool}"), json!({})).await;
        assert!(answer["result"].get("state").is_none(), "{answer}");
        answer["result"]["_meta"]["mcpl/state"].clone()
    }

    async fn add_notes(&self, times: usize) {
        for _ in 0..times {
            self.call("add_note").await;
        }
    }

    async fn roll_back(&self, set: &str, checkpoint: &str) -> Value {
        let params = json!({"featureSet": set, "checkpoint": checkpoint});
        self.host.request("state/rollback", params).await
    }

    /// What the last call of `add_note` carried.
    async fn carried(&mut self) -> Value {
        carried(&mut self.driver, "add_note").await
    }

    async fn rollbacks(&mut self) -> Vec<Value> {
        self.driver.heard_of("state/rollback").await
    }

    /// Of the checkpoints of `notes.edit` that the operator is shown: the id, the position of the parent, if current.
    async fn logged(&self) -> Value {
        let args = ["state", "log", "notes", "--set", "notes.edit"];
        let log = self.kernel.mgp_json(&args).await;
        let states = log["states"].as_array().unwrap();
        assert_eq!(states.len(), 1, "{log}");
        let checkpoints = states[0]["checkpoints"].as_array().unwrap().iter();
        checkpoints
            .map(|one| json!([one["checkpoint"], one["parent_at"], one["current"]]))
            .collect()
    }
}

/// What the last call of this tool carried, at its server: the state, the checkpoint and the scope.
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

async fn plain(kernel: &Kernel) -> Agent {
    let mut plain = kernel.stdio_agent(None);
    plain.initialize(VERSION, "{}").await;
    plain
}

/// MCPL-064, MCPL-069.
#[tokio::test]
async fn data_of_a_state_is_sent_with_the_next_call() {
    let mut stateful = Stateful::start(&[a(), Value::Null], json!([])).await;
    let state = stateful.call("add_note").await;
    assert_eq!(
        state,
        json!({"featureSet": "notes.notes.edit", "checkpoint": "a"})
    );
    assert_eq!(stateful.carried().await, json!([null, null, null]));
    stateful.call("add_note").await;
    assert_eq!(stateful.carried().await, json!([{"notes": []}, null, null]));
    // A result without a state changes nothing.
    stateful.call("add_note").await;
    assert_eq!(stateful.carried().await, json!([{"notes": []}, null, null]));
}

/// MCPL-063.
#[tokio::test]
async fn checkpoints_of_results_are_recorded_below_their_parents() {
    let states = [a(), patched("b", "a", 1), patched("c", "a", 2)];
    let stateful = Stateful::start(&states, json!([])).await;
    stateful.add_notes(3).await;
    let tree = json!([["a", null, false], ["b", 0, false], ["c", 0, true]]);
    assert_eq!(stateful.logged().await, tree);
}

/// MCPL-065.
#[tokio::test]
async fn patch_is_applied_to_the_data_of_its_parent() {
    let states = [a(), patched("b", "a", 1), patched("c", "b", 2), Value::Null];
    let mut stateful = Stateful::start(&states, json!([])).await;
    stateful.add_notes(3).await;
    assert_eq!(stateful.carried().await[0], json!({"notes": [1]}));
    stateful.add_notes(1).await;
    assert_eq!(stateful.carried().await[0], json!({"notes": [1, 2]}));
}

/// MCPL-066.
#[tokio::test]
async fn patch_that_fails_at_its_second_operation_changes_nothing() {
    let patch = json!([{"op": "add", "path": "/x", "value": 1}, {"op": "remove", "path": "/none"}]);
    let failing = json!({"checkpoint": "b", "parent": "a", "patch": patch});
    let mut stateful = Stateful::start(&[a(), failing, Value::Null], json!([])).await;
    stateful.add_notes(1).await;
    let state = stateful.call("add_note").await;
    let reason = state["refused"].as_str().unwrap();
    assert!(reason.contains("operation 1"), "{state}");
    assert_eq!(state["checkpoint"], "a");
    stateful.add_notes(1).await;
    assert_eq!(stateful.carried().await[0], json!({"notes": []}));
    assert_eq!(stateful.logged().await, json!([["a", null, true]]));
}

/// MCPL-067.
#[tokio::test]
async fn patch_of_an_unknown_parent_is_rejected_and_reported() {
    let states = [a(), patched("b", "nobody", 1), Value::Null];
    let mut stateful = Stateful::start(&states, json!([])).await;
    stateful.add_notes(1).await;
    let state = stateful.call("add_note").await;
    let reason = state["refused"].as_str().unwrap();
    assert!(reason.contains("not known"), "{state}");
    assert_eq!(state["checkpoint"], "a");
    stateful.add_notes(1).await;
    assert_eq!(stateful.carried().await[0], json!({"notes": []}));
}

/// MCPL-068, MCPL-070.
#[tokio::test]
async fn checkpoint_without_data_is_sent_back_as_a_reference() {
    let mut stateful = Stateful::start(&[], json!([])).await;
    assert_eq!(stateful.call("commit").await["checkpoint"], "g1");
    stateful.call("commit").await;
    let carried = carried(&mut stateful.driver, "commit").await;
    assert_eq!(carried, json!([null, "g1", null]));
}

/// MCPL-071.
#[tokio::test]
async fn state_is_not_sent_to_another_server_set_or_session() {
    let servers = ["notes", "other"].map(|id| notes(&[a()], &json!([])).entry(id));
    let kernel = Kernel::start(&format!("{}{CONFIG}", servers.concat())).await;
    kernel.connected(&["notes", "other"]).await;
    let host = Host::start(&kernel).await;
    let mut driver = Driver::at(&kernel, "notes").await;
    let mut other = Driver::at(&kernel, "other").await;
    host.call("notes__add_note", json!({})).await;
    let nothing = json!([null, null, null]);

    host.call("other__add_note", json!({})).await;
    assert_eq!(carried(&mut other, "add_note").await, nothing);
    host.call("notes__commit", json!({})).await;
    assert_eq!(carried(&mut driver, "commit").await, nothing);
    let mut plain = plain(&kernel).await;
    let answer = plain.call("notes__add_note", json!({})).await;
    assert!(!answer.frame.contains("mcpl"), "{}", answer.frame);
    assert_eq!(carried(&mut driver, "add_note").await, nothing);
    // The session that has it still does.
    host.call("notes__add_note", json!({})).await;
    let carried = carried(&mut driver, "add_note").await;
    assert_eq!(carried[0], json!({"notes": []}));
}

/// MCPL-061: of a server, unknown members are ignored; those of a caller do not reach the server.
#[tokio::test]
async fn unknown_members_of_states_and_forged_ones_of_calls_are_ignored() {
    let mut more = patched("b", "a", 1);
    more["unknown"] = json!(true);
    let rollbacks = json!([{"result": {"checkpoint": "a", "success": true, "more": 1}}]);
    let mut stateful = Stateful::start(&[a(), more, Value::Null], rollbacks).await;
    stateful.add_notes(1).await;
    let forged = json!({"name": "notes__add_note", "arguments": {}, "state": {"evil": 1}, "checkpoint": "z", "scope": {"label": "/"}});
    let answer = stateful.host.request("tools/call", forged).await;
    assert_eq!(answer["result"]["_meta"]["mcpl/state"]["checkpoint"], "b");
    assert_eq!(stateful.carried().await, json!([{"notes": []}, null, null]));
    stateful.add_notes(1).await;
    assert_eq!(stateful.carried().await[0], json!({"notes": [1]}));
    let answer = stateful.roll_back("notes.notes.edit", "a").await;
    assert_eq!(answer["result"]["success"], true, "{answer}");
}

/// MCPL-060: the latest checkpoint alone needs nothing; rollbacks need a declaration, and a tool for them the operator.
#[tokio::test]
async fn set_without_rollback_keeps_its_latest_checkpoint() {
    let mut stateful = Stateful::with_config(&[], json!([]), "").await;
    assert_eq!(stateful.call("read").await["checkpoint"], "r1");
    stateful.call("read").await;
    let carried = carried(&mut stateful.driver, "read").await;
    assert_eq!(carried[0], json!({"read": 1}));
    let listed = stateful.host.request("tools/list", json!({})).await;
    assert!(!listed.to_string().contains("rollback"), "{listed}");
}

/// MCPL-062.
#[tokio::test]
async fn rollback_of_a_set_that_does_not_declare_it_is_rejected() {
    let mut stateful = Stateful::start(&[], json!([rolled_back("r1")])).await;
    stateful.call("read").await;
    let answer = stateful.roll_back("notes.notes.read", "r1").await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("does not declare `rollback`"), "{answer}");
    assert!(stateful.rollbacks().await.is_empty());
}

/// MCPL-159: under the server's own name of the set, and at no other server.
#[tokio::test]
async fn rollback_is_routed_to_the_server_of_the_set() {
    let servers = ["notes", "other"].map(|id| notes(&[a()], &json!([rolled_back("a")])).entry(id));
    let kernel = Kernel::start(&servers.concat()).await;
    kernel.connected(&["notes", "other"]).await;
    let host = Host::start(&kernel).await;
    for server in ["notes", "other"] {
        host.call(&format!("{server}__add_note"), json!({})).await;
    }
    let rollback = json!({"featureSet": "other.notes.edit", "checkpoint": "a"});
    host.request("state/rollback", rollback).await;
    let mut other = Driver::at(&kernel, "other").await;
    let asked = other.heard_of("state/rollback").await;
    assert_eq!(asked[0]["params"]["featureSet"], "notes.edit");
    let mut notes = Driver::at(&kernel, "notes").await;
    assert!(notes.heard_of("state/rollback").await.is_empty());
}

/// MCPL-020, MCPL-072.
#[tokio::test]
async fn rollback_reaches_the_server_as_a_request_with_set_and_checkpoint() {
    let mut stateful = Stateful::start(&[a()], json!([rolled_back("a")])).await;
    stateful.add_notes(1).await;
    stateful.roll_back("notes.notes.edit", "a").await;
    let asked = stateful.rollbacks().await;
    assert_eq!(asked.len(), 1);
    assert!(asked[0].get("id").is_some(), "{asked:?}");
    assert_eq!(
        asked[0]["params"],
        json!({"featureSet": "notes.edit", "checkpoint": "a"})
    );
}

/// MCPL-073.
#[tokio::test]
async fn rollback_moves_the_current_checkpoint_back() {
    let states = [a(), patched("b", "a", 1), Value::Null];
    let mut stateful = Stateful::start(&states, json!([rolled_back("a")])).await;
    stateful.add_notes(3).await;
    assert_eq!(stateful.carried().await[0], json!({"notes": [1]}));
    let answer = stateful.roll_back("notes.notes.edit", "a").await;
    assert_eq!(
        answer["result"],
        json!({"checkpoint": "a", "success": true})
    );
    stateful.add_notes(1).await;
    assert_eq!(stateful.carried().await[0], json!({"notes": []}));
}

/// MCPL-074: nor does an answer about another checkpoint.
#[tokio::test]
async fn rollback_that_the_server_cannot_do_moves_nothing() {
    let reason = "External API call cannot be undone";
    let rollbacks = json!([
        {"result": {"checkpoint": "a", "success": false, "reason": reason}},
        rolled_back("other"),
    ]);
    let states = [a(), patched("b", "a", 1), Value::Null];
    let mut stateful = Stateful::start(&states, rollbacks).await;
    stateful.add_notes(2).await;
    let answer = stateful.roll_back("notes.notes.edit", "a").await;
    assert_eq!(answer["result"]["success"], false, "{answer}");
    assert_eq!(answer["result"]["reason"], reason);
    let answer = stateful.roll_back("notes.notes.edit", "a").await;
    assert!(answer.get("error").is_some(), "{answer}");
    stateful.add_notes(1).await;
    assert_eq!(stateful.carried().await[0], json!({"notes": [1]}));
}

/// MCPL-075.
#[tokio::test]
async fn state_after_a_rollback_is_a_new_branch() {
    let states = [a(), patched("b", "a", 1), patched("x", "a", 2)];
    let rollbacks = json!([rolled_back("a"), rolled_back("b")]);
    let stateful = Stateful::start(&states, rollbacks).await;
    stateful.add_notes(2).await;
    stateful.roll_back("notes.notes.edit", "a").await;
    assert_eq!(stateful.call("add_note").await["checkpoint"], "x");
    let tree = json!([["a", null, false], ["b", 0, false], ["x", 0, true]]);
    assert_eq!(stateful.logged().await, tree);
    // The old branch is still there.
    let answer = stateful.roll_back("notes.notes.edit", "b").await;
    assert_eq!(answer["result"]["success"], true, "{answer}");
}

/// MCPL-076.
#[tokio::test]
async fn servers_error_for_a_pruned_checkpoint_reaches_the_agent() {
    let pruned =
        json!({"code": -32005, "message": "Checkpoint not found", "data": {"checkpoint": "a"}});
    let states = [a(), patched("b", "a", 1), Value::Null];
    let mut stateful = Stateful::start(&states, json!([{"error": pruned}])).await;
    stateful.add_notes(2).await;
    let answer = stateful.roll_back("notes.notes.edit", "a").await;
    assert_eq!(answer["error"]["code"], -32005, "{answer}");
    assert_eq!(answer["error"]["data"]["checkpoint"], "a");
    stateful.add_notes(1).await;
    assert_eq!(stateful.carried().await[0], json!({"notes": [1]}));
}

/// MCPL-077.
#[tokio::test]
async fn rollback_to_an_unknown_checkpoint_is_rejected_without_asking_the_server() {
    let mut stateful = Stateful::start(&[a()], json!([rolled_back("zz")])).await;
    stateful.add_notes(1).await;
    let answer = stateful.roll_back("notes.notes.edit", "zz").await;
    assert_eq!(answer["error"]["code"], -32005, "{answer}");
    assert_eq!(answer["error"]["message"], "Checkpoint not found");
    assert_eq!(answer["error"]["data"]["checkpoint"], "zz");
    for set in ["notes.notes.none", "nobody.a"] {
        let answer = stateful.roll_back(set, "zz").await;
        assert_eq!(answer["error"]["code"], -32003, "{answer}");
    }
    assert!(stateful.rollbacks().await.is_empty());
}

#[tokio::test]
async fn concurrent_calls_of_one_state_take_turns() {
    let mut stateful = Stateful::start(&[], json!([])).await;
    let call = || {
        let params = json!({"name": "notes__slow_commit", "arguments": {}});
        stateful.host.begin("tools/call", params)
    };
    let (first, second) = (call(), call());
    first.await.unwrap();
    second.await.unwrap();
    let carried = carried(&mut stateful.driver, "slow_commit").await;
    assert_eq!(carried, json!([1, null, null]));
}

#[tokio::test]
async fn operator_reads_the_log_of_a_state_and_rolls_it_back() {
    let states = [a(), patched("b", "a", 1), patched("x", "a", 2), Value::Null];
    let mut stateful = Stateful::start(&states, json!([rolled_back("b")])).await;
    stateful.add_notes(3).await;
    let kernel = &stateful.kernel;
    let drawn = kernel.mgp(&["state", "log", "notes"]).await;
    let drawn = String::from_utf8(drawn.stdout).unwrap();
    assert!(
        drawn.contains("|- b  ") && drawn.contains("* `- x  "),
        "{drawn}"
    );
    let back = kernel.mgp(&["state", "rollback", "notes", "b"]).await;
    let printed = String::from_utf8_lossy(&back.stdout);
    assert!(
        back.status.success() && printed.contains("back at b"),
        "{back:?}"
    );
    let misspelt = kernel.mgp(&["state", "log", "nots"]).await;
    let printed = String::from_utf8_lossy(&misspelt.stderr);
    assert!(
        !misspelt.status.success() && printed.contains("did you mean notes"),
        "{printed}"
    );
    let unknown = kernel.mgp(&["state", "rollback", "notes", "bb"]).await;
    let printed = String::from_utf8_lossy(&unknown.stderr);
    assert!(
        !unknown.status.success()
            && printed.contains("has the checkpoint \"bb\"; did you mean b?")
            && printed.contains("`mgp state log notes`"),
        "{printed}"
    );
    stateful.add_notes(1).await;
    assert_eq!(stateful.carried().await[0], json!({"notes": [1]}));
}

#[tokio::test]
async fn agent_without_mcpl_rolls_back_through_the_tool_where_configured() {
    let stateful = Stateful::start(&[], json!([rolled_back("g1")])).await;
    let mut plain = plain(&stateful.kernel).await;
    plain.call("notes__commit", json!({})).await;
    let arguments = json!({"feature_set": "notes.git.commit", "checkpoint": "g1"});
    let answer = plain.call("mgp_state_rollback", arguments).await;
    assert!(
        answer.frame.contains(r#""success":true"#),
        "{}",
        answer.frame
    );
}

#[tokio::test]
async fn states_survive_a_killed_kernel_and_sessions_end_with_it() {
    let Stateful {
        kernel,
        host,
        driver,
    } = Stateful::start(&[a()], json!([])).await;
    for tool in ["notes__add_note", "notes__commit"] {
        host.call(tool, json!({})).await;
    }
    drop((host, driver));
    let folder = kernel.end(Signal::SIGKILL, Duration::from_secs(5)).await;
    let kernel = Kernel::again(folder).await;
    kernel.connected(&["notes"]).await;
    let host = Host::start(&kernel).await;
    host.call("notes__commit", json!({})).await;
    let mut driver = Driver::at(&kernel, "notes").await;
    let carried = carried(&mut driver, "commit").await;
    assert_eq!(carried, json!([null, "g1", null]));
    // The session before has ended; its states can still be read.
    wait_until(
        "the end of the session",
        Duration::from_secs(5),
        async || {
            let log = kernel
                .mgp_json(&["state", "log", "notes", "--set", "notes.edit"])
                .await;
            let states = log["states"].as_array().unwrap();
            states.len() == 1 && states[0].get("ended_at").is_some()
        },
    )
    .await;
}
