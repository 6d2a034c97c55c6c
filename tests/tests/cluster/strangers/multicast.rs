//! Floods of announcements, on a network that nothing outside it sees.

use mgp_tests::harness::process::usage::Usage;
use mgp_tests::harness::{DEADLINE, Need, Peers, Process, Program, wait_until};

use super::siege::{begins, id};
use crate::network::{machine, network};
use crate::scene::{call, demo, join, shows};

/// PRJ-003, PRJ-012, FED-014: ten thousand records a second fill a bounded table, and nothing else comes of them.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_announcements_a_second_fill_one_table() {
    let Some(peers) = Peers::find(&[Need::Hostile]) else {
        return;
    };
    let Some(network) = network(3) else {
        return;
    };
    let mut nas = machine(&network, 0, "nas", &demo()).await;
    let desk = machine(&network, 1, "desk", "").await;
    nas.connected(&["demo"]).await;
    join(&nas, &desk, &[]).await;
    nas.mgp_json(&["shares", "add", "demo", "--to", "cluster"])
        .await;
    nas.mgp_json(&["grants", "add", "local@desk", "demo"]).await;
    shows(&desk, "nas__demo__test_simple_text").await;
    for kernel in [&nas, &desk] {
        kernel.mgp_json(&["lan", "on"]).await;
    }
    let before = Usage::of(&[nas.pid()]).resident;
    let (local, member) = (network.address(2).to_string(), id(&desk).await);
    let flood = peers.hostile("multicast.flood", &[&local, &member, "10000", "6"]);
    let behind = network.running(2, &flood.command);
    let mut there = Program::new(&behind[0], behind[1..].iter().cloned());
    there.args.extend(flood.args.iter().cloned());
    there.env.clone_from(&flood.env);
    let mut attack = Process::start("the flood", &there);
    attack.says("that it begins", DEADLINE, begins).await;
    let mut calls = 0;
    while attack.ended().is_none() {
        assert!(call(&desk, "nas/demo:test_simple_text").await);
        calls += 1;
    }
    let status = attack.end(DEADLINE).await;
    let told = attack.stdout();
    assert!(status.success(), "{told} {}", attack.stderr());
    let told: serde_json::Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    let grown = Usage::of(&[nas.pid()]).resident.saturating_sub(before) >> 10;
    println!("{told:#}: {calls} calls meanwhile, the kernel has grown by {grown} KiB");
    assert!(told["each_second"].as_u64().unwrap() >= 5_000, "{told:#}");
    assert!(grown < 96 << 10, "it has grown by {grown} KiB");
    let seen = nas.mgp_json(&["lan", "status"]).await;
    assert!(
        seen["seen"].as_array().is_none_or(|seen| seen.len() <= 256),
        "{seen:#}"
    );
    // It did reach them: both have strangers in their tables, or say that they leave the network alone for a while.
    for kernel in [&nas, &desk] {
        let lan = kernel.mgp_json(&["lan", "status"]).await;
        let (seen, why) = (lan["seen"].as_array(), lan["why"].to_string());
        let strangers = seen.is_some_and(|seen| seen.len() > 1);
        let floods = ["floods the local network", "more came at once"];
        let rests = floods.iter().any(|flood| why.contains(flood));
        assert!(strangers || rests, "{lan:#}");
    }
    // Nothing of it is left behind: switched on anew, nas sees the member that is there, and no other.
    for switch in ["off", "on"] {
        for kernel in [&nas, &desk] {
            kernel.mgp_json(&["lan", switch]).await;
        }
    }
    wait_until("nas sees desk again", DEADLINE, async || {
        let lan = nas.mgp_json(&["lan", "status"]).await;
        let seen = lan["seen"].as_array().cloned().unwrap_or_default();
        seen.len() == 1 && seen[0]["name"] == "desk" && seen[0]["same_cluster"] == true
    })
    .await;
    let said = nas.process().stderr();
    assert!(said.lines().count() < 300, "{said}");
    assert!(call(&desk, "nas/demo:test_simple_text").await);
}
