//! The chores of this workspace. `cargo xtask test` is the one gate: what it says is what is true.

mod failures;
mod package;
mod rows;
mod step;
mod summary;
mod tally;
mod tee;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::{Parser, Subcommand};

use step::Step;
use summary::Summary;

#[derive(Parser)]
#[command(about = "The chores of this workspace")]
struct Options {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Run everything that can run here, and say plainly what could not run and why.
    Test {
        /// Leave out third-party servers and clients, the conformance suite and the model checks.
        #[arg(long)]
        quick: bool,
    },
    /// Play many nodes of one cluster over a bad network, many times; a seed that fails is printed.
    Simulate {
        /// How many runs.
        #[arg(long, default_value_t = 1_000_000)]
        seeds: u64,
    },
    /// Measure a cluster of real kernels, each in a network namespace of its own, and print the figures beside
    /// what they may be: some twenty minutes, and two with --quick.
    ///
    /// Exits with 1 when a bound was missed, and with 77 when nothing could be run here.
    ClusterTest {
        /// Given on: `--quick`, `--json FILE`, or the parts to measure; `--help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        given: Vec<OsString>,
    },
    /// Connect the real Claude Code, Gemini CLI and Codex to a kernel, and take over what they had: two minutes, with
    /// some 700 MB of programs in the user's cache.
    ClientTest,
    /// Install the third-party servers and clients of the suites into the user's cache.
    Peers,
    /// Make what is handed to people, in the folder `package` of the target folder.
    Package {
        #[command(subcommand)]
        what: package::Packaged,
    },
    /// List the requirement rows of docs/requirements that no test names in its doc line.
    ///
    /// Exits with 1 when there are any.
    Rows {
        /// Print every row, with its tests, as JSON.
        #[arg(long)]
        json: bool,
    },
}

/// The profile of what plays and checks many courses.
const CHECKS: &str = "checks";
const SIMULATOR: &str = "simulator";
/// Runs of the simulator in the gate: as many as two cores play in one or two minutes.
const SEEDS: u64 = 5_000;
/// Steps of which it plays every course that a few nodes can take: one more takes three times as long.
const STEPS: u64 = 5;
const PEERS: &str = "third-party servers and clients";

fn main() -> ExitCode {
    match Options::parse().chore {
        Chore::Test { quick } => run(steps(quick)),
        Chore::Simulate { seeds } => run(vec![Step::new(SIMULATOR, simulator(seeds)).counted()]),
        Chore::ClusterTest { given } => cluster_test(&given),
        Chore::ClientTest => run(vec![
            Step::new("binaries", cargo(&["build", "--workspace", "--bins"])),
            Step::new("programs of clients", bin_of_tests("mgp-client-programs")),
        ]),
        Chore::Peers => run(vec![Step::new(PEERS, install())]),
        Chore::Package { what } => package::package(&what),
        Chore::Rows { json } => rows::list(json),
    }
}

fn run(steps: Vec<Step>) -> ExitCode {
    let mut summary = Summary::default();
    steps.into_iter().for_each(|step| summary.add(step.run()));
    print!("{summary}");
    ExitCode::from(u8::from(!summary.passed()))
}

/// Everything in its order: what is quick to say no comes first.
fn steps(quick: bool) -> Vec<Step> {
    let left_out = |step: Step| match quick {
        true => step.left_out("left out by --quick"),
        false => step,
    };
    vec![
        Step::new("format", cargo(&["fmt", "--all", "--check"])),
        Step::new(
            "lints",
            cargo(&["clippy", "--workspace", "--all-targets", "--", "-Dwarnings"]),
        ),
        Step::new("licences and advisories", cargo(&["deny", "check"])).needs("cargo-deny"),
        Step::new("binaries", cargo(&["build", "--workspace", "--bins"])),
        left_out(Step::new(PEERS, install()).optional()),
        Step::new("tests", tests(quick)).counted().again(alone),
        left_out(Step::new(SIMULATOR, simulator(SEEDS)).counted()),
        left_out(Step::new("model checks", model_checks()).counted()),
        Step::new(
            "requirement rows",
            cargo(&["run", "--quiet", "-p", "xtask", "--", "rows"]),
        ),
    ]
}

/// Says itself what it could not install.
fn install() -> Command {
    bin_of_tests("mgp-peers")
}

fn bin_of_tests(name: &str) -> Command {
    cargo(&["run", "--quiet", "-p", "mgp-tests", "--bin", name])
}

fn tests(quick: bool) -> Command {
    let mut tests = cargo(&["test", "--workspace", "--no-fail-fast"]);
    if quick {
        tests.env("MGP_WITHOUT_PEERS", "1");
    }
    tests
}

fn alone(names: &[&str]) -> Command {
    let mut tests = cargo(&["test", "--workspace", "--no-fail-fast", "--", "--exact"]);
    tests.args(names);
    tests
}

/// In a target folder of their own: other flags would make the everyday one cold.
fn model_checks() -> Command {
    let mut checks = cargo(&[
        "test",
        "-p",
        "mgp-sync",
        "--profile",
        CHECKS,
        "--no-fail-fast",
        "--target-dir",
    ]);
    checks.arg(target().join("loom"));
    checks.env("RUSTFLAGS", "--cfg mgp_loom");
    checks
}

/// Built with optimisations: it spends its time in what it simulates.
fn simulator(seeds: u64) -> Command {
    let engine = ["test", "-p", "mgp-engine", "--test", "sim", "--profile"];
    let mut simulator = cargo(&[&engine[..], &[CHECKS, "--", "--nocapture"]].concat());
    simulator.env("MGP_SIM_SEEDS", seeds.to_string());
    simulator.env("MGP_SIM_STEPS", STEPS.to_string());
    simulator
}

/// With the kernel as it is given to people. The program that measures ends with its own code.
fn cluster_test(given: &[OsString]) -> ExitCode {
    let built = cargo(&["build", "--release", "--workspace", "--bins"]).status();
    if !built.is_ok_and(|status| status.success()) {
        return ExitCode::FAILURE;
    }
    let figures = target().join("release").join("mgp-cluster-figures");
    let code = match Command::new(&figures).args(given).status() {
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()),
        Err(error) => {
            println!("{}: {error}", figures.display());
            None
        }
    };
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Where what is built lies.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}

fn cargo(args: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(args);
    command
}
