mod bounded;
mod damaged;
mod kept;

use super::database::open_sled;
use super::*;
use crate::audit::{LogFolder, LogOptions, kernel_actor};
use mgp_engine::store::audit::commit::CallAuditing;
use mgp_engine::store::audit::query::IndexedEvent;
use mgp_engine::store::audit::record::AuditRecord;
use mgp_engine::store::audit::redact::{ArgumentRetention, Redaction};
use mgp_engine::store::audit::segments::Retention;
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_protocol::mgp::audit::{Actor, ActorKind, Event, EventType, Outcome, Target, TraceId};
use serde_json::{Value, json};
use std::fs;
use std::time::Instant;

const SECRET: &str = "hunter2-hunter2";

fn log(dir: &Path, max_bytes: u64) -> AuditHandle {
    let options = LogOptions {
        folder: LogFolder::new(dir),
        calls: CallAuditing::default(),
        retention: Retention {
            max_age: None,
            max_bytes,
            segment_bytes: 4_000,
        },
        per_day: 0,
        redaction: Redaction::new(ArgumentRetention::Digest, &[7; 32], [SECRET.to_owned()]),
    };
    options.open().unwrap()
}

/// Blocks of four records: a file has nine, so its last block is not full.
fn options() -> ViewOptions {
    ViewOptions {
        block_records: 4,
        ..ViewOptions::default()
    }
}

fn start(dir: &Path, audit: &AuditHandle) -> AuditViews {
    AuditViews::start_with_options(dir, audit, options())
}

/// Records of three agents, two servers and three tools; two records share each trace.
fn test_event(n: u64) -> Event {
    let actor = match n % 4 {
        3 => kernel_actor(),
        agent => Actor {
            kind: ActorKind::Agent,
            id: format!("agent.{agent}"),
        },
    };
    let mut random = [9; 16];
    random[..8].copy_from_slice(&(n / 2).to_be_bytes());
    Event {
        // Several blocks have the same time; the clock goes back a little every seven records and far every fifty.
        timestamp: render_rfc3339_ms(1_000_000 + (n % 50) / 7 * 300 + (n % 7) / 3 * 300),
        trace_id: TraceId::from_random(random),
        event_type: EventType::ToolExecuted,
        actor,
        target: Target {
            server_id: (!n.is_multiple_of(5)).then(|| format!("server{}", n % 2)),
            tool_name: (!n.is_multiple_of(5)).then(|| format!("tool{}", n % 3)),
            agent_id: n.is_multiple_of(7).then(|| "agent.0".into()),
        },
        // Fixed-length words, so that every file has the same number of records.
        result: match n % 6 {
            1 => Outcome::Failure,
            _ => Outcome::Success,
        },
        details: json!({"n": n, "note": SECRET}).as_object().unwrap().clone(),
    }
}

async fn write(audit: &AuditHandle, records: std::ops::Range<u64>) {
    for n in records {
        audit.record_decision(test_event(n)).await.unwrap();
    }
}

/// A query with these members.
fn ask(members: Value) -> Find {
    serde_json::from_value(members).unwrap()
}

/// The numbers of all matching records, read in pages of `limit`.
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
            Some(cursor) => {
                assert_ne!(asked.cursor.as_ref(), Some(&cursor), "a page goes on");
                asked.cursor = Some(cursor);
            }
            None => return out,
        }
    }
}

/// The same by scanning the whole log.
fn scanned(dir: &Path, asked: &Find) -> Vec<u64> {
    let filter = parse_query(asked.clone()).unwrap().filter;
    let folder = LogFolder::new(dir);
    let mut all = Vec::new();
    for number in folder.numbers().unwrap() {
        let bytes = fs::read(folder.file_path(number)).unwrap();
        for record in bytes.split(|b| *b == b'\n').filter_map(AuditRecord::parse) {
            if filter.matches(record.event) {
                let at_ms = IndexedEvent::parse(record.event).unwrap().at_ms;
                all.push((number, at_ms, record.sequence));
            }
        }
    }
    all.sort_unstable_by(|one, other| other.cmp(one));
    all.into_iter().map(|(_, _, sequence)| sequence).collect()
}

/// Waits until the view is complete.
async fn wait_until_built(views: &AuditViews) {
    let mut state = views.state.clone();
    let deadline = Instant::now() + Duration::from_secs(60);
    while state.borrow_and_update().last_sequence < views.audit.newest_sequence() {
        let left = deadline.saturating_duration_since(Instant::now());
        let changed = tokio::time::timeout(left, state.changed()).await;
        changed.expect("the view is built in time").unwrap();
    }
}

fn questions() -> Vec<Find> {
    let trace = test_event(21).trace_id;
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
        json!({"result": "FAILURE"}),
        json!({"result": "SUCCESS", "tool": "tool2"}),
        json!({"result": "DENIED"}),
        json!({"trace": trace, "agent": "agent.2"}),
        json!({"since_ms": 1_001_000}),
        json!({"until_ms": 1_001_000}),
        json!({"since_ms": 1_001_000, "until_ms": 1_001_300}),
        json!({"agent": "agent.0", "since_ms": 1_001_000, "until_ms": 1_003_000}),
        json!({"since_ms": 2_000, "until_ms": 1_000}),
    ]
    .map(ask)
    .into()
}

