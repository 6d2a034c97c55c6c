use super::*;
use crate::audit::{LogOptions, by_kernel};
use mgp_engine::store::audit::commit::CallAuditing;
use mgp_engine::store::audit::query::RecordIndex;
use mgp_engine::store::audit::redact::{ArgumentsKept, Redaction};
use mgp_engine::store::audit::segments::Retention;
use mgp_engine::timestamps::rfc3339_ms;
use mgp_protocol::mgp::audit::{Actor, ActorKind, Event, EventType, Outcome, Target, TraceId};
use serde_json::{Value, json};
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

const SECRET: &str = "hunter2-hunter2";

fn log(dir: &Path, max_bytes: u64) -> AuditHandle {
    let options = LogOptions {
        folder: Folder::of(dir),
        calls: CallAuditing::default(),
        retention: Retention {
            max_age: None,
            max_bytes,
            segment_bytes: 4_000,
        },
        per_day: 0,
        redaction: Redaction::new(ArgumentsKept::Digest, &[7; 32], [SECRET.to_owned()]),
    };
    options.open().unwrap()
}

/// Records of three agents, two servers and three tools; each trace is that of two.
fn said(n: u64) -> Event {
    let actor = match n % 4 {
        3 => by_kernel(),
        agent => Actor {
            kind: ActorKind::Agent,
            id: format!("agent.{agent}"),
        },
    };
    let mut random = [9; 16];
    random[..8].copy_from_slice(&(n / 2).to_be_bytes());
    Event {
        // The clock is set back once.
        timestamp: rfc3339_ms(1_000_000 + (n % 50) * 100),
        trace_id: TraceId::mint(random),
        event_type: EventType::ToolExecuted,
        actor,
        target: Target {
            server_id: (!n.is_multiple_of(5)).then(|| format!("server{}", n % 2)),
            tool_name: (!n.is_multiple_of(5)).then(|| format!("tool{}", n % 3)),
            agent_id: n.is_multiple_of(7).then(|| "agent.0".into()),
        },
        result: Outcome::Success,
        details: json!({"n": n, "note": SECRET}).as_object().unwrap().clone(),
    }
}

async fn write(audit: &AuditHandle, records: std::ops::Range<u64>) {
    for n in records {
        audit.decided(said(n)).await.unwrap();
    }
}

/// What is asked, by its members.
fn ask(members: Value) -> Find {
    serde_json::from_value(members).unwrap()
}

/// All that is found, in pages of `limit`, as numbers of records.
async fn found(views: &AuditViews, mut asked: Find, limit: u64) -> Vec<u64> {
    asked.limit = Some(limit);
    let mut out = Vec::new();
    loop {
        let answer = views.find(asked.clone()).await.unwrap();
        assert!(answer.events.len() as u64 <= limit, "{answer:?}");
        for event in &answer.events {
            let event: Value = serde_json::from_str(event.get()).unwrap();
            assert_ne!(event["details"]["note"], SECRET);
            out.push(event["_mgp"]["seq"].as_u64().unwrap());
        }
        match answer.next_cursor {
            Some(cursor) => asked.cursor = Some(cursor),
            None => return out,
        }
    }
}

/// The same, by reading the whole log.
fn scanned(dir: &Path, asked: &Find) -> Vec<u64> {
    let filter = query(asked.clone()).unwrap().filter;
    let folder = Folder::of(dir);
    let mut all = Vec::new();
    for number in folder.numbers().unwrap() {
        let bytes = fs::read(folder.path(number)).unwrap();
        for record in bytes.split(|b| *b == b'\n').filter_map(AuditRecord::parse) {
            if filter.judge(record.event) {
                let at_ms = IndexedEvent::read(record.event).unwrap().at_ms;
                all.push((number, at_ms, record.sequence));
            }
        }
    }
    all.sort_unstable_by(|one, other| other.cmp(one));
    all.into_iter().map(|(_, _, sequence)| sequence).collect()
}

