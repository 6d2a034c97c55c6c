//! The server scenarios, MCP-088: through the kernel as many checks pass as with the scripted server
//! alone, and none fails, whatever era that server is of.

use mgp_tests::harness::program::remote_entry;
use mgp_tests::harness::{Kernel, Need, Peers, Program, Upstream};

use crate::suite::{ALONE, run};

/// A round of the suite: its version, how it is called, and how many checks the scripted server
/// passes by itself when it speaks both eras.
struct Round {
    version: &'static str,
    args: &'static [&'static str],
    whole: u64,
}

const NEWEST_LEGACY: Round = Round {
    version: "2025-11-25",
    args: &["--requirements", "2025-11-25"],
    whole: 83,
};

const MODERN: Round = Round {
    version: "2026-07-28",
    args: &["--requirements", "2026-07-28"],
    whole: 196,
};

const OLDER: [Round; 2] = [
    Round {
        version: "2025-06-18",
        args: &["--suite", "all", "--spec-version", "2025-06-18"],
        whole: 56,
    },
    Round {
        version: "2025-03-26",
        args: &["--suite", "all", "--spec-version", "2025-03-26"],
        whole: 3,
    },
];

/// How many checks of the modern round pass with a server that knows nothing of it. The rest wants
/// what such a server cannot say: questions under keys the suite names, and states of its own.
const LEGACY_FLOOR: u64 = 148;

/// A server over stdio, or a modern one, has no stream that it could let go of in mid-call, which the
/// suite wants to see (SEP-1699); so the kernel does it.
const LETS_GO: &str = "[streams]\npoll_after_ms = 10\n\n";

/// A legacy server makes no tasks; so the kernel does, soon enough for the suite to see it.
const MAKES_TASKS: &str = "task_after_ms = 50\n";

#[tokio::test]
async fn the_scripted_server_alone_passes() {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let upstream = Upstream::start(&[]).await;
    passes(&peers, &upstream.url(), MODERN.whole).await;
}

#[tokio::test]
async fn a_server_of_both_eras_over_stdio_passes() {
    over_stdio(&[], "", MODERN.whole).await;
}

#[tokio::test]
async fn a_modern_server_over_stdio_passes() {
    over_stdio(&["--era", "modern"], "", MODERN.whole).await;
}

#[tokio::test]
async fn a_legacy_server_over_stdio_passes_what_it_can_carry() {
    over_stdio(&["--era", "legacy"], MAKES_TASKS, LEGACY_FLOOR).await;
}

#[tokio::test]
async fn a_server_of_both_eras_over_http_passes() {
    over_http(&[], "", MODERN.whole).await;
}

#[tokio::test]
async fn a_modern_server_over_http_passes() {
    over_http(&["--era", "modern"], "", MODERN.whole).await;
}

#[tokio::test]
async fn a_legacy_server_over_http_passes_what_it_can_carry() {
    over_http(&["--era", "legacy"], MAKES_TASKS, LEGACY_FLOOR).await;
}

async fn over_stdio(flags: &[&str], keys: &str, floor: u64) {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let entry = Program::fixture(flags).entry("it");
    through(&peers, &format!("{entry}{keys}"), floor).await;
}

async fn over_http(flags: &[&str], keys: &str, floor: u64) {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let upstream = Upstream::start(flags).await;
    let entry = remote_entry("it", &upstream.url());
    through(&peers, &format!("{entry}{keys}"), floor).await;
}

/// Passes through the kernel's endpoint of one server.
async fn through(peers: &Peers, config: &str, floor: u64) {
    let kernel = Kernel::start(&format!("{LETS_GO}{config}")).await;
    kernel.connected(&["it"]).await;
    passes(peers, &kernel.server_url("it"), floor).await;
}

/// All rounds pass whole, but for the modern one when `floor` is below it.
async fn passes(peers: &Peers, url: &str, floor: u64) {
    let _alone = ALONE.lock().await;
    // The suite checks the protection against DNS rebinding by this name.
    let url = url.replace("127.0.0.1", "localhost");
    let rounds = [&NEWEST_LEGACY, &OLDER[0], &OLDER[1], &MODERN];
    let mut missed = Vec::new();
    for round in rounds {
        let wanted = if round.version == MODERN.version {
            floor
        } else {
            round.whole
        };
        let args = [&["server", "--url", &url], round.args].concat();
        let checks = run(peers, &args, &[]).await;
        let may_fail = wanted < round.whole;
        eprintln!(
            "{}: {} passed, {} failed {:?}",
            round.version,
            checks.passed,
            checks.failed.len(),
            checks.failed_ids()
        );
        if checks.passed < wanted || !(may_fail || checks.failed.is_empty()) {
            missed.push(format!(
                "{}: {} of {wanted} passed, failed: {:#?}\n{}",
                round.version, checks.passed, checks.failed, checks.told
            ));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n\n"));
}
