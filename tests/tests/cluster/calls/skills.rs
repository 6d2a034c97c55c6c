//! Skills of a server of another node.

use std::path::Path;

use mgp_tests::harness::envelope::MODERN;
use mgp_tests::harness::kernel::nodes::JoinedNodes;
use mgp_tests::harness::{Client, DEADLINE, Program, wait_until};
use serde_json::{Value, json};

use crate::scene::NEWEST;

const REFUNDS: &str = "skill://nas+docs/refunds/SKILL.md";
const TONE: &str = "skill://nas+docs/tone/SKILL.md";
/// A file that is not what its entry says.
const LIE: &str = "skill://nas+liar/lie/SKILL.md";

fn skill(name: &str, text: &str) -> String {
    format!("---\nname: {name}\ndescription: Process {name}\n---\n{text}\n")
}

fn write(folder: &Path, name: &str, text: &str) {
    let file = folder.join(name);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
}

/// A server whose file differs from its entry.
fn liar() -> Program {
    let file = json!({"uri": "skill://lie/SKILL.md", "digest": "sha256:0", "size": 2});
    let entry =
        json!({"uri": "skill://lie/SKILL.md", "frontmatter": {"name": "lie"}, "resources": [file]});
    let methods = json!({"skills/list": {"skills": [entry]}, "skills/get": {"skill": entry}});
    let text = json!({"uri": "skill://lie/SKILL.md", "mimeType": "text/markdown", "text": "hm"});
    Program::fixture(&[
        "--bare",
        "--extensions",
        r#"{"io.modelcontextprotocol/skills":{}}"#,
    ])
    .args(&["--methods", &methods.to_string()])
    .args(&["--resource", &text.to_string()])
}

async fn uris(client: &mut Client) -> Vec<String> {
    let list = client.request("skills/list", json!({})).await.result();
    let skills = list["skills"].as_array().unwrap().iter();
    let uris = skills.map(|skill| skill["uri"].as_str().unwrap().to_owned());
    uris.filter(|uri| uri != LIE).collect()
}

async fn found(client: &mut Client) -> Value {
    let search = json!({"name": "mgp_tools_discover", "arguments": {"query": "process refunds"}});
    let answer = client.request("tools/call", search).await.result();
    let answer: Value =
        serde_json::from_str(answer["content"][0]["text"].as_str().unwrap()).unwrap();
    answer["skills"].clone()
}

