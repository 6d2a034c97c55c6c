use super::*;
use mgp_engine::store::audit::commit::CallAuditing;
use mgp_engine::store::audit::record::AuditRecord;
use mgp_engine::store::audit::redact::{ArgumentRetention, Redaction};
use mgp_engine::store::audit::segments::Retention;
use mgp_engine::store::audit::verify::LogFault;
use mgp_protocol::mgp::audit::{EventType, Outcome, Target, TraceId};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::Duration;

fn opening(dir: &Path) -> LogOptions {
    LogOptions {
        folder: LogFolder::new(dir),
        calls: CallAuditing::default(),
        retention: Retention::default(),
        per_day: 0,
        redaction: Redaction::new(
            ArgumentRetention::Digest,
            &[7; 32],
            ["hunter2-hunter2".to_owned()],
        ),
    }
}

fn small(dir: &Path) -> LogOptions {
    let retention = Retention {
        max_age: None,
        max_bytes: 8_000,
        segment_bytes: 2_000,
    };
    LogOptions {
        retention,
        ..opening(dir)
    }
}

fn test_event(details: Value) -> Event {
    let trace = TraceId::from_random([1; 16]);
    new_event(
        EventType::AccessGranted,
        operator_actor(),
        Target::default(),
        &trace,
        Outcome::Success,
        details,
    )
}

fn examine(folder: &LogFolder) -> mgp_engine::store::audit::verify::Report {
    let known = read_head(&folder.head()).unwrap();
    folder.verify(known, None).unwrap()
}

/// Everything that is written, as `(sequence, event)`.
fn written(dir: &Path) -> Vec<(u64, Value)> {
    let folder = LogFolder::new(dir);
    let files = folder.numbers().unwrap();
    let bytes = files
        .iter()
        .map(|n| fs::read(folder.file_path(*n)).unwrap());
    let bytes = bytes.collect::<Vec<_>>().concat();
    let lines = bytes.split(|b| *b == b'\n').filter_map(AuditRecord::parse);
    let records = lines.map(|r| (r.sequence, r.event.to_owned()));
    records
        .map(|(n, e)| (n, serde_json::from_str(&e).unwrap()))
        .collect()
}

fn damage(dir: &Path) -> Vec<Value> {
    let damaged = |(_, event): (u64, Value)| {
        (event["event_type"] == EventType::LOG_DAMAGED.as_str()).then(|| event["details"].clone())
    };
    written(dir).into_iter().filter_map(damaged).collect()
}

async fn log(dir: &Path, records: usize) {
    let audit = opening(dir).open().unwrap();
    for n in 0..records {
        audit
            .record_decision(test_event(json!({"n": n})))
            .await
            .unwrap();
    }
    audit.close().await;
}

#[tokio::test]
async fn decision_is_on_disk_when_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let audit = opening(dir.path()).open().unwrap();
    for n in 0..3_u64 {
        let details = json!({"n": n, "token": "x", "note": "hunter2-hunter2"});
        audit.record_decision(test_event(details)).await.unwrap();
        let last = written(dir.path()).pop().unwrap();
        assert_eq!((last.0, &last.1["details"]["n"]), (n + 1, &json!(n)));
        assert_eq!(last.1["details"]["note"], "[redacted]");
        let head = read_head(&LogFolder::new(dir.path()).head());
        assert!(head.is_ok());
    }
    audit.close().await;
    let report = examine(&LogFolder::new(dir.path()));
    assert_eq!((report.records, report.faults), (3, vec![]));
    assert_eq!(
        audit.record_decision(test_event(json!({}))).await,
        Err(AuditWriteError(CommitError::Failed))
    );
    assert!(audit.reserve_call(100).is_err());
}

/// Decision 0071: what becomes a secret later is masked in every record from then on, as it is wherever messages are
/// shown; what was one before still is.
#[tokio::test]
async fn later_secrets_are_masked_in_pending_entries() {
    let dir = tempfile::tempdir().unwrap();
    let audit = opening(dir.path()).open().unwrap();
    let note = json!({"note": "correct-horse, hunter2-hunter2"});
    let noted = async || {
        audit
            .record_decision(test_event(note.clone()))
            .await
            .unwrap();
        written(dir.path()).pop().unwrap().1["details"]["note"].clone()
    };
    assert_eq!(noted().await, "correct-horse, [redacted]");
    audit.redact(vec!["correct-horse".into()]);
    assert_eq!(noted().await, "[redacted], [redacted]");
    assert_eq!(
        audit.masks().mask_text("hunter2-hunter2 correct-horse"),
        "[redacted] [redacted]"
    );
    audit.close().await;
}

