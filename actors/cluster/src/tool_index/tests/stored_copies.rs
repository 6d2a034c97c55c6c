//! Tests of stored copies: what survives a restart, and for how long.

use std::time::Duration;

use mgp_engine::cluster::tool_index::{LocalIndex, REMOTE_BYTES_MAX, RemoteIndex};
use mgp_protocol::federation::tool_index::ServerRecord;

use super::super::copies::{self, CopyToWrite};
use super::scene::Wire;
use super::*;

/// A folder with a recent copy of the index of a node.
fn folder(owner: NodeId) -> tempfile::TempDir {
    folder_of(owner, |_| REMOTE_BYTES_MAX)
}

/// A folder with as much of the index as there is capacity for.
fn folder_of(owner: NodeId, room: impl FnOnce(usize) -> usize) -> tempfile::TempDir {
    let mut own = LocalIndex::new(5);
    own.set_shares((*rules(&[("demo", None, "*")])).clone());
    own.offer(
        &ServerId::new("demo"),
        Some(&offered(&["time", "echo"], "1")),
    );
    let pull = PullIndex {
        number: 1,
        epoch: 0,
        after: 0,
        root: None,
    };
    let page = own.page(owner, &pull);
    let records = page.changes.iter().flat_map(|change| &change.record);
    let room = room(records.map(|record| record.0.len()).sum());
    let held = RemoteIndex::restore(page.digest, page.changes, BTreeMap::new(), room);
    let held = held.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let copy = CopyToWrite::from_index(&held).unwrap();
    let orders = BTreeMap::from([(owner, Some(copy))]);
    copies::write_copies(&dir.path().join("index"), orders, &[]).unwrap();
    dir
}

fn files(folder: &std::path::Path) -> Vec<String> {
    let files = std::fs::read_dir(folder.join("index")).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    files.filter(|name| name.contains(".index")).collect()
}

