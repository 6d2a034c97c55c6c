//! Tasks of this workspace. `cargo xtask test` is the gate: its result decides.

mod dist;
mod failures;
mod fuzz;
mod mutants;
mod requirement_rows;
mod step;
mod summary;
mod tally;
mod tee;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::thread::{self, ScopedJoinHandle};

use clap::{Parser, Subcommand};

use step::Step;
use summary::Summary;

#[derive(Parser)]
#[command(about = "The chores of this workspace")]
struct Options {
    #[command(subcommand)]
    chore: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run all tests that can run here, and report what could not run and why.
    Test {
        /// Leave out third-party servers and clients, the conformance suite and the model checks.
        #[arg(long)]
        quick: bool,
    },
    /// Simulate many nodes of one cluster over a bad network, many times; a failing seed is printed. The gate
    /// plays 40 seeds.
    Simulate {
        /// How many runs.
        #[arg(long, default_value_t = 1_000_000)]
        seeds: u64,
    },
    /// Upgrade a kernel many times under load: no call may be lost or made twice.
    UpgradeTest {
        /// How many times.
        #[arg(long, default_value_t = 200)]
        times: u32,
    },
    /// Measure a cluster of real kernels, each in its own network namespace, and print the results with their bounds:
    /// about twenty minutes, or two with --quick.
    ///
    /// Exits with 1 if a bound was missed, and with 77 if nothing could be run here.
    ClusterTest {
        /// Given on: `--quick`, `--json FILE`, or the parts to measure; `--help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        given: Vec<OsString>,
    },
    /// Measure the program's size, its idle memory and the instructions of a call (with valgrind), and compare them with
    /// tests/src/bin/mgp-footprint/expected.txt: two minutes after a release build.
    ///
    /// Exits with 1 when a figure has grown by more than 3 %.
    Footprint,
    /// Run the suites agents, servers, faults, mgp and cluster with the implementation for other systems than Linux, and
    /// the unit tests of it.
    ///
    /// The programs in the target folder are those of that implementation until the next build.
    PortableTest,
    /// Fuzz the parsers of foreign input: each target for a minute, or for the given time.
    ///
    /// Requires nightly Rust and cargo-fuzz. Earlier findings are run first; a failing input is stored in
    /// tests/fuzz/artifacts.
    Fuzz {
        /// How long each target, in seconds.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Which targets; all of tests/fuzz/targets when none is named.
        targets: Vec<String>,
    },
    /// Mutate engine, screening, protocol and mcpl, and check that a test notices each mutant.
    ///
    /// Requires cargo-mutants, and about ten seconds for each mutant. A caught mutant is not tested again; results are
    /// in the folder `mutants` of the target folder. Exits with 1 if a mutant of a decision has neither a test nor a
    /// reason (xtask/src/mutants/reasons.txt).
    Mutants(mutants::Options),
    /// Connect the real Claude Code, Gemini CLI and Codex to a kernel, and import their servers: two minutes, with
    /// some 700 MB of programs in the user's cache.
    ClientTest,
    /// Generate clients from the OpenAPI document of a kernel, and test the HTTP endpoint with them: two minutes, with
    /// some 300 MB of programs in the user's cache.
    OpenapiTest,
    /// Run the examples of the guides with the newest Python SDKs that pip finds, of 1.x and of all: the gate uses
    /// pinned ones.
    SdkTest,
    /// Install the third-party servers and clients of the suites into the user's cache.
    Peers,
    /// Build everything of a release in the folder `dist` of the target folder: archive, packages, image, recipes, bill of
    /// materials, provenance and checksums.
    Dist(dist::Options),
    /// List the requirement rows of docs/requirements that no test names in its doc line.
    ///
    /// Exits with 1 if there are any.
    Rows {
        /// Print every row, with its tests, as JSON.
        #[arg(long)]
        json: bool,
    },
}

/// The optimised profile of simulations and model checks.
const CHECKS: &str = "checks";
const SIMULATOR: &str = "simulator";
/// Steps up to which all interleavings of a few nodes are checked: one more takes three times as long.
const STEPS: u64 = 5;
const PEERS: &str = "third-party servers and clients";

fn main() -> ExitCode {
    match Options::parse().chore {
        Task::Test { quick } => run_groups(steps(quick)),
        Task::Simulate { seeds } => {
            run([Step::new(SIMULATOR, simulator_command(seeds)).with_test_count()])
        }
        Task::UpgradeTest { times } => run([build_binaries(), upgrade_step(times)]),
        Task::ClusterTest { given } => run_release_program("mgp-cluster-figures", &given),
        Task::Footprint => run_release_program("mgp-footprint", &[]),
        Task::PortableTest => portable_test(),
        Task::Fuzz { seconds, targets } => match fuzz::steps(&targets, seconds) {
            Ok(steps) => run(steps),
            Err(why) => {
                eprintln!("{why}");
                ExitCode::from(2)
            }
        },
        Task::Mutants(options) => mutants::run(&options),
        Task::ClientTest => run([
            build_binaries(),
            Step::new("programs of clients", built_program("mgp-client-programs")),
        ]),
        Task::OpenapiTest => run([
            build_binaries(),
            Step::new(
                "clients of the document",
                built_program("mgp-openapi-clients"),
            ),
        ]),
        Task::SdkTest => sdk_test(),
        Task::Peers => run([build_binaries(), Step::new(PEERS, install_peers())]),
        Task::Dist(options) => dist::dist(&options),
        Task::Rows { json } => requirement_rows::list(json),
    }
}

