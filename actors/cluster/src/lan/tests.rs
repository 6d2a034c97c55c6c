//! Tests in a network namespace of their own: no packet leaves it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{sleep, timeout};

use super::*;

/// Runs a test in a network namespace with one interface beside loopback; skipped with a message if this
/// user cannot create one.
fn run_in_network_namespace<F: Future<Output = ()> + 'static>(
    story: impl FnOnce() -> F + Send + 'static,
) {
    let thread = std::thread::spawn(move || {
        if let Err(why) = unshare(CloneFlags::CLONE_NEWNET) {
            eprintln!("SKIPPED: this user may make no network namespace ({why})");
            return;
        }
        for line in [
            "link set lo up",
            "link add mgp0 type veth peer name mgp1",
            "link set mgp1 addrgenmode none",
            "link set mgp1 up",
            "addr add 10.73.33.1/24 dev mgp0",
            "link set mgp0 up",
            "route add 224.0.0.0/4 dev mgp0",
        ] {
            let status = Command::new("ip").args(line.split(' ')).status();
            if !status.is_ok_and(|status| status.success()) {
                eprintln!("SKIPPED: `ip {line}` cannot be done here");
                return;
            }
        }
        assert_eq!(mgp_discovery::lan::active_interfaces(), ["mgp0"]);
        // One thread: all that it starts stays in this namespace.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            timeout(Duration::from_secs(60), story()).await.unwrap();
        });
    });
    thread.join().unwrap();
}

type LanFinds = UnboundedReceiver<(NodeId, SocketAddr)>;

async fn node(n: u8, folder: &Path) -> (LanHandle, ActorCell, LanFinds) {
    let (found, addresses) = unbounded_channel();
    let start = LanStart {
        node: NodeId([n; 32]),
        folder: folder.to_owned(),
        witness: mgp_store::Witness::default(),
        addresses: EventSink::new(move |one| {
            let _ = found.send(one);
        }),
    };
    let (handle, cell) = start.start().await.unwrap();
    (handle, cell, addresses)
}

fn presence(cluster: u8) -> LanAnnouncement {
    LanAnnouncement {
        port: 7332,
        cluster: Some([cluster; 32]),
    }
}

/// PRJ-003, PRJ-012, FED-012: disabled by default; once enabled, nodes find each other's addresses, and no
/// more.
#[test]
fn enabled_nodes_find_each_others_addresses() {
    run_in_network_namespace(|| async {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let (desk, desk_cell, mut desk_hears) = node(1, folders[0].path()).await;
        let (nas, nas_cell, mut nas_hears) = node(2, folders[1].path()).await;
        for node in [&desk, &nas] {
            node.set_announcement(Some(presence(9)));
            let status = node.status().await.unwrap();
            assert_eq!(status, LanStatus::default(), "off until it is switched on");
        }
        assert!(desk.enable().await.unwrap().enabled);
        let status = nas.enable().await.unwrap();
        assert!(status.announced && status.interfaces == ["mgp0"]);
        let at: SocketAddr = "10.73.33.1:7332".parse().unwrap();
        let first = async |addresses: &mut LanFinds| loop {
            let (node, address) = addresses.recv().await.unwrap();
            if address == at {
                return node;
            }
        };
        assert_eq!(first(&mut desk_hears).await, NodeId([2; 32]));
        assert_eq!(first(&mut nas_hears).await, NodeId([1; 32]));
        let seen = desk.status().await.unwrap().observed;
        assert!(seen.iter().all(|(seen, _)| seen.same_cluster));
        // Disabled again: nothing is stored or received.
        let status = desk.disable().await.unwrap();
        assert_eq!(status, LanStatus::default());
        desk_cell.stop(None);
        nas_cell.stop(None);
        sleep(Duration::from_millis(200)).await;
    });
}

/// The setting survives a restart.
#[test]
fn setting_survives_a_restart() {
    run_in_network_namespace(|| async {
        let folder = tempfile::tempdir().unwrap();
        let (first, cell, _) = node(1, folder.path()).await;
        first.enable().await.unwrap();
        cell.stop_and_wait(None, None).await.unwrap();
        let (second, cell, _) = node(1, folder.path()).await;
        let status = second.status().await.unwrap();
        // It does not listen for links yet, so it is not announced.
        assert!(status.enabled && !status.announced);
        second.disable().await.unwrap();
        cell.stop_and_wait(None, None).await.unwrap();
        let (third, cell, _) = node(1, folder.path()).await;
        assert!(!third.status().await.unwrap().enabled);
        cell.stop(None);
        sleep(Duration::from_millis(200)).await;
    });
}

/// A folder that cannot be written leaves the setting unchanged: the status is what holds after a restart.
#[test]
fn setting_that_cannot_be_stored_is_not_applied() {
    run_in_network_namespace(|| async {
        let folder = tempfile::tempdir().unwrap();
        let nowhere = folder.path().join("gone");
        let (lan, cell, _) = node(1, &nowhere).await;
        let refused = lan.enable().await.unwrap_err();
        assert!(matches!(refused, LanError::Disk(_)), "{refused}");
        assert!(!lan.status().await.unwrap().enabled);
        cell.stop(None);
    });
}
