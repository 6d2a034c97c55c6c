//! What outlives a restart, and how long.

use std::time::Duration;

use mgp_engine::cluster::tool_index::{LocalIndex, REMOTE_BYTES_MAX, RemoteIndex};
use mgp_protocol::federation::tool_index::ServerRecord;

use super::super::copies::{self, CopyToWrite};
use super::scene::Wire;
use super::*;

/// A folder with a copy of the index of a node, heard just now.
fn folder(owner: NodeId) -> tempfile::TempDir {
    folder_of(owner, |_| REMOTE_BYTES_MAX)
}

/// The same of as much of the index as there was room for.
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

/// PRJ-007, FED-030: what a node that is away shared is stale, hidden after half a minute and forgotten after a day.
#[tokio::test(start_paused = true)]
async fn what_is_kept_of_a_node_that_does_not_come_ages() {
    let nas = Wire::new(1).id();
    let dir = folder(nas);
    let path = dir.path().to_owned();
    let desk = IndexNode::at(2, dir).await;
    desk.offer(&[("own", &["time"])]);
    assert_eq!(soon(desk.index.status()).await.unwrap(), []);
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

/// FED-004: a copy that was kept is shown as stale before its owner is heard, and is current without a new copy then;
/// who is not of the cluster any more is not kept.
#[tokio::test]
async fn a_kept_copy_is_shown_until_its_owner_is_heard() {
    let (nas, desk) = (IndexNode::new(1).await, IndexNode::new(2).await);
    scene::members(&[&nas, &desk]);
    nas.offer(&[("demo", &["time"])]);
    nas.index.set_shares(rules(&[("demo", None, "*")]));
    let links = scene::link(&nas, &desk).await;
    desk.sees(|held| tools(held) == ["demo:time"]).await;
    let path = desk.folder.path().to_owned();
    soon(async {
        while files(&path).is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    scene::cut(links, LinkClose::Done);
    let desk = desk.again().await;
    scene::members(&[&nas, &desk]);
    let held = desk.sees(|held| tools(held) == ["demo:time"]).await;
    assert_eq!(held.servers.values().next().unwrap().stage, Stage::Stale);
    let _links = scene::link(&nas, &desk).await;
    desk.sees(|held| {
        held.servers
            .values()
            .all(|server| server.stage == Stage::Fresh)
    })
    .await;
    soon(async {
        while !desk.index.status().await.unwrap()[0].current {
            tokio::task::yield_now().await;
        }
    })
    .await;
    desk.index.set_members(BTreeMap::new());
    soon(async {
        while !files(&path).is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// PRJ-007: an entry that was not taken does not take the others away over a restart.
#[test]
fn a_copy_with_an_entry_that_was_refused_is_kept_without_it() {
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

/// FED-004: a file that was damaged is not believed.
#[tokio::test]
async fn a_damaged_copy_is_not_shown() {
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

/// An owner that starts again tells nothing before it knows of its servers, and then the tools that they had, until they
/// list them again.
#[tokio::test]
async fn an_owner_that_starts_again_has_the_tools_it_had() {
    let (nas, desk) = (IndexNode::new(1).await, IndexNode::new(2).await);
    scene::members(&[&nas, &desk]);
    nas.offer(&[("demo", &["time"])]);
    nas.index.set_shares(rules(&[("demo", None, "*")]));
    let links = scene::link(&nas, &desk).await;
    desk.sees(|held| tools(held) == ["demo:time"]).await;
    let own = nas
        .folder
        .path()
        .join("index")
        .join(format!("{}.own", nas.id));
    soon(async {
        while !own.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    scene::cut(links, LinkClose::Shutdown);
    let nas = nas.again().await;
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
    let held = desk.sees(starts).await;
    assert_eq!(tools(&held), ["demo:time"]);
    nas.offer(&[("demo", &["time", "echo"])]);
    let held = desk.sees(|held| tools(held).len() == 2).await;
    assert!(!held.servers.values().any(|server| server.record.starting));
}