fn run(steps: impl IntoIterator<Item = Step>) -> ExitCode {
    run_groups(steps.into_iter().map(|step| vec![step]).collect())
}

/// Runs the steps of a group concurrently, one group after the other.
fn run_groups(groups: Vec<Vec<Step>>) -> ExitCode {
    let mut summary = Summary::default();
    for group in groups {
        let outcomes = thread::scope(|scope| {
            let running: Vec<_> = group
                .into_iter()
                .map(|step| scope.spawn(|| step.run()))
                .collect();
            let ended = running.into_iter().map(ScopedJoinHandle::join);
            ended.collect::<Result<Vec<_>, _>>()
        });
        let outcomes = outcomes.expect("a step ends without a panic");
        outcomes
            .into_iter()
            .for_each(|outcome| summary.add(outcome));
    }
    print!("{summary}");
    ExitCode::from(u8::from(!summary.is_success()))
}

/// All steps in order: fast failures come first, and steps that wait for the network run next to those that need the
/// processor.
fn steps(quick: bool) -> Vec<Vec<Step>> {
    let left_out = |step: Step| {
        if quick {
            step.with_skip_reason("left out by --quick")
        } else {
            step
        }
    };
    vec![
        vec![Step::new(
            "format",
            cargo_command(&["fmt", "--all", "--check"]),
        )],
        vec![Step::new(
            "lints",
            cargo_command(&["clippy", "--workspace", "--all-targets", "--", "-Dwarnings"]),
        )],
        vec![Step::new(
            "types on other systems",
            cargo_command(&["check", "-p", "mgp-platform", "--features", "portable"]),
        )],
        vec![
            Step::new("licences and advisories", cargo_command(&["deny", "check"]))
                .with_required_program("cargo-deny"),
        ],
        vec![build_programs()],
        vec![
            left_out(Step::new(PEERS, install_peers()).into_optional()),
            left_out(Step::new(
                "model check programs",
                build_only(model_check_command()),
            )),
        ],
        // Tests mostly wait for processes and clocks, and the others use the remaining CPU time.
        vec![
            Step::new("tests", test_command(quick))
                .with_test_count()
                .with_rerun(test_command_for),
            left_out(
                Step::new("model checks", with_low_priority(&model_check_command()))
                    .with_test_count(),
            ),
            left_out(Step::new("release artefacts", release_command())),
        ],
        vec![Step::new("requirement rows", rows_command())],
    ]
}

/// Reports itself what it could not install.
fn install_peers() -> Command {
    built_program("mgp-peers")
}

/// The tests that run Python examples of docs/.
const EXAMPLES: [&str; 3] = ["story::", "registering::", "streaming::"];

/// Uses the SDKs that `mgp-peers` installs, instead of the pinned ones.
fn sdk_test() -> ExitCode {
    let built = cargo_command(&["build", "--workspace", "--bins"]).status();
    if !built.is_ok_and(|status| status.success()) {
        return ExitCode::FAILURE;
    }
    let peers = run([Step::new(PEERS, install_peers())]);
    let installed = built_program("mgp-peers")
        .arg("--newest")
        .stderr(std::process::Stdio::inherit())
        .output();
    let folder = match installed {
        Ok(output) if output.status.success() && peers == ExitCode::SUCCESS => output.stdout,
        _ => return ExitCode::FAILURE,
    };
    let suites = [
        "test",
        "--workspace",
        "--test",
        "mcpl",
        "--test",
        "agents",
        "--",
    ];
    let mut examples = cargo_command(&[&suites[..], &EXAMPLES].concat());
    let folder = String::from_utf8_lossy(&folder);
    examples
        .env("MGP_NEWEST_SDKS", folder.trim())
        .env("CI", "true");
    run([Step::new("examples with the newest SDKs", examples).with_test_count()])
}

fn upgrade_step(times: u32) -> Step {
    let suite = ["test", "--workspace", "--test", "faults", "--"];
    let filter = ["upgrades_under_load", "--nocapture"];
    let mut test = cargo_command(&[&suite[..], &filter].concat());
    test.env("MGP_UPGRADES", times.to_string());
    Step::new("upgrades", test).with_test_count()
}

fn build_binaries() -> Step {
    Step::new(
        "binaries",
        cargo_command(&["build", "--workspace", "--bins"]),
    )
}

/// Builds all tests and programs at once: dev-dependencies enable more features of libraries, and programs built before
/// them would compile nearly every library twice.
fn build_programs() -> Step {
    let build = ["build", "--workspace", "--bins", "--tests"];
    Step::new("programs and tests", cargo_command(&build))
}