#[tokio::test]
async fn unawaited_event_is_written_within_the_window() {
    let dir = tempfile::tempdir().unwrap();
    let audit = opening(dir.path()).open().unwrap();
    audit.record(test_event(json!({"told": true})));
    audit
        .reserve_call(100)
        .unwrap()
        .record_and_wait(test_event(json!({})))
        .await
        .unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while written(dir.path()).len() < 2 {
        assert!(std::time::Instant::now() < deadline, "not written");
        tokio::task::yield_now().await;
    }
    audit.close().await;
    assert_eq!(examine(&LogFolder::new(dir.path())).records, 2);
}

/// Calls that are not written down are not begun.
#[tokio::test]
async fn calls_are_bounded_in_number() {
    let dir = tempfile::tempdir().unwrap();
    let audit = opening(dir.path()).open().unwrap();
    let places: Vec<CallReservation> = (0..CALLS_MAX)
        .map(|_| audit.reserve_call(100).unwrap())
        .collect();
    assert_eq!(
        audit.reserve_call(100).unwrap_err(),
        AuditWriteError(CommitError::Full)
    );
    audit.record_decision(test_event(json!({}))).await.unwrap();
    drop(places);
    assert!(audit.reserve_call(100).is_ok());
}

/// Nor are those whose notes would hold more than all may: a note holds of its call what is kept of it.
#[tokio::test]
async fn calls_are_bounded_in_bytes() {
    let fit = async |arguments| {
        let dir = tempfile::tempdir().unwrap();
        let redaction = Redaction::new(arguments, &[7; 32], []);
        let options = LogOptions {
            redaction,
            ..opening(dir.path())
        };
        let audit = options.open().unwrap();
        let places: Vec<CallReservation> =
            std::iter::from_fn(|| audit.reserve_call(1 << 20).ok()).collect();
        let full = audit.reserve_call(1 << 20).unwrap_err();
        assert_eq!(full, AuditWriteError(CommitError::Full));
        places.len() as u64
    };
    assert_eq!(
        fit(ArgumentRetention::Digest).await,
        CALLS_BYTES_MAX / (5 << 10)
    );
    assert_eq!(
        fit(ArgumentRetention::Full).await,
        CALLS_BYTES_MAX / (21 << 10)
    );
}

#[tokio::test]
async fn torn_end_is_truncated_and_recorded() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path(), 3).await;
    let path = LogFolder::new(dir.path()).file_path(1);
    let intact = fs::read(&path).unwrap();
    let torn = [&intact[..], br#"{"seq":4,"prev":"#].concat();
    fs::write(&path, torn).unwrap();
    log(dir.path(), 1).await;
    assert!(fs::read(&path).unwrap().starts_with(&intact));
    let damage = damage(dir.path());
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert_eq!(damage[0]["faults"][0]["fault"], "torn");
    let report = examine(&LogFolder::new(dir.path()));
    assert_eq!((report.records, report.faults), (5, vec![]));
}

/// A power cut that takes a part of what was written since the last sync: the log opens without a fault, and goes on
/// after the last record before the hole. In what was acknowledged a hole is damage.
#[tokio::test]
async fn hole_in_unacknowledged_records_is_truncated() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path(), 3).await;
    let folder = LogFolder::new(dir.path());
    let heads = [folder.head(), folder.witness()];
    let known = heads.clone().map(|head| fs::read(head).unwrap());
    let before = fs::read(folder.file_path(1)).unwrap().len();
    log(dir.path(), 20).await;
    let intact = fs::read(folder.file_path(1)).unwrap();
    let later = heads.clone().map(|head| fs::read(head).unwrap());
    let write_with_hole = |from: usize| {
        let mut bytes = intact.clone();
        bytes[from..from + 512].fill(0);
        fs::write(folder.file_path(1), bytes).unwrap();
    };
    let from = before.next_multiple_of(512) + 1_024;
    for (at, bytes) in heads.iter().zip(&known) {
        fs::write(at, bytes).unwrap();
    }
    write_with_hole(from);
    log(dir.path(), 1).await;
    let report = examine(&folder);
    assert_eq!((report.faults, report.damage), (vec![], vec![]));
    assert_eq!(
        damage(dir.path()).last().unwrap()["faults"][0]["fault"],
        "torn"
    );
    for (at, bytes) in heads.iter().zip(&later) {
        fs::write(at, bytes).unwrap();
    }
    write_with_hole(from);
    log(dir.path(), 1).await;
    assert_ne!(examine(&folder).damage, Vec::<u64>::new());
}

