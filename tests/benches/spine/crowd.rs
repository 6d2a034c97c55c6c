//! Many running servers: how soon they are all there, and what they cost while nobody calls.

use std::time::{Duration, Instant};

use mgp_tests::harness::process::usage;
use mgp_tests::harness::{DEADLINE, Kernel, Program, wait_until};
use mgp_tests::load::{Cell, Table, Usage};

use super::Options;

/// How many servers.
const SERVERS: usize = 200;

/// How long nobody calls, in seconds.
const IDLE: u64 = 10;

/// One kernel with two hundred servers over stdio.
pub(crate) async fn table(options: &Options) -> Table {
    let idle = Duration::from_secs(if options.quick { 2 } else { IDLE });
    let entries = (0..SERVERS).map(|n| Program::fixture(&[]).entry(&format!("server{n}")));
    let start = Instant::now();
    let kernel = Kernel::start(&entries.collect::<String>()).await;
    let answers = start.elapsed();
    wait_until("all servers are connected", DEADLINE, async || {
        let status = kernel.mgp_json(&["status"]).await;
        let servers = status["servers"].as_array();
        let up = |server: &&serde_json::Value| server["state"] == "connected";
        servers.is_some_and(|servers| servers.iter().filter(up).count() == SERVERS)
    })
    .await;
    let connected = start.elapsed();
    let pids = [kernel.pid()];
    let before = Usage::of(&pids);
    tokio::time::sleep(idle).await;
    let after = Usage::of(&pids);
    let children = Usage::of(&usage::below(kernel.pid()));
    let row = |what: &str, value| vec![what.into(), Cell::Number(value, 1)];
    let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
    let busy = (after.cpu - before.cpu).as_secs_f64() / idle.as_secs_f64();
    Table {
        title: "200 running servers",
        columns: &["measure", "value"],
        rows: vec![
            row("ms until the door answers", answers.as_secs_f64() * 1000.0),
            row(
                "ms until all are connected",
                connected.as_secs_f64() * 1000.0,
            ),
            row("RSS of the kernel, MiB", mib(after.resident)),
            row(
                "RSS of the kernel for each server, KiB",
                mib(after.resident) * 1024.0 / SERVERS as f64,
            ),
            row("RSS of the servers together, MiB", mib(children.resident)),
            row("CPU of the kernel while idle, % of a core", busy * 100.0),
        ],
    }
}
