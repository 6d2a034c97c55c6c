//! Kernels on a network of their own: cables that are pulled, machines that lose their power, and finding each
//! other by multicast, which stays in that network.

use std::time::Instant;

use mgp_tests::harness::kernel::network::Network;
use mgp_tests::harness::kernel::nodes::config;
use mgp_tests::harness::{DEADLINE, Kernel, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::scene::{call, demo, join, linked, shows, standing};

/// A network, where this machine lets us make one; why not is told, and the test shows nothing.
pub(crate) fn network(machines: usize) -> Option<Network> {
    match Network::new(machines) {
        Ok(network) => Some(network),
        Err(why) => {
            println!("NOT SHOWN, for want of network namespaces: {why}");
            None
        }
    }
}

/// A kernel on a machine of the network.
pub(crate) async fn machine(
    network: &Network,
    machine: usize,
    name: &str,
    servers: &str,
) -> Kernel {
    let folder = TempDir::new().unwrap();
    started(
        network,
        machine,
        folder,
        &config(name, "[::]:7332", servers),
    )
    .await
}

async fn started(network: &Network, machine: usize, folder: TempDir, config: &str) -> Kernel {
    let behind = network.on(machine);
    let behind: Vec<&str> = behind.iter().map(String::as_str).collect();
    Kernel::behind(&behind, folder, config, &[]).await
}

pub(crate) async fn becomes(of: &Kernel, name: &str, state: &str) {
    let begun = Instant::now();
    wait_until(&format!("{name} is {state}"), DEADLINE, async || {
        standing(of, name).await == state
    })
    .await;
    println!("{name} is {state} after {:?}", begun.elapsed());
}

/// PRJ-004, PRJ-006, PRJ-010, FED-068: a cut cable is noticed, what is revoked meanwhile holds once it is mended, and a
/// machine that lost its power comes back by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_outlasts_cut_cables_and_lost_power() {
    let Some(network) = network(3) else {
        return;
    };
    let nas = machine(&network, 0, "nas", &demo()).await;
    let desk = machine(&network, 1, "desk", "").await;
    let den = machine(&network, 2, "den", "").await;
    nas.connected(&["demo"]).await;
    join(&nas, &desk, &[]).await;
    join(&nas, &den, &[]).await;
    linked(&desk, &den).await;
    nas.mgp_json(&["shares", "add", "demo", "--to", "cluster"])
        .await;
    for (agent, kernel) in [("local@desk", &desk), ("local@den", &den)] {
        nas.mgp_json(&["grants", "add", agent, "demo"]).await;
        shows(kernel, "nas__demo__test_simple_text").await;
        assert!(call(kernel, "nas/demo:test_simple_text").await, "{agent}");
    }
    network.cut(1);
    becomes(&nas, "desk", "away").await;
    becomes(&desk, "nas", "away").await;
    let revoked = nas
        .mgp_json(&["grants", "remove", "local@desk", "demo"])
        .await;
    let confirmed = &revoked["confirmed"];
    assert_eq!(
        (&confirmed["nodes"], &confirmed["of"]),
        (&1.into(), &2.into())
    );
    assert_eq!(confirmed["missing"][0], "desk", "{revoked:#}");
    assert!(call(&den, "nas/demo:test_simple_text").await);
    network.heal(1);
    becomes(&desk, "nas", "linked").await;
    assert!(!call(&desk, "nas/demo:test_simple_text").await);
    let folder = nas.end(Signal::SIGKILL, DEADLINE).await;
    becomes(&den, "nas", "away").await;
    let file = folder.path().join("mgp.toml");
    let config = std::fs::read_to_string(file).unwrap();
    let nas = started(&network, 0, folder, &config).await;
    becomes(&den, "nas", "linked").await;
    wait_until("a grant counts again", DEADLINE, async || {
        call(&den, "nas/demo:test_simple_text").await
    })
    .await;
    assert!(!call(&desk, "nas/demo:test_simple_text").await);
    drop(nas);
}

/// Two machines that reach a third one alone call each other's tools through it, and both say so; where a direct way
/// opens, the relayed one is left.
#[tokio::test(flavor = "multi_thread")]
async fn two_machines_that_reach_a_third_one_alone_call_through_it() {
    let Some(network) = network(3) else {
        return;
    };
    let nas = machine(&network, 0, "nas", "").await;
    let desk = machine(&network, 1, "desk", &demo()).await;
    let den = machine(&network, 2, "den", "").await;
    desk.connected(&["demo"]).await;
    for machine in [1, 2] {
        network.set_apart(machine, true);
    }
    join(&nas, &desk, &["--role", "admin"]).await;
    join(&nas, &den, &[]).await;
    let relay = async |of: &Kernel, name: &str| {
        let status = of.mgp_json(&["cluster", "status"]).await;
        let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
        let node = nodes.into_iter().find(|node| node["name"] == name);
        node.map_or(Value::Null, |node| node["relay"].clone())
    };
    wait_until("they are linked through nas", DEADLINE, async || {
        relay(&den, "desk").await == "nas" && relay(&desk, "den").await == "nas"
    })
    .await;
    assert_eq!(relay(&den, "nas").await, Value::Null);
    let told = den.mgp(&["cluster", "status"]).await;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("linked through nas for"), "{told}");
    desk.mgp_json(&["shares", "add", "demo", "--to", "cluster"])
        .await;
    nas.mgp_json(&["grants", "add", "local@den", "desk/demo"])
        .await;
    shows(&den, "desk__demo__test_simple_text").await;
    assert!(call(&den, "desk/demo:test_simple_text").await);
    let passed = nas.mgp(&["cluster", "status"]).await;
    let passed = String::from_utf8_lossy(&passed.stdout).into_owned();
    assert!(passed.contains("relays between"), "{passed}");
    for machine in [1, 2] {
        network.set_apart(machine, false);
    }
    wait_until("the link is direct", DEADLINE, async || {
        relay(&den, "desk").await == Value::Null
    })
    .await;
    assert!(call(&den, "desk/demo:test_simple_text").await);
}

/// PRJ-003, FED-012: nothing is said on the network until it is switched on; then nodes of one cluster find each other.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_find_each_other_once_that_is_switched_on() {
    let Some(network) = network(2) else {
        return;
    };
    let nas = machine(&network, 0, "nas", "").await;
    let desk = machine(&network, 1, "desk", "").await;
    join(&nas, &desk, &[]).await;
    desk.mgp_json(&["lan", "on"]).await;
    let seen = desk.mgp_json(&["lan", "status"]).await;
    assert_eq!((&seen["on"], &seen["seen"]), (&true.into(), &Value::Null));
    nas.mgp_json(&["lan", "on"]).await;
    wait_until("desk has seen nas", DEADLINE, async || {
        let seen = desk.mgp_json(&["lan", "status"]).await;
        seen["seen"][0]["name"] == "nas" && seen["seen"][0]["same_cluster"] == true
    })
    .await;
    let off = nas.mgp_json(&["lan", "off"]).await;
    assert_eq!(
        (&off["on"], &off["announced"]),
        (&false.into(), &false.into())
    );
}
