//! The scenarios of skills (SEP-2640), which belong to no version.

use mgp_tests::harness::{Kernel, Need, Peers, Program, Upstream};
use serde_json::{Value, json};

use crate::clients::driver;
use crate::suite::{ALONE, run};

/// The scenarios, with how many checks pass at least.
const SCENARIOS: [(&str, u64); 3] = [
    ("sep-2640-skills-enumeration", 32),
    // It warns twice: the scripted server lists no names of its resources.
    ("sep-2640-skills-manifest", 4),
    ("sep-2640-skills-directory", 6),
];
/// Those in which the suite is the server.
const CLIENT_SCENARIOS: [&str; 4] = [
    "sep-2640-client-no-prefetch",
    "sep-2640-client-verify-digest",
    "sep-2640-client-verify-size",
    "sep-2640-client-verify-frontmatter",
];
/// The scripted server answers the same for every directory, and for what is none.
const OUT_OF_REACH: &str = "sep-2640-directory-read-invalid-params";
/// Likewise for every skill. At the merged endpoint the kernel knows which server is meant.
const UNKNOWN_SKILL: &str = "sep-2640-skills-get-unknown-uri-invalid-params";

const SKILL: &str =
    "---\nname: refunds\ndescription: How refunds are made\n---\nSee references/a.md\n";
const DIGEST: &str = "sha256:d3625fbf9bd0b92e38c9034566147bf17b922e3e558743837bbea12957506b46";
const NOTE_DIGEST: &str = "sha256:aa1237b773c38dbddef583c4868aaea7a44c5237ea7923aecca5513764b42d80";

fn program() -> Program {
    let (uri, note) = (
        "skill://refunds/SKILL.md",
        "skill://refunds/references/a.md",
    );
    let frontmatter = json!({"name": "refunds", "description": "How refunds are made"});
    let entry = json!({"uri": uri, "frontmatter": frontmatter, "resources": [
        {"uri": uri, "digest": DIGEST, "size": SKILL.len()},
        {"uri": note, "digest": NOTE_DIGEST, "size": 4},
    ]});
    let cached = |mut answer: Value| {
        answer["ttlMs"] = json!(1);
        answer["cacheScope"] = json!("public");
        answer
    };
    let children = json!([
        {"uri": uri, "name": "SKILL.md", "mimeType": "text/markdown"},
        {"uri": "skill://refunds/references", "name": "references", "mimeType": "inode/directory"},
    ]);
    let methods = json!({
        "skills/list": cached(json!({"skills": [entry]})),
        "skills/get": cached(json!({"skill": entry})),
        "resources/directory/read": cached(json!({"resources": children})),
    });
    let declared = r#"{"io.modelcontextprotocol/skills":{"directoryRead":true}}"#;
    let file = |uri: &str, name: &str, text: &str| {
        json!({"uri": uri, "name": name, "description": "How refunds are made",
            "mimeType": "text/markdown", "text": text})
        .to_string()
    };
    Program::fixture(&["--bare", "--extensions", declared])
        .args(&["--methods", &methods.to_string()])
        .args(&["--resource", &file(uri, "refunds", SKILL)])
        .args(&["--resource", &file(note, "a.md", "# A\n")])
}

/// EXT-040, EXT-041, EXT-042: the suite finds the skills of a server at the merged endpoint as it does at that of the server,
/// and at the server alone.
#[tokio::test]
async fn skills_conform_at_each_endpoint_as_at_the_server_alone() {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let program = program();
    let flags = program.args.iter().map(String::as_str);
    let flags: Vec<&str> = flags.filter(|flag| *flag != "--stdio").collect();
    let alone = Upstream::start(&flags).await;
    let kernel = Kernel::start(&program.entry("docs")).await;
    kernel.connected(&["docs"]).await;
    let _alone = ALONE.lock().await;
    for (url, missed) in [
        (alone.url(), 1),
        (kernel.server_url("docs"), 1),
        (kernel.url().to_owned(), 0),
    ] {
        let url = url.replace("127.0.0.1", "localhost");
        for (scenario, wanted) in SCENARIOS {
            let args = ["server", "--url", &url, "--scenario", scenario];
            let more = ["--spec-version", "2026-07-28", "--force"];
            let checks = run(&peers, &[&args[..], &more].concat(), &[]).await;
            let failed = checks.failed_ids();
            eprintln!("{url} {scenario}: {} passed, {failed:?}", checks.passed);
            let mut missing = failed.iter().filter(|id| **id != OUT_OF_REACH);
            let is_known = missing.all(|id| missed > 0 && *id == UNKNOWN_SKILL);
            assert!(
                checks.passed + missed >= wanted && is_known,
                "{url} {scenario}: {} of {wanted} passed, failed: {:#?}\n{}",
                checks.passed,
                checks.failed,
                checks.told
            );
        }
    }
}

/// EXT-209: the suite's server lies about its files, and a client behind the kernel gets none of them; nothing is read before
/// it asks.
#[tokio::test]
async fn files_of_a_lying_server_are_not_handed_on() {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let _alone = ALONE.lock().await;
    let driver = format!("{} --client modern", driver().display());
    for scenario in CLIENT_SCENARIOS {
        let args = ["client", "--command", &driver, "--scenario", scenario];
        let more = ["--timeout", "90000"];
        let checks = run(&peers, &[&args[..], &more].concat(), &[]).await;
        eprintln!(
            "{scenario}: {} passed, {:?}",
            checks.passed,
            checks.failed_ids()
        );
        assert!(
            checks.passed == 1 && checks.failed.is_empty(),
            "{scenario}: {:#?}\n{}",
            checks.failed,
            checks.told
        );
        assert!(
            !checks.told.contains("Client exited with code"),
            "{}",
            checks.told
        );
    }
}

/// EXT-209: every scenario of an extension in the installed suite is played: those of skills here, those of tasks with the
/// rounds of the versions, and those of authorization as logins.
#[tokio::test]
async fn no_scenario_of_an_extension_is_left_out() {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let listed = peers.node("@modelcontextprotocol/conformance/dist/index.js", &["list"]);
    let output = listed.output(mgp_tests::harness::DEADLINE).await;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = told.lines().filter_map(|line| {
        let line = line.trim().strip_prefix("- ")?;
        line.strip_suffix(" [extension]")
    });
    let mut names: Vec<&str> = names
        .filter(|name| !name.starts_with("tasks-") && !name.starts_with("auth/"))
        .collect();
    let here = SCENARIOS
        .map(|(name, _)| name)
        .into_iter()
        .chain(CLIENT_SCENARIOS);
    let mut here: Vec<&str> = here.collect();
    names.sort_unstable();
    here.sort_unstable();
    assert_eq!(names, here, "{told}");
}
