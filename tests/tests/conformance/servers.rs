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

/// What a server of a round can be held to.
struct Reach {
    /// How many checks of the modern round pass at least.
    floor: u64,
    /// Those that fail.
    out_of_reach: &'static [&'static str],
}

const WHOLE: Reach = Reach {
    floor: MODERN.whole,
    out_of_reach: &[],
};

/// A server that knows nothing of the modern round cannot say all that it wants to hear. Three checks
/// more than those that fail do not pass: `sep-2322-elicitation-complete` and
/// `sep-2663-server-returns-missing-capability-data-shape` follow on failed ones and are not made, and
/// `sep-2322-ignore-unexpected-params` only warns, for the reason of the first.
const LEGACY: Reach = Reach {
    floor: 187,
    out_of_reach: &[
        // The suite wants the question under a key of its own; a legacy question has none.
        "sep-2322-elicitation-incomplete",
        // The server asks what its one `initialize` allowed, not what this request allows: the
        // kernel names the capability that the call needs.
        "sep-2322-respect-client-capabilities",
        // These tools are to be tasks before they ask. Nothing in a legacy question tells them from
        // one that is to be asked before there is a task, which another check wants.
        "sep-2663-tasks-get-status-input-required",
        "tasks-mrtr-tasks-update-resumes",
        "tasks-mrtr-partial-fulfillment",
        // A legacy tool cannot say that it needs a client that knows tasks.
        "sep-2663-server-returns-missing-capability-when-required",
    ],
};

/// A server over stdio, or a modern one, has no stream that it could let go of in mid-call, which the
/// suite wants to see (SEP-1699); so the kernel does it.
const LETS_GO: &str = "[tuning.streams]\npoll_after_ms = 10\n\n";

/// A legacy server makes no tasks; so the kernel does, soon enough for the suite to see it.
const MAKES_TASKS: &str = "task_after_ms = 50\n";

#[tokio::test]
async fn the_scripted_server_alone_passes() {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let upstream = Upstream::start(&[]).await;
    passes(&peers, &upstream.url(), WHOLE).await;
}

#[tokio::test]
async fn a_server_of_both_eras_over_stdio_passes() {
    over_stdio(&[], "", WHOLE).await;
}

#[tokio::test]
async fn a_modern_server_over_stdio_passes() {
    over_stdio(&["--era", "modern"], "", WHOLE).await;
}

#[tokio::test]
async fn a_legacy_server_over_stdio_passes_what_it_can_carry() {
    over_stdio(&["--era", "legacy"], MAKES_TASKS, LEGACY).await;
}

#[tokio::test]
async fn a_server_of_both_eras_over_http_passes() {
    over_http(&[], "", WHOLE).await;
}

#[tokio::test]
async fn a_modern_server_over_http_passes() {
    over_http(&["--era", "modern"], "", WHOLE).await;
}

#[tokio::test]
async fn a_legacy_server_over_http_passes_what_it_can_carry() {
    over_http(&["--era", "legacy"], MAKES_TASKS, LEGACY).await;
}

async fn over_stdio(flags: &[&str], keys: &str, reach: Reach) {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let entry = Program::fixture(flags).entry("it");
    through(&peers, &format!("{entry}{keys}"), reach).await;
}

async fn over_http(flags: &[&str], keys: &str, reach: Reach) {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let upstream = Upstream::start(flags).await;
    let entry = remote_entry("it", &upstream.url());
    through(&peers, &format!("{entry}{keys}"), reach).await;
}

/// Passes through the kernel's endpoint of one server.
async fn through(peers: &Peers, config: &str, reach: Reach) {
    let kernel = Kernel::start(&format!("{LETS_GO}{config}")).await;
    kernel.connected(&["it"]).await;
    passes(peers, &kernel.server_url("it"), reach).await;
}

/// All rounds pass whole, but for the modern one as far as it is out of reach.
async fn passes(peers: &Peers, url: &str, reach: Reach) {
    let _alone = ALONE.lock().await;
    // The suite checks the protection against DNS rebinding by this name.
    let url = url.replace("127.0.0.1", "localhost");
    let rounds = [&NEWEST_LEGACY, &OLDER[0], &OLDER[1], &MODERN];
    let mut missed = Vec::new();
    for round in rounds {
        let reach = if round.version == MODERN.version {
            &reach
        } else {
            &Reach {
                floor: round.whole,
                out_of_reach: &[],
            }
        };
        let args = [&["server", "--url", &url], round.args].concat();
        let checks = run(peers, &args, &[]).await;
        let failed = checks.failed_ids();
        eprintln!(
            "{}: {} passed, {} failed {failed:?}",
            round.version,
            checks.passed,
            failed.len()
        );
        let expected = |id: &&str| reach.out_of_reach.contains(id);
        if checks.passed < reach.floor || !failed.iter().all(expected) {
            missed.push(format!(
                "{}: {} of {} passed, failed: {:#?}\n{}",
                round.version, checks.passed, reach.floor, checks.failed, checks.told
            ));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n\n"));
}
