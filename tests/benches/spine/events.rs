//! Events of one server to many subscribers.

use std::io;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use mgp_tests::harness::mgp::declaration;
use mgp_tests::harness::{Kernel, Program};
use mgp_tests::load::{Cell, LineLoad, Table, Usage};
use tokio::time::timeout;

use super::Options;

/// Subscribers, and events a second: a server may tell 2,000, and 100,000 deliveries a second are the aim.
const RUNS: [(usize, u64); 3] = [(1, 2000), (100, 1000), (1000, 100)];

/// How long the server goes on telling, in seconds.
const SECONDS: u64 = 5;

/// After the last event was due.
const PATIENCE: Duration = Duration::from_secs(10);

/// One kernel, one server with one channel, all subscribers on lines of the kernel's own socket.
pub(crate) async fn table(options: &Options) -> Table {
    let seconds = if options.quick { 1 } else { SECONDS };
    let mut rows = Vec::new();
    for (subscribers, rate) in RUNS {
        let run = run(subscribers, rate, seconds).await;
        rows.push(run.expect("the kernel goes on"));
    }
    Table {
        title: "Events of one server",
        columns: &[
            "subscribers",
            "events/s told",
            "deliveries/s",
            "delivered, %",
            "kernel µs a delivery",
            "RSS grew by, KiB a subscriber",
        ],
        rows,
    }
}

async fn run(subscribers: usize, rate: u64, seconds: u64) -> io::Result<Vec<Cell>> {
    let said = declaration(&["events"]).to_string();
    let flags = ["--mgp", &said, "--mgp-events", "model.token_usage"];
    let kernel = Kernel::start(&Program::fixture(&flags).entry("it")).await;
    kernel.connected(&["it"]).await;
    let pids = [kernel.pid()];
    let mut source = LineLoad::open(&kernel.socket(), &[]).await?;
    let empty = Usage::of(&pids);
    let mut all = Vec::new();
    for _ in 0..subscribers {
        let mut one = LineLoad::open(&kernel.socket(), &["events"]).await?;
        one.send(r#"{"jsonrpc":"2.0","id":2,"method":"mgp/events/subscribe","params":{"channels":["model.token_usage"]}}"#)
            .await?;
        one.until("subscription_id").await?;
        all.push(one);
    }
    let before = Usage::of(&pids);
    let times = rate * seconds;
    let tell = format!(
        r#"{{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{{"name":"it__tell","arguments":{{"channel":"model.token_usage","times":{times},"per_second":{rate}}}}}}}"#
    );
    let began = Instant::now();
    source.send(&tell).await?;
    let readers = all.iter_mut().map(|one| heard(one, times, seconds));
    let heard = try_join_all(readers).await?;
    let took = began.elapsed();
    let after = Usage::of(&pids);
    let delivered: u64 = heard.iter().sum();
    let cpu = (after.cpu - before.cpu).as_secs_f64() * 1e6;
    let grew = after.resident.saturating_sub(empty.resident) as f64 / 1024.0;
    Ok(vec![
        Cell::Number(subscribers as f64, 0),
        Cell::Number(rate as f64, 0),
        Cell::Number(delivered as f64 / took.as_secs_f64(), 0),
        Cell::Number(
            100.0 * delivered as f64 / (times * subscribers as u64) as f64,
            2,
        ),
        Cell::Number(cpu / delivered as f64, 2),
        Cell::Number(grew / subscribers as f64, 1),
    ])
}

/// How many events of `times` came.
async fn heard(one: &mut LineLoad, times: u64, seconds: u64) -> io::Result<u64> {
    let mut heard = 0;
    let reading = async {
        while heard < times {
            heard += u64::from(one.next().await?.contains("notifications/mgp.event"));
        }
        Ok(())
    };
    match timeout(Duration::from_secs(seconds) + PATIENCE, reading).await {
        Ok(read) => read.map(|()| heard),
        Err(_) => Ok(heard),
    }
}
