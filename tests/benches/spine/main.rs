//! What the kernel costs, beside a direct connection and beside a plain HTTP hop, in the same run.
//!
//! ```text
//! cargo build --release --workspace --bins
//! cargo bench -p mgp-tests --bench spine -- [calls] [modern] [guarded] [lists] [sessions] [startup] [crowd] [storm] [streams] [events] [mcpl] [hooks] [lite] [growth] [telemetry] [--quick]
//! cargo bench -p mgp-tests --bench spine -- soak [--time 2h]
//! ```
//!
//! Every part is bounded in calls and in time, and talks to nothing but the loopback.

mod calls;
mod crowd;
mod events;
mod growth;
mod guarded;
mod hooks;
mod lists;
mod lite;
mod mcpl;
mod sessions;
mod soak;
mod startup;
mod storm;
mod streams;
mod subject;

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use mgp_tests::harness::program::find;
use mgp_tests::load::{Bounds, Report, Table, Talk, machine};

/// What to measure, and how long.
#[derive(Debug, Parser)]
#[command(about = "What the kernel costs, beside a direct connection and beside nginx")]
struct Options {
    /// The parts to measure: calls, modern, guarded, lists, sessions, startup, crowd, storm, streams, events, mcpl, hooks, lite, growth, telemetry; all of these
    /// when none is named. And soak, only when it is named.
    parts: Vec<String>,
    /// A tenth of the calls, for a first look.
    #[arg(long)]
    quick: bool,
    /// How long the soak goes on, in hours (2h), minutes (20m) or seconds (90s).
    #[arg(long, value_name = "TIME", default_value = "20m", value_parser = time)]
    time: Duration,
    /// Leave the kernel out: only what it is compared with.
    #[arg(long)]
    without_kernel: bool,
    /// Write the figures there as JSON as well.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Given by `cargo bench`; means nothing here.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|p| p == part)
    }

    fn has_kernel(&self) -> bool {
        !self.without_kernel
    }

    /// So many calls and seconds, or a tenth and a fifth of them.
    fn bounds(&self, calls: u64, seconds: u64) -> Bounds {
        let (less, shorter) = if self.quick { (10, 5) } else { (1, 1) };
        Bounds {
            calls: calls / less,
            time: Duration::from_secs(seconds) / shorter,
        }
    }
}

fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.len().saturating_sub(1));
    let number: u64 = number
        .parse()
        .map_err(|_| "write 2h, 20m or 90s".to_owned())?;
    match unit {
        "h" => Ok(Duration::from_secs(3600 * number)),
        "m" => Ok(Duration::from_secs(60 * number)),
        "s" => Ok(Duration::from_secs(number)),
        _ => Err("write 2h, 20m or 90s".into()),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let options = Options::parse();
    let binaries: &[&str] = if options.has_kernel() {
        &["mgp", "mgp-fixture"]
    } else {
        &["mgp-fixture"]
    };
    for name in binaries {
        let missing = find(name).err().map(|path| path.display().to_string());
        if let Some(path) = missing {
            eprintln!("{path} is missing: `cargo build --release --workspace --bins` makes it");
            std::process::exit(2);
        }
    }
    let report = measure(&options).await;
    println!("{report}");
    if let Some(file) = &options.json {
        let text = format!("{:#}\n", report.to_json());
        std::fs::write(file, text).expect("the figures are written");
    }
}

async fn measure(options: &Options) -> Report {
    let mut report = Report {
        machine: machine::description(),
        tables: Vec::new(),
    };
    let mut add = |table: Table| report.tables.push(table);
    if options.wants("calls") {
        add(calls::table(options, Talk::Session).await);
    }
    if options.wants("lists") {
        add(lists::table(options, Talk::Session).await);
    }
    if options.wants("modern") {
        add(calls::table(options, Talk::Alone).await);
        add(lists::table(options, Talk::Alone).await);
    }
    if options.wants("guarded") && options.has_kernel() {
        add(guarded::table(options).await);
    }
    if options.wants("sessions") && options.has_kernel() {
        add(sessions::table(options).await);
    }
    if options.wants("startup") && options.has_kernel() {
        add(startup::table(options).await);
    }
    if options.wants("crowd") && options.has_kernel() {
        add(crowd::table(options).await);
    }
    if options.wants("storm") && options.has_kernel() {
        add(storm::table(options).await);
    }
    if options.wants("streams") && options.has_kernel() {
        add(streams::table(options).await);
    }
    if options.wants("events") && options.has_kernel() {
        add(events::table(options).await);
    }
    if options.wants("mcpl") && options.has_kernel() {
        add(mcpl::table(options).await);
    }
    if options.wants("hooks") && options.has_kernel() {
        add(hooks::table(options).await);
    }
    if options.wants("lite") && options.has_kernel() {
        add(lite::table(options).await);
        add(lite::streams(options).await);
    }
    if options.wants("growth") && options.has_kernel() {
        add(growth::table(options).await);
    }
    if options.wants("telemetry") && options.has_kernel() {
        add(calls::telemetry::table(options).await);
    }
    if options.parts.iter().any(|part| part == "soak") && options.has_kernel() {
        add(soak::table(options).await);
    }
    report
}
