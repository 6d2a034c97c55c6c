//! How fast a view of the audit log is built, how large it is, and how fast it answers.
//!
//! `cargo bench -p mgp-store --bench views [-- RECORDS]`: 100,000 records unless said otherwise. They are written
//! to a log in the folder for temporary files (`TMPDIR`), some 560 bytes each, and removed at the end.
//!
//! With `--keep FOLDER` they are written there and stay, and no more is done: a data folder on which a kernel can be
//! started, to look at a log of that length with `mgp audit` and in the console. Its records were made a quarter of a
//! second apart, the last one now.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mgp_engine::store::audit::commit::CallAuditing;
use mgp_engine::store::audit::redact::{ArgumentRetention, Redaction};
use mgp_engine::store::audit::segments::Retention;
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_protocol::mgp::audit::{
    Actor, ActorKind, Event, EventType, Find, Outcome, Target, TraceId,
};
use mgp_store::AuditViews;
use mgp_store::audit::{AuditHandle, LogFolder, LogOptions};
use serde_json::json;

/// Number of queries of each kind.
const QUESTIONS: u64 = 200;
const AGENTS: u64 = 40;
const SERVERS: u64 = 60;
const TOOLS: u64 = 600;
/// When the first record was made, where nobody looks at it, and how long after it each further one.
const BEGINNING: u64 = 1_700_000_000_000;
const STEP: u64 = 250;
const HOUR: u64 = 3_600_000;