/// Builds the POSIX side of the platform crate on Linux; no other package has this feature, so that dependencies are
/// not built again.
const PORTABLE: [&str; 2] = ["--features", "mgp-platform/portable"];
/// The suites that run with it: those that start servers, kill them, and connect nodes.
const PORTABLE_SUITES: [&str; 5] = ["agents", "servers", "faults", "mgp", "cluster"];

fn portable_test() -> ExitCode {
    let build = ["build", "--workspace", "--bins", "--tests"];
    let build = cargo_command(&[&build[..], &PORTABLE].concat());
    let suites = PORTABLE_SUITES.iter().flat_map(|suite| ["--test", suite]);
    let suites: Vec<_> = suites.collect();
    let test = ["test", "--workspace", "--no-fail-fast"];
    let mut tests = cargo_command(&[&test[..], &PORTABLE, &suites].concat());
    tests.env("RUST_TEST_THREADS", test_threads().to_string());
    let unit = ["test", "-p", "mgp-platform", "--features", "portable"];
    run([
        Step::new("portable programs and tests", build),
        Step::new("unit tests of the platform", cargo_command(&unit)).with_test_count(),
        Step::new("portable suites", tests).with_test_count(),
    ])
}

/// A program built with the whole workspace: building it alone would select other features, and rebuild its
/// dependencies.
fn built_program(name: &str) -> Command {
    Command::new(target_folder().join("debug").join(name))
}

/// Makes everything of a release from the programs of the tests, installs and uses it.
fn release_command() -> Command {
    let mut dist = with_low_priority(&built_program("xtask"));
    dist.args(["dist", "--profile", "dev", "--check"]);
    dist
}

/// A separate process, like every step.
fn rows_command() -> Command {
    let mut rows = built_program("xtask");
    rows.arg("rows");
    rows
}

fn test_command(quick: bool) -> Command {
    // Comments contain no doc tests, and looking for them takes a minute.
    let mut tests = cargo_command(&["test", "--workspace", "--tests", "--no-fail-fast"]);
    tests.env("RUST_TEST_THREADS", test_threads().to_string());
    if quick {
        tests.env("MGP_WITHOUT_PEERS", "1");
    }
    tests
}

/// Concurrent tests of a program: most wait half of their time for processes and clocks. With twice as many as cores,
/// some miss their deadlines.
fn test_threads() -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    cores + cores.div_ceil(2)
}

/// The same, without running it.
fn build_only(tests: Command) -> Command {
    let own = |argument: &&OsStr| *argument != "--";
    let mut build = Command::new(tests.get_program());
    build
        .args(tests.get_args().take_while(own))
        .args(["--no-run", "--quiet"]);
    build.envs(command_variables(&tests));
    build
}

/// The same with low priority.
fn with_low_priority(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(command.get_program());
    nice.args(command.get_args())
        .envs(command_variables(command));
    nice
}

/// The environment variables set for a command.
fn command_variables(command: &Command) -> impl Iterator<Item = (&OsStr, &OsStr)> {
    let all = command.get_envs();
    all.filter_map(|(name, value)| Some((name, value?)))
}

fn test_command_for(names: &[&str]) -> Command {
    let mut tests = cargo_command(&[
        "test",
        "--workspace",
        "--tests",
        "--no-fail-fast",
        "--",
        "--exact",
    ]);
    tests.args(names);
    tests
}

/// In a separate target folder: other flags would invalidate the usual one.
fn model_check_command() -> Command {
    let mut checks = cargo_command(&[
        "test",
        "-p",
        "mgp-sync",
        "--profile",
        CHECKS,
        "--no-fail-fast",
        "--target-dir",
    ]);
    checks.arg(target_folder().join("loom"));
    checks.env("RUSTFLAGS", "--cfg mgp_loom");
    checks
}

/// Built with optimisations, because simulating takes the time.
fn simulator_command(seeds: u64) -> Command {
    let engine = ["test", "-p", "mgp-engine", "--test", "sim", "--profile"];
    let mut simulator = cargo_command(&[&engine[..], &[CHECKS, "--", "--nocapture"]].concat());
    simulator.env("MGP_SIM_SEEDS", seeds.to_string());
    simulator.env("MGP_SIM_STEPS", STEPS.to_string());
    simulator
}

/// Builds all programs for release and runs one of them. The exit code is that of the program.
fn run_release_program(name: &str, given: &[OsString]) -> ExitCode {
    let built = cargo_command(&["build", "--release", "--workspace", "--bins"]).status();
    if !built.is_ok_and(|status| status.success()) {
        return ExitCode::FAILURE;
    }
    let program = target_folder().join("release").join(name);
    let code = match Command::new(&program).args(given).status() {
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()),
        Err(error) => {
            println!("{}: {error}", program.display());
            None
        }
    };
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}

fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}

fn cargo_command(args: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(args);
    command
}
