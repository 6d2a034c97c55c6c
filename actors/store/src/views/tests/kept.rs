//! Views that are opened again, and of logs that lose their beginning.

use mgp_engine::store::audit::index::sealed::{BlockList, BlockSummary};
use mgp_engine::store::audit::query::RecordIndex;
use serde_json::json;
use std::time::{Duration, Instant};

use super::super::keys::{BlockNumber, SUMMARY};
use super::{
    AuditViews, LogFolder, ViewOptions, asides, ask, built, damage, ended, equals_the_log, found,
    log, options, reopened, said, scanned, start, write,
};

/// FED-003: what was built before a restart is not built again: a list that is taken out of the view stays out.
#[tokio::test]
async fn a_restart_goes_on_where_the_view_was() {
    let dir = tempfile::tempdir().unwrap();
    let audit = log(dir.path(), u64::MAX);
    write(&audit, 0..20).await;
    let views = start(dir.path(), &audit);
    built(&views).await;
    ended(views).await;
    let trace = said(4).trace_id;
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
    built(&views).await;
    // Fewer answers, never a false one.
    let asked = ask(json!({"trace": trace}));
    assert_eq!(scanned(dir.path(), &asked), [6, 5]);
    assert_eq!(found(&views, asked, 10).await, [0; 0]);
    let asked = ask(json!({"agent": "agent.2"}));
    assert_eq!(
        found(&views, asked.clone(), 10).await,
        scanned(dir.path(), &asked)[..]
    );
    assert_eq!((damage(dir.path()), asides(dir.path())), (0, 0));
}

/// Files that the log removed are not in the view any more: neither in answers nor in the database.
#[tokio::test]
async fn what_the_log_removed_leaves_the_view() {
    let dir = tempfile::tempdir().unwrap();
    let audit = log(dir.path(), 12_000);
    write(&audit, 0..20).await;
    let views = start(dir.path(), &audit);
    built(&views).await;
    for n in (20..120).step_by(20) {
        write(&audit, n..n + 20).await;
        built(&views).await;
    }
    let oldest = LogFolder::new(dir.path()).numbers().unwrap()[0];
    assert!(oldest > 3, "{oldest}");
    equals_the_log(&views, dir.path()).await;
    ended(views).await;
    let views = start(dir.path(), &audit);
    equals_the_log(&views, dir.path()).await;
    ended(views).await;
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

/// A view whose records were all removed while it was closed is not damaged, only empty.
#[tokio::test]
async fn a_view_whose_records_are_all_gone_goes_on_with_those_that_are_left() {
    let dir = tempfile::tempdir().unwrap();
    let audit = log(dir.path(), 12_000);
    write(&audit, 0..20).await;
    let views = start(dir.path(), &audit);
    built(&views).await;
    ended(views).await;
    write(&audit, 20..120).await;
    assert!(LogFolder::new(dir.path()).numbers().unwrap()[0] > 4);
    let views = start(dir.path(), &audit);
    equals_the_log(&views, dir.path()).await;
    ended(views).await;
    let views = start(dir.path(), &audit);
    equals_the_log(&views, dir.path()).await;
    assert_eq!((damage(dir.path()), asides(dir.path())), (0, 0));
}

/// Nobody asks: the database is closed, what is written costs nothing, and the next question finds it all.
#[tokio::test(flavor = "multi_thread")]
async fn a_view_that_nobody_asks_is_closed_until_somebody_does() {
    let dir = tempfile::tempdir().unwrap();
    let audit = log(dir.path(), u64::MAX);
    write(&audit, 0..20).await;
    let idle = ViewOptions {
        idle: Duration::from_millis(10),
        ..options()
    };
    let views = AuditViews::start_with_options(dir.path(), &audit, idle);
    built(&views).await;
    drop(reopened(&dir.path().join("views")));
    write(&audit, 20..40).await;
    let asked = ask(json!({"agent": "agent.1"}));
    let begun = Instant::now();
    while views.find(asked.clone()).await.unwrap().complete_through < audit.newest_sequence() {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "it is not caught up"
        );
    }
    assert_eq!(
        found(&views, asked.clone(), 4).await,
        scanned(dir.path(), &asked)
    );
    drop(reopened(&dir.path().join("views")));
    assert_eq!((damage(dir.path()), asides(dir.path())), (0, 0));
}
