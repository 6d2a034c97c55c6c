//! Views that are damaged or belong to another log.

use mgp_engine::store::audit::index::sealed::{BlockList, BlockSummary};
use mgp_engine::store::audit::query::{RecordIndex, ValueHash};
use mgp_protocol::mgp::audit::Find;
use serde_json::json;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::database::{OpenSled, open_sled};
use super::super::keys::{BUILT_TO, BlockNumber, SUMMARY};
use super::{
    AuditViews, LogFolder, ViewOptions, ask, assert_equals_log, close_views, count_moved_aside,
    damage, found, log, options, reopened, scanned, start, wait_for_damage, wait_until_built,
    write,
};

fn agent(name: &str) -> BlockList {
    BlockList::Value(RecordIndex::Agent, ValueHash::from_value(name))
}

/// Lists and tables that refer to wrong records cause no false answers.
#[tokio::test]
async fn wrong_view_returns_no_false_records() {
    let dir = tempfile::tempdir().unwrap();
    let audit = log(dir.path(), u64::MAX);
    write(&audit, 0..20).await;
    let views = start(dir.path(), &audit);
    wait_until_built(&views).await;
    close_views(views).await;
    let db = reopened(&dir.path().join("views"));
    for entry in db.scan_prefix(SUMMARY) {
        let (key, block) = entry.unwrap();
        let number = BlockNumber::from_summary_key(&key).unwrap();
        let mut block = BlockSummary::decode(&block).unwrap();
        // One extra record behind the end of the file, and all records attributed to the agent.
        let places = number.list(BlockList::Positions(0));
        let mut table = db.get(&places).unwrap().unwrap().to_vec();
        table.extend_from_slice(&[0, 0xfe, 0xff, 0x03, 0x10]);
        block.records += 1;
        let mut all = vec![0; block.records as usize + 1];
        all[0] = u8::try_from(block.records).unwrap();
        db.insert(places, table).unwrap();
        db.insert(key, block.encode()).unwrap();
        db.insert(number.list(agent("agent.2")), all).unwrap();
    }
    drop(db);
    let views = start(dir.path(), &audit);
    wait_until_built(&views).await;
    let asked = ask(json!({"agent": "agent.2"}));
    let expected = scanned(dir.path(), &asked);
    assert_eq!(found(&views, asked, 10).await, expected);
    assert_eq!((damage(dir.path()), count_moved_aside(dir.path())), (0, 0));
}

/// A truncated list is detected by the query that needs it, and the view is rebuilt.
#[tokio::test]
async fn damaged_list_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let audit = log(dir.path(), u64::MAX);
    write(&audit, 0..20).await;
    let views = start(dir.path(), &audit);
    wait_until_built(&views).await;
    close_views(views).await;
    let db = reopened(&dir.path().join("views"));
    let key = BlockNumber(1).list(agent("agent.0"));
    let list = db.get(&key).unwrap().unwrap();
    db.insert(key, &list[..list.len() - 1]).unwrap();
    drop(db);
    let views = start(dir.path(), &audit);
    wait_until_built(&views).await;
    let asked = ask(json!({"agent": "agent.0"}));
    let answer = views.find(asked.clone()).await.unwrap();
    assert_eq!((answer.events.len(), answer.complete_through), (0, 0));
    wait_for_damage(&audit, dir.path(), 1).await;
    assert_equals_log(&views, dir.path()).await;
    assert_eq!((damage(dir.path()), count_moved_aside(dir.path())), (1, 1));
}

type Wreck = fn(&Path);

fn without(path: &Path, block: BlockNumber) {
    let gone = reopened(path).remove(block.summary()).unwrap();
    assert!(gone.is_some());
}

