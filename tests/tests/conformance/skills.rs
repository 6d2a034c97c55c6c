//! The server scenarios of skills (SEP-2640), which belong to no version, at the merged endpoint: there the kernel answers.

use mgp_tests::harness::{Kernel, Need, Peers, Program};
use serde_json::{Value, json};

use crate::suite::{ALONE, run};

/// The scenarios, with how many checks pass at least.
const SCENARIOS: [(&str, u64); 3] = [
    ("sep-2640-skills-enumeration", 32),
    // It warns twice: the scripted server lists no names of its resources.
    ("sep-2640-skills-manifest", 4),
    ("sep-2640-skills-directory", 6),
];
/// The scripted server answers the same for every directory, and for what is none.
const OUT_OF_REACH: [&str; 1] = ["sep-2640-directory-read-invalid-params"];

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

/// EXT-040, EXT-041, EXT-042: the suite finds the skills of a server at the merged endpoint as it does at a server.
#[tokio::test]
async fn skills_conform_at_the_merged_endpoint() {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let kernel = Kernel::start(&program().entry("docs")).await;
    kernel.connected(&["docs"]).await;
    let _alone = ALONE.lock().await;
    let url = kernel.url().replace("127.0.0.1", "localhost");
    for (scenario, wanted) in SCENARIOS {
        let args = ["server", "--url", &url, "--scenario", scenario];
        let more = ["--spec-version", "2026-07-28", "--force"];
        let checks = run(&peers, &[&args[..], &more].concat(), &[]).await;
        let failed = checks.failed_ids();
        eprintln!("{scenario}: {} passed, {failed:?}", checks.passed);
        assert!(
            checks.passed >= wanted && failed.iter().all(|id| OUT_OF_REACH.contains(id)),
            "{scenario}: {} of {wanted} passed, failed: {:#?}\n{}",
            checks.passed,
            checks.failed,
            checks.told
        );
    }
}
