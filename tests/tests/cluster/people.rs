//! What people see of the cluster: who did what at another node, who left, and what is old.

use mgp_tests::harness::kernel::network::Network;
use mgp_tests::harness::{DEADLINE, Kernel, wait_until};
use serde_json::Value;

use crate::network::{becomes, machine};
use crate::scene::{call, demo, join, node, shows, standing};

/// What is found in a kernel's audit log.
async fn found(kernel: &Kernel, asked: &[&str]) -> Vec<Value> {
    let told = kernel
        .mgp(&[&["audit", "find", "--json"], asked].concat())
        .await;
    let text = String::from_utf8(told.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// PRJ-010: what an admin decides at one node stands in the audit log of the others, with the node and the person.
#[tokio::test(flavor = "multi_thread")]
async fn change_of_another_admin_is_recorded_with_its_author() {
    let (nas, desk) = (node("nas", &demo()).await, node("desk", "").await);
    nas.connected(&["demo"]).await;
    join(&nas, &desk, &["--role", "admin"]).await;
    nas.mgp_json(&["grants", "add", "local@desk", "demo"]).await;
    nas.mgp_json(&["grants", "remove", "local@desk", "demo"])
        .await;
    let nas_id = nas.mgp_json(&["nodes", "show"]).await["id"].clone();
    let mut events = Vec::new();
    wait_until("desk has written it down", DEADLINE, async || {
        events = found(&desk, &["--agent", "local"]).await;
        events.len() == 2
    })
    .await;
    for (event, kind) in events.iter().zip(["ACCESS_REVOKED", "ACCESS_GRANTED"]) {
        assert_eq!(event["event_type"], kind, "{event:#}");
        assert_eq!(
            (&event["actor"]["type"], &event["actor"]["id"]),
            (&"node".into(), &nas_id)
        );
        assert!(event["details"]["author"].is_string(), "{event:#}");
    }
    let told = desk.mgp(&["audit", "find", "--agent", "local"]).await;
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(
        told.contains("node nas ("),
        "by name, with the person: {told}"
    );
    assert!(!told.contains(nas_id.as_str().unwrap()), "{told}");
    // At the node that owns the server, the agent is one of another node.
    let told = nas.mgp(&["audit", "find", "--agent", "local@desk"]).await;
    let told = String::from_utf8(told.stdout).unwrap();
    assert_eq!(told.matches("agent.local@desk").count(), 2, "{told}");
}

/// PRJ-004: who left is said to have left, by a node that may write that itself and by one that may not; and its
/// name is free.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_left_is_listed_as_such() {
    let (nas, desk, den) = (
        node("nas", "").await,
        node("desk", "").await,
        node("den", "").await,
    );
    join(&nas, &desk, &["--role", "admin"]).await;
    join(&nas, &den, &[]).await;
    for (kernel, name) in [(&den, "den"), (&desk, "desk")] {
        let left = kernel.mgp_json(&["nodes", "leave"]).await;
        assert_eq!(left["noted"], true, "{left:#}");
        wait_until(&format!("{name} has left"), DEADLINE, async || {
            standing(&nas, name).await == "left"
        })
        .await;
    }
    let list = nas.mgp(&["nodes", "list"]).await;
    let list = String::from_utf8(list.stdout).unwrap();
    assert_eq!(list.matches("left ").count(), 2, "with when: {list}");
    let other = node("den", "").await;
    join(&nas, &other, &[]).await;
}

/// A name of nothing is refused with the nearest one, in every command that takes one.
#[tokio::test(flavor = "multi_thread")]
async fn every_cluster_command_suggests_the_nearest_name() {
    let (nas, desk) = (node("nas", &demo()).await, node("desk", "").await);
    nas.connected(&["demo"]).await;
    join(&nas, &desk, &[]).await;
    let key = "0".repeat(64);
    let commands: [(&[&str], &str); 7] = [
        (&["nodes", "remove", "desc"], "did you mean desk?"),
        (
            &["nodes", "rename", "attic", "--node", "desc"],
            "did you mean desk?",
        ),
        (
            &["nodes", "rekey", "desc", "--to", &key],
            "did you mean desk?",
        ),
        (
            &["shares", "add", "demo", "--to", "node:desc"],
            "did you mean desk?",
        ),
        (
            &["shares", "add", "dmo", "--to", "cluster"],
            "did you mean demo?",
        ),
        (
            &["grants", "add", "local@desc", "demo"],
            "did you mean desk",
        ),
        (
            &["grants", "add", "local@desk", "dmo"],
            "did you mean demo?",
        ),
    ];
    for (command, near) in commands {
        let said = nas.mgp(command).await;
        let told = String::from_utf8_lossy(&said.stderr);
        assert_eq!(said.status.code(), Some(2), "{command:?}: {told}");
        assert!(told.contains(near), "{command:?}: {told}");
    }
    assert_eq!(standing(&nas, "desk").await, "linked");
}

/// PRJ-007: what a node shares that is away is listed with its age.
#[tokio::test(flavor = "multi_thread")]
async fn tools_of_a_node_that_is_away_are_listed_with_their_age() {
    let network = match Network::new(2) {
        Ok(network) => network,
        Err(why) => return println!("NOT SHOWN, for want of network namespaces: {why}"),
    };
    let nas = machine(&network, 0, "nas", &demo()).await;
    let desk = machine(&network, 1, "desk", "").await;
    nas.connected(&["demo"]).await;
    join(&nas, &desk, &[]).await;
    nas.mgp_json(&["shares", "add", "demo", "--to", "cluster"])
        .await;
    nas.mgp_json(&["grants", "add", "local@desk", "demo"]).await;
    shows(&desk, "nas__demo__test_simple_text").await;
    assert!(call(&desk, "nas/demo:test_simple_text").await);
    let listed = desk.mgp_json(&["tools", "list"]).await;
    assert_eq!(listed["away"], Value::Array(vec![]), "{listed:#}");
    network.cut(0);
    becomes(&desk, "nas", "away").await;
    let listed = desk.mgp_json(&["tools", "list"]).await;
    assert_eq!(listed["away"][0]["node"], "nas", "{listed:#}");
    assert!(
        listed["away"][0]["age_ms"].as_u64().unwrap() > 0,
        "{listed:#}"
    );
    let shown = desk.mgp(&["tools", "list"]).await;
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("nas/demo (away, "), "{shown}");
}