/// EXT-200: skills of a server of another node are listed, got, read, walked and found at this node's clients, at the merged
/// endpoint and at that of the server.
#[tokio::test(flavor = "multi_thread")]
async fn skills_of_another_node_are_listed_read_and_found() {
    let folder = tempfile::tempdir().unwrap();
    let refunds = skill("refunds", "See references/a.md");
    write(folder.path(), "refunds/SKILL.md", &refunds);
    write(folder.path(), "refunds/references/a.md", "# A\n");
    write(folder.path(), "tone/SKILL.md", &skill("tone", "x"));
    let docs = Program::ours("mgp", ["__skills", folder.path().to_str().unwrap()]);
    let servers = docs.entry("docs") + &liar().entry("liar");
    let nodes = JoinedNodes::sharing(&servers, &["docs", "liar"]).await;
    let mut merged = Client::over_http(nodes.desk.url(), MODERN, "{}").await;
    assert_eq!(uris(&mut merged).await, [REFUNDS, TONE]);
    let entry = merged.request("skills/get", json!({"uri": REFUNDS})).await;
    let entry = entry.result()["skill"].clone();
    let note = "skill://nas+docs/refunds/references/a.md";
    assert_eq!(entry["resources"][1]["uri"], note, "{entry}");
    for (uri, text) in [(REFUNDS, &*refunds), (note, "# A\n")] {
        let read = merged.request("resources/read", json!({"uri": uri})).await;
        let read = read.result()["contents"][0].clone();
        assert_eq!((&read["uri"], &read["text"]), (&json!(uri), &json!(text)));
    }
    let walked = json!({"uri": "skill://nas+docs/refunds/references"});
    let walked = merged.request("resources/directory/read", walked).await;
    assert_eq!(walked.result()["resources"][0]["uri"], note);
    let best = json!({"uri": REFUNDS, "server": "nas/docs", "name": "refunds",
        "description": "Process refunds", "fits": true});
    assert_eq!(found(&mut merged).await[0], best);
    let printed = nodes.desk.mgp(&["tools", "find", "process refunds"]).await;
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(printed.contains(REFUNDS), "{printed}");
    let verified = nodes.desk.mgp_json(&["skills", "verify", REFUNDS]).await;
    assert_eq!(verified["verified"], 2);
    let mut own = Client::over_http(&nodes.desk.server_url("nas/docs"), MODERN, "{}").await;
    let listed = ["skill://refunds/SKILL.md", "skill://tone/SKILL.md"];
    assert_eq!(uris(&mut own).await, listed);
    let mut older = Client::over_http(nodes.desk.url(), NEWEST, "{}").await;
    let read = older.request("resources/read", json!({"uri": note})).await;
    assert_eq!(read.result()["contents"][0]["text"], "# A\n");
    // Each node verifies what it hands on.
    let lie = merged.request("resources/read", json!({"uri": LIE})).await;
    let lie = lie.error()["message"].to_string();
    assert!(lie.contains("digest"), "{lie}");
    wait_until("the refusal is recorded", DEADLINE, async || {
        let found = ["audit", "find", "--json", "--server", "liar"];
        let found = nodes.nas.mgp(&found).await;
        String::from_utf8_lossy(&found.stdout).contains("skill_rejected")
    })
    .await;
    // A file that changes at the owner is another one here as soon as its entry is.
    write(folder.path(), "refunds/references/a.md", "# B\n");
    wait_until("the change is here", DEADLINE, async || {
        uris(&mut merged).await;
        let read = merged.request("resources/read", json!({"uri": note})).await;
        !read.is_error() && read.result()["contents"][0]["text"] == "# B\n"
    })
    .await;
}

/// EXT-201: the owner decides for each caller of another node which skills there are, by the grants and the share, and nothing
/// that one caller listed is shown to another one.
#[tokio::test(flavor = "multi_thread")]
async fn owner_decides_about_skills_for_each_caller() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "refunds/SKILL.md", &skill("refunds", "x"));
    write(folder.path(), "tone/SKILL.md", &skill("tone", "x"));
    let docs = Program::ours("mgp", ["__skills", folder.path().to_str().unwrap()]);
    let nodes = JoinedNodes::sharing(&docs.entry("docs"), &["docs"]).await;
    let denied = [
        "grants",
        "add",
        "anonymous@desk",
        "docs:skill://refunds/SKILL.md",
        "--deny",
    ];
    nodes.nas.mgp_json(&denied).await;
    // The operator lists all, and its list is not that of others.
    let listed = nodes.desk.mgp_json(&["skills", "list"]).await;
    assert_eq!(listed["skills"].as_array().unwrap().len(), 2);
    let mut merged = Client::over_http(nodes.desk.url(), MODERN, "{}").await;
    wait_until("the denial is known", DEADLINE, async || {
        uris(&mut merged).await == [TONE]
    })
    .await;
    assert!(!found(&mut merged).await.to_string().contains(REFUNDS));
    for method in ["skills/get", "resources/read", "resources/directory/read"] {
        let closed = merged.request(method, json!({"uri": REFUNDS})).await;
        assert_eq!(closed.code(), -32602, "{method}: {closed:?}");
    }
    // The desk denies more than the owner.
    let own = [
        "grants",
        "add",
        "agent.anonymous",
        "nas/docs:skill://tone/SKILL.md",
        "--deny",
    ];
    nodes.desk.mgp_json(&own).await;
    assert_eq!(uris(&mut merged).await, [""; 0]);
    let own = [
        "grants",
        "remove",
        "agent.anonymous",
        "nas/docs:skill://tone/SKILL.md",
    ];
    nodes.desk.mgp_json(&own).await;
    // Without the share nothing is left.
    nodes.nas.mgp_json(&["shares", "remove", "docs"]).await;
    wait_until("the share is gone", DEADLINE, async || {
        let list = merged.request("skills/list", json!({})).await;
        list.is_error() || list.result()["skills"] == json!([])
    })
    .await;
}
