//! Running the suite and counting what came of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mgp_tests::harness::Peers;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::Mutex;

/// How long a run may take; it takes seconds.
const RUN: Duration = Duration::from_secs(300);

/// The suite has deadlines below a second of its own, which two runs on two cores could miss.
pub(crate) static ALONE: Mutex<()> = Mutex::const_new(());

/// What the checks of a run came to.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    /// How many passed.
    pub(crate) passed: u64,
    /// Those that failed, with all that the suite says of them.
    pub(crate) failed: Vec<String>,
    /// Those that it would have otherwise.
    pub(crate) warned: Vec<String>,
    /// What the suite printed.
    pub(crate) told: String,
}

impl Checks {
    /// The identifiers of the failed checks, for comparison with what is known.
    pub(crate) fn failed_ids(&self) -> Vec<&str> {
        let id = |failure: &'_ String| failure.split(": ").next().map(str::len);
        self.failed
            .iter()
            .map(|failure| &failure[..id(failure).unwrap_or(0)])
            .collect()
    }
}

/// Runs the suite with these arguments and more variables in its environment.
pub(crate) async fn run(peers: &Peers, args: &[&str], variables: &[(&str, &str)]) -> Checks {
    let out = TempDir::new().unwrap();
    let folder = out.path().display().to_string();
    let args = [args, &["-o", &folder]].concat();
    let suite = peers.node("@modelcontextprotocol/conformance/dist/index.js", &args);
    let suite = variables
        .iter()
        .fold(suite, |suite, (name, value)| suite.env(name, *value));
    let output = suite.output(RUN).await;
    let told = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    count(out.path(), told)
}

/// What the scenarios left, and what the summary says of those that broke off before.
pub(crate) fn count(folder: &Path, told: String) -> Checks {
    let mut checks = Checks::default();
    let mut left = BTreeMap::new();
    let folders = below(folder);
    let within = folders.iter().flat_map(|folder| below(folder));
    for scenario in within.chain(folders.clone()) {
        let Ok(text) = fs::read(scenario.join("checks.json")) else {
            continue;
        };
        let name = scenario.strip_prefix(folder).unwrap();
        let name = name.display().to_string();
        left.insert(name, serde_json::from_slice::<Vec<Value>>(&text).unwrap());
    }
    for (name, results) in &left {
        let of = |status: &'static str| results.iter().filter(move |r| r["status"] == status);
        checks.passed += of("SUCCESS").count() as u64;
        let id = |failure: &Value| failure["id"].as_str().unwrap_or_default().to_owned();
        checks
            .failed
            .extend(of("FAILURE").map(|failure| format!("{}: {name}: {failure}", id(failure))));
        checks
            .warned
            .extend(of("WARNING").map(|warning| format!("{name}: {warning}")));
    }
    let unheard = |(name, _, _): &(&str, u64, u64)| !left.keys().any(|n| is_run_of(n, name));
    for (name, passed, failed) in summary(&told).filter(unheard) {
        checks.passed += passed;
        checks
            .failed
            .extend((failed > 0 || passed == 0).then(|| format!("{name}: broke off")));
    }
    checks.told = told;
    checks
}

/// The folders in a folder.
fn below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_dir()).collect()
}

/// `server-NAME-2026-01-01T…` and `authorization-server-NAME-…` are runs of NAME; a `/` in a name makes a folder more.
fn is_run_of(folder: &str, name: &str) -> bool {
    let prefixes = ["authorization-server-", "server-"];
    let scenario = prefixes.iter().find_map(|kind| folder.strip_prefix(kind));
    let rest = scenario.unwrap_or(folder).strip_prefix(name);
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
    let results = r#"[{"status":"SUCCESS"},{"status":"INFO"},{"id":"x","status":"FAILURE"}]"#;
    fs::write(ping.join("checks.json"), results).unwrap();
    let checks = count(out.path(), told.to_owned());
    assert_eq!(checks.passed, 1);
    assert_eq!(checks.failed_ids(), ["x", "tools-list"]);
}
