//! What the program costs whoever has it: its size, its memory while nothing happens, and the instructions of a call.
//! `cargo xtask footprint` builds what it needs and starts it.
//!
//! Instructions are counted by valgrind's callgrind with one worker thread, so they depend on the machine's load only
//! where a wake-up comes earlier or later: two runs differ by less than one percent. A figure that is more than
//! [`TOLERANCE`] above the one in `expected.txt` fails. The figures there are changed by hand, with the reason in the
//! commit.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use mgp_tests::harness::program::{find, remote_entry};
use mgp_tests::harness::{Kernel, Upstream};
use mgp_tests::load::{Bounds, Holding, HttpLoad, Request, Talk};

/// How much a figure may grow.
const TOLERANCE: f64 = 0.03;
/// Calls that are counted, and those before.
const CALLS: u64 = 500;
/// How long an idle kernel is left alone before its memory is read.
const SETTLE: Duration = Duration::from_secs(5);
/// Longest a cell takes: valgrind is some fifty times slower than the machine.
const CELL: Duration = Duration::from_secs(120);

/// Where clients of MCP-lite call.
const LITE: &str = "/mcp-lite/v1/rpc";

/// A line as files have it, in JSON: its escapes cost more than its letters.
const CODE: &str = r#"    let value = table.get(\"name\").unwrap();\n"#;

const OPEN_ENDPOINT: &str = "[http]\nlisten = \"127.0.0.1:0\"\nauth = \"none\"\n";

struct Figure {
    name: &'static str,
    unit: &'static str,
    value: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut figures = vec![program_size(), idle_memory().await];
    if Command::new("valgrind").arg("--version").output().is_ok() {
        figures.extend(instructions().await);
    } else {
        println!("instructions are not counted: valgrind is not installed");
    }
    report(&figures)
}

fn program_size() -> Figure {
    let program = find("mgp").expect("the program is built");
    let size = fs::metadata(program).expect("it is a file").len();
    Figure {
        name: "program",
        unit: "KiB",
        value: size >> 10,
    }
}

/// Resident memory of a kernel with defaults and without servers.
async fn idle_memory() -> Figure {
    let kernel = Kernel::start("[discovery]\n").await;
    tokio::time::sleep(SETTLE).await;
    Figure {
        name: "idle",
        unit: "KiB",
        value: Holding::of(kernel.pid()).resident >> 10,
    }
}

/// Of calls to a server over HTTP, each by one client.
async fn instructions() -> Vec<Figure> {
    let upstream = Upstream::start(&["--http-json", "--era", "legacy"]).await;
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let out = folder.path().join("callgrind.out");
    let file = format!("--callgrind-out-file={}", out.display());
    let program = find("mgp").expect("the program is built");
    let program = program.display().to_string();
    let behind = ["valgrind", "--quiet", "--tool=callgrind", &file, &program];
    let config = format!("{OPEN_ENDPOINT}{}", remote_entry("s", &upstream.url()));
    let one_thread = [("TOKIO_WORKER_THREADS", "1")];
    let kernel = Kernel::behind(&behind, folder, &config, &one_thread).await;
    let (mcp, lite) = (kernel.server_url("s"), kernel.url().replace("/mcp", LITE));
    let text = format!(r#"{{"text":"{}"}}"#, "x".repeat(32));
    let code = format!(r#"{{"text":"{}"}}"#, CODE.repeat(65_536 / CODE.len()));
    let cells = [
        ("call 32 B", &mcp, Request::call(Talk::Session, "echo", 32)),
        (
            "call 64 KiB",
            &mcp,
            Request::call(Talk::Session, "echo", 65_536),
        ),
        (
            "code 64 KiB",
            &mcp,
            Request::with_arguments(Talk::Session, "echo", &code),
        ),
        (
            "stateless 32 B",
            &mcp,
            Request::call(Talk::Alone, "echo", 32),
        ),
        ("lite 32 B", &lite, Request::lite("s__echo", &text)),
        ("list", &mcp, Request::list(Talk::Session, "tools/list")),
    ];
    wait_until_connected(&mcp, &cells[0].2).await;
    let mut figures = Vec::new();
    for (name, url, request) in cells {
        let bounds = Bounds {
            calls: CALLS,
            time: CELL,
        };
        let load = HttpLoad::open(url, 1, request.talk()).await;
        let mut load = load.expect("the endpoint answers");
        load.run(&request, bounds)
            .await
            .expect("calls are answered");
        control(&kernel, "--zero");
        let run = load.run(&request, bounds).await;
        let calls = run.expect("calls are answered").latencies.calls();
        control(&kernel, "--dump");
        figures.push(Figure {
            name,
            unit: "instructions",
            value: newest_total(out.parent().expect("it is in a folder")) / calls.max(1),
        });
    }
    figures
}

/// Calls until the server behind the endpoint answers.
async fn wait_until_connected(url: &str, request: &Request) {
    let end = Instant::now() + CELL;
    loop {
        let load = HttpLoad::open(url, 1, request.talk()).await;
        let mut load = load.expect("the endpoint answers");
        let one_call = Bounds {
            calls: 1,
            time: CELL,
        };
        match load.run(request, one_call).await {
            Ok(_) => return,
            Err(why) if Instant::now() > end => panic!("the server is not connected: {why}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

fn control(kernel: &Kernel, what: &str) {
    let status = Command::new("callgrind_control")
        .args([what, &kernel.pid().to_string()])
        .output();
    let output = status.expect("callgrind_control comes with valgrind");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("OK"), "{said}");
}

/// The total of the dump that was written last.
fn newest_total(folder: &Path) -> u64 {
    let dumps = fs::read_dir(folder).expect("the folder is there").flatten();
    let dumps = dumps.filter(|file| {
        file.file_name()
            .to_string_lossy()
            .starts_with("callgrind.out")
    });
    let written = |file: &fs::DirEntry| file.metadata().and_then(|data| data.modified()).ok();
    let newest = dumps.max_by_key(written).expect("a dump was written");
    let text = fs::read_to_string(newest.path()).expect("it is text");
    let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
    total
        .and_then(|total| total.trim().parse().ok())
        .expect("a dump has its total")
}

fn report(figures: &[Figure]) -> ExitCode {
    let expected = include_str!("expected.txt");
    let mut is_over = false;
    println!("{:<16} {:>12} {:>12}  change", "", "now", "expected");
    for Figure { name, unit, value } in figures {
        let known = expected.lines().find_map(|line| {
            let (known, number) = line.split_once('=')?;
            (known.trim() == *name).then(|| number.trim().parse::<u64>().ok())?
        });
        let Some(known) = known else {
            println!("{name:<16} {value:>12} {:>12}  {unit}", "none");
            continue;
        };
        let change = *value as f64 / known as f64 - 1.0;
        let is_grown = change > TOLERANCE;
        is_over |= is_grown;
        let note = if is_grown { "  GREW" } else { "" };
        println!(
            "{name:<16} {value:>12} {known:>12}  {:+.1} % {unit}{note}",
            change * 100.0
        );
    }
    if is_over {
        println!(
            "grown by more than {:.0} %: make it smaller, or change expected.txt and say why",
            TOLERANCE * 100.0
        );
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
