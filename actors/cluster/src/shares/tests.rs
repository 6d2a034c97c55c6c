use std::path::Path;
use std::sync::Mutex;

use mgp_store::Witness;
use mgp_store::audit::operator_actor;

use super::*;

fn share_spec(server: &str, tools: Option<&str>) -> ShareSpec {
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
    let counts = Arc::clone(&seen);
    let start = SharesStart {
        file: file.to_owned(),
        witness: Witness::default(),
        changed: EventSink::new(move |shares: Arc<Shares>| {
            counts.lock().unwrap().push(shares.len());
        }),
        audit: AuditHandle::disabled(),
    };
    let (handle, cell) = SharesHandle::start(start).await.unwrap();
    (handle, cell, seen)
}

/// PRJ-005, FED-029: nothing is shared by default, and shares survive a restart.
#[tokio::test]
async fn rules_survive_a_restart_until_removed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cluster/shares.json");
    let (shares, cell, seen) = start(&file).await;
    assert!(shares.current().is_empty() && !file.exists());
    let rule = shares
        .add(share_spec("files", Some("read")), operator_actor())
        .await;
    let rule = rule.unwrap().unwrap();
    assert_eq!(rule.to_string(), "files:read to cluster");
    let again = shares
        .add(share_spec("files", Some("read")), operator_actor())
        .await;
    assert_eq!(again.unwrap(), None);
    shares
        .add(share_spec("git", None), operator_actor())
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
    let message = refused.await.unwrap_err().to_string();
    assert!(message.contains("read to cluster"), "{message}");
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
async fn share_that_cannot_be_stored_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("shares.json");
    let (shares, _cell, seen) = start(&file).await;
    std::fs::create_dir_all(file.join("in the way")).unwrap();
    let failed = shares
        .add(share_spec("files", None), operator_actor())
        .await;
    assert!(matches!(failed, Err(ShareChangeError::Save(_))));
    assert!(shares.current().is_empty() && seen.lock().unwrap().is_empty());
    let refused = shares
        .add(share_spec("nas/files", None), operator_actor())
        .await;
    assert!(matches!(refused, Err(ShareChangeError::Refused(_))));
}

#[tokio::test]
async fn damaged_file_is_reported_with_a_fix() {
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
