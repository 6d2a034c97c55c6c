//! A day's mixed load for a long time, at a pace: what a kernel keeps of it.

use std::time::{Duration, Instant};

use mgp_tests::load::{Cell, Holding, Table, Turnover};
use tokio::time::{MissedTickBehavior, interval};

use super::Options;

/// Of each in one round.
const OF_EACH: usize = 3;

/// Calls of the one client, in one round.
const CALLS: usize = 40;

/// Between the beginnings of two rounds: the load leaves the machine idle for most of it.
const PACE: Duration = Duration::from_secs(3);

/// How often what the kernel holds is shown: the first quarter is the first five.
const LOOKS: usize = 20;

/// Rounds until the time is over. What is shown is the median of what was held after each round since the line
/// before, and the drift is from the end of the first quarter to the end.
pub(crate) async fn table(options: &Options) -> Table {
    let turnover = Turnover::begin().await;
    let (start, mut rounds) = (Instant::now(), 0);
    let mut pace = interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut looks: Vec<Holding> = Vec::new();
    let mut rows = Vec::new();
    for look in 1..=LOOKS {
        let until = start + options.time * look as u32 / LOOKS as u32;
        let mut held = Vec::new();
        while held.is_empty() || Instant::now() < until {
            pace.tick().await;
            turnover.round(OF_EACH).await;
            turnover.day(CALLS).await;
            held.push(Holding::of(turnover.pid()));
            rounds += 1;
        }
        let median = median(&held);
        rows.push(row(start.elapsed(), rounds, &median));
        looks.push(median);
    }
    let (quarter, last) = (&looks[LOOKS / 4 - 1], &looks[LOOKS - 1]);
    let grown = last.resident as f64 - quarter.resident as f64;
    rows.push(vec![
        "since the first quarter (RSS in %)".into(),
        Cell::Nothing,
        Cell::Number(100.0 * grown / quarter.resident as f64, 1),
        Cell::Number(last.descriptors as f64 - quarter.descriptors as f64, 0),
        Cell::Number(last.threads as f64 - quarter.threads as f64, 0),
    ]);
    Table {
        title: "Soak: every 3 s come and go 3 sessions with 500 KiB each, 3 connections, 3 listeners and 2 servers, \
                one of which crashes; 40 calls, a list, a search, a refusal and a look at the audit log",
        columns: &["minutes", "rounds", "RSS MiB", "descriptors", "threads"],
        rows,
    }
}

/// Of each figure by itself.
fn median(held: &[Holding]) -> Holding {
    let middle = |figure: fn(&Holding) -> u64| {
        let mut each: Vec<u64> = held.iter().map(figure).collect();
        each.sort_unstable();
        each[each.len() / 2]
    };
    Holding {
        resident: middle(|held| held.resident),
        descriptors: middle(|held| held.descriptors),
        threads: middle(|held| held.threads),
    }
}

/// Shown as it goes, for whoever waits.
fn row(at: Duration, rounds: u32, held: &Holding) -> Vec<Cell> {
    let minutes = at.as_secs_f64() / 60.0;
    eprintln!("{minutes:.1} min, {rounds} rounds: {held:?}");
    vec![
        Cell::Number(minutes, 1),
        Cell::Number(f64::from(rounds), 0),
        Cell::Number(held.resident as f64 / 1_048_576.0, 1),
        Cell::Number(held.descriptors as f64, 0),
        Cell::Number(held.threads as f64, 0),
    ]
}