/// FED-003: whatever happens to the view's folder, the view is rebuilt, and one damaged copy is kept.
#[tokio::test]
async fn damaged_view_is_rebuilt() {
    let damages: [(&str, Wreck); 10] = [
        ("garbage", |path| {
            fs::write(path.join("db"), [0xa5; 70_000]).unwrap();
        }),
        ("garbage settings", |path| {
            fs::write(path.join("conf"), b"segment_size: 7\n").unwrap();
        }),
        ("a file", |path| {
            fs::remove_dir_all(path).unwrap();
            fs::write(path, b"no folder").unwrap();
        }),
        ("foreign", |path| {
            fs::remove_dir_all(path).unwrap();
            let db = reopened(path);
            db.insert(b"key", b"of something else").unwrap();
        }),
        ("another form", |path| {
            let db = reopened(path);
            db.insert(BUILT_TO, b"0 of another kernel").unwrap();
        }),
        ("the form before this one", |path| {
            let db = reopened(path);
            let text = db.get(BUILT_TO).unwrap().unwrap();
            let text = String::from_utf8(text.to_vec()).unwrap();
            let place = text.strip_prefix("3 ").unwrap();
            db.insert(BUILT_TO, format!("2 {place}").into_bytes())
                .unwrap();
        }),
        ("a form after this one", |path| {
            let db = reopened(path);
            let text = db.get(BUILT_TO).unwrap().unwrap();
            let text = String::from_utf8(text.to_vec()).unwrap();
            let later = text.replacen('3', "4", 1);
            db.insert(BUILT_TO, later.into_bytes()).unwrap();
        }),
        ("without its first block", |path| {
            without(path, BlockNumber(0))
        }),
        ("without a block", |path| without(path, BlockNumber(3))),
        ("of another log", |path| {
            let db = reopened(path);
            let text = db.get(BUILT_TO).unwrap().unwrap();
            let mut text = String::from_utf8(text.to_vec()).unwrap();
            let last = if text.pop() == Some('0') { '1' } else { '0' };
            text.push(last);
            db.insert(BUILT_TO, text.into_bytes()).unwrap();
        }),
    ];
    let dir = tempfile::tempdir().unwrap();
    let audit = log(dir.path(), u64::MAX);
    write(&audit, 0..60).await;
    let views = start(dir.path(), &audit);
    wait_until_built(&views).await;
    close_views(views).await;
    for (times, (name, damages)) in damages.into_iter().enumerate() {
        damages(&dir.path().join("views"));
        let views = start(dir.path(), &audit);
        let asked = ask(json!({"agent": "agent.2"}));
        let expected = scanned(dir.path(), &asked);
        wait_until_built(&views).await;
        assert_eq!(found(&views, asked, 100).await, expected, "{name}");
        close_views(views).await;
        wait_for_damage(&audit, dir.path(), times + 1).await;
        assert_eq!(
            (damage(dir.path()), count_moved_aside(dir.path())),
            (times + 1, 1),
            "{name}"
        );
    }
}

/// A database file truncated anywhere still yields a view with only true answers.
#[tokio::test]
async fn truncated_view_catches_up_or_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let audit = log(dir.path(), u64::MAX);
    write(&audit, 0..60).await;
    let path = dir.path().join("views");
    for part in [0, 1, 7, 11, 12, 13, 15] {
        let views = start(dir.path(), &audit);
        wait_until_built(&views).await;
        close_views(views).await;
        let file = fs::File::options()
            .write(true)
            .open(path.join("db"))
            .unwrap();
        let len = file.metadata().unwrap().len();
        file.set_len(len / 16 * part).unwrap();
        let views = start(dir.path(), &audit);
        assert_equals_log(&views, dir.path()).await;
        close_views(views).await;
    }
    fs::remove_dir_all(&path).unwrap();
    let views = start(dir.path(), &audit);
    assert_equals_log(&views, dir.path()).await;
}

fn opened_with(open: OpenSled) -> ViewOptions {
    ViewOptions { open, ..options() }
}

static OPENED: AtomicUsize = AtomicUsize::new(0);

/// FED-003.
#[tokio::test]
async fn panicking_database_is_moved_aside_then_disabled() {
    let dir = tempfile::tempdir().unwrap();
    let audit = log(dir.path(), u64::MAX);
    write(&audit, 0..20).await;
    let views = AuditViews::start_with_options(
        dir.path(),
        &audit,
        opened_with(|path| {
            let first = OPENED.fetch_add(1, Ordering::SeqCst) == 0;
            assert!(!first, "as sled does");
            open_sled(path)
        }),
    );
    wait_for_damage(&audit, dir.path(), 1).await;
    assert_equals_log(&views, dir.path()).await;
    close_views(views).await;
    assert_eq!((damage(dir.path()), count_moved_aside(dir.path())), (1, 1));
    let views =
        AuditViews::start_with_options(dir.path(), &audit, opened_with(|_| panic!("each time")));
    let mut state = views.state.clone();
    state.wait_for(|s| s.failure.is_some()).await.unwrap();
    let answer = views.find(Find::default()).await.unwrap();
    assert_eq!((answer.events.len(), answer.complete_through), (0, 0));
    assert!(
        answer.note.unwrap().contains("there is no view"),
        "it is said"
    );
    assert_eq!(count_moved_aside(dir.path()), 1);
}

/// FED-003: a log that was rolled back to before the view's end and has different records now.
#[tokio::test]
async fn rolled_back_log_rebuilds_the_view() {
    let dir = tempfile::tempdir().unwrap();
    let audit = log(dir.path(), u64::MAX);
    write(&audit, 0..4).await;
    let folder = LogFolder::new(dir.path());
    let before = fs::read(folder.file_path(1)).unwrap();
    write(&audit, 4..8).await;
    assert_eq!(folder.numbers().unwrap().len(), 1);
    let views = start(dir.path(), &audit);
    wait_until_built(&views).await;
    close_views(views).await;
    audit.close().await;
    fs::write(folder.file_path(1), before).unwrap();
    for name in ["audit.head", "node.witness"] {
        fs::remove_file(dir.path().join(name)).unwrap();
    }
    let audit = log(dir.path(), u64::MAX);
    write(&audit, 30..33).await;
    let views = start(dir.path(), &audit);
    wait_for_damage(&audit, dir.path(), 1).await;
    assert_equals_log(&views, dir.path()).await;
    assert_eq!((damage(dir.path()), count_moved_aside(dir.path())), (1, 1));
}
