//! `mgp.toml` is changed while the kernel runs: well, badly, and in a hurry.

use crate::spawns::Spawns;
use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, wait_until};
use serde_json::{Value, json};

use crate::machine::{all_gone, runs};
use crate::scene::{begin, echoes, entry, in_flight, in_state, owner, server, shown, until};

/// Servers come, go and change; the one whose entry stayed the same keeps its process and the call
/// it is working on.
#[tokio::test]
async fn reload_restarts_only_changed_servers() {
    let same = server("same", &[], "");
    let servers = same.clone() + &server("gone", &[], "") + &server("changed", &[], "");
    let kernel = Kernel::start(&servers).await;
    kernel.connected(&["same", "gone", "changed"]).await;
    let (mut agent, mut other) = (owner(&kernel).await, owner(&kernel).await);
    let waiting = begin(&mut agent, "same__reverse", json!({"n": 2})).await;
    in_flight(&mut other, "same", 1).await;
    let [same_pid, gone_pid, changed_pid] = pids(&mut other, ["same", "gone", "changed"]).await;

    let changed = server("changed", &["--name", "anew"], "");
    kernel.rewrite(&(server("new", &[], "") + &changed + &same));
    in_state(&mut other, "new", "connected").await;
    let anew = |server: &Value| server["server_info"] == "anew 1.0.0";
    until(&mut other, "changed", "is anew", anew).await;
    until(&mut other, "gone", "is gone", Value::is_null).await;
    all_gone(&[gone_pid, changed_pid]).await;

    assert_eq!(pids(&mut other, ["same"]).await, [same_pid]);
    other.call("same__reverse", json!({"n": 2})).await.result();
    assert_eq!(agent.answer_to(&waiting).await.text(), "came as number 1");
    for id in ["new", "changed", "same"] {
        echoes(&mut other, id).await;
    }
    assert_eq!(
        other.call("gone__echo", json!({"text": "x"})).await.code(),
        -32602
    );
}

/// What cannot be read changes nothing; the status says what is wrong, where, until it is mended.
#[tokio::test]
async fn a_broken_configuration_keeps_the_old_state_and_is_shown() {
    let it = server("it", &[], "");
    let kernel = Kernel::start(&it).await;
    kernel.connected(&["it"]).await;
    let mut agent = owner(&kernel).await;
    let before = pids(&mut agent, ["it"]).await;
    // Three lines of [http] come first.
    kernel.rewrite("[[servers]]\nid = \"it\"\ncommand = \n");
    let problem = problem(&kernel).await;
    assert!(problem.contains("mgp.toml:6:11"), "{problem}");
    echoes(&mut agent, "it").await;
    assert_eq!(pids(&mut agent, ["it"]).await, before);
    kernel.rewrite(&(it + &server("new", &[], "")));
    kernel.connected(&["new"]).await;
    assert_eq!(
        kernel.mgp_json(&["status"]).await["config_problems"],
        json!([])
    );
    assert_eq!(pids(&mut agent, ["it"]).await, before);
}

/// Point 4: what takes effect only when the kernel is started again is told while it runs, until it is taken
/// back.
#[tokio::test]
async fn settings_that_need_a_restart_are_reported() {
    let listing = |size: u32| {
        format!("[tuning.lists]\npage_size = {size}\n[discovery]\nembedding = \"off\"\n")
    };
    let kernel = Kernel::start(&listing(10)).await;
    assert_eq!(kernel.mgp_json(&["status"]).await["restart"], json!([]));
    let told = async |want: Value| {
        wait_until("status tells what waits", DEADLINE, async || {
            kernel.mgp_json(&["status"]).await["restart"] == want
        })
        .await;
    };
    kernel.rewrite(&listing(20));
    told(json!([
        "[tuning.lists] page_size changed: takes effect after `mgp down && mgp up`"
    ]))
    .await;
    let status = kernel.mgp(&["status"]).await;
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(
        status.contains("restart   [tuning.lists] page_size changed"),
        "{status}"
    );
    kernel.rewrite(&listing(10));
    told(json!([])).await;
}

