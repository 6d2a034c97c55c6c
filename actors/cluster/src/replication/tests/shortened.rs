//! Logs on disk that lack something of what they held.

use std::fs;
use std::path::Path;

use mgp_store::Witnesses;
use mgp_store::journal::Journal;

use super::super::disk::{LoadedLogs, LogJournals, LogsIdentity, open_existing};
use super::scene::{Scene, by, name};
use super::*;

/// Cuts entries off the end of the file.
async fn cut_off(path: &Path, entries: usize) {
    let opened = Journal::open(path, "logs of a cluster").unwrap();
    let keep = opened.entries.len() - entries;
    let kept = opened.entries[..keep].to_vec();
    opened.journal.replace(kept).await.unwrap();
}

impl Scene {
    fn shortened(&self, n: u8) -> Option<Arc<str>> {
        self.view(n).loss.clone()
    }
}

/// The revoke was written by the owner itself, so nobody else could take the grant back: without its last entry the
/// owner lets nobody in, over restarts, until another node has brought it.
#[tokio::test]
async fn a_revoke_cut_off_the_log_keeps_the_grant_closed_until_it_is_refilled() {
    let mut scene = Scene::granted().await;
    scene.confirmed(0).await;
    scene.write(0, revoke(1)).await.unwrap();
    scene
        .until("it is closed", |scene| !scene.opens(0, 1))
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
        let why = scene.shortened(0).unwrap();
        assert!(
            why.contains("has been shortened") && why.contains("mgp accept cluster/logs/logs"),
            "{why}"
        );
        assert!(!scene.opens(0, 1));
        scene.stop(0).await;
    }
    // A whole copy is all it takes.
    fs::write(&path, &whole).unwrap();
    scene.start(0).await;
    assert_eq!(scene.shortened(0), None);
    scene.stop(0).await;
    fs::write(&path, &short).unwrap();
    scene.start(0).await;
    assert!(scene.shortened(0).is_some());
    scene.together(0);
    scene
        .until("it is refilled", |scene| scene.shortened(0).is_none())
        .await;
    scene
        .until("the lease holds", |scene| {
            scene.view(0).silent_node.is_none()
        })
        .await;
    assert!(!scene.opens(0, 1), "the revoke is back");
    // What other nodes confirm is on disk: it asks them anew within a third of a lease.
    scene.pass(11).await;
    scene.confirmed(0).await;
    scene.restart(0).await;
    assert_eq!(scene.shortened(0), None, "it is on disk again");
}

/// Without the file a node knows of no cluster; what it was in is named, and who joins that again has it all.
#[tokio::test]
async fn logs_that_are_missing_or_empty_are_reported() {
    let mut scene = Scene::of(2).await;
    scene.stop(1).await;
    let path = scene.folder(1).join("logs");
    for emptied in [true, false] {
        if emptied {
            fs::write(&path, "").unwrap()
        } else {
            fs::remove_file(&path).unwrap()
        }
        scene.start(1).await;
        let why = scene.shortened(1).unwrap();
        assert!(
            why.contains("is missing or empty") && why.contains("mgp nodes join"),
            "{why}"
        );
        assert_eq!(scene.view(1).cluster, None);
        scene.stop(1).await;
    }
    scene.start(1).await;
    scene.let_in(1, MemberRole::Admin).await;
    scene
        .until("it lacks nothing", |scene| scene.shortened(1).is_none())
        .await;
    scene.restart(1).await;
    assert_eq!(scene.shortened(1), None);
    // Who leaves has no logs on purpose.
    scene.at(1).forget(by()).await.unwrap();
    scene.restart(1).await;
    assert_eq!((scene.shortened(1), scene.view(1).cluster), (None, None));
    scene.at(1).found_cluster(name(1), by()).await.unwrap();
    scene.restart(1).await;
    assert_eq!(scene.shortened(1), None);
}

/// Revocations that are owed, and nodes of which two lives were found, are known to nobody else.
#[tokio::test]
async fn what_nobody_else_has_stays_closed_until_it_is_put_back_or_accepted() {
    let mut scene = Scene::granted().await;
    scene.stop(0).await;
    scene.start(0).await;
    scene.write(0, revoke(1)).await.unwrap();
    assert!(!scene.opens(0, 1));
    scene.stop(0).await;
    let path = scene.folder(0).join("owed");
    let whole = fs::read(&path).unwrap();
    assert!(!whole.is_empty());
    fs::remove_file(&path).unwrap();
    scene.start(0).await;
    let why = scene.shortened(0).unwrap();
    assert!(why.contains("mgp accept cluster/logs/owed"), "{why}");
    scene.together(0);
    scene.confirmed(0).await;
    scene
        .until("all was heard", |scene| scene.view(0).silent_node.is_none())
        .await;
    assert!(!scene.opens(0, 1), "no other node has what was owed");
    scene.stop(0).await;
    fs::write(&path, &whole).unwrap();
    scene.start(0).await;
    assert_eq!((scene.shortened(0), scene.view(0).owed_revokes), (None, 1));
}

/// A folder of a kernel that knew of no witnesses opens, and is witnessed from then on.
#[tokio::test]
async fn logs_without_a_witness_open_and_have_one_then() {
    let mut scene = Scene::granted().await;
    scene.stop(0).await;
    let data_dir = scene.folder(0).parent().unwrap().to_owned();
    for name in mgp_store::WITNESS_FILES {
        fs::remove_file(data_dir.join(name)).unwrap();
    }
    scene.start(0).await;
    assert_eq!(scene.shortened(0), None);
    scene.stop(0).await;
    cut_off(&scene.folder(0).join("logs"), 1).await;
    scene.start(0).await;
    assert!(scene.shortened(0).is_some());
}

/// A kernel may end between any two of the writes of a beginning and an end: the next start reports nothing.
#[tokio::test]
async fn a_crash_while_a_cluster_is_entered_or_left_reports_nothing() {
    let mut scene = Scene::of(1).await;
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
    // The witness goes first: the logs may still be there.
    fs::write(folder.join("logs"), &logs).unwrap();
    assert_eq!(reports(), (Some(Vec::new()), None));
    // And it comes last: the logs may be there already.
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