/// Waits until the view has all there is.
async fn built(views: &AuditViews) {
    let mut state = views.state.clone();
    let deadline = Instant::now() + Duration::from_secs(60);
    while state.borrow_and_update().through < views.audit.newest() {
        let left = deadline.saturating_duration_since(Instant::now());
        let changed = tokio::time::timeout(left, state.changed()).await;
        changed.expect("the view is built in time").unwrap();
    }
}

fn questions() -> Vec<Find> {
    let trace = said(21).trace_id;
    [
        json!({}),
        json!({"agent": "agent.0"}),
        json!({"agent": "agent.9"}),
        json!({"server": "server1"}),
        json!({"tool": "tool2"}),
        json!({"trace": trace}),
        json!({"agent": "agent.1", "server": "server1"}),
        json!({"agent": "agent.1", "server": "server1", "tool": "tool2"}),
        json!({"trace": trace, "agent": "agent.1"}),
        json!({"trace": trace, "agent": "agent.2"}),
        json!({"since_ms": 1_001_000}),
        json!({"until_ms": 1_001_000}),
        json!({"since_ms": 1_001_000, "until_ms": 1_001_100}),
        json!({"agent": "agent.0", "since_ms": 1_001_000, "until_ms": 1_003_000}),
        json!({"since_ms": 2_000, "until_ms": 1_000}),
    ]
    .map(ask)
    .into()
}

/// Every question is answered as by reading the log.
async fn equals_the_log(views: &AuditViews, dir: &Path) {
    built(views).await;
    for asked in questions() {
        let want = scanned(dir, &asked);
        for limit in [3, 1_000] {
            assert_eq!(found(views, asked.clone(), limit).await, want, "{asked:?}");
        }
    }
    assert!(!scanned(dir, &Find::default()).is_empty());
}

/// Ends the views, and waits until their thread has let go of the database.
async fn ended(views: AuditViews) {
    let mut state = views.state.clone();
    drop(views);
    while state.changed().await.is_ok() {}
}

fn damage(dir: &Path) -> usize {
    let kind = EventType::STATE_DAMAGED;
    let folder = Folder::of(dir);
    let files = folder.numbers().unwrap().into_iter();
    let texts = files.map(|n| fs::read_to_string(folder.path(n)).unwrap());
    texts.map(|text| text.matches(kind.as_str()).count()).sum()
}

fn asides(dir: &Path) -> usize {
    let names = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name());
    let aside = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("views.damaged-");
    names.filter(aside).count()
}

#[tokio::test]
async fn each_filter_finds_what_a_reader_of_the_log_finds() {
    let dir = tempfile::tempdir().unwrap();
    let audit = log(dir.path(), u64::MAX);
    write(&audit, 0..120).await;
    let views = AuditViews::start(dir.path(), &audit);
    equals_the_log(&views, dir.path()).await;
    write(&audit, 120..140).await;
    equals_the_log(&views, dir.path()).await;
    assert!(Folder::of(dir.path()).numbers().unwrap().len() > 5);
    let bad = ask(json!({"cursor": "1-2"}));
    assert!(matches!(views.find(bad).await, Err(Refusal::BadCursor)));
    assert_eq!((damage(dir.path()), asides(dir.path())), (0, 0));
}

/// The database of a view that has ended: its threads let go of it a moment later.
fn reopened(path: &Path) -> sled::Db {
    let begun = Instant::now();
    loop {
        match open_sled(path) {
            Ok(db) => return db,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(10), "{error}"),
        }
        std::thread::yield_now();
    }
}