/// Compares the answer to every query with a scan of the log.
async fn assert_equals_log(views: &AuditViews, dir: &Path) {
    wait_until_built(views).await;
    for asked in questions() {
        let expected = scanned(dir, &asked);
        for limit in [2, 3, 1_000] {
            assert_eq!(
                found(views, asked.clone(), limit).await,
                expected,
                "{asked:?}"
            );
        }
    }
    assert!(!scanned(dir, &Find::default()).is_empty());
}

/// Closes the views, and waits until their thread has released the database.
async fn close_views(views: AuditViews) {
    let mut state = views.state.clone();
    drop(views);
    while state.changed().await.is_ok() {}
}

fn damage(dir: &Path) -> usize {
    let kind = EventType::STATE_DAMAGED;
    let folder = LogFolder::new(dir);
    let files = folder.numbers().unwrap().into_iter();
    let texts = files.map(|n| fs::read_to_string(folder.file_path(n)).unwrap());
    texts.map(|text| text.matches(kind.as_str()).count()).sum()
}

/// Waits until the log has this many damage records, which the view writes without waiting for the disk.
async fn wait_for_damage(audit: &AuditHandle, dir: &Path, times: usize) {
    let (_, mut written) = audit.files().unwrap();
    let recorded = async {
        loop {
            written.borrow_and_update();
            if damage(dir) >= times {
                return;
            }
            written.changed().await.unwrap();
        }
    };
    let recorded = tokio::time::timeout(Duration::from_secs(60), recorded);
    recorded.await.expect("the damage is recorded in time");
}

fn count_moved_aside(dir: &Path) -> usize {
    let names = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name());
    let aside = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("views.damaged-");
    names.filter(aside).count()
}

#[tokio::test]
async fn each_filter_matches_a_full_log_scan() {
    let dir = tempfile::tempdir().unwrap();
    let audit = log(dir.path(), u64::MAX);
    write(&audit, 0..120).await;
    let views = start(dir.path(), &audit);
    assert_equals_log(&views, dir.path()).await;
    write(&audit, 120..140).await;
    assert_equals_log(&views, dir.path()).await;
    assert!(LogFolder::new(dir.path()).numbers().unwrap().len() > 5);
    let bad = ask(json!({"cursor": "1-2"}));
    assert!(matches!(views.find(bad).await, Err(Refusal::BadCursor)));
    assert_eq!((damage(dir.path()), count_moved_aside(dir.path())), (0, 0));
}

/// Pages may end anywhere, also between blocks and files, and at a record whose block is still in memory.
#[tokio::test]
async fn page_can_end_after_any_record() {
    let dir = tempfile::tempdir().unwrap();
    let audit = log(dir.path(), u64::MAX);
    write(&audit, 0..61).await;
    let views = start(dir.path(), &audit);
    wait_until_built(&views).await;
    for asked in [
        json!({}),
        json!({"agent": "agent.1"}),
        json!({"since_ms": 1_000_000}),
    ] {
        let asked = ask(asked);
        let expected = scanned(dir.path(), &asked);
        assert!(expected.len() > 12);
        for limit in 1..=7 {
            assert_eq!(
                found(&views, asked.clone(), limit).await,
                expected,
                "{limit}"
            );
        }
    }
    // The first and the last record of each block have traces that no other block has.
    for n in (0..61).step_by(2) {
        let asked = ask(json!({"trace": test_event(n).trace_id}));
        let expected = scanned(dir.path(), &asked);
        assert_eq!(found(&views, asked, 10).await, expected, "{n}");
        assert!(expected.contains(&(n + 1)), "{n}");
    }
}

/// The database of a closed view, whose threads release it a moment later.
fn reopened(path: &Path) -> sled::Db {
    let started = Instant::now();
    loop {
        match open_sled(path) {
            Ok(db) => return db,
            Err(error) => assert!(started.elapsed() < Duration::from_secs(10), "{error}"),
        }
        std::thread::yield_now();
    }
}

/// The kernel's runtime ends before the view's thread and before the querying task.
#[test]
fn view_outlives_the_runtime_that_started_it() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = || {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        runtime.worker_threads(1).enable_all().build().unwrap()
    };
    let first = runtime();
    let (audit, views) = first.block_on(async {
        let audit = log(dir.path(), 1 << 20);
        let views = start(dir.path(), &audit);
        write(&audit, 0..5).await;
        assert_eq!(views.find(ask(json!({}))).await.unwrap().events.len(), 5);
        (audit, views)
    });
    first.shutdown_timeout(Duration::from_secs(1));
    runtime().block_on(async {
        write(&audit, 5..9).await;
        assert_eq!(views.find(ask(json!({}))).await.unwrap().events.len(), 9);
    });
}
