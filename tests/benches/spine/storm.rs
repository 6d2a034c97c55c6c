//! Servers that keep crashing beside some that do not: what the calls of the calm ones notice.

use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use mgp_tests::harness::{DEADLINE, Kernel, Program, wait_until};
use mgp_tests::load::latency::Latencies;
use mgp_tests::load::{Bounds, Cell, HttpLoad, Request, Table, Talk};
use tokio::time::MissedTickBehavior;

use super::Options;

/// How many of each.
const CALM: usize = 10;
const CRASHING: usize = 50;

/// Between two calls of one client that is in no hurry.
const PACE: Duration = Duration::from_millis(10);

/// How long calls are measured at a time, in seconds, and how often: rounds are interleaved, for what else the
/// machine does changes while they run.
const SECONDS: u64 = 6;
const ROUNDS: usize = 4;

/// Starts a second that are made from outside of the kernel: as many as a kernel makes of fifty that crash.
const STARTS: f64 = 6.7;

/// What the calm servers have beside them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Neighbours {
    Nobody,
    /// In a crash loop, under the same kernel.
    Crashing,
    /// The same programs, started at the same rate by somebody else.
    Outside,
}

impl Neighbours {
    const ALL: [(&str, Self); 3] = [
        ("alone", Self::Nobody),
        ("beside 50 that crash", Self::Crashing),
        ("beside the same starts from outside", Self::Outside),
    ];
}

/// A kernel with ten calm servers, by turns alone, with fifty more in a crash loop (every other one at its start,
/// the others soon after it), and beside the same programs that are started from outside.
pub(crate) async fn table(options: &Options) -> Table {
    let calm: String = (0..CALM)
        .map(|n| Program::fixture(&[]).entry(&format!("calm{n}")))
        .collect();
    let kernel = Kernel::start(&calm).await;
    let ids: Vec<_> = (0..CALM).map(|n| format!("calm{n}")).collect();
    let names: Vec<_> = ids.iter().map(String::as_str).collect();
    kernel.connected(&names).await;
    let time = options.bounds(u64::MAX, SECONDS).time;
    let mut runs: [[Latencies; 2]; 3] = Default::default();
    let mut crashes = 0;
    for _ in 0..ROUNDS {
        for (run, (_, beside)) in runs.iter_mut().zip(Neighbours::ALL) {
            let before = settle(&kernel, &calm, beside).await;
            let stop = Arc::new(AtomicBool::new(beside != Neighbours::Outside));
            let until = stop.clone();
            let others = std::thread::spawn(move || start_from_outside(&until));
            let [fast, slow] = measured(&kernel, &ids, time).await;
            stop.store(true, Ordering::Relaxed);
            others.join().expect("the starts end");
            if beside == Neighbours::Crashing {
                crashes += restarts(&kernel).await.1.saturating_sub(before);
            }
            run[0].join(&fast);
            run[1].join(&slow);
        }
    }
    let rate = crashes as f64 / time.as_secs_f64() / 2.0 / ROUNDS as f64;
    let mut rows = Vec::new();
    for (at, way) in ["back to back", "each 100 a second"].iter().enumerate() {
        for (run, (servers, beside)) in runs.iter().zip(Neighbours::ALL) {
            let rate = match beside {
                Neighbours::Nobody => Cell::Nothing,
                Neighbours::Crashing => Cell::Number(rate, 1),
                Neighbours::Outside => Cell::Number(STARTS, 1),
            };
            rows.push(row(way, servers, &run[at], &runs[0][at], rate));
        }
    }
    Table {
        title: "A storm: calls to 10 calm servers, one client each",
        columns: &[
            "calls",
            "servers",
            "p50 µs",
            "p99 µs",
            "p99 of alone",
            "starts/s",
            "count",
        ],
        rows,
    }
}