/// One broken entry stops no other: its own server stays as it was, new ones start.
#[tokio::test]
async fn a_broken_entry_leaves_its_server_and_all_others_alone() {
    let kernel = Kernel::start(&(server("it", &[], "") + &server("same", &[], ""))).await;
    kernel.connected(&["it", "same"]).await;
    let mut agent = owner(&kernel).await;
    let before = pids(&mut agent, ["it", "same"]).await;
    let broken = server("it", &[], "max_restarts = \"many\"");
    kernel.rewrite(&(broken + &server("same", &[], "") + &server("new", &[], "")));
    let problem = problem(&kernel).await;
    assert!(
        problem.contains("mgp.toml:") && problem.contains("max_restarts"),
        "{problem}"
    );
    kernel.connected(&["new"]).await;
    assert_eq!(pids(&mut agent, ["it", "same"]).await, before);
    for id in ["it", "same", "new"] {
        echoes(&mut agent, id).await;
    }
}

/// A server that could not run as it was configured starts when its entry is mended.
#[tokio::test]
async fn a_mended_entry_starts_its_server() {
    let needy = Program::fixture(&[]).env("API_KEY", "${NO_SUCH_VARIABLE_HERE}");
    let kernel = Kernel::start(&entry("it", &needy, "")).await;
    let mut agent = owner(&kernel).await;
    in_state(&mut agent, "it", "error").await;
    kernel.rewrite(&entry(
        "it",
        &Program::fixture(&[]).env("API_KEY", "set"),
        "",
    ));
    in_state(&mut agent, "it", "connected").await;
    echoes(&mut agent, "it").await;
}

/// A server taken out and put back while its last call is under way finishes it, and is started
/// once after that.
#[tokio::test]
async fn a_server_taken_out_and_put_back_runs_once() {
    let spawns = Spawns::new();
    let it = entry("it", &spawns.of(&[]), "");
    let kernel = Kernel::start(&it).await;
    kernel.connected(&["it"]).await;
    let (mut agent, mut other) = (owner(&kernel).await, owner(&kernel).await);
    let waiting = begin(&mut agent, "it__slow", json!({"ms": 4000})).await;
    in_flight(&mut other, "it", 1).await;
    let [old] = pids(&mut other, ["it"]).await;
    kernel.rewrite("");
    until(&mut other, "it", "is gone", Value::is_null).await;
    kernel.rewrite(&it);
    until(&mut other, "it", "is back", |it| !it.is_null()).await;
    assert_eq!(agent.answer_to(&waiting).await.text(), "slept");
    in_state(&mut other, "it", "connected").await;
    assert!(!runs(old), "the old process ended first");
    let [new] = pids(&mut other, ["it"]).await;
    // The next change is taken up after all that the old process left behind.
    kernel.rewrite(&(it + &server("after", &[], "")));
    in_state(&mut other, "after", "connected").await;
    echoes(&mut other, "it").await;
    assert_eq!(pids(&mut other, ["it"]).await, [new]);
    assert_eq!(spawns.count(), 2);
}

/// Ten changes in a row, most of them while the server finishes its last call, end with what the
/// last one said.
#[tokio::test]
async fn the_last_of_many_changes_counts() {
    let named = |name: u32| server("it", &["--name", &format!("n{name}")], "");
    let kernel = Kernel::start(&named(0)).await;
    kernel.connected(&["it"]).await;
    let (mut agent, mut other) = (owner(&kernel).await, owner(&kernel).await);
    let waiting = begin(&mut agent, "it__slow", json!({"ms": 4000})).await;
    in_flight(&mut other, "it", 1).await;
    kernel.rewrite(&named(1));
    in_state(&mut other, "it", "draining").await;
    (2..=10).for_each(|name| kernel.rewrite(&named(name)));
    assert_eq!(agent.answer_to(&waiting).await.text(), "slept");
    let last = |server: &Value| server["server_info"] == "n10 1.0.0";
    until(&mut other, "it", "is the last one", last).await;
    echoes(&mut other, "it").await;
}

async fn pids<const N: usize>(agent: &mut Agent, ids: [&str; N]) -> [u32; N] {
    let mut pids = [0; N];
    for (pid, id) in pids.iter_mut().zip(ids) {
        let server = shown(agent, id).await;
        *pid = server["pid"].as_u64().unwrap().try_into().unwrap();
    }
    pids
}

/// The one problem that `mgp status --json` shows.
async fn problem(kernel: &Kernel) -> String {
    let mut problems = Value::Null;
    wait_until("the problem is shown", DEADLINE, async || {
        problems = kernel.mgp_json(&["status"]).await["config_problems"].clone();
        problems != json!([])
    })
    .await;
    assert_eq!(problems.as_array().unwrap().len(), 1, "{problems:#}");
    problems[0].as_str().unwrap().to_owned()
}