/// What was built before a restart is not built again: a key that is taken out of the view stays out.
#[tokio::test]
async fn a_restart_goes_on_where_the_view_was() {
    let dir = tempfile::tempdir().unwrap();
    let audit = log(dir.path(), u64::MAX);
    write(&audit, 0..20).await;
    let views = AuditViews::start(dir.path(), &audit);
    built(&views).await;
    ended(views).await;
    let trace = said(4).trace_id;
    let db = reopened(&dir.path().join("views"));
    let prefix = RecordPlace::prefix(1, RecordIndex::Trace, trace.as_str());
    let keys: Vec<_> = db.scan_prefix(prefix).keys().map(Result::unwrap).collect();
    assert_eq!(keys.len(), 2);
    db.remove(&keys[0]).unwrap();
    drop(db);
    write(&audit, 20..40).await;
    let views = AuditViews::start(dir.path(), &audit);
    built(&views).await;
    // Fewer answers, never a false one.
    let asked = ask(json!({"trace": trace}));
    assert_eq!(scanned(dir.path(), &asked), [6, 5]);
    assert_eq!(found(&views, asked, 10).await, [6]);
    let asked = ask(json!({"agent": "agent.2"}));
    assert_eq!(
        found(&views, asked.clone(), 10).await,
        scanned(dir.path(), &asked)[..]
    );
    assert_eq!((damage(dir.path()), asides(dir.path())), (0, 0));
}

/// Keys that point at other records, or beside them, lead to no false answer.
#[tokio::test]
async fn a_view_that_is_wrong_answers_nothing_false() {
    let dir = tempfile::tempdir().unwrap();
    let audit = log(dir.path(), u64::MAX);
    write(&audit, 0..20).await;
    let views = AuditViews::start(dir.path(), &audit);
    built(&views).await;
    ended(views).await;
    let db = reopened(&dir.path().join("views"));
    let prefix = |value: &str| RecordPlace::prefix(1, RecordIndex::Agent, value);
    for entry in db.scan_prefix(prefix("agent.1")) {
        let (key, len) = entry.unwrap();
        let mut wrong = prefix("agent.2");
        wrong.extend_from_slice(&key[17..]);
        db.insert(wrong, len).unwrap();
        let mut beside = prefix("agent.2");
        beside.extend_from_slice(&[0xff; 16]);
        db.insert(beside, &[0xff; 4]).unwrap();
    }
    drop(db);
    let views = AuditViews::start(dir.path(), &audit);
    built(&views).await;
    let asked = ask(json!({"agent": "agent.2"}));
    assert_eq!(
        found(&views, asked.clone(), 10).await,
        scanned(dir.path(), &asked)
    );
}

type Wreck = fn(&Path);

/// Whatever became of the folder of the view, it is built again, and what it was is kept once.
#[tokio::test]
async fn a_damaged_view_is_built_again() {
    let wreck: [(&str, Wreck); 6] = [
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
            db.insert(BUILT_TO_KEY, b"0 of another kernel").unwrap();
        }),
        ("of another log", |path| {
            let db = reopened(path);
            let text = db.get(BUILT_TO_KEY).unwrap().unwrap();
            let mut text = String::from_utf8(text.to_vec()).unwrap();
            let last = if text.pop() == Some('0') { '1' } else { '0' };
            text.push(last);
            db.insert(BUILT_TO_KEY, text.into_bytes()).unwrap();
        }),
    ];
    let dir = tempfile::tempdir().unwrap();
    let audit = log(dir.path(), u64::MAX);
    write(&audit, 0..60).await;
    let views = AuditViews::start(dir.path(), &audit);
    built(&views).await;
    ended(views).await;
    for (times, (name, wreck)) in wreck.into_iter().enumerate() {
        wreck(&dir.path().join("views"));
        let views = AuditViews::start(dir.path(), &audit);
        let asked = ask(json!({"agent": "agent.2"}));
        let want = scanned(dir.path(), &asked);
        built(&views).await;
        assert_eq!(found(&views, asked, 100).await, want, "{name}");
        ended(views).await;
        assert_eq!(
            (damage(dir.path()), asides(dir.path())),
            (times + 1, 1),
            "{name}"
        );
    }
}

const BUILT_TO_KEY: &[u8] = keys::BUILT_TO;

