//! A server and a client made with the SDK of the Skills extension.

use std::path::Path;

use mgp_tests::harness::{DEADLINE, Kernel, Need, Peers, Program};
use serde_json::{Value, json};

fn write(folder: &Path, name: &str, text: &str) {
    let file = folder.join(name);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
}

/// What the SDK's client finds at a URL.
async fn find(client: &Program, url: &str) -> Value {
    let output = client.clone().arg(url).output(DEADLINE).await;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_str(&printed).unwrap_or_else(|_| panic!("{printed}{failed}"))
}

/// EXT-040, EXT-041, EXT-042, EXT-053: the SDK's client lists, gets, walks and reads the skills of the SDK's server and of a
/// served folder, each verified against its entry, at the merged endpoint and at that of a server.
#[tokio::test]
async fn sdk_of_the_extension_serves_and_reads_skills() {
    let Some(peers) = Peers::find(&[Need::Skills]) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (at, path) = (folder.path(), folder.path().to_str().unwrap());
    let refunds = "---\nname: refunds\ndescription: Process refunds\nmetadata:\n  version: \"1.0\"\n  tags: [a, 1, true]\n---\nSee references/a.md\n";
    write(at, "acme/refunds/SKILL.md", refunds);
    write(at, "acme/refunds/references/a.md", "# \u{e4}\n");
    write(
        at,
        "acme/refunds/partial/SKILL.md",
        "---\nname: partial\ndescription: Nested\n---\nx\n",
    );
    let sdk = peers.skills_script("server.mjs", &[path]);
    let own = Program::ours("mgp", ["__skills", path]);
    let kernel = Kernel::start(&(sdk.entry("sdk") + &own.entry("own"))).await;
    kernel.connected(&["sdk", "own"]).await;
    let client = peers.skills_script("client.mjs", &[]);
    let found = find(&client, kernel.url()).await;
    assert_eq!(found["version"], "2026-07-28");
    assert_eq!(found["declared"], json!([true, true]));
    let skills = found["skills"].as_object().unwrap();
    assert_eq!(skills.len(), 4, "{found:#}");
    for id in ["sdk", "own"] {
        let root = format!("skill://{id}/acme/refunds");
        let skill = &skills[&format!("{root}/SKILL.md")];
        assert_eq!(skill["text"], refunds);
        assert_eq!(
            skill["frontmatter"]["metadata"],
            json!({"version": "1.0", "tags": ["a", 1, true]})
        );
        assert_eq!(
            skill["files"][&format!("{root}/references/a.md")],
            "# \u{e4}\n"
        );
        assert_eq!(skill["files"].as_object().unwrap().len(), 3);
        let names = ["SKILL.md", "partial/SKILL.md", "references/a.md"];
        assert_eq!(
            skill["walked"],
            json!(names.map(|name| format!("{root}/{name}")))
        );
        let at_own = find(&client, &kernel.server_url(id)).await;
        let skill = &at_own["skills"]["skill://acme/refunds/SKILL.md"];
        assert_eq!(skill["text"], refunds, "{at_own:#}");
    }
}