/// A pseudorandom number (splitmix64).
fn mixed(n: u64) -> u64 {
    let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

fn trace(n: u64) -> TraceId {
    let mut random = [3; 16];
    random[8..].copy_from_slice(&mixed(n).to_be_bytes());
    TraceId::from_random(random)
}

fn agent(n: u64) -> String {
    format!("agent.worker-{}", n % AGENTS)
}

fn server(tool: u64) -> String {
    format!("server-{}", tool % TOOLS % SERVERS)
}

fn tool(n: u64) -> String {
    format!("some_longer_tool_{}", n % TOOLS)
}

/// One in this many calls fails and one is denied; no duration is excessive.
const FAILURES: u64 = 16;
const DENIALS: u64 = 128;

/// A typical call, with the time of its beginning, so that times are not quite in order.
fn record(beginning: u64, n: u64) -> Event {
    let by = mixed(n);
    let digest = format!("{by:016x}{n:016x}{by:016x}{n:016x}");
    let lasted = by % 900;
    let details = json!({
        "arguments_bytes": by % 700, "arguments_digest": digest, "duration_ms": lasted,
        "risk_level": "moderate", "validator_applied": "paths",
    });
    let called = by >> 20;
    Event {
        timestamp: render_rfc3339_ms(beginning + n * STEP - lasted),
        trace_id: trace(n),
        event_type: EventType::ToolExecuted,
        actor: Actor {
            kind: ActorKind::Agent,
            id: agent(by >> 40),
        },
        target: Target {
            server_id: Some(server(called)),
            tool_name: Some(tool(called)),
            agent_id: None,
        },
        result: match by >> 30 {
            by if by.is_multiple_of(DENIALS) => Outcome::Denied,
            by if by.is_multiple_of(FAILURES) => Outcome::Failure,
            _ => Outcome::Success,
        },
        details: details.as_object().cloned().unwrap_or_default(),
    }
}

/// The n-th query of each kind.
fn questions(n: u64, records: u64) -> Vec<(&'static str, Find)> {
    let by = mixed(n + 1_000_000_007);
    let at = by % records;
    let (agent, tool, server) = (agent(by), tool(by >> 8), server(by >> 8));
    let since = BEGINNING + at * STEP;
    let (hour, week) = (since + HOUR, since + 168 * HOUR);
    let asked = [
        ("nothing: the newest", json!({})),
        ("a trace", json!({"trace": trace(at)})),
        (
            "a trace that is none",
            json!({"trace": trace(at + records)}),
        ),
        ("an agent", json!({"agent": agent})),
        ("a server", json!({"server": server})),
        ("a tool", json!({"tool": tool})),
        ("an agent that is none", json!({"agent": "agent.nobody"})),
        ("a result", json!({"result": "DENIED"})),
        ("a result that is none", json!({"result": "TIMEOUT"})),
        ("agent and tool", json!({"agent": agent, "tool": tool})),
        (
            "agent, server, tool, all time",
            json!({"agent": agent, "server": server, "tool": tool, "since_ms": 1}),
        ),
        ("an hour", json!({"since_ms": since, "until_ms": hour})),
        (
            "agent, in an hour",
            json!({"agent": agent, "since_ms": since, "until_ms": hour}),
        ),
        (
            "agent and tool, in a week",
            json!({"agent": agent, "tool": tool, "since_ms": since, "until_ms": week}),
        ),
        ("before a moment", json!({"until_ms": since})),
    ];
    let read = |asked| serde_json::from_value(asked).expect("a question");
    asked.map(|(name, asked)| (name, read(asked))).into()
}

async fn write(audit: &AuditHandle, beginning: u64, records: u64) {
    for n in 0..records {
        let place = audit.reserve_call(0).expect("room");
        place
            .record_and_wait(record(beginning, n))
            .await
            .expect("written");
        // The log accepts this many at once.
        while n + 1 > audit.newest_sequence() + 10_000 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    while audit.newest_sequence() < records {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Queries until all records are in the view.
async fn complete(views: &AuditViews, records: u64) {
    let least = || Find {
        limit: Some(1),
        ..Find::default()
    };
    while views
        .find(least())
        .await
        .expect("an answer")
        .complete_through
        < records
    {}
}

fn bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).expect("a folder");
    let size = |entry: fs::DirEntry| match entry.path() {
        path if path.is_dir() => bytes(&path),
        path => path.metadata().map_or(0, |file| file.len()),
    };
    entries.map(|entry| size(entry.expect("an entry"))).sum()
}

/// A figure of this process in MiB: `VmRSS` for current memory, `VmHWM` for the peak.
fn memory(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) >> 10
}

fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

async fn ask(views: &AuditViews, records: u64) {
    let mut times = BTreeMap::<_, (Vec<Duration>, usize)>::new();
    for n in 0..QUESTIONS {
        for (place, (name, asked)) in questions(n, records).into_iter().enumerate() {
            let began = Instant::now();
            let found = views.find(asked).await.expect("an answer");
            let (took, events) = times.entry((place, name)).or_default();
            took.push(began.elapsed());
            *events += found.events.len();
        }
    }
    for ((_, name), (mut took, events)) in times {
        took.sort_unstable();
        let at = |part: usize| took[(took.len() - 1) * part / 100];
        let each = events as f64 / took.len() as f64;
        let (p50, p99, most) = (at(50), at(99), at(100));
        println!("{name}: p50 {p50:.1?}, p99 {p99:.1?}, most {most:.1?}; {each:.0} events");
    }
}

/// Reads all pages of one query.
async fn page(views: &AuditViews, name: &str, mut asked: Find) {
    let (began, mut pages, mut events) = (Instant::now(), 0, 0);
    loop {
        let found = views.find(asked.clone()).await.expect("an answer");
        (pages, events) = (pages + 1, events + found.events.len());
        match found.next_cursor {
            Some(cursor) => asked.cursor = Some(cursor),
            None => break,
        }
    }
    let took = began.elapsed();
    println!("{name}, all pages: {took:.1?}, {events} events in {pages} pages");
}

/// Writes the log and reports its size.
async fn log(dir: &Path, beginning: u64, records: u64) -> AuditHandle {
    let options = LogOptions {
        folder: LogFolder::new(dir),
        calls: CallAuditing::default(),
        retention: Retention {
            max_age: None,
            max_bytes: u64::MAX,
            ..Retention::default()
        },
        per_day: 0,
        redaction: Redaction::new(ArgumentRetention::Digest, &[7; 32], []),
    };
    let audit = options.open().expect("a log");
    let began = Instant::now();
    write(&audit, beginning, records).await;
    let size = bytes(LogFolder::new(dir).folder());
    let (took, each) = (began.elapsed(), size / records);
    let mib = mib(size);
    println!("log: {records} records in {took:.1?}; {mib} MiB, {each} bytes a record");
    audit
}

/// Builds the view and reopens it.
async fn build(dir: &Path, audit: &AuditHandle, records: u64) -> AuditViews {
    // The peak is measured from here on.
    let _ = fs::write("/proc/self/clear_refs", "5");
    let before = memory("VmRSS");
    let began = Instant::now();
    let views = AuditViews::start(dir, audit);
    complete(&views, records).await;
    let took = began.elapsed();
    let rate = records as f64 / took.as_secs_f64();
    println!("built: {took:.1?}, {rate:.0} records a second");
    let most = memory("VmHWM");
    println!("memory: {before} MiB before, at most {most} while it was built");
    drop(views);
    let began = Instant::now();
    let views = AuditViews::start(dir, audit);
    complete(&views, records).await;
    println!(
        "opened again, and the first answer: {:.1?}",
        began.elapsed()
    );
    let size = bytes(&dir.join("views"));
    let each = size as f64 / records as f64;
    println!("view: {} MiB, {each:.1} bytes a record", mib(size));
    views
}

#[tokio::main]
async fn main() {
    let records = std::env::args().find_map(|word| word.parse().ok());
    let records: u64 = records.unwrap_or(100_000).max(1);
    let mut words = std::env::args().skip_while(|word| word != "--keep");
    if let Some(kept) = words.nth(1) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = u64::try_from(now.expect("after 1970").as_millis()).expect("a time");
        // A kernel refuses folders that others may access.
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&kept);
        made.expect("a folder");
        let audit = log(Path::new(&kept), now - records * STEP, records).await;
        return audit.close().await;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let audit = log(dir.path(), BEGINNING, records).await;
    let views = build(dir.path(), &audit, records).await;
    ask(&views, records).await;
    let (agent, tool) = (Some(agent(3)), Some(tool(5)));
    let limit = Some(1_000);
    let rare = Find {
        agent: agent.clone(),
        tool: tool.clone(),
        limit,
        ..Find::default()
    };
    page(&views, "agent and tool", rare).await;
    let often = Find {
        tool,
        limit,
        ..Find::default()
    };
    page(&views, "a tool", often).await;
    println!("memory: at most {} MiB", memory("VmHWM"));
    audit.close().await;
}
