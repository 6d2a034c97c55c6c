//! Keys that are lost, copied or changed, and admins that are gone.

use std::io::Write;
use std::path::Path;

use mgp_tests::harness::{DEADLINE, Kernel, Process, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::scene::{call, demo, join, linked, node, shows, standing, ticket};

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    let private = std::fs::metadata(from).unwrap().permissions();
    std::fs::set_permissions(to, private).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, place) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            copy(&path, &place);
        } else if kind.is_file() {
            std::fs::copy(path, place).unwrap();
        }
    }
}

async fn restarted(kernel: Kernel, signal: Signal) -> Kernel {
    Kernel::again(kernel.end(signal, DEADLINE).await).await
}

async fn id(kernel: &Kernel) -> Value {
    kernel.mgp_json(&["nodes", "show"]).await["id"].clone()
}

/// The recovery key, at a kernel's command line; whether it was taken, and what was said.
async fn recover(kernel: &Kernel, key: &str, more: &[&str]) -> (bool, String) {
    let mut asking = Process::start(
        "mgp cluster recover",
        &kernel.program(&[&["cluster", "recover", "-"], more].concat()),
    );
    let mut input = asking.take_stdin().unwrap();
    input.write_all(key.as_bytes()).unwrap();
    drop(input);
    let status = asking.end(DEADLINE).await;
    (status.success(), asking.stdout() + &asking.stderr())
}

/// PRJ-004, FED-053: a copied key is cut off, whoever shows it, until the node has another one and an admin has said so.
#[tokio::test(flavor = "multi_thread")]
async fn node_with_a_copied_key_is_banned_until_its_key_is_replaced() {
    let (nas, desk) = (node("nas", &demo()).await, node("desk", "").await);
    nas.connected(&["demo"]).await;
    join(&nas, &desk, &[]).await;
    nas.mgp_json(&["shares", "add", "demo", "--to", "cluster"])
        .await;
    nas.mgp_json(&["grants", "add", "local@desk", "demo"]).await;
    shows(&desk, "nas__demo__test_simple_text").await;
    let before = id(&desk).await;
    let folder = desk.end(Signal::SIGTERM, DEADLINE).await;
    let copied = TempDir::new().unwrap();
    copy(folder.path(), copied.path());
    let (desk, twin) = (Kernel::again(folder).await, Kernel::again(copied).await);
    assert_eq!(id(&twin).await, before);
    wait_until("the copy is noticed", DEADLINE, async || {
        let status = nas.mgp(&["cluster", "status"]).await;
        String::from_utf8_lossy(&status.stdout).contains("two living nodes have its key")
    })
    .await;
    for kernel in [&desk, &twin] {
        assert!(!call(kernel, "nas/demo:test_simple_text").await);
    }
    twin.end(Signal::SIGKILL, DEADLINE).await;
    let rekeyed = desk.mgp_json(&["nodes", "rekey"]).await;
    assert_eq!(
        (&rekeyed["signed"], &rekeyed["restart"]),
        (&false.into(), &true.into())
    );
    let key = rekeyed["key"].as_str().unwrap();
    let again = desk.mgp_json(&["nodes", "rekey"]).await;
    assert_eq!(again["key"], key, "the same when asked again");
    let desk = restarted(desk, Signal::SIGKILL).await;
    assert_eq!(id(&desk).await, rekeyed["id"]);
    nas.mgp_json(&["nodes", "rekey", "desk", "--to", key]).await;
    linked(&nas, &desk).await;
    assert!(
        !call(&desk, "nas/demo:test_simple_text").await,
        "it was granted to the old key"
    );
    nas.mgp_json(&["grants", "add", "local@desk", "demo"]).await;
    wait_until("the tool is called", DEADLINE, async || {
        call(&desk, "nas/demo:test_simple_text").await
    })
    .await;
}

