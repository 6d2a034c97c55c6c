//! The client scenarios of authorization: for each the suite is the server and the authorization server, the kernel
//! stands before it, and `mgp-scenario` types `mgp login` and plays the browser.

use mgp_tests::harness::{Need, Peers};

use crate::clients::driver;
use crate::suite::{ALONE, run};

/// A scenario, and how many checks pass at least.
type LoginScenario = (&'static str, u64);

const OF_2025_03_26: [LoginScenario; 2] = [
    ("2025-03-26-oauth-metadata-backcompat", 4),
    ("2025-03-26-oauth-endpoint-fallback", 3),
];

/// Those of 2025-11-25, which are also of 2026-07-28.
const LASTING: [LoginScenario; 14] = [
    ("metadata-default", 1),
    ("metadata-var1", 1),
    ("metadata-var2", 1),
    ("metadata-var3", 1),
    ("basic-cimd", 1),
    ("scope-from-www-authenticate", 1),
    ("scope-from-scopes-supported", 1),
    ("scope-omitted-when-undefined", 1),
    ("scope-step-up", 2),
    ("scope-retry-limit", 1),
    ("token-endpoint-auth-basic", 1),
    ("token-endpoint-auth-post", 1),
    ("token-endpoint-auth-none", 1),
    ("pre-registration", 1),
];

const OF_2026_07_28: [LoginScenario; 11] = [
    ("resource-mismatch", 1),
    ("offline-access-scope", 2),
    ("offline-access-not-supported", 1),
    ("authorization-server-migration", 3),
    ("iss-supported", 1),
    ("iss-not-advertised", 1),
    ("iss-supported-missing", 1),
    ("iss-wrong-issuer", 1),
    ("iss-unexpected", 1),
    ("iss-normalized", 1),
    ("metadata-issuer-mismatch", 1),
];

/// Nobody signs in for these.
const EXTENSIONS: [LoginScenario; 4] = [
    ("client-credentials-jwt", 1),
    ("client-credentials-basic", 1),
    ("enterprise-managed-authorization", 2),
    ("wif-jwt-bearer", 1),
];

/// What is not played, and why: no token is bound to a key here, so each request would want a proof that is
/// signed for it alone. A token of that type is refused, and not sent as another one.
const OUT_OF_REACH: [&str; 2] = ["dpop", "dpop-nonce"];

/// Where no login is to come about: then the command says so, and the scenario's program fails.
const REFUSED: [&str; 7] = [
    "scope-retry-limit",
    "resource-mismatch",
    "iss-supported-missing",
    "iss-wrong-issuer",
    "iss-unexpected",
    "iss-normalized",
    "metadata-issuer-mismatch",
];

#[tokio::test]
async fn a_server_of_2025_03_26_is_signed_in_to() {
    play(Some("2025-03-26"), "legacy", &OF_2025_03_26).await;
}

#[tokio::test]
async fn a_legacy_server_is_signed_in_to_for_a_legacy_client() {
    play(Some("2025-11-25"), "legacy", &LASTING).await;
}

#[tokio::test]
async fn a_modern_server_is_signed_in_to_for_a_modern_client() {
    play(Some("2026-07-28"), "modern", &LASTING).await;
    play(Some("2026-07-28"), "modern", &OF_2026_07_28).await;
}

#[tokio::test]
async fn a_token_that_nobody_signs_in_for_is_got() {
    play(None, "legacy", &EXTENSIONS).await;
}

/// Every scenario of the installed suite is played, or named with its reason.
#[tokio::test]
async fn no_scenario_of_authorization_is_left_out() {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let listed = peers.node(
        "@modelcontextprotocol/conformance/dist/index.js",
        &["list", "--client"],
    );
    let output = listed.output(mgp_tests::harness::DEADLINE).await;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = told
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- auth/")?.split(' ').next());
    let played = [&OF_2025_03_26[..], &LASTING, &OF_2026_07_28, &EXTENSIONS].concat();
    let mut known: Vec<&str> = played
        .iter()
        .map(|(name, _)| *name)
        .chain(OUT_OF_REACH)
        .collect();
    let mut names: Vec<&str> = names.collect();
    known.sort_unstable();
    names.sort_unstable();
    assert_eq!(known, names);
}

async fn play(version: Option<&str>, client: &str, scenarios: &[LoginScenario]) {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let _alone = ALONE.lock().await;
    let driver = format!("{} --client {client}", driver().display());
    let mut missed = Vec::new();
    for (scenario, wanted) in scenarios {
        let name = format!("auth/{scenario}");
        let mut args = vec![
            "client",
            "--command",
            &driver,
            "--scenario",
            &name,
            "--timeout",
            "90000",
        ];
        args.extend(
            version
                .iter()
                .flat_map(|version| ["--spec-version", version]),
        );
        let checks = run(&peers, &args, &[]).await;
        eprintln!(
            "{name}: {} passed, {:?}",
            checks.passed,
            checks.failed_ids()
        );
        let refused = checks.told.contains("Client exited with code");
        let ended_well = refused == REFUSED.contains(scenario);
        let warned = checks.warned.is_empty();
        if checks.passed < *wanted || !checks.failed.is_empty() || !ended_well || !warned {
            missed.push(format!(
                "{name}: {} of {wanted} passed, failed: {:#?}, warned: {:#?}\n{}",
                checks.passed, checks.failed, checks.warned, checks.told
            ));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n\n"));
}
