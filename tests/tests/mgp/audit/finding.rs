//! `mgp audit find`: what was done is found by who, what and when, whatever became of the view it is found by.

use std::fs;
use std::path::Path;

use mgp_tests::harness::mgp::trace;
use mgp_tests::harness::{DEADLINE, Kernel, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::scene::made::{NEWEST, agent, kernel, operator, tool};

/// Events that are found, the newest first, and what is said beside them.
async fn find(kernel: &Kernel, asked: &[&str]) -> (Vec<Value>, String) {
    let output = kernel
        .mgp(&[&["audit", "find", "--json"], asked].concat())
        .await;
    assert!(output.status.success(), "{asked:?}: {output:?}");
    let events = String::from_utf8(output.stdout).unwrap();
    let events = events
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    (events.collect(), String::from_utf8(output.stderr).unwrap())
}

/// Waits until exactly so many are found.
async fn finds(kernel: &Kernel, asked: &[&str], count: usize) -> Vec<Value> {
    let mut found = Vec::new();
    wait_until(&format!("{count} of {asked:?}"), DEADLINE, async || {
        found = find(kernel, asked).await.0;
        found.len() == count
    })
    .await;
    found
}

/// MGP-093: by agent, server, tool, trace and time, alone and together.
#[tokio::test]
async fn events_are_found_by_agent_tool_trace_and_time() {
    let kernel = kernel(&[tool("make", json!({})), tool("paint", json!({}))], "").await;
    let mut caller = agent(&kernel).await;
    for tool in ["make", "paint", "make"] {
        caller.call(tool, json!({})).await.result();
    }
    let mut person = operator(&kernel).await;
    let words = trace("the one");
    let entry = json!({"entry_type": "tool_grant", "agent_id": "agent.anonymous", "server_id": "it",
        "tool_name": "make", "permission": "allow", "trace_id": words});
    person.request("mgp/access/grant", entry).await.result();
    let who = ["--agent", "anonymous"];
    // Three calls, and the grant, which is about it.
    finds(&kernel, &who, 4).await;
    finds(&kernel, &["--tool", "it:make"], 3).await;
    finds(&kernel, &["--tool", "paint"], 1).await;
    finds(&kernel, &["--server", "it", "--tool", "make"], 3).await;
    let traced = finds(&kernel, &["--trace", &words], 1).await;
    assert_eq!(traced[0]["event_type"], "ACCESS_GRANTED");
    finds(&kernel, &[&who[..], &["--trace", &words]].concat(), 1).await;
    let at = traced[0]["timestamp"].as_str().unwrap();
    let (before, _) = find(&kernel, &[&who[..], &["--until", at]].concat()).await;
    assert!(
        before
            .iter()
            .all(|event| event["event_type"] == "TOOL_EXECUTED")
    );
    let (after, _) = find(&kernel, &[&who[..], &["--since", at]].concat()).await;
    assert!(after.contains(&traced[0]), "{after:#?}");
    assert!(before.len() + after.len() >= 4, "{before:#?} {after:#?}");
    let newest = finds(&kernel, &["--agent", "anonymous", "--limit", "1"], 1).await;
    assert_eq!(newest[0], traced[0]);
    let (_, said) = find(&kernel, &["--trace", &trace("another")]).await;
    assert!(said.contains("no record"), "{said}");
}

/// What is gone by now is looked for all the same; a name of nothing is said, with the nearest one.
#[tokio::test]
async fn audit_find_suggests_the_nearest_name() {
    let kernel = kernel(&[tool("make", json!({}))], "").await;
    for (asked, near) in [
        (["--server", "itt"], "it"),
        (["--agent", "anonymus"], "agent.anonymous"),
        (["--tool", "it:maek"], "it:make"),
    ] {
        let (found, said) = find(&kernel, &asked).await;
        assert!(found.is_empty(), "{asked:?}: {found:#?}");
        let told = format!("did you mean {near}?");
        assert!(said.contains(&told), "{asked:?}: {said}");
    }
    for bad in [["--since", "yesterdayish"], ["--limit", "0"]] {
        let output = kernel.mgp(&[&["audit", "find"][..], &bad].concat()).await;
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
}

/// The view is made of the log: damaged or removed, it is made again, and what is found is the same.
#[tokio::test]
async fn damaged_or_missing_index_of_the_log_is_rebuilt() {
    let kernel = kernel(&[tool("make", json!({}))], "").await;
    let mut caller = agent(&kernel).await;
    caller.call("make", json!({})).await.result();
    drop(caller);
    let asked = ["--tool", "it:make"];
    let first = finds(&kernel, &asked, 1).await;
    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    fs::remove_dir_all(folder.path().join("data/views")).unwrap();
    let kernel = Kernel::again(folder).await;
    assert_eq!(finds(&kernel, &asked, 1).await, first);
    let folder = kernel.end(Signal::SIGKILL, DEADLINE).await;
    let files = damaged(&folder.path().join("data/views"));
    assert!(files > 0, "nothing was there to damage");
    let kernel = Kernel::again(folder).await;
    assert_eq!(finds(&kernel, &asked, 1).await, first);
    let mut caller = kernel.http_agent(Some("it"));
    caller.initialize(NEWEST, "{}").await.result();
    caller.call("make", json!({})).await.result();
    finds(&kernel, &asked, 2).await;
}

/// Writes over every file of a folder; how many there were.
fn damaged(folder: &Path) -> usize {
    let mut files = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        files += if path.is_dir() {
            damaged(&path)
        } else {
            let length = path.metadata().unwrap().len().max(64);
            let length = usize::try_from(length).unwrap();
            fs::write(&path, vec![0xA5; length]).unwrap();
            1
        };
    }
    files
}
