//! Chunks of streaming calls: through one stream, through many at once, and to a reader that sleeps.

use std::io;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use mgp_tests::harness::mgp::declaration;
use mgp_tests::harness::{Kernel, Program};
use mgp_tests::load::latency::Latencies;
use mgp_tests::load::{Cell, LineLoad, Table, Usage};

use super::Options;

/// Connections, calls at once on each, chunks of each call.
const RUNS: [(usize, usize, u64); 2] = [(1, 1, 100_000), (10, 100, 100)];

/// Calls that are timed to their first chunk.
const TIMED: u64 = 2000;

/// Chunks of 1 KiB to a reader that sleeps; their result has to fit into one message.
const UNREAD: u64 = 6 << 10;

/// One kernel and one server that streams, over lines of the kernel's own socket.
pub(crate) async fn table(options: &Options) -> Table {
    let less = if options.quick { 10 } else { 1 };
    let kernel = streaming().await;
    let mut rows = Vec::new();
    for (connections, calls, chunks) in RUNS {
        let run = run(&kernel, connections, calls, (chunks / less).max(10)).await;
        rows.push(run.expect("the kernel goes on"));
    }
    let timed = first_chunks(&kernel, TIMED / less).await;
    rows.extend(timed.expect("the kernel goes on"));
    let asleep = asleep(&streaming().await, UNREAD).await;
    rows.push(asleep.expect("the kernel goes on"));
    Table {
        title: "Streams of one server",
        columns: &[
            "what",
            "chunks/s",
            "delivered, %",
            "kernel µs a chunk",
            "p50 µs",
            "p99 µs",
            "RSS grew by, MiB",
        ],
        rows,
    }
}

async fn streaming() -> Kernel {
    let said = declaration(&["streaming"]).to_string();
    let entry = Program::fixture(&["--mgp", &said]).entry("it");
    let kernel = Kernel::start(&format!("{}\nmax_in_flight = 2000\n", entry.trim_end())).await;
    kernel.connected(&["it"]).await;
    kernel
}

/// A call that sends its chunks at once, and is answered so much later.
fn call(id: usize, chunks: u64, bytes: usize, then_ms: u64) -> String {
    let wait = match then_ms {
        0 => String::new(),
        ms => format!(r#",{{"ms":{ms}}}"#),
    };
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"it__stream","arguments":{{"steps":[{{"flood":{chunks},"bytes":{bytes}}}{wait}]}},"_mgp":{{"stream":true}}}}}}"#
    )
}

async fn run(
    kernel: &Kernel,
    connections: usize,
    calls: usize,
    chunks: u64,
) -> io::Result<Vec<Cell>> {
    let pids = [kernel.pid()];
    let mut all = Vec::new();
    for _ in 0..connections {
        all.push(LineLoad::open(&kernel.socket(), &["streaming"]).await?);
    }
    let before = Usage::of(&pids);
    let began = Instant::now();
    let loads = all.iter_mut().map(|one| stream(one, calls, chunks));
    let delivered: u64 = try_join_all(loads).await?.iter().sum();
    let took = began.elapsed();
    let after = Usage::of(&pids);
    let streams = connections * calls;
    let sent = streams as u64 * chunks;
    let cpu = (after.cpu - before.cpu).as_secs_f64() * 1e6;
    let mut row = vec![
        format!("{streams} streams of {chunks} chunks").into(),
        Cell::Number(delivered as f64 / took.as_secs_f64(), 0),
        Cell::Number(100.0 * delivered as f64 / sent as f64, 2),
        Cell::Number(cpu / sent as f64, 2),
    ];
    row.extend([Cell::Nothing, Cell::Nothing, grown(before, after)]);
    Ok(row)
}

/// Makes the calls at once; how many chunks came.
async fn stream(one: &mut LineLoad, calls: usize, chunks: u64) -> io::Result<u64> {
    for id in 0..calls {
        one.send(&call(id + 10, chunks, 32, 0)).await?;
    }
    let (mut answered, mut heard) = (0, 0);
    while answered < calls {
        let line = one.next().await?;
        if line.contains("notifications/mgp.stream.chunk") {
            heard += 1
        } else {
            answered += usize::from(line.contains("\"result\""))
        }
    }
    Ok(heard)
}

/// Time to the first chunk, beside the time to the answer of a call without any.
async fn first_chunks(kernel: &Kernel, calls: u64) -> io::Result<Vec<Vec<Cell>>> {
    let mut one = LineLoad::open(&kernel.socket(), &["streaming"]).await?;
    let mut rows = Vec::new();
    for (what, chunks, first) in [
        ("to the answer of a call without chunks", 0, "\"result\""),
        ("to the first chunk of a call", 1, "mgp.stream.chunk"),
    ] {
        let mut latencies = Latencies::default();
        for _ in 0..calls {
            let began = Instant::now();
            one.send(&call(7, chunks, 32, 0)).await?;
            one.until(first).await?;
            latencies.add(began.elapsed());
            if chunks > 0 {
                one.until("\"result\"").await?;
            }
        }
        let mut row = vec![what.into(), Cell::Nothing, Cell::Nothing, Cell::Nothing];
        row.extend([50.0, 99.0].map(|percent| Cell::Number(latencies.percentile(percent), 0)));
        row.push(Cell::Nothing);
        rows.push(row);
    }
    Ok(rows)
}

/// What the kernel holds for a reader that reads nothing, before there is an answer.
async fn asleep(kernel: &Kernel, chunks: u64) -> io::Result<Vec<Cell>> {
    let pids = [kernel.pid()];
    let mut one = LineLoad::open(&kernel.socket(), &["streaming"]).await?;
    let before = Usage::of(&pids);
    one.send(&call(9, chunks, 1024, 4000)).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let after = Usage::of(&pids);
    let mut row = vec![format!("{chunks} KiB to a reader that sleeps 2 s").into()];
    row.extend([
        Cell::Nothing,
        Cell::Nothing,
        Cell::Nothing,
        Cell::Nothing,
        Cell::Nothing,
    ]);
    row.push(grown(before, after));
    one.until("\"result\"").await?;
    Ok(row)
}

fn grown(before: Usage, after: Usage) -> Cell {
    Cell::Number(
        after.resident.saturating_sub(before.resident) as f64 / 1_048_576.0,
        1,
    )
}
