use std::path::Path;
use std::sync::Mutex;

use mgp_store::Witness;
use mgp_store::audit::operator_actor;

use super::*;

fn wish(server: &str, tools: Option<&str>) -> ShareSpec {
    ShareSpec {
        server: ServerId::new(server),
        to: ShareAudience::Cluster,
        tools: tools.map(str::to_owned),
        listed: Some(["read".into(), "write".into()].into()),
        allow_missing: false,
    }
}

type Seen = Arc<Mutex<Vec<usize>>>;

async fn start(file: &Path) -> (SharesHandle, ActorCell, Seen) {
    let seen = Seen::default();
    let told = Arc::clone(&seen);
    let start = SharesStart {
        file: file.to_owned(),
        witness: Witness::default(),
        changed: EventSink::new(move |shares: Arc<Shares>| {
            told.lock().unwrap().push(shares.len());
        }),
        audit: AuditHandle::disabled(),
    };
    let (handle, cell) = SharesHandle::start(start).await.unwrap();
    (handle, cell, seen)
}

/// PRJ-005, FED-029: nothing is shared until somebody shares it, and what was shared is so after a restart.
#[tokio::test]
async fn rules_are_kept_over_a_restart_and_end_when_they_are_ended() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cluster/shares.json");
    let (shares, cell, seen) = start(&file).await;
    assert!(shares.current().is_empty() && !file.exists());
    let rule = shares
        .add(wish("files", Some("read")), operator_actor())
        .await;
    let rule = rule.unwrap().unwrap();
    assert_eq!(rule.to_string(), "files:read to cluster");
    let again = shares
        .add(wish("files", Some("read")), operator_actor())
        .await;
    assert_eq!(again.unwrap(), None);
    shares
        .add(wish("git", None), operator_actor())
        .await
        .unwrap();
    assert_eq!(*seen.lock().unwrap(), [1, 2], "only changes are told");
    cell.stop(None);

    let (shares, _cell, seen) = start(&file).await;
    assert_eq!(shares.current().len(), 2);
    let refused = shares.remove(
        ServerId::new("files"),
        None,
        Some("write".into()),
        operator_actor(),
    );
    let words = refused.await.unwrap_err().to_string();
    assert!(words.contains("read to cluster"), "{words}");
    let ended = shares.remove(ServerId::new("files"), None, None, operator_actor());
    assert_eq!(ended.await.unwrap(), [rule]);
    shares
        .remove_server(ServerId::new("git"), operator_actor())
        .await
        .unwrap();
    shares
        .remove_server(ServerId::new("git"), operator_actor())
        .await
        .unwrap();
    assert_eq!(*seen.lock().unwrap(), [1, 0]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "[]");
}

#[tokio::test]
async fn what_cannot_be_kept_is_not_shared() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("shares.json");
    let (shares, _cell, seen) = start(&file).await;
    std::fs::create_dir_all(file.join("in the way")).unwrap();
    let failed = shares.add(wish("files", None), operator_actor()).await;
    assert!(matches!(failed, Err(ShareChangeError::Save(_))));
    assert!(shares.current().is_empty() && seen.lock().unwrap().is_empty());
    let refused = shares.add(wish("nas/files", None), operator_actor()).await;
    assert!(matches!(refused, Err(ShareChangeError::Refused(_))));
}

#[tokio::test]
async fn a_damaged_file_is_told_with_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("shares.json");
    std::fs::write(&file, "[{\"server\":\"files\"}]").unwrap();
    let start = SharesStart {
        file: file.clone(),
        witness: Witness::default(),
        changed: EventSink::new(drop),
        audit: AuditHandle::disabled(),
    };
    let refused = SharesHandle::start(start).await.unwrap_err().to_string();
    assert!(refused.contains("echo '[]' >"), "{refused}");
}
