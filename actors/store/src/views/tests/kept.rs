//! Views that are reopened, and views of trimmed logs.

use mgp_engine::store::audit::index::sealed::{BlockList, BlockSummary};
use mgp_engine::store::audit::query::RecordIndex;
use serde_json::json;
use std::time::{Duration, Instant};

use super::super::keys::{BlockNumber, SUMMARY};
use super::{
    AuditViews, LogFolder, ViewOptions, ask, assert_equals_log, close_views, count_moved_aside,
    damage, found, log, options, reopened, scanned, start, test_event, wait_until_built, write,
};

/// FED-003: a restart does not rebuild the existing view: a list that was removed from it stays missing.
#[tokio::test]
async fn restart_resumes_the_view() {
    let dir = tempfile::tempdir().unwrap();
    let audit = log(dir.path(), u64::MAX);
    write(&audit, 0..20).await;
    let views = start(dir.path(), &audit);
    wait_until_built(&views).await;
    close_views(views).await;
    let trace = test_event(4).trace_id;
    let db = reopened(&dir.path().join("views"));
    // Records 5 to 8.
    let traces = [
        &BlockNumber(1).first_key()[..],
        &[RecordIndex::Trace.key_byte()],
    ]
    .concat();
    for key in db.scan_prefix(traces).keys() {
        db.remove(key.unwrap()).unwrap();
    }
    drop(db);
    write(&audit, 20..40).await;
    let views = start(dir.path(), &audit);
    wait_until_built(&views).await;
    // Fewer answers, but no false ones.
    let asked = ask(json!({"trace": trace}));
    assert_eq!(scanned(dir.path(), &asked), [6, 5]);
    assert_eq!(found(&views, asked, 10).await, [0; 0]);
    let asked = ask(json!({"agent": "agent.2"}));
    assert_eq!(
        found(&views, asked.clone(), 10).await,
        scanned(dir.path(), &asked)[..]
    );
    assert_eq!((damage(dir.path()), count_moved_aside(dir.path())), (0, 0));
}

/// Trimmed files disappear from the view: from the answers and from the database.
#[tokio::test]
async fn trimmed_records_leave_the_view() {
    let dir = tempfile::tempdir().unwrap();
    let audit = log(dir.path(), 12_000);
    write(&audit, 0..20).await;
    let views = start(dir.path(), &audit);
    wait_until_built(&views).await;
    for n in (20..120).step_by(20) {
        write(&audit, n..n + 20).await;
        wait_until_built(&views).await;
    }
    let oldest = LogFolder::new(dir.path()).numbers().unwrap()[0];
    assert!(oldest > 3, "{oldest}");
    assert_equals_log(&views, dir.path()).await;
    close_views(views).await;
    let views = start(dir.path(), &audit);
    assert_equals_log(&views, dir.path()).await;
    close_views(views).await;
    let db = reopened(&dir.path().join("views"));
    let oldest = LogFolder::new(dir.path()).numbers().unwrap()[0];
    let (key, block) = db.scan_prefix(SUMMARY).next().unwrap().unwrap();
    let first = BlockNumber::from_summary_key(&key).unwrap();
    assert!(BlockSummary::decode(&block).unwrap().file >= oldest);
    assert!(first.0 > 3, "{first:?}");
    assert_eq!(db.range(..first.first_key()).count(), 0);
    assert!(
        db.get(first.list(BlockList::Positions(0)))
            .unwrap()
            .is_some()
    );
}

/// A view whose records were all trimmed while it was closed is empty, not damaged.
#[tokio::test]
async fn view_continues_after_all_its_records_were_trimmed() {
    let dir = tempfile::tempdir().unwrap();
    let audit = log(dir.path(), 12_000);
    write(&audit, 0..20).await;
    let views = start(dir.path(), &audit);
    wait_until_built(&views).await;
    close_views(views).await;
    write(&audit, 20..120).await;
    assert!(LogFolder::new(dir.path()).numbers().unwrap()[0] > 4);
    let views = start(dir.path(), &audit);
    assert_equals_log(&views, dir.path()).await;
    close_views(views).await;
    let views = start(dir.path(), &audit);
    assert_equals_log(&views, dir.path()).await;
    assert_eq!((damage(dir.path()), count_moved_aside(dir.path())), (0, 0));
}

/// Without queries the database is closed and writes cost nothing; the next query finds all records.
#[tokio::test(flavor = "multi_thread")]
async fn idle_view_closes_and_reopens_on_query() {
    let dir = tempfile::tempdir().unwrap();
    let audit = log(dir.path(), u64::MAX);
    write(&audit, 0..20).await;
    let idle = ViewOptions {
        idle: Duration::from_millis(10),
        ..options()
    };
    let views = AuditViews::start_with_options(dir.path(), &audit, idle);
    wait_until_built(&views).await;
    drop(reopened(&dir.path().join("views")));
    write(&audit, 20..40).await;
    let asked = ask(json!({"agent": "agent.1"}));
    let started = Instant::now();
    while views.find(asked.clone()).await.unwrap().complete_through < audit.newest_sequence() {
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "it is not caught up"
        );
    }
    assert_eq!(
        found(&views, asked.clone(), 4).await,
        scanned(dir.path(), &asked)
    );
    drop(reopened(&dir.path().join("views")));
    assert_eq!((damage(dir.path()), count_moved_aside(dir.path())), (0, 0));
}
