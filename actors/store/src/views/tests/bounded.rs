//! The cost of queries, measured in bytes read.

use super::super::database::ViewDatabase;
use super::super::growing_view::GrowingView;
use super::*;

/// Maximum number of records in a page.
const PAGE: u64 = 20;
/// Twice the size of such a page: its records, and the lists of a block or two.
const READ_MAX: u64 = 32 << 10;

/// Writes a log with files of 256 KiB.
async fn long_log(dir: &Path, records: u64) {
    let options = LogOptions {
        folder: LogFolder::new(dir),
        calls: CallAuditing::default(),
        retention: Retention {
            max_age: None,
            max_bytes: u64::MAX,
            segment_bytes: 256 << 10,
        },
        per_day: 0,
        redaction: Redaction::new(ArgumentRetention::Digest, &[7; 32], []),
    };
    let audit = options.open().unwrap();
    for n in 0..records {
        let mut event = test_event(n);
        event.timestamp = render_rfc3339_ms(1_000_000 + n * 250);
        let place = audit.reserve_call(0).unwrap();
        place.record_and_wait(event).await.unwrap();
    }
    audit.close().await;
}

/// A view of the whole log, built on this thread.
fn grown(dir: &Path) -> GrowingView {
    let folder = LogFolder::new(dir);
    let database = ViewDatabase::open(&dir.join("views"), &folder, open_sled).unwrap();
    let mut view = GrowingView::new(database, &folder, 512);
    while view.step().unwrap() {}
    view
}

/// The number of bytes that this thread has read from files.
fn read_so_far() -> u64 {
    let io = fs::read_to_string("/proc/thread-self/io").unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.unwrap().parse().unwrap()
}

/// Decision 0067: the bytes read for a page are independent of the log's length: for the newest records, the middle,
/// rare records, and no matches.
#[tokio::test]
async fn page_cost_is_independent_of_log_length() {
    for records in [1_000, 6_000] {
        let dir = tempfile::tempdir().unwrap();
        long_log(dir.path(), records).await;
        let view = grown(dir.path());
        let middle = 1_000_000 + records * 125;
        let size: u64 = LogFolder::new(dir.path())
            .numbers()
            .unwrap()
            .iter()
            .map(|n| {
                LogFolder::new(dir.path())
                    .file_path(*n)
                    .metadata()
                    .unwrap()
                    .len()
            })
            .sum();
        assert!(size > records * 300, "{size} bytes of log");
        for (asked, some) in [
            (json!({}), true),
            (json!({"until_ms": middle}), true),
            (json!({"agent": "agent.2"}), true),
            (json!({"result": "FAILURE", "until_ms": middle}), true),
            (json!({"trace": test_event(21).trace_id}), true),
            (json!({"agent": "agent.nobody"}), false),
            (json!({"result": "DENIED"}), false),
            (json!({"since_ms": middle * 2}), false),
        ] {
            let mut asked = ask(asked);
            asked.limit = Some(PAGE);
            let before = read_so_far();
            let found = view.find(&parse_query(asked.clone()).unwrap()).unwrap();
            let read = read_so_far() - before;
            assert_eq!(!found.events.is_empty(), some, "{asked:?}");
            assert!(read < READ_MAX, "{read} bytes of {size} for {asked:?}");
        }
        let first = view
            .find(&parse_query(ask(json!({"limit": PAGE}))).unwrap())
            .unwrap();
        let cursor = first.next.unwrap().to_cursor();
        let before = read_so_far();
        let next = ask(json!({"limit": PAGE, "cursor": cursor}));
        let next = view.find(&parse_query(next).unwrap()).unwrap();
        assert_eq!(next.events.len() as u64, PAGE);
        assert!(read_so_far() - before < READ_MAX);
    }
}
