//! Sessions, connections, listeners and servers that come and go for a long time: what a kernel keeps of
//! them.

use std::time::{Duration, Instant};

use mgp_tests::load::{Cell, Holding, Table, Turnover};

use super::Options;

/// Of each in one round.
const OF_EACH: usize = 50;

/// How often what the kernel holds is looked at.
const LOOKS: u32 = 20;

/// Rounds before the clock starts: buffers, caches and threads come to their size.
const WARM_UP: usize = 2;

/// Rounds until the time is over.
pub(crate) async fn table(options: &Options) -> Table {
    let (time, turnover) = (options.time, Turnover::begin().await);
    for _ in 0..WARM_UP {
        turnover.round(OF_EACH).await;
    }
    let (start, mut rounds) = (Instant::now(), 0);
    let first = Holding::of(turnover.pid());
    let mut rows = vec![row(Duration::ZERO, 0, first)];
    for look in 1..=LOOKS {
        let until = start + time / LOOKS * look;
        while Instant::now() < until {
            turnover.round(OF_EACH).await;
            rounds += 1;
        }
        rows.push(row(start.elapsed(), rounds, Holding::of(turnover.pid())));
    }
    let last = Holding::of(turnover.pid());
    let minutes = start.elapsed().as_secs_f64() / 60.0;
    let grown = last.resident as f64 - first.resident as f64;
    rows.push(vec![
        "growth a minute".into(),
        Cell::Nothing,
        Cell::Number(mib(grown) / minutes, 3),
        Cell::Number(last.descriptors as f64 - first.descriptors as f64, 0),
        Cell::Number(last.threads as f64 - first.threads as f64, 0),
    ]);
    Table {
        title: "Soak: 50 sessions with 500 KiB each, 50 connections, 50 listeners and 3 servers come and go in a round",
        columns: &["minutes", "rounds", "RSS MiB", "descriptors", "threads"],
        rows,
    }
}

/// Told as it goes, for whoever waits.
fn row(at: Duration, rounds: u32, held: Holding) -> Vec<Cell> {
    let minutes = at.as_secs_f64() / 60.0;
    eprintln!("{minutes:.1} min, {rounds} rounds: {held:?}");
    vec![
        Cell::Number(minutes, 1),
        Cell::Number(f64::from(rounds), 0),
        Cell::Number(mib(held.resident as f64), 1),
        Cell::Number(held.descriptors as f64, 0),
        Cell::Number(held.threads as f64, 0),
    ]
}

fn mib(bytes: f64) -> f64 {
    bytes / 1_048_576.0
}
