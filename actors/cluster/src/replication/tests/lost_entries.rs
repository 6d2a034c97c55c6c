//! Tests of logs on disk that have lost entries.

use std::fs;
use std::path::Path;

use mgp_store::Witnesses;
use mgp_store::journal::Journal;

use super::super::disk::{LoadedLogs, LogJournals, LogsIdentity, open_existing};
use super::scene::{Scene, by, name};
use super::*;

/// Removes entries from the end of the file.
async fn cut_off(path: &Path, entries: usize) {
    let opened = Journal::open(path, "logs of a cluster").unwrap();
    let keep = opened.entries.len() - entries;
    let kept = opened.entries[..keep].to_vec();
    opened.journal.replace(kept).await.unwrap();
}

impl Scene {
    fn loss(&self, n: u8) -> Option<Arc<str>> {
        self.view(n).loss.clone()
    }
}

/// The owner itself wrote the revocation, so no other node could revoke the grant: without its last entry
/// the owner suspends it, over restarts, until another node has sent the entry.
#[tokio::test]
async fn lost_revocation_suspends_the_grant_until_the_log_is_refilled() {
    let mut scene = Scene::granted().await;
    scene.confirmed(0).await;
    scene.write(0, revoke(1)).await.unwrap();
    scene
        .wait_until("it is closed", |scene| !scene.is_granted(0, 1))
        .await;
    scene.confirmed(1).await;
    scene.stop(0).await;
    let path = scene.folder(0).join("logs");
    let whole = fs::read(&path).unwrap();
    cut_off(&path, 1).await;
    let short = fs::read(&path).unwrap();
    for bytes in [&short[..], &whole[..whole.len() - 1]] {
        fs::write(&path, bytes).unwrap();
        scene.start(0).await;
        let why = scene.loss(0).unwrap();
        assert!(
            why.contains("has been shortened") && why.contains("mgp accept cluster/logs/logs"),
            "{why}"
        );
        assert!(!scene.is_granted(0, 1));
        scene.stop(0).await;
    }
    // Restoring a whole copy is enough.
    fs::write(&path, &whole).unwrap();
    scene.start(0).await;
    assert_eq!(scene.loss(0), None);
    scene.stop(0).await;
    fs::write(&path, &short).unwrap();
    scene.start(0).await;
    assert!(scene.loss(0).is_some());
    scene.link_all(0);
    scene
        .wait_until("it is refilled", |scene| scene.loss(0).is_none())
        .await;
    scene
        .wait_until("the lease holds", |scene| {
            scene.view(0).silent_node.is_none()
        })
        .await;
    assert!(!scene.is_granted(0, 1), "the revoke is back");
    // Other nodes confirm only what is on their disks: the node asks again within a third of a lease.
    scene.advance(11).await;
    scene.confirmed(0).await;
    scene.restart(0).await;
    assert_eq!(scene.loss(0), None, "it is on disk again");
}

/// Without the file a node knows of no cluster; its former cluster is named, and rejoining restores the
/// logs.
#[tokio::test]
async fn logs_that_are_missing_or_empty_are_reported() {
    let mut scene = Scene::with_cluster(2).await;
    scene.stop(1).await;
    let path = scene.folder(1).join("logs");
    for emptied in [true, false] {
        if emptied {
            fs::write(&path, "").unwrap()
        } else {
            fs::remove_file(&path).unwrap()
        }
        scene.start(1).await;
        let why = scene.loss(1).unwrap();
        assert!(
            why.contains("is missing or empty") && why.contains("mgp nodes join"),
            "{why}"
        );
        assert_eq!(scene.view(1).cluster, None);
        scene.stop(1).await;
    }
    scene.start(1).await;
    scene.admit_node(1, MemberRole::Admin).await;
    scene
        .wait_until("it lacks nothing", |scene| scene.loss(1).is_none())
        .await;
    scene.restart(1).await;
    assert_eq!(scene.loss(1), None);
    // A node that leaves has no logs on purpose.
    scene.handle(1).forget(by()).await.unwrap();
    scene.restart(1).await;
    assert_eq!((scene.loss(1), scene.view(1).cluster), (None, None));
    scene.handle(1).found_cluster(name(1), by()).await.unwrap();
    scene.restart(1).await;
    assert_eq!(scene.loss(1), None);
}

