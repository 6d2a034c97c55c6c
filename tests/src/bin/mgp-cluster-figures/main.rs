//! The figures of a cluster: real kernels, each on a machine of its own in a network that nothing outside it
//! sees. `cargo xtask cluster-test` builds what it needs and starts it.
//!
//! Everything is in namespaces of its own, processes too: whatever becomes of this program, nothing outlives it.
//! Every wait has a bound, and every part ends when its time is over.

mod announcement;
mod calls;
mod crowd;
mod deaths;
mod graceful_stop;
mod isolation;
mod lossy_links;
mod node;
mod owner_restart;
mod partitions;
mod questions;
mod regrants;
mod relay;
mod share_and_revoke;
mod steadiness;
mod three_nodes;
mod times;

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use futures_util::FutureExt;
use mgp_tests::harness::program::find;
use mgp_tests::load::{Report, Table, machine};

use crate::times::{MISSED, NOT_RUN};

/// How it ends where nothing could be run, as test programs of other projects do.
const SKIPPED: u8 = 77;
/// Longest that any part may take, so that one that does not end by itself stops no other: what the longest one, the
/// crowd, gives itself for starting, joining and copying.
const LONGEST: Duration = Duration::from_secs(15 * 60);

/// The parts, in the order in which they run.
const PARTS: &[&str] = &[
    "standing",
    "deaths",
    "partitions",
    "graceful-stop",
    "regrant",
    "elicitation",
    "rough",
    "steady",
    "relay",
    "crowd",
    "calls",
    "owner-restart",
    "lan",
];

/// What to measure.
#[derive(Debug, Parser)]
#[command(about = "What a cluster of real kernels takes, beside what it may take")]
struct Options {
    /// The parts to measure; all of them when none is named.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(PARTS))]
    parts: Vec<String>,
    /// A tenth of the rounds, and eight nodes in the place of 32.
    #[arg(long)]
    quick: bool,
    /// Write the figures there as JSON as well.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Already in namespaces of its own.
    #[arg(long, hide = true)]
    inside: bool,
}

impl Options {
    fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|p| p == part)
    }

    /// So many rounds, or a tenth of them.
    fn rounds(&self, rounds: usize) -> usize {
        if self.quick {
            rounds.div_ceil(10)
        } else {
            rounds
        }
    }

    /// So long, or a sixth of it.
    fn time(&self, seconds: u64) -> Duration {
        Duration::from_secs(if self.quick { seconds / 6 } else { seconds })
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    if !options.inside {
        return isolation::enter();
    }
    for name in ["mgp", "mgp-fixture"] {
        if let Err(path) = find(name) {
            let path = path.display();
            eprintln!("{path} is missing: `cargo build --release --workspace --bins` makes it");
            return ExitCode::from(2);
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime starts");
    let (report, broken) = runtime.block_on(measure(&options));
    println!("{report}");
    if let Some(file) = &options.json {
        let text = format!("{:#}\n", report.to_json());
        std::fs::write(file, text).expect("the figures are written");
    }
    told(&report, &broken)
}

/// What was missed and what broke, once more at the end, and the code for it.
fn told(report: &Report, broken: &[&str]) -> ExitCode {
    let rows = report
        .tables
        .iter()
        .flat_map(|table| table.rows.iter().map(move |row| (table.title, row)));
    let (mut missed, mut not_run) = (0, 0);
    for (title, row) in rows {
        let verdict = row.last().map(ToString::to_string).unwrap_or_default();
        let what = row.first().map(ToString::to_string).unwrap_or_default();
        if verdict == MISSED {
            missed += 1;
            println!("MISSED: {title}: {what}");
        } else if let Some(why) = verdict.strip_prefix(NOT_RUN) {
            not_run += 1;
            println!("NOT RUN: {title}: {what}{why}");
        }
    }
    for part in broken {
        println!("BROKEN: {part}");
    }
    println!(
        "{missed} bounds missed, {} parts broken, {not_run} not run",
        broken.len()
    );
    ExitCode::from(u8::from(missed > 0 || !broken.is_empty()))
}

async fn measure(options: &Options) -> (Report, Vec<&'static str>) {
    let mut report = Report {
        machine: machine::description(),
        tables: Vec::new(),
    };
    let mut broken = Vec::new();
    for part in PARTS.iter().copied().filter(|part| options.wants(part)) {
        let begun = Instant::now();
        eprintln!("== {part}");
        let measured = AssertUnwindSafe(part_of(part, options)).catch_unwind();
        match tokio::time::timeout(LONGEST, measured).await {
            Ok(Ok(table)) => {
                eprintln!("{table}");
                report.tables.push(table);
            }
            Ok(Err(_)) => {
                eprintln!("{part} broke, see above");
                broken.push(part);
            }
            Err(_) => {
                eprintln!("{part} was not done in {LONGEST:?}");
                broken.push(part);
            }
        }
        eprintln!("== {part} took {:?}", begun.elapsed());
    }
    (report, broken)
}

async fn part_of(part: &str, options: &Options) -> Table {
    match part {
        "standing" => Box::pin(share_and_revoke::table(options)).await,
        "deaths" => Box::pin(deaths::table(options)).await,
        "partitions" => Box::pin(partitions::table(options)).await,
        "graceful-stop" => Box::pin(graceful_stop::table(options)).await,
        "regrant" => Box::pin(regrants::table(options)).await,
        "elicitation" => Box::pin(questions::table(options)).await,
        "rough" => Box::pin(lossy_links::table(options)).await,
        "steady" => Box::pin(steadiness::table(options)).await,
        "relay" => Box::pin(relay::table(options)).await,
        "crowd" => Box::pin(crowd::table(options)).await,
        "calls" => Box::pin(calls::table(options)).await,
        "owner-restart" => Box::pin(owner_restart::table(options)).await,
        _ => Box::pin(announcement::table()).await,
    }
}