/// PRJ-004, PRJ-010, FED-054: an admin signs its new key with the old one; killed right after, it is found under the new one,
/// with what it had granted at home.
#[tokio::test(flavor = "multi_thread")]
async fn an_admin_signs_its_new_key_itself_and_keeps_its_own_grants() {
    let (nas, desk) = (node("nas", &demo()).await, node("desk", "").await);
    nas.connected(&["demo"]).await;
    join(&nas, &desk, &["--role", "admin"]).await;
    nas.mgp_json(&["agents", "add", "alice"]).await;
    nas.mgp_json(&["grants", "add", "alice", "demo"]).await;
    let granted = nas.mgp_json(&["grants", "list", "--agent", "alice"]).await;
    let rekeyed = nas.mgp_json(&["nodes", "rekey"]).await;
    assert_eq!(rekeyed["signed"], true, "{rekeyed:#}");
    let nas = restarted(nas, Signal::SIGKILL).await;
    assert_eq!(id(&nas).await, rekeyed["id"]);
    linked(&nas, &desk).await;
    let status = desk.mgp_json(&["cluster", "status"]).await;
    let nodes = status["nodes"].as_array().unwrap();
    let seen = nodes.iter().find(|node| node["name"] == "nas").unwrap();
    assert_eq!(
        (&seen["id"], &seen["role"]),
        (&rekeyed["id"], &"admin".into())
    );
    assert_eq!(nodes.len(), 2, "the old key is no node: {status:#}");
    assert_eq!(
        nas.mgp_json(&["grants", "list", "--agent", "alice"]).await,
        granted
    );
    wait_until("nas may sign", DEADLINE, async || {
        nas.mgp(&["grants", "add", "local@desk", "demo"])
            .await
            .status
            .success()
    })
    .await;
}

/// PRJ-004, FED-055: when the only admin is gone, the recovery key makes another node one; another key does not.
#[tokio::test(flavor = "multi_thread")]
async fn the_recovery_key_makes_an_admin_where_none_is_left() {
    let (nas, desk) = (node("nas", "").await, node("desk", "").await);
    let founded = nas.mgp_json(&["nodes", "invite"]).await;
    let key = founded["founded"]["recovery_key"]
        .as_str()
        .unwrap()
        .to_owned();
    join(&nas, &desk, &[]).await;
    nas.end(Signal::SIGKILL, DEADLINE).await;
    let typed = desk.mgp(&["cluster", "recover", &key]).await;
    assert_eq!(typed.status.code(), Some(2), "{typed:?}");
    assert!(
        !String::from_utf8_lossy(&typed.stderr).contains(&key),
        "it is not repeated"
    );
    let other = key.replace(|c: char| c.is_ascii_digit(), "1");
    let (taken, said) = recover(&desk, &other, &[]).await;
    assert!(!taken && said.contains("not the recovery key"), "{said}");
    let (taken, said) = recover(&desk, &key, &["--without", "naz"]).await;
    assert!(!taken && said.contains("did you mean nas?"), "{said}");
    let (taken, said) = recover(&desk, &key, &["--without", "nas"]).await;
    assert!(taken, "{said}");
    let me = desk.mgp_json(&["nodes", "show"]).await;
    assert_eq!(me["role"], "admin", "{me:#}");
    assert_eq!(standing(&desk, "nas").await, "revoked");
    let den = node("den", "").await;
    join(&desk, &den, &[]).await;
}

/// PRJ-004: a node that left and has a new key from its next start on says so, and keeps its ticket for then.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_a_new_key_joins_after_its_restart_by_the_same_ticket() {
    let (nas, desk) = (node("nas", "").await, node("desk", "").await);
    join(&nas, &desk, &[]).await;
    desk.mgp_json(&["nodes", "leave"]).await;
    desk.mgp_json(&["nodes", "rekey"]).await;
    let ticket = ticket(&nas, &["--approved"]).await;
    let early = desk.mgp(&["nodes", "join", &ticket]).await;
    let said = String::from_utf8_lossy(&early.stderr).into_owned();
    assert!(
        !early.status.success() && said.contains("`mgp down`"),
        "{said}"
    );
    let desk = restarted(desk, Signal::SIGTERM).await;
    desk.mgp_json(&["nodes", "join", &ticket]).await;
    linked(&nas, &desk).await;
}
