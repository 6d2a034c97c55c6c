//! Data folders that are copied, or put back.

use std::path::Path;
use std::process::Command;

use mgp_tests::harness::kernel::nodes::config;
use mgp_tests::harness::{DEADLINE, Kernel, wait_until};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::siege::{id, listens, logged, seen};
use crate::scene::{call, demo, join, linked, node, shows, ticket};

fn copied(from: &Path) -> TempDir {
    let to = TempDir::new().unwrap();
    let from = format!("{}/data", from.display());
    let copy = Command::new("cp")
        .args(["-a", &from])
        .arg(to.path())
        .status();
    assert!(copy.unwrap().success());
    to
}

async fn started(folder: TempDir, config: &str) -> Kernel {
    std::fs::write(folder.path().join("mgp.toml"), config).unwrap();
    Kernel::again(folder).await
}

/// PRJ-006, FED-053: a data folder that is started twice: neither of the two is believed, and both sides are told.
#[tokio::test(flavor = "multi_thread")]
async fn two_lives_of_one_key_are_both_cut_off() {
    let mut nas = node("nas", &demo()).await;
    let desk = node("desk", "").await;
    nas.connected(&["demo"]).await;
    join(&nas, &desk, &[]).await;
    nas.mgp_json(&["shares", "add", "demo", "--to", "cluster"])
        .await;
    nas.mgp_json(&["grants", "add", "local@desk", "demo"]).await;
    shows(&desk, "nas__demo__test_simple_text").await;
    assert!(call(&desk, "nas/demo:test_simple_text").await);
    let folder = desk.end(Signal::SIGKILL, DEADLINE).await;
    let copy = copied(folder.path());
    let mut desk = Kernel::again(folder).await;
    linked(&nas, &desk).await;
    assert!(
        seen(&nas, "desk").await["why"].is_null(),
        "a restart is no second life"
    );
    let mut clone = started(copy, &config("desk", "127.0.0.1:0", "")).await;
    assert_eq!(id(&desk).await, id(&clone).await);
    wait_until("the two are noticed", DEADLINE, async || {
        let why = seen(&nas, "desk").await["why"].to_string();
        why.contains("two living nodes")
    })
    .await;
    // Both are told why they have no link, and what to do.
    for kernel in [&mut desk, &mut clone] {
        logged(kernel, "another living kernel has the key of this node").await;
        let id = kernel.mgp_json(&["nodes", "show"]).await;
        let status = kernel.mgp_json(&["cluster", "status"]).await;
        for told in [&id["trouble"], &status["troubles"]] {
            assert!(
                told.to_string().contains("mgp nodes rekey"),
                "{id:#} {status:#}"
            );
        }
        assert!(!call(kernel, "nas/demo:test_simple_text").await);
    }
    logged(&mut nas, "two living nodes have this key").await;
    // A restart of who found them forgets nothing.
    let at = listens(&nas).await;
    let folder = nas.end(Signal::SIGKILL, DEADLINE).await;
    let nas = started(folder, &config("nas", &at, &demo())).await;
    let twice = seen(&nas, "desk").await;
    assert!(
        twice["why"].to_string().contains("two living nodes"),
        "{twice:#}"
    );
    for kernel in [&desk, &clone] {
        assert!(!call(kernel, "nas/demo:test_simple_text").await);
    }
    // One of the two goes on under another key, which the other one does not have.
    let rekeyed = desk.mgp_json(&["nodes", "rekey"]).await;
    let desk = Kernel::again(desk.end(Signal::SIGTERM, DEADLINE).await).await;
    let key = rekeyed["key"].as_str().unwrap();
    nas.mgp_json(&["nodes", "rekey", "desk", "--to", key]).await;
    linked(&nas, &desk).await;
    assert_eq!(id(&desk).await, rekeyed["id"]);
    assert!(desk.mgp_json(&["nodes", "show"]).await["trouble"].is_null());
    nas.connected(&["demo"]).await;
    nas.mgp_json(&["grants", "add", "local@desk", "demo"]).await;
    wait_until("the one that stays calls", DEADLINE, async || {
        call(&desk, "nas/demo:test_simple_text").await
    })
    .await;
    assert!(!call(&clone, "nas/demo:test_simple_text").await);
}

/// PRJ-006, FED-041: an admin whose data folder is put back to an older copy: what it revoked since holds, and it signs nothing that
/// contradicts what it signed.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_copy_of_a_data_folder_takes_nothing_back() {
    let nas = node("nas", &demo()).await;
    let (desk, second) = (node("desk", "").await, node("second", "").await);
    nas.connected(&["demo"]).await;
    join(&nas, &desk, &[]).await;
    join(&nas, &second, &["--role", "admin"]).await;
    linked(&desk, &second).await;
    nas.mgp_json(&["shares", "add", "demo", "--to", "cluster"])
        .await;
    // The share reaches the second node a moment later.
    wait_until("second grants it", DEADLINE, async || {
        let granted = second
            .mgp(&["grants", "add", "local@desk", "nas/demo"])
            .await;
        granted.status.success()
    })
    .await;
    shows(&desk, "nas__demo__test_simple_text").await;
    wait_until("it may", DEADLINE, async || {
        call(&desk, "nas/demo:test_simple_text").await
    })
    .await;
    let folder = second.end(Signal::SIGTERM, DEADLINE).await;
    let copy = copied(folder.path());
    let second = Kernel::again(folder).await;
    linked(&nas, &second).await;
    second
        .mgp_json(&["grants", "remove", "local@desk", "nas/demo"])
        .await;
    wait_until("it is revoked", DEADLINE, async || {
        !call(&desk, "nas/demo:test_simple_text").await
    })
    .await;
    drop(second.end(Signal::SIGKILL, DEADLINE).await);
    let second = started(copy, &config("second", "127.0.0.1:0", "")).await;
    linked(&nas, &second).await;
    assert!(!call(&desk, "nas/demo:test_simple_text").await);
    // It has its own log back from the others, and goes on where that ended.
    wait_until("it grants again", DEADLINE, async || {
        let granted = second
            .mgp(&["grants", "add", "alice@desk", "nas/demo"])
            .await;
        granted.status.success()
    })
    .await;
    let why = seen(&nas, "second").await["why"].clone();
    assert!(why.is_null(), "no fork: {why}");
    assert!(!call(&desk, "nas/demo:test_simple_text").await);
}

/// PRJ-006, FED-056: two clusters stay two: a node of one is nobody in the other, and takes no ticket of it.
#[tokio::test(flavor = "multi_thread")]
async fn node_of_another_cluster_is_rejected() {
    let (nas, desk) = (node("nas", "").await, node("desk", "").await);
    let (other, guest) = (node("other", "").await, node("guest", "").await);
    join(&nas, &desk, &[]).await;
    join(&other, &guest, &[]).await;
    let ticket = ticket(&nas, &["--approved"]).await;
    let tried = guest.mgp(&["nodes", "join", &ticket]).await;
    assert!(!tried.status.success(), "{tried:?}");
    let told = String::from_utf8_lossy(&tried.stderr).into_owned();
    assert!(told.contains("mgp nodes leave"), "{told}");
    for kernel in [&nas, &other] {
        let status = kernel.mgp_json(&["cluster", "status"]).await;
        assert_eq!(status["nodes"].as_array().unwrap().len(), 2, "{status:#}");
    }
}