/// A flipped byte in the last file, one in a file before it, and an end that is gone: each is named at
/// the start, written down, and still there to be seen.
#[tokio::test]
async fn damage_is_reported_and_left_in_place() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path(), 5).await;
    let folder = LogFolder::new(dir.path());
    let flip = |number: u64, line: usize| {
        let path = folder.file_path(number);
        let mut bytes = fs::read(&path).unwrap();
        let starts = bytes.iter().enumerate().filter(|(_, b)| **b == b'\n');
        let at = starts.map(|(at, _)| at).nth(line).unwrap() + 200;
        bytes[at] ^= 1;
        fs::write(&path, bytes).unwrap();
    };
    flip(1, 1);
    log(dir.path(), 2).await;
    let first = damage(dir.path());
    assert_eq!(first[0]["faults"][0]["fault"], "changed");
    assert_eq!(first[0]["faults"][0]["from"], 3);
    assert_eq!(folder.numbers().unwrap(), [1, 2]);
    let faults = examine(&folder).faults;
    assert!(
        matches!(faults[..], [LogFault::Changed { sequence: 3, .. }]),
        "{faults:?}"
    );
    // The file is not the last any more: it is looked at beside what goes on.
    let audit = opening(dir.path()).open().unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while damage(dir.path()).len() < 2 {
        assert!(std::time::Instant::now() < deadline, "not named");
        tokio::task::yield_now().await;
    }
    audit.close().await;
    let path = folder.file_path(2);
    let bytes = fs::read(&path).unwrap();
    let end = bytes[..bytes.len() - 1]
        .iter()
        .rposition(|b| *b == b'\n')
        .unwrap();
    fs::write(&path, &bytes[..=end]).unwrap();
    log(dir.path(), 1).await;
    let last = damage(dir.path());
    let cut = |d: &&Value| d["faults"][0]["fault"] == "truncated";
    assert_eq!(last.iter().filter(cut).count(), 1, "{last:?}");
}

#[tokio::test]
async fn missing_log_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path(), 4).await;
    fs::remove_dir_all(dir.path().join("audit")).unwrap();
    log(dir.path(), 1).await;
    assert_eq!(damage(dir.path())[0]["faults"][0]["fault"], "truncated");
    assert_eq!(written(dir.path()).first().unwrap().0, 5);
    fs::remove_file(LogFolder::new(dir.path()).head()).unwrap();
    log(dir.path(), 1).await;
    let lost = |d: &Value| d.get("head").is_some();
    assert_eq!(damage(dir.path()).iter().filter(|d| lost(d)).count(), 1);
}

/// A disk that is full is said to be. What was on its way when it was, what is told and what was under way
/// meanwhile is in the log when there is room again, and nothing else; the chain is whole.
#[tokio::test]
async fn log_resumes_when_the_disk_recovers() {
    let dir = tempfile::tempdir().unwrap();
    let audit = small(dir.path()).open().unwrap();
    let full = LogFolder::new(dir.path()).file_path(2);
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    let under_way = audit.reserve_call(100).unwrap();
    let mut acknowledged = 0;
    let late = loop {
        match audit
            .record_decision(test_event(json!({"n": acknowledged})))
            .await
        {
            Ok(()) => acknowledged += 1,
            Err(error) => break error,
        }
        assert!(acknowledged < 60, "it was full");
    };
    assert_eq!(late, AuditWriteError(CommitError::FailedDuringWrite));
    let why = audit.health().failure().unwrap();
    assert!(
        why.contains("No space left") && why.contains("free some space"),
        "{why}"
    );
    assert!(
        why.contains(&*dir.path().join("audit").to_string_lossy()),
        "{why}"
    );
    let refused = audit.reserve_call(100).unwrap_err();
    assert_eq!(refused, AuditWriteError(CommitError::Failed));
    let refused = audit
        .record_decision(test_event(json!({"n": "never"})))
        .await;
    assert_eq!(refused, Err(AuditWriteError(CommitError::Failed)));
    under_way
        .record_and_wait(test_event(json!({"n": "under way"})))
        .await
        .unwrap();
    audit.record(test_event(json!({"n": "told"})));
    fs::remove_file(&full).unwrap();
    audit.health().wait_recovered().await;
    audit
        .record_decision(test_event(json!({"n": "again"})))
        .await
        .unwrap();
    audit.close().await;
    let report = examine(&LogFolder::new(dir.path()));
    assert_eq!(report.faults, []);
    let records = written(dir.path());
    let of: Vec<Value> = records
        .iter()
        .map(|(_, e)| e["details"]["n"].clone())
        .collect();
    let mut all: Vec<Value> = (0..=acknowledged).map(Value::from).collect();
    all.extend([
        Value::Null,
        "under way".into(),
        "told".into(),
        "again".into(),
    ]);
    assert_eq!(of, all);
    let (resumed, gap) = &records[acknowledged + 1];
    assert_eq!(gap["event_type"], EventType::LOG_RESUMED.as_str());
    assert_eq!(gap["details"]["refused"], json!([resumed - 1]), "{gap}");
}

