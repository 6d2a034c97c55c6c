//! The client scenarios: for each the suite is the server, the kernel stands before it, and
//! `mgp-scenario` is the agent that calls what the scenario wants called.

use std::path::PathBuf;

use mgp_tests::harness::program::find;
use mgp_tests::harness::{Need, Peers};

use crate::suite::{ALONE, run};

/// The scenarios of a version, with how many checks pass at least. Those of authorization are in
/// `logins.rs`.
const LEGACY: [(&str, u64); 5] = [
    ("initialize", 1),
    ("tools_call", 2),
    ("elicitation-sep1034-client-defaults", 5),
    ("sse-retry", 3),
    ("json-schema-2020-12-preservation", 9),
];

const MODERN: [(&str, u64); 8] = [
    ("tools_call", 2),
    ("request-metadata", 5),
    ("sep-2322-client-request-state", 6),
    ("http-standard-headers", 11),
    ("http-custom-headers", 18),
    ("http-invalid-tool-headers", 12),
    ("json-schema-ref-no-deref", 1),
    ("json-schema-2020-12-preservation", 9),
];

/// How long the suite waits for a scenario, in milliseconds: longer than the agent waits for
/// anything, so that it is the agent who says what did not come.
const PATIENCE: &str = "90000";

#[tokio::test]
async fn legacy_server_conforms_for_a_legacy_client() {
    play("2025-11-25", "legacy", &LEGACY).await;
}

#[tokio::test]
async fn legacy_server_conforms_for_a_modern_client() {
    play("2025-11-25", "modern", &LEGACY).await;
}

#[tokio::test]
async fn modern_server_conforms_for_a_modern_client() {
    play("2026-07-28", "modern", &MODERN).await;
}

/// The kernel itself answers what is asked in rounds, and mirrors what is to be mirrored.
#[tokio::test]
async fn modern_server_conforms_for_a_legacy_client() {
    play("2026-07-28", "legacy", &MODERN).await;
}

async fn play(version: &str, client: &str, scenarios: &[(&str, u64)]) {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let _alone = ALONE.lock().await;
    let driver = format!("{} --client {client}", driver().display());
    let mut missed = Vec::new();
    for (scenario, wanted) in scenarios {
        let args = ["client", "--command", &driver, "--scenario", scenario];
        let more = ["--spec-version", version, "--timeout", PATIENCE];
        let args = [&args[..], &more].concat();
        let checks = run(&peers, &args, &[]).await;
        eprintln!(
            "{scenario}: {} passed, {:?}",
            checks.passed,
            checks.failed_ids()
        );
        let whole = checks.passed >= *wanted && checks.failed.is_empty();
        let ended_well = !checks.told.contains("Client exited with code")
            && !checks.told.contains("Client timed out");
        if !whole || !ended_well {
            missed.push(format!(
                "{scenario}: {} of {wanted} passed, failed: {:#?}\n{}",
                checks.passed, checks.failed, checks.told
            ));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n\n"));
}

/// The suite starts it through a shell and cuts the command at spaces.
pub(crate) fn driver() -> PathBuf {
    let driver = find("mgp-scenario").unwrap_or_else(|path| {
        panic!(
            "no mgp-scenario at {}: build the binaries first",
            path.display()
        )
    });
    assert!(!driver.display().to_string().contains(' '), "{driver:?}");
    driver
}