/// PRJ-007, FED-030: the tools of an unreachable node are stale, hidden after half a minute and dropped
/// after a day.
#[tokio::test(start_paused = true)]
async fn stored_copy_of_an_absent_node_ages() {
    let nas = Wire::new(1).id();
    let dir = folder(nas);
    let path = dir.path().to_owned();
    let desk = IndexNode::with_folder(2, dir).await;
    desk.offer(&[("own", &["time"])]);
    assert_eq!(within_deadline(desk.index.status()).await.unwrap(), []);
    assert!(
        desk.held.load().servers.is_empty(),
        "nobody is of the cluster yet"
    );
    desk.index
        .set_members([(nas, NodeName::parse("nas").unwrap())].into());
    let begun = tokio::time::Instant::now();
    let sees = |some: bool| {
        let desk = &desk;
        async move {
            loop {
                let held = desk.held.load();
                if held.servers.is_empty() != some {
                    return held;
                }
                held.replaced.cancelled().await;
            }
        }
    };
    let held = sees(true).await;
    assert_eq!(tools(&held), ["demo:echo", "demo:time"]);
    assert!(
        held.servers
            .values()
            .all(|server| server.stage == Stage::Stale)
    );
    sees(false).await;
    let hidden = begun.elapsed();
    let half_a_minute = Duration::from_secs(20)..Duration::from_secs(31);
    assert!(half_a_minute.contains(&hidden), "{hidden:?}");
    let status = desk.index.status().await.unwrap();
    assert_eq!(status[0].stage, Some(Stage::Hidden));
    assert_eq!((status[0].servers, status[0].tools), (1, 2));
    tokio::time::advance(Duration::from_secs(24 * 3600)).await;
    while desk.index.status().await.unwrap()[0].stage.is_some() {
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    while !files(&path).is_empty() {
        tokio::time::advance(Duration::from_secs(1)).await;
    }
}

/// FED-004: a stored copy is published as stale until its owner's first message, and then becomes current
/// without a new copy; copies of nodes that left the cluster are dropped.
#[tokio::test]
async fn stored_copy_is_stale_until_its_owner_responds() {
    let (nas, desk) = (IndexNode::new(1).await, IndexNode::new(2).await);
    scene::members(&[&nas, &desk]);
    nas.offer(&[("demo", &["time"])]);
    nas.index.set_shares(rules(&[("demo", None, "*")]));
    let links = scene::link(&nas, &desk).await;
    desk.wait_for_tools(|held| tools(held) == ["demo:time"])
        .await;
    let path = desk.folder.path().to_owned();
    within_deadline(async {
        while files(&path).is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    scene::unlink(links, LinkClose::Done);
    let desk = desk.restart().await;
    scene::members(&[&nas, &desk]);
    let held = desk
        .wait_for_tools(|held| tools(held) == ["demo:time"])
        .await;
    assert_eq!(held.servers.values().next().unwrap().stage, Stage::Stale);
    let _links = scene::link(&nas, &desk).await;
    desk.wait_for_tools(|held| {
        held.servers
            .values()
            .all(|server| server.stage == Stage::Fresh)
    })
    .await;
    within_deadline(async {
        while !desk.index.status().await.unwrap()[0].current {
            tokio::task::yield_now().await;
        }
    })
    .await;
    desk.index.set_members(BTreeMap::new());
    within_deadline(async {
        while !files(&path).is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// PRJ-007: a rejected entry does not remove the others over a restart.
#[test]
fn copy_is_stored_without_rejected_entries() {
    let dir = folder_of(NodeId([1; 32]), |all| all - 1);
    let index = dir.path().join("index");
    let copies = copies::read_copies(&index);
    assert_eq!(copies.len(), 1);
    let names: Vec<String> = copies[0]
        .1
        .entries()
        .map(|(key, _)| key.to_string())
        .collect();
    assert_eq!(names, ["demo", "demo:echo"]);
    assert_eq!(copies[0].1.digest(), None, "it is copied again");
    let file = index.join(&files(dir.path())[0]);
    let mut bytes = std::fs::read(&file).unwrap();
    let at = bytes.windows(4).position(|four| four == b"echo").unwrap();
    bytes[at] = b'l';
    std::fs::write(&file, &bytes).unwrap();
    assert!(
        copies::read_copies(&index).is_empty(),
        "a damaged one is none"
    );
}

/// FED-004: a damaged file is ignored.
#[tokio::test]
async fn damaged_copy_is_ignored() {
    let nas = Wire::new(1).id();
    let dir = folder(nas);
    let file = dir.path().join("index").join(&files(dir.path())[0]);
    let mut bytes = std::fs::read(&file).unwrap();
    let at = bytes.windows(4).position(|four| four == b"time").unwrap();
    bytes[at] = b'l';
    std::fs::write(&file, &bytes).unwrap();
    assert!(copies::read_copies(&dir.path().join("index")).is_empty());
    bytes[at] = b't';
    std::fs::write(&file, &bytes).unwrap();
    assert_eq!(copies::read_copies(&dir.path().join("index")).len(), 1);
}

/// A restarted owner sends nothing before it knows its servers, and then their earlier tools, until they
/// list them again.
#[tokio::test]
async fn restarted_owner_offers_its_earlier_tools() {
    let (nas, desk) = (IndexNode::new(1).await, IndexNode::new(2).await);
    scene::members(&[&nas, &desk]);
    nas.offer(&[("demo", &["time"])]);
    nas.index.set_shares(rules(&[("demo", None, "*")]));
    let links = scene::link(&nas, &desk).await;
    desk.wait_for_tools(|held| tools(held) == ["demo:time"])
        .await;
    let own = nas
        .folder
        .path()
        .join("index")
        .join(format!("{}.own", nas.id));
    within_deadline(async {
        while !own.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    scene::unlink(links, LinkClose::Shutdown);
    let nas = nas.restart().await;
    scene::members(&[&nas, &desk]);
    nas.index.set_shares(rules(&[("demo", None, "*")]));
    let _links = scene::link(&nas, &desk).await;
    nas.index.status().await.unwrap();
    let starting = OfferedServer {
        record: ServerRecord {
            starting: true,
            ..scene::server_record()
        },
        tools: BTreeMap::new(),
    };
    nas.index
        .set_offer([(ServerId::new("demo"), Arc::new(starting))].into());
    let starts = |held: &PeerTools| held.servers.values().any(|server| server.record.starting);
    let held = desk.wait_for_tools(starts).await;
    assert_eq!(tools(&held), ["demo:time"]);
    nas.offer(&[("demo", &["time", "echo"])]);
    let held = desk.wait_for_tools(|held| tools(held).len() == 2).await;
    assert!(!held.servers.values().any(|server| server.record.starting));
}
