//! The client scenarios of authorization: for each the suite is the server and the authorization server, the kernel
//! stands before it, and `mgp-scenario` types `mgp logins add` and plays the browser.

use mgp_tests::harness::{Need, Peers};

use crate::clients::driver;
use crate::suite::{ALONE, run};

/// A scenario, and how many checks pass at least.
type LoginScenario = (&'static str, u64);

const OF_2025_03_26: [LoginScenario; 2] = [
    ("2025-03-26-oauth-metadata-backcompat", 14),
    ("2025-03-26-oauth-endpoint-fallback", 9),
];

/// Those of 2025-11-25, which are also of 2026-07-28.
const LASTING: [LoginScenario; 14] = [
    ("metadata-default", 20),
    ("metadata-var1", 20),
    ("metadata-var2", 20),
    ("metadata-var3", 20),
    ("basic-cimd", 14),
    ("scope-from-www-authenticate", 16),
    ("scope-from-scopes-supported", 16),
    ("scope-omitted-when-undefined", 16),
    ("scope-step-up", 24),
    ("scope-retry-limit", 10),
    ("token-endpoint-auth-basic", 21),
    ("token-endpoint-auth-post", 21),
    ("token-endpoint-auth-none", 21),
    ("pre-registration", 14),
];

const OF_2026_07_28: [LoginScenario; 11] = [
    ("resource-mismatch", 2),
    ("offline-access-scope", 17),
    ("offline-access-not-supported", 16),
    ("authorization-server-migration", 29),
    ("iss-supported", 16),
    ("iss-not-advertised", 16),
    ("iss-supported-missing", 8),
    ("iss-wrong-issuer", 8),
    ("iss-unexpected", 8),
    ("iss-normalized", 8),
    ("metadata-issuer-mismatch", 3),
];

/// Nobody signs in for these.
const UNATTENDED: [LoginScenario; 4] = [
    ("client-credentials-jwt", 10),
    ("client-credentials-basic", 10),
    ("enterprise-managed-authorization", 11),
    ("wif-jwt-bearer", 10),
];

/// Tokens are bound to a key.
const BOUND: [LoginScenario; 2] = [("dpop", 12), ("dpop-nonce", 14)];

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
async fn client_credentials_token_is_obtained() {
    play(None, "legacy", &UNATTENDED).await;
}

#[tokio::test]
async fn a_token_that_is_bound_to_a_key_is_sent_with_its_proof() {
    play(None, "legacy", &BOUND).await;
}

/// Every scenario of the installed suite is played.
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
    let played = [
        &OF_2025_03_26[..],
        &LASTING,
        &OF_2026_07_28,
        &UNATTENDED,
        &BOUND,
    ]
    .concat();
    let mut known: Vec<&str> = played.iter().map(|(name, _)| *name).collect();
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
