//! `cargo xtask mutants`: mutation tests of the decision code (`docs/mutants.md`).

mod batch_table;
mod copy;
mod figures;
mod reasons;
mod results;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use clap::Args;

use self::batch_table::{Batch, Kind};
use self::figures::BatchResults;
use self::reasons::Reasons;
use self::results::Results;
use crate::step::is_installed;
use crate::{cargo_command, target_folder};

#[derive(Args)]
pub(crate) struct Options {
    /// Only list the batches.
    #[arg(long)]
    list: bool,
    /// Print the figures of earlier runs, and run nothing.
    #[arg(long, conflicts_with = "list")]
    figures: bool,
    /// Files or folders: the batches that they are in, or that are in them; all batches when none is named.
    paths: Vec<PathBuf>,
}

/// Exit codes of complete runs of cargo-mutants: all caught, some missed, some timed out.
const COMPLETE_EXIT_CODES: [i32; 3] = [0, 2, 3];
/// Its exit code if the tests fail without a mutant.
const BASELINE_FAILED: i32 = 4;

pub(crate) fn run(options: &Options) -> ExitCode {
    match try_run(options) {
        Ok(code) => code,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

fn try_run(options: &Options) -> Result<ExitCode, String> {
    let chosen = batch_table::select_batches(&options.paths)?;
    if options.list {
        chosen.iter().for_each(|batch| println!("{batch}"));
        return Ok(ExitCode::SUCCESS);
    }
    if !is_installed("cargo-mutants") {
        return Err("cargo-mutants is not installed. Run: cargo install cargo-mutants".to_owned());
    }
    let reasons = Reasons::load()?;
    let mut figures = BatchResults::default();
    for batch in chosen {
        let mutants = list_mutants(batch)?;
        let mut results = Results::load(&results_folder(batch))?;
        // Counting takes the reasons that it finds.
        let before = figures::count_batch(batch, &mutants, &results, &mut reasons.clone());
        if !options.figures && !before.is_complete() {
            println!("\n== {}: {} mutants", batch.name(), mutants.len());
            test_batch(batch)?;
            results = Results::load(&results_folder(batch))?;
        }
        figures.add(figures::count_batch(
            batch,
            &mutants,
            &results,
            &mut reasons.clone(),
        ));
    }
    print!("{figures}");
    Ok(ExitCode::from(u8::from(!figures.is_passed())))
}

/// The names of all mutants of a batch.
fn list_mutants(batch: &Batch) -> Result<Vec<String>, String> {
    let output = cargo_mutants_command(batch)
        .arg("--list")
        .output()
        .map_err(|error| format!("cargo mutants could not be started: {error}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!(
            "the mutants of {} are unknown: {why}",
            batch.name()
        ));
    }
    let names = String::from_utf8_lossy(&output.stdout);
    Ok(names.lines().map(str::to_owned).collect())
}

/// Tests all mutants that were not caught before. Each costs an incremental build and the tests of its batch.
fn test_batch(batch: &Batch) -> Result<(), String> {
    let folder = results_folder(batch);
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let copy = root().join("tree");
    copy::create_copy(&copy, batch.package_folder(), batch.module)?;
    let mut command = cargo_mutants_command(batch);
    command.current_dir(&copy).arg("--in-place");
    command.arg("--output").arg(&folder).arg("--iterate");
    command.arg("--cargo-arg=--lib");
    command.args(["--", "--"]).args(batch.tests);
    command.env("CARGO_TARGET_DIR", root().join("build"));
    command.envs([
        ("CARGO_INCREMENTAL", "1"),
        ("CARGO_PROFILE_DEV_DEBUG", "none"),
        // Else each mutant of an optimised package pays for one between its parts.
        ("CARGO_PROFILE_DEV_LTO", "off"),
    ]);
    let start = Instant::now();
    let ended = command.status();
    results::add_seconds(&folder, start.elapsed().as_secs())?;
    let ended = ended.map_err(|error| format!("cargo mutants could not be started: {error}"))?;
    match ended.code() {
        Some(code) if COMPLETE_EXIT_CODES.contains(&code) => Ok(()),
        Some(BASELINE_FAILED) => Err(format!(
            "the tests of {} fail without any mutant. Run: cargo test -p {} --lib",
            batch.name(),
            batch.package(),
        )),
        _ => Err(format!(
            "cargo mutants was stopped ({ended}). What it found is in {}; run the same command to go on",
            folder.display()
        )),
    }
}

fn cargo_mutants_command(batch: &Batch) -> Command {
    let mut command = cargo_command(&["mutants", "--package", batch.package()]);
    for file in batch.files() {
        command.arg("--file").arg(file);
    }
    for file in batch.excluded_files() {
        command.arg("--exclude").arg(file);
    }
    command
}

/// The results of a batch.
fn results_folder(batch: &Batch) -> PathBuf {
    root().join(batch.name().replace('/', "-"))
}

/// Absolute: cargo-mutants builds in another folder.
fn root() -> PathBuf {
    let root = target_folder().join("mutants");
    std::path::absolute(&root).unwrap_or(root)
}

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
