//! From nothing to the first answer.

use std::time::{Duration, Instant};

use mgp_tests::harness::{Kernel, Program};
use mgp_tests::load::{Cell, HttpLoad, Request, Table, Talk};

use super::Options;

/// How often it is started; the median counts.
const STARTS: usize = 15;

/// The kernel with one server over stdio.
pub(crate) async fn table(options: &Options) -> Table {
    let starts = if options.quick { 5 } else { STARTS };
    let (mut opened, mut called) = (Vec::new(), Vec::new());
    for _ in 0..starts {
        let [open, call] = start().await;
        opened.push(open);
        called.push(call);
    }
    let row = |what: &str, times| vec![what.into(), median(times)];
    Table {
        title: "Start-up",
        columns: &["from the start of the process to", "median ms"],
        rows: vec![
            row("the first answered request (initialize)", opened),
            row("the first answered call of a server's tool", called),
        ],
    }
}

async fn start() -> [Duration; 2] {
    let start = Instant::now();
    let kernel = Kernel::start(&Program::fixture(&[]).entry("pipe")).await;
    let url = kernel.server_url("pipe");
    let mut load = HttpLoad::open(&url, 1, Talk::Session)
        .await
        .expect("a session");
    let opened = start.elapsed();
    let answer = load.once(&Request::echo(Talk::Session, 32)).await;
    let answer = answer.expect("an answer");
    assert!(answer.contains("\"result\""), "{answer}");
    [opened, start.elapsed()]
}

fn median(mut times: Vec<Duration>) -> Cell {
    times.sort_unstable();
    Cell::Number(times[times.len() / 2].as_secs_f64() * 1000.0, 1)
}
