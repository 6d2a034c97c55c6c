//! The official conformance suite through the kernel: as many checks pass as with the scripted
//! server alone, and none fails (MCP-088).
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use mgp_tests::harness::program::remote_entry;
use mgp_tests::harness::{Kernel, Need, Peers, Program, Upstream};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::Mutex;

/// The rounds of the suite.
const ROUNDS: [(&str, &[&str]); 3] = [
    ("2025-11-25", &["--requirements", "2025-11-25"]),
    (
        "2025-06-18",
        &["--suite", "all", "--spec-version", "2025-06-18"],
    ),
    (
        "2025-03-26",
        &["--suite", "all", "--spec-version", "2025-03-26"],
    ),
];

/// How many checks of each round the scripted server passes by itself.
const WHOLE: [u64; 3] = [83, 56, 3];

/// A server over stdio has no stream that it could let go of in mid-call, which the suite wants to
/// see (SEP-1699); so the kernel does it.
const LETS_GO: &str = "[streams]\npoll_after_ms = 10\n\n";

/// How long a round may take; it takes seconds.
const ROUND: Duration = Duration::from_secs(300);

/// The suite has deadlines below a second of its own, which two runs on two cores could miss.
static ALONE: Mutex<()> = Mutex::const_new(());

#[tokio::test]
async fn the_scripted_server_alone_passes() {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let upstream = Upstream::start(&[]).await;
    passes(&peers, &upstream.url()).await;
}

#[tokio::test]
async fn a_legacy_server_over_stdio_passes() {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let entry = Program::fixture(&["--era", "legacy"]).entry("it");
    through(&peers, &format!("{LETS_GO}{entry}")).await;
}

#[tokio::test]
async fn a_server_of_both_eras_over_stdio_passes() {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let entry = Program::fixture(&[]).entry("it");
    through(&peers, &format!("{LETS_GO}{entry}")).await;
}

#[tokio::test]
async fn a_legacy_server_over_http_passes() {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let upstream = Upstream::start(&["--era", "legacy"]).await;
    let entry = remote_entry("it", &upstream.url());
    through(&peers, &entry).await;
}

#[tokio::test]
async fn a_server_of_both_eras_over_http_passes() {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let upstream = Upstream::start(&[]).await;
    let entry = remote_entry("it", &upstream.url());
    through(&peers, &entry).await;
}

/// Passes through the kernel's endpoint of one server.
async fn through(peers: &Peers, entry: &str) {
    let kernel = Kernel::start(entry).await;
    kernel.connected(&["it"]).await;
    passes(peers, &kernel.server_url("it")).await;
}

async fn passes(peers: &Peers, url: &str) {
    let _alone = ALONE.lock().await;
    // The suite checks the protection against DNS rebinding by this name.
    let url = url.replace("127.0.0.1", "localhost");
    for ((round, args), wanted) in ROUNDS.into_iter().zip(WHOLE) {
        let out = TempDir::new().unwrap();
        let folder = out.path().display().to_string();
        let args = [&["server", "--url", &url], args, &["-o", &folder]].concat();
        let suite = peers.node("@modelcontextprotocol/conformance/dist/index.js", &args);
        let output = suite.output(ROUND).await;
        let told = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        let checks = count(out.path(), &told);
        assert!(
            checks.failed.is_empty(),
            "{round}: {:#?}\n{told}",
            checks.failed
        );
        assert!(
            checks.passed >= wanted,
            "{round}: {} of {wanted} passed\n{told}",
            checks.passed
        );
    }
}

#[derive(Debug, Default)]
struct Checks {
    passed: u64,
    failed: Vec<String>,
}

/// What the scenarios left, and what the summary says of those that broke off before.
fn count(folder: &Path, told: &str) -> Checks {
    let mut checks = Checks::default();
    let mut left = BTreeMap::new();
    for scenario in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
        let Ok(text) = fs::read(scenario.path().join("checks.json")) else {
            continue;
        };
        let name = scenario.file_name().to_string_lossy().into_owned();
        left.insert(name, serde_json::from_slice::<Vec<Value>>(&text).unwrap());
    }
    for (name, results) in &left {
        let of = |status: &'static str| results.iter().filter(move |r| r["status"] == status);
        checks.passed += of("SUCCESS").count() as u64;
        checks
            .failed
            .extend(of("FAILURE").map(|failure| format!("{name}: {failure}")));
    }
    let unheard = |(name, _, _): &(&str, u64, u64)| !left.keys().any(|n| is_run_of(n, name));
    for (name, passed, failed) in summary(told).filter(unheard) {
        checks.passed += passed;
        checks
            .failed
            .extend((failed > 0 || passed == 0).then(|| format!("{name}: broke off")));
    }
    checks
}

/// `server-NAME-2026-01-01T…` is a run of NAME.
fn is_run_of(folder: &str, name: &str) -> bool {
    let rest = folder
        .strip_prefix("server-")
        .unwrap_or(folder)
        .strip_prefix(name);
    rest.is_some_and(|rest| rest.starts_with("-20"))
}

/// The lines `✓ NAME: N passed, N failed` of the summary.
fn summary(told: &str) -> impl Iterator<Item = (&str, u64, u64)> {
    let (_, summary) = told.rsplit_once("=== SUMMARY").unwrap_or_default();
    summary.lines().filter_map(|line| {
        let (name, counts) = line.split_once(": ")?;
        let (passed, failed) = counts.split_once(" passed, ")?;
        let failed = failed.strip_suffix(" failed")?;
        let (_, name) = name.split_once(' ')?;
        Some((name, passed.parse().ok()?, failed.parse().ok()?))
    })
}

#[test]
fn a_scenario_that_breaks_off_counts_as_failed() {
    let told = "=== SUMMARY ===\n✓ ping: 1 passed, 0 failed\n✗ tools-list: 0 passed, 0 failed\n\nTotal: 1 passed, 0 failed\n";
    let out = TempDir::new().unwrap();
    let ping = out.path().join("server-ping-2026-01-01T00-00-00-000Z");
    fs::create_dir(&ping).unwrap();
    fs::write(
        ping.join("checks.json"),
        r#"[{"status":"SUCCESS"},{"status":"INFO"}]"#,
    )
    .unwrap();
    let checks = count(out.path(), told);
    assert_eq!(checks.passed, 1);
    assert_eq!(checks.failed, ["tools-list: broke off"]);
}
