//! Skills in grants, sets and pins.

use std::path::Path;

use mgp_tests::harness::envelope::MODERN;
use mgp_tests::harness::{Client, DEADLINE, Kernel, Program, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{entry, program, start, uris};

const SKILL: &str = "docs:skill://refunds/SKILL.md";

fn about(uri: &str) -> Value {
    json!({"uri": format!("skill://docs/{uri}")})
}

/// EXT-046: a skill is denied, granted and put into sets by its server and URI, as a tool is; its files are open with it, and
/// what is closed reads like what does not exist.
#[tokio::test]
async fn skills_are_granted_one_by_one() {
    let kernel = Kernel::start(&format!(
        "[sets.money]\ntools = [{SKILL:?}]\n{}",
        program("# A\n").entry("docs")
    ))
    .await;
    kernel.connected(&["docs"]).await;
    let mut merged = Client::over_http(kernel.url(), MODERN, "{}").await;
    assert_eq!(uris(&mut merged).await.len(), 2);
    let deny = ["grants", "add", "agent.anonymous", SKILL, "--deny"];
    kernel.mgp_json(&deny).await;
    let other = "mcpk://docs/github://o/daily/SKILL.md";
    assert_eq!(uris(&mut merged).await, [other]);
    let listed = merged.request("resources/list", json!({})).await.result();
    assert!(!listed.to_string().contains("skill://"), "{listed}");
    for uri in [
        "refunds/SKILL.md",
        "refunds/references/a.md",
        "x/../refunds/SKILL.md",
    ] {
        for method in ["skills/get", "resources/read", "resources/directory/read"] {
            let refused = merged.request(method, about(uri)).await;
            assert_eq!(refused.code(), -32602, "{method} {uri}");
        }
    }
    let mut own = Client::over_http(&kernel.server_url("docs"), MODERN, "{}").await;
    assert_eq!(uris(&mut own).await, ["github://o/daily/SKILL.md"]);
    // Only this skill of a server that is closed otherwise.
    kernel
        .mgp_json(&["grants", "remove", "agent.anonymous", SKILL])
        .await;
    kernel
        .mgp_json(&["grants", "add", "agent.anonymous", "docs", "--deny"])
        .await;
    // As if no server had skills.
    let none = merged.request("skills/list", json!({})).await;
    assert_eq!(none.code(), -32601, "{none:?}");
    kernel
        .mgp_json(&["grants", "add", "agent.anonymous", SKILL])
        .await;
    for endpoint in [kernel.url().to_owned(), format!("{}/p/money", kernel.url())] {
        let mut client = Client::over_http(&endpoint, MODERN, "{}").await;
        assert_eq!(
            uris(&mut client).await,
            ["skill://docs/refunds/SKILL.md"],
            "{endpoint}"
        );
        let read = client
            .request("resources/read", about("refunds/references/a.md"))
            .await;
        assert_eq!(read.result()["contents"][0]["text"], "# A\n");
    }
    let unknown = [
        "grants",
        "add",
        "agent.anonymous",
        "docs:skill://refund/SKILL.md",
    ];
    let refused = kernel.mgp(&unknown).await;
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains(SKILL), "{text}");
}

/// EXT-041, EXT-054: what violates the specification is not passed on, and a server without `skills/get` is answered for from
/// its list.
#[tokio::test]
async fn invalid_entries_are_left_out() {
    let methods = json!({"skills/list": {"skills": [entry(), {"uri": "skill://x/SKILL.md"}]}});
    let declared = r#"{"io.modelcontextprotocol/skills":{}}"#;
    let fixture = [
        "--bare",
        "--extensions",
        declared,
        "--methods",
        &methods.to_string(),
    ];
    let kernel = Kernel::start(&Program::fixture(&fixture).entry("docs")).await;
    kernel.connected(&["docs"]).await;
    let listed = ["skill://refunds/SKILL.md"];
    let mut own = Client::over_http(&kernel.server_url("docs"), MODERN, "{}").await;
    assert_eq!(uris(&mut own).await, listed);
    // A server of skills has no methods that the kernel does not know.
    assert_eq!(own.request("com.example/x", json!({})).await.code(), -32601);
    let shown = ["skills", "show", "skill://docs/refunds/SKILL.md"];
    assert_eq!(
        kernel.mgp_json(&shown).await["uri"],
        "skill://docs/refunds/SKILL.md"
    );
    let missing = kernel
        .mgp(&["skills", "show", "skill://docs/none/SKILL.md"])
        .await;
    let text = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(
        text.contains("server docs") && text.contains("skill://none/SKILL.md"),
        "{text}"
    );
}

fn write(folder: &Path, name: &str, text: &str) {
    let file = folder.join(name);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
}