/// A file of the database that ends anywhere gives a view all the same, and only true answers.
#[tokio::test]
async fn a_view_that_is_cut_off_anywhere_is_caught_up_or_built_again() {
    let dir = tempfile::tempdir().unwrap();
    let audit = log(dir.path(), u64::MAX);
    write(&audit, 0..60).await;
    let path = dir.path().join("views");
    for part in [0, 1, 7, 11, 12, 13, 15] {
        let views = AuditViews::start(dir.path(), &audit);
        built(&views).await;
        ended(views).await;
        let file = fs::File::options()
            .write(true)
            .open(path.join("db"))
            .unwrap();
        let len = file.metadata().unwrap().len();
        file.set_len(len / 16 * part).unwrap();
        let views = AuditViews::start(dir.path(), &audit);
        equals_the_log(&views, dir.path()).await;
        ended(views).await;
    }
    fs::remove_dir_all(&path).unwrap();
    let views = AuditViews::start(dir.path(), &audit);
    equals_the_log(&views, dir.path()).await;
}

static OPENED: AtomicUsize = AtomicUsize::new(0);

#[tokio::test]
async fn a_database_that_panics_is_moved_aside_and_at_last_done_without() {
    let dir = tempfile::tempdir().unwrap();
    let audit = log(dir.path(), u64::MAX);
    write(&audit, 0..20).await;
    let views = AuditViews::start_with(dir.path(), &audit, |path| {
        let first = OPENED.fetch_add(1, Ordering::SeqCst) == 0;
        assert!(!first, "as sled does");
        open_sled(path)
    });
    equals_the_log(&views, dir.path()).await;
    ended(views).await;
    assert_eq!((damage(dir.path()), asides(dir.path())), (1, 1));
    let views = AuditViews::start_with(dir.path(), &audit, |_| panic!("each time"));
    let mut state = views.state.clone();
    state.wait_for(|s| s.trouble.is_some()).await.unwrap();
    let answer = views.find(Find::default()).await.unwrap();
    assert_eq!((answer.events.len(), answer.complete_through), (0, 0));
    assert!(
        answer.note.unwrap().contains("there is no view"),
        "it is said"
    );
    assert_eq!(asides(dir.path()), 1);
}

/// A log that was rolled back below the view, and has other records there now.
#[tokio::test]
async fn a_log_that_was_rolled_back_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let audit = log(dir.path(), u64::MAX);
    write(&audit, 0..4).await;
    let folder = Folder::of(dir.path());
    let before = fs::read(folder.path(1)).unwrap();
    write(&audit, 4..6).await;
    assert_eq!(folder.numbers().unwrap().len(), 1);
    let views = AuditViews::start(dir.path(), &audit);
    built(&views).await;
    ended(views).await;
    audit.close().await;
    fs::write(folder.path(1), before).unwrap();
    for name in ["audit.head", "node.witness"] {
        fs::remove_file(dir.path().join(name)).unwrap();
    }
    let audit = log(dir.path(), u64::MAX);
    write(&audit, 30..33).await;
    let views = AuditViews::start(dir.path(), &audit);
    equals_the_log(&views, dir.path()).await;
    assert_eq!((damage(dir.path()), asides(dir.path())), (1, 1));
}

/// Files that the log removed are not in the view any more: neither in answers nor in the database.
#[tokio::test]
async fn what_the_log_removed_leaves_the_view() {
    let dir = tempfile::tempdir().unwrap();
    let audit = log(dir.path(), 12_000);
    write(&audit, 0..20).await;
    let views = AuditViews::start(dir.path(), &audit);
    built(&views).await;
    for n in (20..120).step_by(20) {
        write(&audit, n..n + 20).await;
        built(&views).await;
    }
    let oldest = Folder::of(dir.path()).numbers().unwrap()[0];
    assert!(oldest > 3, "{oldest}");
    equals_the_log(&views, dir.path()).await;
    ended(views).await;
    let views = AuditViews::start(dir.path(), &audit);
    equals_the_log(&views, dir.path()).await;
    ended(views).await;
    let db = reopened(&dir.path().join("views"));
    let oldest = Folder::of(dir.path()).numbers().unwrap()[0];
    assert_eq!(db.range(..oldest.to_be_bytes().to_vec()).count(), 0);
    assert!(!db.is_empty());
}
