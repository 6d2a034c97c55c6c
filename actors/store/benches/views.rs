//! How fast a view of the audit log is built, and how fast it answers.
//!
//! `cargo bench -p mgp-store --bench views [-- RECORDS]`: 100,000 records unless said otherwise.

use std::time::{Duration, Instant};

use mgp_engine::store::audit::commit::CallAuditing;
use mgp_engine::store::audit::redact::{ArgumentsKept, Redaction};
use mgp_engine::store::audit::segments::Retention;
use mgp_engine::timestamps::rfc3339_ms;
use mgp_protocol::mgp::audit::{
    Actor, ActorKind, Event, EventType, Find, Outcome, Target, TraceId,
};
use mgp_store::audit::{Folder, LogOptions};
use mgp_store::views::AuditViews;
use serde_json::json;

const QUERIES: u64 = 1_000;
const AGENTS: u64 = 50;
const TOOLS: u64 = 200;

fn trace(n: u64) -> TraceId {
    let mut random = [3; 16];
    random[8..].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    TraceId::mint(random)
}

fn record(n: u64) -> Event {
    let tool = n.wrapping_mul(7_919) % TOOLS;
    let details = json!({"duration_ms": n % 900, "risk_level": "safe", "arguments": {"bytes": 41}});
    Event {
        timestamp: rfc3339_ms(1_700_000_000_000 + n * 250),
        trace_id: trace(n),
        event_type: EventType::ToolExecuted,
        actor: Actor {
            kind: ActorKind::Agent,
            id: format!("agent.worker{}", n.wrapping_mul(31) % AGENTS),
        },
        target: Target {
            server_id: Some(format!("server{}", tool % 20)),
            tool_name: Some(format!("tool{tool}")),
            agent_id: None,
        },
        result: Outcome::Success,
        details: details.as_object().cloned().unwrap_or_default(),
    }
}

fn question(n: u64, records: u64) -> (&'static str, Find) {
    let at = n.wrapping_mul(104_729) % records;
    let (agent, tool) = (
        format!("agent.worker{}", n % AGENTS),
        format!("tool{}", n % TOOLS),
    );
    let mut asked = Find::default();
    let name = match n % 4 {
        0 => {
            asked.trace = Some(trace(at).to_string());
            "trace"
        }
        1 => {
            asked.agent = Some(agent);
            "agent"
        }
        2 => {
            (asked.agent, asked.tool) = (Some(agent), Some(tool));
            "agent and tool"
        }
        _ => {
            asked.since_ms = Some(1_700_000_000_000 + at * 250);
            asked.until_ms = asked.since_ms.map(|since| since + 25_000);
            "time"
        }
    };
    (name, asked)
}

#[tokio::main]
async fn main() {
    let records = std::env::args().find_map(|word| word.parse().ok());
    let records: u64 = records.unwrap_or(100_000).max(1);
    let dir = tempfile::tempdir().expect("a folder");
    let options = LogOptions {
        folder: Folder::of(dir.path()),
        calls: CallAuditing::default(),
        retention: Retention {
            max_age: None,
            max_bytes: u64::MAX,
            ..Retention::default()
        },
        per_day: 0,
        redaction: Redaction::new(ArgumentsKept::Digest, &[7; 32], []),
    };
    let audit = options.open().expect("a log");
    for n in 0..records {
        let place = audit.place(0).expect("room");
        place.fill(record(n)).await.expect("written");
        // The log takes so many at once.
        while n + 1 > audit.newest() + 10_000 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    while audit.newest() < records {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let began = Instant::now();
    let views = AuditViews::start(dir.path(), &audit);
    let limit = Some(1);
    let least = || Find {
        limit,
        ..Find::default()
    };
    while views
        .find(least())
        .await
        .expect("an answer")
        .complete_through
        < records
    {}
    let took = began.elapsed();
    let rate = records as f64 / took.as_secs_f64();
    println!(
        "built: {records} records in {took:.1?}, {rate:.0} a second; 10 million: {:.0} s",
        1e7 / rate
    );
    let mut times = std::collections::BTreeMap::<_, Vec<Duration>>::new();
    for n in 0..QUERIES {
        let (name, asked) = question(n, records);
        let began = Instant::now();
        views.find(asked).await.expect("an answer");
        times.entry(name).or_default().push(began.elapsed());
    }
    for (name, mut times) in times {
        times.sort_unstable();
        let at = |part: usize| times[(times.len() - 1) * part / 100];
        println!("{name}: p50 {:.1?}, p99 {:.1?}", at(50), at(99));
    }
    audit.close().await;
}
