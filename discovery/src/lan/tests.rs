//! In a network namespace of the test: no packet leaves it.

use std::process::Command;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};

use super::*;

/// Runs a test in its own network namespace, with one interface besides loopback. Prints a note and returns false if this
/// user may not create one.
fn in_a_network_of_its_own(story: impl FnOnce() + Send + 'static) -> bool {
    let there = std::thread::spawn(|| {
        if let Err(why) = unshare(CloneFlags::CLONE_NEWNET) {
            eprintln!("SKIPPED: this user may make no network namespace ({why})");
            return false;
        }
        for line in [
            "link set lo up",
            "link add mgp0 type veth peer name mgp1",
            "link set mgp1 addrgenmode none",
            "link set mgp1 up",
            "addr add 10.73.32.1/24 dev mgp0",
            "link set mgp0 up",
            "route add 224.0.0.0/4 dev mgp0",
        ] {
            let done = Command::new("ip").args(line.split(' ')).status();
            if !done.is_ok_and(|status| status.success()) {
                eprintln!("SKIPPED: `ip {line}` cannot be done here");
                return false;
            }
        }
        let names: Vec<String> = active_interfaces();
        assert_eq!(names, ["mgp0"], "no other interface is there");
        story();
        true
    });
    there.join().unwrap()
}

fn on_a_runtime(story: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let limit = Duration::from_secs(30);
        tokio::time::timeout(limit, story).await.unwrap();
    });
}

fn announcement(n: u8, tag: Option<ClusterTag>) -> Announcement {
    Announcement {
        node: NodeId([n; 32]),
        port: 7332,
        version: 1,
        tag,
    }
}

/// PRJ-003, FED-013: an announced node is discovered with its address, and without any name of it.
#[test]
fn an_announced_node_is_discovered_with_its_addresses_and_without_a_name() {
    in_a_network_of_its_own(|| {
        on_a_runtime(async {
            let mut desk = LocalNetwork::open().unwrap();
            let tag = ClusterTag::new(b"cluster", [3; ClusterTag::SALT]);
            desk.announce(&announcement(7, Some(tag)), [9; 8]).unwrap();
            let nas = LocalNetwork::open().unwrap();
            let seen = nas.listen().unwrap().next().await.unwrap();
            assert_eq!(seen.node, NodeId([7; 32]));
            assert!(seen.addresses.contains(&"10.73.32.1:7332".parse().unwrap()));
            assert!(seen.tag.unwrap().matches_cluster(b"cluster"));
            assert!(nas.cached_record_count().await.unwrap() > 0);
            // Its name is the salt of this announcement.
            assert_eq!(
                desk.announced.as_deref(),
                Some("0909090909090909._mgp._udp.local.")
            );
            desk.close();
            nas.close();
        });
    });
}

/// FED-013: only its own cluster recognizes a node by its tag, and no two announcements have the same tag.
#[test]
fn a_tag_is_recognized_by_its_cluster_alone() {
    let one = ClusterTag::new(b"cluster", [1; ClusterTag::SALT]);
    let other = ClusterTag::new(b"cluster", [2; ClusterTag::SALT]);
    assert!(one.matches_cluster(b"cluster") && other.matches_cluster(b"cluster"));
    assert!(!one.matches_cluster(b"another"));
    assert_ne!(one.0[ClusterTag::SALT..], other.0[ClusterTag::SALT..]);
    assert_eq!(ClusterTag::parse(&one.to_string()), Some(one));
    let mut changed = one;
    changed.0[31] ^= 1;
    assert!(!changed.matches_cluster(b"cluster"));
}

/// FED-014: malformed announcements are ignored, whoever sends them.
#[test]
fn an_announcement_without_id_or_address_is_ignored() {
    let id = NodeId([7; 32]).to_string();
    let said = |said: &[(&str, &str)], ip: &str, port: u16| {
        let info = ServiceInfo::new(SERVICE, "x", "x.local.", ip, port, said).unwrap();
        parse_service(&info.as_resolved_service())
    };
    let whole: &[(&str, &str)] = &[(ID, &id), (VERSION, "1")];
    let good = said(whole, "10.0.0.2", 7332).unwrap();
    assert_eq!(good.addresses, ["10.0.0.2:7332".parse().unwrap()]);
    assert_eq!(good.tag, None);
    for wrong in [
        said(&[(VERSION, "1")], "10.0.0.2", 7332),
        said(&[(ID, &id)], "10.0.0.2", 7332),
        said(&[(ID, "07"), (VERSION, "1")], "10.0.0.2", 7332),
        said(&[(ID, &id), (VERSION, "one")], "10.0.0.2", 7332),
        said(whole, "127.0.0.1", 7332),
        said(whole, "224.0.0.251", 7332),
        said(whole, "10.0.0.2", 0),
    ] {
        assert_eq!(wrong, None);
    }
    let many: Vec<String> = (1..40).map(|n| format!("10.0.0.{n}")).collect();
    let many = said(whole, &many.join(","), 7332).unwrap();
    assert_eq!(many.addresses.len(), ADDRESSES_MAX);
}
