//! Servers that keep crashing beside some that do not: what the calls of the calm ones notice.

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

/// How long calls are measured, alone and beside the crashes.
const SECONDS: [u64; 2] = [10, 30];

/// A kernel with ten calm servers, and then the same with fifty more in a crash loop: every other one at
/// its start, the others soon after it.
pub(crate) async fn table(options: &Options) -> Table {
    let calm: String = (0..CALM)
        .map(|n| Program::fixture(&[]).entry(&format!("calm{n}")))
        .collect();
    let kernel = Kernel::start(&calm).await;
    let ids: Vec<_> = (0..CALM).map(|n| format!("calm{n}")).collect();
    let names: Vec<_> = ids.iter().map(String::as_str).collect();
    kernel.connected(&names).await;
    let [alone, beside] = SECONDS.map(|seconds| options.bounds(u64::MAX, seconds).time);
    let quiet = measured(&kernel, &ids, alone).await;
    kernel.rewrite(&(calm + &crashing()));
    wait_until("every other server has crashed", DEADLINE, async || {
        restarts(&kernel).await.0 >= CRASHING
    })
    .await;
    let before = restarts(&kernel).await.1;
    let noisy = measured(&kernel, &ids, beside).await;
    let crashes = restarts(&kernel).await.1.saturating_sub(before) as f64;
    let mut rows = Vec::new();
    for (way, quiet, noisy) in [
        ("back to back", &quiet[0], &noisy[0]),
        ("each 100 a second", &quiet[1], &noisy[1]),
    ] {
        rows.push(row(way, "alone", quiet, quiet, Cell::Nothing));
        let rate = Cell::Number(crashes / beside.as_secs_f64() / 2.0, 1);
        rows.push(row(way, "beside 50 that crash", noisy, quiet, rate));
    }
    Table {
        title: "A storm: calls to 10 calm servers, one client each",
        columns: &[
            "calls",
            "servers",
            "p50 µs",
            "p99 µs",
            "p99 of alone",
            "restarts/s",
            "count",
        ],
        rows,
    }
}

fn crashing() -> String {
    let keys = "max_restarts = 1000\nbackoff_base_ms = 400\nbackoff_max_ms = 400\n";
    let entry = |n: usize| {
        let flags = [["--exit-at-start", "1"], ["--crash-after", "100"]][n % 2];
        let entry = Program::fixture(&flags).entry(&format!("crash{n}"));
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