fn skill(name: &str, text: &str) -> String {
    format!("---\nname: {name}\ndescription: Process {name}\n---\n{text}\n")
}

/// Waits for one pending entry, and answers its id and details.
async fn pending(kernel: &Kernel) -> (String, String) {
    let mut first = Value::Null;
    wait_until("an entry is pending", DEADLINE, async || {
        let pending = kernel.mgp_json(&["pending"]).await;
        first = pending["pending"][0].clone();
        !first.is_null()
    })
    .await;
    let name = first["id"].as_str().unwrap().to_owned();
    (name, first.to_string())
}

async fn text(client: &mut Client, uri: &str) -> Result<String, i64> {
    let read = client.request("resources/read", about(uri)).await;
    match read.is_error() {
        false => Ok(read.result()["contents"][0]["text"]
            .as_str()
            .unwrap()
            .to_owned()),
        true => Err(read.code()),
    }
}

/// EXT-047, EXT-048: a skill that changed waits for the operator, who sees its files; blocked, it is neither listed nor read,
/// also after a restart. A nested skill needs an approval of its own, and the enclosing one does without.
#[tokio::test]
async fn changed_and_nested_skills_wait_for_approval() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    write(at, "refunds/SKILL.md", &skill("refunds", "good"));
    let server = Program::ours("mgp", ["__skills", at.to_str().unwrap()]);
    let config = format!("[pins]\nmode = \"block\"\n{}", server.entry("docs"));
    let kernel = Kernel::start(&config).await;
    kernel.connected(&["docs"]).await;
    let mut merged = Client::over_http(kernel.url(), MODERN, "{}").await;
    let refunds = "refunds/SKILL.md";
    assert_eq!(
        text(&mut merged, refunds).await,
        Ok(skill("refunds", "good"))
    );
    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    write(at, refunds, &skill("refunds", "evil"));
    let kernel = Kernel::again(folder).await;
    kernel.connected(&["docs"]).await;
    let mut merged = Client::over_http(kernel.url(), MODERN, "{}").await;
    // As the first request of all, before anybody asked for skills.
    let resources = merged.request("resources/list", json!({})).await.result();
    assert_eq!(
        resources["resources"],
        json!([]),
        "a blocked skill has no files"
    );
    assert_eq!(text(&mut merged, refunds).await, Err(-32602));
    assert_eq!(uris(&mut merged).await, [""; 0]);
    let (name, details) = pending(&kernel).await;
    let pins = kernel.mgp_json(&["servers", "pins", "docs"]).await;
    let pin = &pins["skills"][0];
    assert_eq!(
        (&pin["tool"], &pin["now"].is_string()),
        (&json!("skill://refunds/SKILL.md"), &true)
    );
    let printed = kernel.mgp(&["servers", "pins", "docs"]).await;
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(
        printed.contains("skill") && printed.contains("changed"),
        "{printed}"
    );
    let changed = "changed skill://refunds/SKILL.md";
    assert!(details.contains(changed), "{details}");
    kernel.mgp_json(&["approve", &name]).await;
    let resources = merged.request("resources/list", json!({})).await.result();
    assert_eq!(
        resources["resources"][0]["uri"],
        "skill://docs/refunds/SKILL.md"
    );
    assert_eq!(
        text(&mut merged, refunds).await,
        Ok(skill("refunds", "evil"))
    );
    // A nested skill changes its enclosing one, too; each is approved by itself.
    let nested = "refunds/partial/SKILL.md";
    write(at, nested, &skill("partial", "nested"));
    let mut listed = Vec::new();
    wait_until("the folder is read again", DEADLINE, async || {
        listed = uris(&mut merged).await;
        listed.is_empty()
    })
    .await;
    let (name, details) = pending(&kernel).await;
    assert!(
        details.contains("skill://refunds/partial/SKILL.md: not approved yet"),
        "{details}"
    );
    let only = ["approve", &name, "--only", "skill://refunds/SKILL.md"];
    kernel.mgp_json(&only).await;
    assert_eq!(uris(&mut merged).await, ["skill://docs/refunds/SKILL.md"]);
    assert_eq!(
        text(&mut merged, refunds).await,
        Ok(skill("refunds", "evil"))
    );
    assert_eq!(text(&mut merged, nested).await, Err(-32602));
    let (name, _) = pending(&kernel).await;
    kernel.mgp_json(&["approve", &name]).await;
    assert_eq!(
        text(&mut merged, nested).await,
        Ok(skill("partial", "nested"))
    );
}