/// The same refusal again and again is a count, and what one agent does beyond its bytes of a day, too;
/// its end does not lose it.
#[tokio::test]
async fn floods_are_counted_and_displace_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let flooded = LogOptions {
        per_day: 20_000,
        retention: Retention {
            max_age: None,
            max_bytes: 160_000,
            segment_bytes: 8_000,
        },
        ..opening(dir.path())
    };
    let audit = flooded.open().unwrap();
    audit
        .record_decision(test_event(json!({"n": "the operator's"})))
        .await
        .unwrap();
    let by = |n: usize, result| Event {
        actor: agent_actor("agent.mallory"),
        target: Target {
            tool_name: Some(format!("tool-{}", n % 997)),
            ..Target::default()
        },
        result,
        ..test_event(json!({"reason": "Unknown tool"}))
    };
    for n in 0..3_000 {
        let result = [Outcome::Denied, Outcome::Success][n % 2];
        audit.reserve_call(100).unwrap().record(by(n, result));
    }
    audit.close().await;
    let report = examine(&LogFolder::new(dir.path()));
    assert_eq!(report.faults, []);
    let records = written(dir.path());
    assert_eq!(records[0].1["details"]["n"], "the operator's");
    let flooder_records = records
        .iter()
        .filter(|(_, e)| e["actor"]["id"] == "agent.mallory");
    let stands_for = |e: &Value| e["details"]["repeated"].as_u64().unwrap_or(1);
    let (mut lines, mut all) = (0, 0);
    flooder_records.for_each(|(_, event)| {
        lines += 1;
        all += stands_for(event);
    });
    assert_eq!(all, 3_000);
    assert!(lines < 200, "{lines}");
}

/// The oldest files go, the log says so, and what is left is whole.
#[tokio::test]
async fn retention_trims_to_its_bound_and_records_it() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let audit = small(dir.path()).open().unwrap();
        for n in 0..60 {
            audit
                .record_decision(test_event(json!({"n": n})))
                .await
                .unwrap();
        }
        audit.close().await;
    }
    let folder = LogFolder::new(dir.path());
    let numbers = folder.numbers().unwrap();
    assert!(numbers[0] > 1, "{numbers:?}");
    let sizes = numbers
        .iter()
        .map(|n| fs::metadata(folder.file_path(*n)).unwrap().len());
    let bytes: u64 = sizes.sum();
    assert!(bytes <= 8_000 + 2 * 2_000, "{bytes}");
    let report = examine(&folder);
    assert_eq!(report.faults, []);
    let trimmed = EventType::LOG_TRIMMED;
    assert!(
        written(dir.path())
            .iter()
            .any(|(_, e)| e["event_type"] == trimmed.as_str())
    );
}

/// Decision 0067: the kernel reads its log while it writes it, tells how far it is, one at a time, and finds what
/// others changed.
#[tokio::test]
async fn log_is_verified_while_written() {
    let dir = tempfile::tempdir().unwrap();
    let retention = Retention {
        max_age: None,
        max_bytes: 1_000_000,
        segment_bytes: 2_000,
    };
    let options = LogOptions {
        retention,
        ..opening(dir.path())
    };
    let audit = options.open().unwrap();
    for n in 0..20_u64 {
        audit
            .record_decision(test_event(json!({"n": n})))
            .await
            .unwrap();
    }
    let (so_far, progress) = tokio::sync::watch::channel((0, 0));
    let (found, other, ()) = tokio::join!(
        audit.verify(so_far),
        async { audit.verify(tokio::sync::watch::channel((0, 0)).0).await },
        async {
            audit
                .record_decision(test_event(json!({"n": 20})))
                .await
                .unwrap()
        },
    );
    let found = found.unwrap();
    assert!(found.is_intact(), "{:?}", found.describe_faults());
    assert!(found.report.records >= 20);
    let (read, of) = *progress.borrow();
    assert!(read + 1 == of && of > 2, "{read} of {of}");
    assert!(other.is_err(), "one at a time");

    let (so_far, receiver) = tokio::sync::watch::channel((0, 0));
    drop(receiver);
    assert!(audit.verify(so_far).await.is_err(), "nobody waits for it");

    let first = LogFolder::new(dir.path()).file_path(1);
    let changed = fs::read_to_string(&first)
        .unwrap()
        .replace("\"n\":1}", "\"n\":7}");
    fs::write(&first, changed).unwrap();
    let (so_far, _heard) = tokio::sync::watch::channel((0, 0));
    let found = audit.verify(so_far).await.unwrap();
    let faults = &found.report.faults;
    assert!(
        matches!(faults[..], [LogFault::Changed { sequence: 2, .. }]),
        "{faults:?}"
    );
    audit.close().await;
}
