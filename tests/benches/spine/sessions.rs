//! Memory of sessions that only exist.

use std::time::Instant;

use mgp_tests::harness::{HttpClient, Kernel, Program};
use mgp_tests::load::sessions::{IdleSessions, room};
use mgp_tests::load::{Cell, Table, Usage};

use super::Options;

/// How many sessions, the second without `--quick` only.
const SESSIONS: [usize; 2] = [1_000, 10_000];

/// A fresh kernel for each row, so that nothing freed by the one before is counted.
pub(crate) async fn table(options: &Options) -> Table {
    let mut rows = Vec::new();
    let counts = if options.quick {
        &SESSIONS[..1]
    } else {
        &SESSIONS
    };
    for &count in counts {
        for stream in [false, true] {
            rows.push(row(count, stream).await);
        }
    }
    Table {
        title: "Idle sessions",
        columns: &[
            "sessions",
            "GET stream each",
            "RSS before MiB",
            "RSS after MiB",
            "KiB/session",
            "seconds to open all",
        ],
        rows,
    }
}

async fn row(count: usize, stream: bool) -> Vec<Cell> {
    let kept = if stream { "yes" } else { "no" };
    let heads = [Cell::Number(count as f64, 0), kept.into()];
    if stream && room() < count as u64 {
        let why = format!("needs `ulimit -n` of {count} and some");
        let nothing = vec![Cell::Nothing; 3];
        return [&heads[..], &[why.into()], &nothing].concat();
    }
    let kernel = Kernel::start(&Program::fixture(&[]).entry("pipe")).await;
    kernel.connected(&["pipe"]).await;
    let (opener, mut sessions) = (HttpClient::new(kernel.url()), IdleSessions::default());
    let (before, start) = (Usage::of(&[kernel.pid()]), Instant::now());
    for _ in 0..count {
        let opened = sessions.open(&opener, kernel.url(), stream).await;
        opened.expect("a session is opened");
    }
    let (after, took) = (Usage::of(&[kernel.pid()]), start.elapsed());
    let mib = |bytes: u64| Cell::Number(bytes as f64 / 1_048_576.0, 1);
    let grown = after.resident.saturating_sub(before.resident) as f64;
    let measures = [
        mib(before.resident),
        mib(after.resident),
        Cell::Number(grown / 1024.0 / sessions.opened() as f64, 1),
        Cell::Number(took.as_secs_f64(), 1),
    ];
    [&heads[..], &measures].concat()
}