/// EXT-049: a search for tools finds skills by words, those that the caller may use.
#[tokio::test]
async fn searches_find_skills() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "refunds/SKILL.md", &skill("refunds", "x"));
    write(folder.path(), "weather/SKILL.md", &skill("weather", "x"));
    let server = Program::ours("mgp", ["__skills", folder.path().to_str().unwrap()]);
    let kernel = Kernel::start(&server.entry("docs")).await;
    kernel.connected(&["docs"]).await;
    let mut merged = Client::over_http(kernel.url(), MODERN, "{}").await;
    let search = json!({"name": "mgp_tools_discover", "arguments": {"query": "process refunds"}});
    let mut found = async || {
        let answer = merged.request("tools/call", search.clone()).await.result();
        let text = answer["content"][0]["text"].as_str().unwrap();
        let answer: Value = serde_json::from_str(text).unwrap();
        answer["skills"].clone()
    };
    let first = found().await;
    let best = json!({"uri": "skill://docs/refunds/SKILL.md", "server": "docs", "name": "refunds",
        "description": "Process refunds", "fits": true});
    assert_eq!(first[0], best);
    let printed = kernel.mgp(&["tools", "find", "process refunds"]).await;
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(
        printed.contains("skill://docs/refunds/SKILL.md"),
        "{printed}"
    );
    let refunds = "docs:skill://refunds/SKILL.md";
    kernel
        .mgp_json(&["grants", "add", "agent.anonymous", refunds, "--deny"])
        .await;
    let second = found().await;
    assert_eq!(second[0]["name"], "weather", "{second}");
    assert_eq!(second.as_array().unwrap().len(), 1);
    let search = [
        "tools",
        "find",
        "process refunds",
        "--agent",
        "agent.anonymous",
    ];
    let second = kernel.mgp_json(&search).await["skills"].clone();
    assert_eq!(second[0]["name"], "weather", "{second}");
}

/// EXT-050: a folder is served to all clients as a server of the kernel, and its changes are noticed.
#[tokio::test]
async fn folder_is_served_by_one_command() {
    let kernel = start().await;
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "tone/SKILL.md", &skill("tone", "x"));
    let path = folder.path().to_str().unwrap();
    kernel
        .mgp_json(&["skills", "serve", path, "--name", "team"])
        .await;
    kernel.connected(&["team"]).await;
    let verified = ["skills", "verify", "skill://team/tone/SKILL.md"];
    assert_eq!(kernel.mgp_json(&verified).await["verified"], 1);
    write(folder.path(), "tone/more.md", "more");
    wait_until("the change is noticed", DEADLINE, async || {
        kernel.mgp_json(&verified).await["verified"] == 2
    })
    .await;
    let refused = kernel
        .mgp(&["skills", "serve", "/nosuch", "--name", "other"])
        .await;
    assert!(!refused.status.success());
}

/// EXT-052: a list does not wake a server that sleeps, of several servers or of that one: its last list counts, also of an
/// earlier kernel.
#[tokio::test]
async fn sleeping_servers_are_not_woken_for_a_list() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "tone/SKILL.md", &skill("tone", "x"));
    let server = Program::ours("mgp", ["__skills", folder.path().to_str().unwrap()]);
    let entry = server.entry("docs");
    let entry = format!("{}\nstart = \"on-demand\"\n", entry.trim_end());
    let kernel = Kernel::start(&entry).await;
    kernel.connected(&["docs"]).await;
    let listed = ["skill://docs/tone/SKILL.md"];
    let mut merged = Client::over_http(kernel.url(), MODERN, "{}").await;
    assert_eq!(uris(&mut merged).await, listed);
    let stopped = kernel.end(Signal::SIGTERM, DEADLINE).await;
    let kernel = Kernel::again(stopped).await;
    let mut merged = Client::over_http(kernel.url(), MODERN, "{}").await;
    wait_until("its last list is there", DEADLINE, async || {
        let offered = merged.request("server/discover", json!({})).await.result();
        offered["capabilities"]["extensions"]["io.modelcontextprotocol/skills"].is_object()
    })
    .await;
    assert_eq!(uris(&mut merged).await, listed);
    let mut own = Client::over_http(&kernel.server_url("docs"), MODERN, "{}").await;
    assert_eq!(uris(&mut own).await, ["skill://tone/SKILL.md"]);
    let resources = merged.request("resources/list", json!({})).await.result();
    assert!(resources.to_string().contains(listed[0]), "{resources}");
    let sleeps = async || kernel.mgp_json(&["servers", "show", "docs"]).await["sleeping"].clone();
    assert_eq!(sleeps().await, true);
    // A read wakes it, and is verified as ever.
    let read = merged
        .request("resources/read", about("tone/SKILL.md"))
        .await;
    assert_eq!(read.result()["contents"][0]["text"], skill("tone", "x"));
    assert_eq!(sleeps().await, Value::Null);
}
