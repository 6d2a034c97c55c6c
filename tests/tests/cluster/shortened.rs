//! Logs of the cluster that lost their end on disk: nothing that was revoked comes back.

use std::fs;
use std::path::PathBuf;

use mgp_tests::harness::{DEADLINE, Kernel, Program, wait_until};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::scene::{call, demo, join, linked, node, shows};

/// The bytes before the payload of an entry: its length, two hashes and a checksum.
const HEADER: usize = 4 + 32 + 32 + 4;
const TOOL: &str = "nas/demo:test_simple_text";

fn logs(folder: &TempDir) -> PathBuf {
    folder.path().join("data/cluster/logs/logs")
}

/// Where the last entry of a journal begins.
fn last_entry(journal: &[u8]) -> usize {
    let (mut at, mut last) = (0, 0);
    while at < journal.len() {
        let length: [u8; 4] = journal[at..at + 4].try_into().unwrap();
        last = at;
        at += HEADER + u32::from_le_bytes(length) as usize;
    }
    last
}

async fn troubles(kernel: &Kernel) -> String {
    kernel.mgp_json(&["cluster", "status"]).await["troubles"].to_string()
}

async fn explained(kernel: &Kernel) -> String {
    let told = kernel.mgp(&["explain", "local@desk", "demo"]).await;
    String::from_utf8_lossy(&told.stdout).into_owned()
}

/// The owner itself granted and revoked, so that no other node could have taken the grant back. The last entry cut off,
/// whole or in part, leaves it closed; once another node is there, the owner has the revoke again.
#[tokio::test(flavor = "multi_thread")]
async fn a_shortened_log_brings_no_revoked_grant_back() {
    let (nas, mut desk) = (node("nas", &demo()).await, node("desk", "").await);
    nas.connected(&["demo"]).await;
    join(&nas, &desk, &[]).await;
    nas.mgp_json(&["shares", "add", "demo", "--to", "cluster"])
        .await;
    nas.mgp_json(&["grants", "add", "local@desk", "demo"]).await;
    shows(&desk, "nas__demo__test_simple_text").await;
    assert!(call(&desk, TOOL).await);
    nas.mgp_json(&["grants", "remove", "local@desk", "demo"])
        .await;
    assert!(!call(&desk, TOOL).await);
    desk.process().signal(Signal::SIGSTOP);
    let mut folder = nas.end(Signal::SIGKILL, DEADLINE).await;
    let whole = fs::read(logs(&folder)).unwrap();
    let cut = last_entry(&whole);
    for bytes in [&whole[..whole.len() - 1], &whole[..cut]] {
        fs::write(logs(&folder), bytes).unwrap();
        let nas = Kernel::again(folder).await;
        let told = troubles(&nas).await;
        assert!(told.contains("has been shortened"), "{told}");
        assert!(told.contains("mgp accept cluster/logs/logs"), "{told}");
        let status = nas.mgp_json(&["status"]).await["troubles"].to_string();
        assert!(status.contains("has been shortened"), "{status}");
        let told = explained(&nas).await;
        assert!(told.contains("lack entries"), "{told}");
        let granted = nas.mgp(&["grants", "add", "local@desk", "demo"]).await;
        assert!(!granted.status.success(), "nothing new is signed");
        folder = nas.end(Signal::SIGKILL, DEADLINE).await;
    }
    let nas = Kernel::again(folder).await;
    desk.process().signal(Signal::SIGCONT);
    linked(&nas, &desk).await;
    wait_until("the log is refilled", DEADLINE, async || {
        !troubles(&nas).await.contains("has been shortened")
    })
    .await;
    assert!(!call(&desk, TOOL).await, "it is revoked");
    let told = explained(&nas).await;
    assert!(!told.contains("lack entries"), "{told}");
    wait_until("its log is confirmed", DEADLINE, async || {
        let granted = nas.mgp(&["grants", "add", "local@desk", "demo"]).await;
        granted.status.success()
    })
    .await;
    wait_until("it is granted anew", DEADLINE, async || {
        call(&desk, TOOL).await
    })
    .await;
}

/// Without its logs a node is in no cluster, which is reported with what it was in. A copy that is put back opens it
/// again; the operator may accept the loss.
#[tokio::test(flavor = "multi_thread")]
async fn logs_that_are_gone_are_reported_and_can_be_put_back() {
    let (nas, desk) = (node("nas", &demo()).await, node("desk", "").await);
    nas.connected(&["demo"]).await;
    join(&nas, &desk, &[]).await;
    nas.mgp_json(&["shares", "add", "demo", "--to", "cluster"])
        .await;
    nas.mgp_json(&["grants", "add", "local@desk", "demo"]).await;
    shows(&desk, "nas__demo__test_simple_text").await;
    let mut folder = nas.end(Signal::SIGKILL, DEADLINE).await;
    let whole = fs::read(logs(&folder)).unwrap();
    for emptied in [true, false] {
        if emptied {
            fs::write(logs(&folder), "").unwrap()
        } else {
            fs::remove_file(logs(&folder)).unwrap()
        }
        let nas = Kernel::again(folder).await;
        let told = troubles(&nas).await;
        assert!(told.contains("is missing or empty"), "{told}");
        let shown = nas.mgp(&["cluster", "status"]).await;
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(shown.contains("is missing or empty"), "{shown}");
        assert!(!call(&desk, TOOL).await);
        folder = nas.end(Signal::SIGKILL, DEADLINE).await;
    }
    fs::write(logs(&folder), &whole).unwrap();
    let nas = Kernel::again(folder).await;
    let told = troubles(&nas).await;
    assert!(!told.contains("cluster/logs"), "{told}");
    let status = nas.mgp_json(&["cluster", "status"]).await;
    assert_eq!(
        status["nodes"].as_array().map(Vec::len),
        Some(2),
        "{status}"
    );
    assert!(explained(&nas).await.contains("grant"), "it is known again");
    let folder = nas.end(Signal::SIGKILL, DEADLINE).await;
    fs::remove_file(logs(&folder)).unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let accept = Program::ours("mgp", ["accept", "cluster/logs/logs"]);
    let accept = accept.env("MGP_CONFIG_PATH", at("mgp.toml"));
    let accepted = accept
        .env("MGP_DATA_DIR", at("data"))
        .output(DEADLINE)
        .await;
    assert!(accepted.status.success(), "{accepted:?}");
    let nas = Kernel::again(folder).await;
    let told = troubles(&nas).await;
    assert!(!told.contains("cluster/logs"), "{told}");
    nas.mgp_json(&["nodes", "invite"]).await;
}
