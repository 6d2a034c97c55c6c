//! Skills (SEP-2640): aggregated under the names of their servers, and verified on read.

mod policy;

use mgp_tests::harness::envelope::MODERN;
use mgp_tests::harness::{Client, DEADLINE, Kernel, Program, wait_until};
use serde_json::{Value, json};

use crate::scene::NEWEST;

const SKILL: &str =
    "---\nname: refunds\n---\nSee references/a.md and skill://refunds/references/a.md\n";
const DIGEST: &str = "sha256:b1bb72fa6aad7397ef80154853c4fa829117c44c63423f4f5c904491a62bddaf";
const NOTE_DIGEST: &str = "sha256:aa1237b773c38dbddef583c4868aaea7a44c5237ea7923aecca5513764b42d80";

fn entry() -> Value {
    json!({"uri": "skill://refunds/SKILL.md", "frontmatter": {"name": "refunds", "n": 1.0}, "resources": [
        {"uri": "skill://refunds/SKILL.md", "digest": DIGEST, "size": SKILL.len()},
        {"uri": "skill://refunds/references/a.md", "digest": NOTE_DIGEST, "size": 4},
    ]})
}

/// A server with a skill; `note` is the text of its second file.
fn program(note: &str) -> Program {
    let file =
        |uri: &str, text: &str| json!({"uri": uri, "mimeType": "text/markdown", "text": text});
    let dynamic =
        json!({"uri": "github://o/daily/SKILL.md", "frontmatter": {}, "resources": "dynamic"});
    let methods = json!({
        "skills/list": {"skills": [entry(), dynamic], "ttlMs": 1, "cacheScope": "public"},
        "skills/get": {"skill": entry(), "ttlMs": 1, "cacheScope": "public"},
        "resources/directory/read": {"resources": [{"uri": "skill://refunds/references/a.md", "name": "a.md"}]},
    });
    let declared = r#"{"io.modelcontextprotocol/skills":{"directoryRead":true}}"#;
    Program::fixture(&["--bare", "--extensions", declared])
        .args(&["--methods", &methods.to_string()])
        .args(&[
            "--resource",
            &file("skill://refunds/SKILL.md", SKILL).to_string(),
        ])
        .args(&[
            "--resource",
            &file("skill://refunds/references/a.md", note).to_string(),
        ])
}

async fn start() -> Kernel {
    let kernel =
        Kernel::start(&(program("# A\n").entry("docs") + &program("# B\n").entry("shop"))).await;
    kernel.connected(&["docs", "shop"]).await;
    kernel
}

async fn uris(client: &mut Client) -> Vec<String> {
    let list = client.request("skills/list", json!({})).await.result();
    let skills = list["skills"].as_array().unwrap().iter();
    skills
        .map(|skill| skill["uri"].as_str().unwrap().to_owned())
        .collect()
}