/// Unsigned revocations, and nodes of which two live instances were found, exist on this node only.
#[tokio::test]
async fn unrecoverable_loss_suspends_grants_until_restored_or_accepted() {
    let mut scene = Scene::granted().await;
    scene.stop(0).await;
    scene.start(0).await;
    scene.write(0, revoke(1)).await.unwrap();
    assert!(!scene.is_granted(0, 1));
    scene.stop(0).await;
    let path = scene.folder(0).join("owed");
    let whole = fs::read(&path).unwrap();
    assert!(!whole.is_empty());
    fs::remove_file(&path).unwrap();
    scene.start(0).await;
    let why = scene.loss(0).unwrap();
    assert!(why.contains("mgp accept cluster/logs/owed"), "{why}");
    scene.link_all(0);
    scene.confirmed(0).await;
    scene
        .wait_until("all was heard", |scene| scene.view(0).silent_node.is_none())
        .await;
    assert!(!scene.is_granted(0, 1), "no other node has what was owed");
    scene.stop(0).await;
    fs::write(&path, &whole).unwrap();
    scene.start(0).await;
    assert_eq!((scene.loss(0), scene.view(0).owed_revokes), (None, 1));
}

/// A folder of a kernel without witnesses opens, and is witnessed from then on.
#[tokio::test]
async fn logs_without_a_witness_open_and_get_one() {
    let mut scene = Scene::granted().await;
    scene.stop(0).await;
    let data_dir = scene.folder(0).parent().unwrap().to_owned();
    for name in mgp_store::WITNESS_FILES {
        fs::remove_file(data_dir.join(name)).unwrap();
    }
    scene.start(0).await;
    assert_eq!(scene.loss(0), None);
    scene.stop(0).await;
    cut_off(&scene.folder(0).join("logs"), 1).await;
    scene.start(0).await;
    assert!(scene.loss(0).is_some());
}

/// The kernel may crash between any two writes of joining and leaving: the next start reports no loss.
#[tokio::test]
async fn crash_while_joining_or_leaving_reports_no_loss() {
    let mut scene = Scene::with_cluster(1).await;
    scene.stop(0).await;
    let folder = scene.folder(0);
    let data_dir = folder.parent().unwrap().to_owned();
    let witness = || {
        let opened = Witnesses::open(&data_dir).unwrap();
        opened.witnesses.witness("cluster/logs/logs")
    };
    let reports = || {
        let LoadedLogs { opened, missing } = open_existing(&folder, &witness()).unwrap();
        (opened.map(|it| it.lost), missing)
    };
    let logs = fs::read(folder.join("logs")).unwrap();
    let records = || mgp_store::WITNESS_FILES.map(|name| fs::read(data_dir.join(name)).unwrap());
    let opened = open_existing(&folder, &witness()).unwrap().opened.unwrap();
    let (owner, journals): (LogsIdentity, LogJournals) = (opened.owner, opened.journals);
    journals.forget_all().await.unwrap();
    assert_eq!(reports(), (None, None));
    // The witness is deleted first: the logs may still exist.
    fs::write(folder.join("logs"), &logs).unwrap();
    assert_eq!(reports(), (Some(Vec::new()), None));
    // It is created last: the logs may exist already.
    let after = records();
    let again = LogJournals::create(folder.clone(), &owner, &[], witness())
        .await
        .unwrap();
    for (name, bytes) in mgp_store::WITNESS_FILES.iter().zip(&after) {
        fs::write(data_dir.join(name), bytes).unwrap();
    }
    assert_eq!(reports(), (Some(Vec::new()), None));
    drop(again);
}