/// The servers that belong there; how often some were restarted until then.
async fn settle(kernel: &Kernel, calm: &str, beside: Neighbours) -> u64 {
    if beside != Neighbours::Crashing {
        kernel.rewrite(calm);
        wait_until("the calm ones are alone", DEADLINE, async || {
            let status = kernel.mgp_json(&["status"]).await;
            status["servers"].as_array().map(Vec::len) == Some(CALM)
        })
        .await;
        return 0;
    }
    kernel.rewrite(&format!("{calm}{}", crashing()));
    wait_until("every other server has crashed", DEADLINE, async || {
        restarts(kernel).await.0 >= CRASHING
    })
    .await;
    restarts(kernel).await.1
}

/// What the kernel does to a server that crashes, without a kernel, until it is told to stop: a start, a handshake,
/// and reading to the end. On a thread of its own, for the calls are measured on this one.
fn start_from_outside(stop: &AtomicBool) {
    let begun = Instant::now();
    for n in 0u32.. {
        let next = begun + Duration::from_secs_f64(f64::from(n) / STARTS);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let mut command = Program::fixture(&FLAGS[n as usize % 2]).to_command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().expect("it starts");
        let mut stdin = child.stdin.take().expect("it was piped");
        // One that has ended already reads nothing.
        let _ = stdin.write_all(HANDSHAKE.as_bytes());
        // At the end of its input it would end by itself.
        let _ = child.wait_with_output();
        drop(stdin);
    }
}

/// What a client of a server writes first.
const HANDSHAKE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
    r#""capabilities":{},"clientInfo":{"name":"outside","version":"1"}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    "\n",
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#,
    "\n",
);

/// How every other server crashes.
const FLAGS: [[&str; 2]; 2] = [["--exit-at-start", "1"], ["--crash-after", "100"]];

fn crashing() -> String {
    let keys = "max_restarts = 1000\nbackoff_base_ms = 400\nbackoff_max_ms = 400\n";
    let entry = |n: usize| {
        let entry = Program::fixture(&FLAGS[n % 2]).entry(&format!("crash{n}"));
        format!("{}\n{keys}", entry.trim_end())
    };
    (0..CRASHING).map(entry).collect()
}

fn row(way: &str, servers: &str, run: &Latencies, quiet: &Latencies, rate: Cell) -> Vec<Cell> {
    let (p50, p99) = (run.percentile(50.0), run.percentile(99.0));
    vec![
        way.into(),
        servers.into(),
        Cell::Number(p50, 0),
        Cell::Number(p99, 0),
        Cell::Number(p99 / quiet.percentile(99.0), 2),
        rate,
        Cell::Number(run.calls() as f64, 0),
    ]
}

/// Calls as fast as they are answered, and then calls at a pace, for so long each.
async fn measured(kernel: &Kernel, ids: &[String], time: Duration) -> [Latencies; 2] {
    let mut loads = Vec::new();
    for id in ids {
        let load = HttpLoad::open(&kernel.server_url(id), 1, Talk::Session).await;
        loads.push(load.expect("a session"));
    }
    let request = Request::echo(Talk::Session, 32);
    let bounds = Bounds {
        calls: 1 << 24,
        time,
    };
    let runs = loads.iter_mut().map(|load| load.run(&request, bounds));
    let mut fast = Latencies::default();
    for run in join_all(runs).await {
        fast.join(&run.expect("calls are answered").latencies);
    }
    let runs = loads.iter_mut().map(|load| paced(load, &request, time));
    let mut slow = Latencies::default();
    for latencies in join_all(runs).await {
        slow.join(&latencies);
    }
    [fast, slow]
}

async fn paced(load: &mut HttpLoad, request: &Request, time: Duration) -> Latencies {
    let mut latencies = Latencies::default();
    let mut pace = tokio::time::interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let start = Instant::now();
    while start.elapsed() < time {
        pace.tick().await;
        let begun = Instant::now();
        load.once(request).await.expect("a call is answered");
        latencies.add(begun.elapsed());
    }
    latencies
}

/// How many servers were restarted, and how often all together.
async fn restarts(kernel: &Kernel) -> (usize, u64) {
    let status = kernel.mgp_json(&["status"]).await;
    let servers = status["servers"].as_array().cloned().unwrap_or_default();
    let each = servers.iter().filter_map(|s| s["restarts"].as_u64());
    let each: Vec<u64> = each.filter(|count| *count > 0).collect();
    (each.len(), each.iter().sum())
}
