//! A node that is restored from a backup, which a copied folder is not.

use std::fs;
use std::path::Path;

use mgp_tests::harness::{DEADLINE, Kernel, Program, wait_until};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::scene::{call, demo, join, linked, node, shows};

const TOOL: &str = "nas/demo:test_simple_text";

async fn restored(file: &Path, before: &TempDir) -> TempDir {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::copy(before.path().join("mgp.toml"), at("mgp.toml")).unwrap();
    let program = Program::ours("mgp", ["restore"]).arg(file.display().to_string());
    let program = program.env("MGP_CONFIG_PATH", at("mgp.toml"));
    let output = program
        .env("MGP_DATA_DIR", at("data"))
        .output(DEADLINE)
        .await;
    assert!(output.status.success(), "{output:?}");
    folder
}

async fn troubles(kernel: &Kernel) -> String {
    kernel.mgp_json(&["cluster", "status"]).await["troubles"].to_string()
}

/// What the owner revoked after its backup is not in it. The restored owner says so and lets nobody in, until the other
/// node has brought the revoke and confirmed its log; then it is the node that it was.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_node_brings_no_revoked_grant_back() {
    let (nas, mut desk) = (node("nas", &demo()).await, node("desk", "").await);
    nas.connected(&["demo"]).await;
    join(&nas, &desk, &[]).await;
    nas.mgp_json(&["shares", "add", "demo", "--to", "cluster"])
        .await;
    nas.mgp_json(&["grants", "add", "local@desk", "demo"]).await;
    shows(&desk, "nas__demo__test_simple_text").await;
    assert!(call(&desk, TOOL).await);
    let file = desk.folder().join("nas.tar");
    nas.mgp_json(&["backup", &file.display().to_string()]).await;
    nas.mgp_json(&["grants", "remove", "local@desk", "demo"])
        .await;
    let before = nas.end(Signal::SIGKILL, DEADLINE).await;
    // It does not answer, and comes back at the address that the backup knows.
    desk.process().signal(Signal::SIGSTOP);
    let nas = Kernel::again(restored(&file, &before).await).await;
    let told = troubles(&nas).await;
    assert!(told.contains("restored from a backup"), "{told}");
    let granted = nas.mgp(&["grants", "add", "local@desk", "demo"]).await;
    assert!(!granted.status.success(), "it signs nothing new");
    let nas = Kernel::again(nas.end(Signal::SIGKILL, DEADLINE).await).await;
    let told = troubles(&nas).await;
    assert!(
        told.contains("restored from a backup"),
        "over restarts: {told}"
    );
    desk.process().signal(Signal::SIGCONT);
    linked(&nas, &desk).await;
    wait_until("its log is confirmed", DEADLINE, async || {
        !troubles(&nas).await.contains("restored from a backup")
    })
    .await;
    assert!(!call(&desk, TOOL).await, "it is revoked");
    nas.mgp_json(&["grants", "add", "local@desk", "demo"]).await;
    wait_until("it is granted anew", DEADLINE, async || {
        call(&desk, TOOL).await
    })
    .await;
    for kernel in [&nas, &desk] {
        assert_eq!(troubles(kernel).await, "null", "no log is forked");
    }
    drop(before);
}