/// EXT-014, EXT-040, EXT-041, EXT-042, EXT-043: clients of 2026-07-28 list the skills of all servers under their names, get one, and
/// read its files and directories; clients of older versions read plain resources.
#[tokio::test]
async fn skills_of_two_servers_stay_apart() {
    let kernel = start().await;
    let mut merged = Client::over_http(kernel.url(), MODERN, "{}").await;
    let discovered = merged.request("server/discover", json!({})).await.result();
    let told = &discovered["capabilities"]["extensions"]["io.modelcontextprotocol/skills"];
    assert_eq!(told, &json!({"directoryRead": true}));
    let listed = uris(&mut merged).await;
    let all = ["docs", "shop"].map(|id| {
        [
            format!("skill://{id}/refunds/SKILL.md"),
            format!("mcpk://{id}/github://o/daily/SKILL.md"),
        ]
    });
    assert_eq!(listed, all.concat());
    for id in ["docs", "shop"] {
        let uri = format!("skill://{id}/refunds/SKILL.md");
        let got = merged
            .request("skills/get", json!({"uri": uri}))
            .await
            .result();
        let skill = &got["skill"];
        assert_eq!(
            (&skill["uri"], &skill["frontmatter"]["n"]),
            (&json!(uri), &json!(1.0))
        );
        assert_eq!(
            skill["resources"][1]["uri"],
            format!("skill://{id}/refunds/references/a.md")
        );
        assert_eq!(skill["resources"][1]["digest"], NOTE_DIGEST);
        let read = merged
            .request("resources/read", json!({"uri": uri}))
            .await
            .result();
        assert_eq!(
            (&read["contents"][0]["uri"], &read["contents"][0]["text"]),
            (&json!(uri), &json!(SKILL))
        );
        let folder = json!({"uri": format!("skill://{id}/refunds/references")});
        let children = merged
            .request("resources/directory/read", folder)
            .await
            .result();
        assert_eq!(
            children["resources"][0]["uri"],
            format!("skill://{id}/refunds/references/a.md")
        );
    }
    for unknown in ["skill://refunds/SKILL.md", "skill://none/refunds/SKILL.md"] {
        for method in ["skills/get", "resources/read"] {
            let refused = merged.request(method, json!({"uri": unknown})).await;
            assert_eq!(refused.code(), -32602, "{method} {unknown}");
        }
    }
    let mut own = Client::over_http(&kernel.server_url("docs"), MODERN, "{}").await;
    assert_eq!(
        uris(&mut own).await,
        ["skill://refunds/SKILL.md", "github://o/daily/SKILL.md"]
    );
    let got = own
        .request("skills/get", json!({"uri": "skill://refunds/SKILL.md"}))
        .await
        .result();
    assert_eq!(got["skill"], entry());
    let mut older = Client::over_http(kernel.url(), NEWEST, "{}").await;
    assert_eq!(older.request("skills/list", json!({})).await.code(), -32601);
    let uri = json!({"uri": "skill://docs/refunds/SKILL.md"});
    let read = older.request("resources/read", uri).await.result();
    assert_eq!(read["contents"][0]["text"], SKILL);
}

/// EXT-044: a file that differs from its skill's entry is refused and recorded, for every client.
#[tokio::test]
async fn file_that_differs_from_its_entry_is_refused_and_recorded() {
    let kernel = start().await;
    let mut merged = Client::over_http(kernel.url(), MODERN, "{}").await;
    uris(&mut merged).await;
    let good = json!({"uri": "skill://docs/refunds/references/a.md"});
    merged.request("resources/read", good).await.result();
    let mut older = Client::over_http(kernel.url(), NEWEST, "{}").await;
    let bad = json!({"uri": "skill://shop/refunds/references/a.md"});
    // It stays refused, however often it is read.
    for _ in 0..2 {
        let refused = older.request("resources/read", bad.clone()).await.error();
        assert!(
            refused["message"].as_str().unwrap().contains("digest"),
            "{refused}"
        );
    }
    wait_until("the refusal is recorded", DEADLINE, async || {
        let found = kernel
            .mgp(&["audit", "find", "--json", "--server", "shop"])
            .await;
        String::from_utf8_lossy(&found.stdout).contains("skill_rejected")
    })
    .await;
    let failed = kernel
        .mgp(&["skills", "verify", "skill://shop/refunds/SKILL.md"])
        .await;
    assert!(!failed.status.success(), "{failed:?}");
    let verified = kernel
        .mgp_json(&["skills", "verify", "skill://docs/refunds/SKILL.md"])
        .await;
    assert_eq!(verified["verified"], 2);
    let listed = kernel.mgp_json(&["skills", "list"]).await;
    assert_eq!(listed["skills"].as_array().unwrap().len(), 4);
    let shown = kernel
        .mgp(&["skills", "show", "skill://docs/refunds/SKILL.md"])
        .await;
    assert!(
        String::from_utf8_lossy(&shown.stdout).contains(NOTE_DIGEST),
        "{shown:?}"
    );
}

/// EXT-045: access control holds for skills as for resources of their server.
#[tokio::test]
async fn skills_of_a_closed_server_do_not_exist() {
    let kernel = start().await;
    kernel
        .mgp_json(&["grants", "add", "agent.anonymous", "docs", "--deny"])
        .await;
    let mut merged = Client::over_http(kernel.url(), MODERN, "{}").await;
    let listed = uris(&mut merged).await;
    assert!(
        listed.len() == 2 && listed.iter().all(|uri| uri.contains("shop")),
        "{listed:?}"
    );
    for method in ["skills/get", "resources/directory/read", "resources/read"] {
        let uri = json!({"uri": "skill://docs/refunds/SKILL.md"});
        assert_eq!(merged.request(method, uri).await.code(), -32602, "{method}");
    }
}
