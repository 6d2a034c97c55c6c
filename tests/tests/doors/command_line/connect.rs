//! `mgp connect`: this kernel's entry in a client's file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use mgp_tests::harness::{Account, Agent, DEADLINE, Program, wait_until};
use serde_json::{Value, json};

use crate::scene::NEWEST;

/// A port nobody else has, so that clients of the door find this kernel.
const ANY_PORT: &str =
    "[http]\nlisten = \"127.0.0.1:0\"\n[discovery]\nembedding = \"off\"\nexposure = \"all\"\n";
/// What stands in Cursor's file.
const CURSOR: &str = "{\r\n  // mine\r\n  \"mcpServers\": {\r\n    \"other\": { \"command\": \"x\" }\r\n  }\r\n}\r\n";

struct User(Account);

impl User {
    async fn new() -> Option<Self> {
        let servers = format!("{ANY_PORT}{}", Program::fixture(&[]).entry("it"));
        let user = Self(Account::new(&servers).await?);
        user.0.file("home/.cursor/mcp.json", CURSOR);
        Some(user)
    }

    fn cursor(&self) -> String {
        fs::read_to_string(self.0.at("home/.cursor/mcp.json")).unwrap()
    }

    fn program(&self, args: &[&str]) -> Program {
        let home = self.0.home_only();
        let variables: Vec<(&str, &Path)> = home.iter().map(|(n, v)| (*n, v.as_path())).collect();
        self.0.mgp(args, &variables)
    }

    async fn mgp(&self, args: &[&str]) -> Output {
        self.program(args).output(DEADLINE).await
    }

    async fn done(&self, args: &[&str]) -> String {
        let output = self.mgp(args).await;
        let said = [&*output.stdout, &*output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        assert!(output.status.success(), "{args:?}: {said}");
        said
    }
}

/// The entry as the client would read it.
fn entry(text: &str) -> Value {
    let uncommented = text.replace("// mine", "");
    let read: Value = serde_json::from_str(&uncommented).unwrap();
    read["mcpServers"]["mgp"].clone()
}

/// What is written starts an agent of this kernel; taken back, the file is what it was byte by byte.
#[tokio::test]
async fn a_client_that_is_connected_reaches_the_kernel() {
    let Some(user) = User::new().await else {
        return;
    };
    let shown = user.done(&["connect", "cursor", "--dry-run"]).await;
    assert!(shown.contains("+ ") && shown.contains("\"mgp\""), "{shown}");
    assert_eq!(user.cursor(), CURSOR);

    user.done(&["connect", "cursor", "--yes"]).await;
    let written = user.cursor();
    assert!(
        written.starts_with("{\r\n  // mine\r\n")
            && written.contains("\"other\": { \"command\": \"x\" }"),
        "{written:?}"
    );
    let entry = entry(&written);
    let words = |value: &Value| value.as_str().unwrap().to_owned();
    let started = Program::new(
        words(&entry["command"]),
        entry["args"].as_array().unwrap().iter().map(words),
    );
    let home = user.0.home_only();
    let variables: Vec<(&str, &Path)> = home.iter().map(|(n, v)| (*n, v.as_path())).collect();
    let mut agent = Agent::over_stdio(&user.0.runs(&started, &variables));
    agent.initialize(NEWEST, "{}").await.result();
    // A kernel that this one started lists its server once that has started.
    wait_until("it has tools", DEADLINE, async || {
        let tools = agent.request("tools/list", json!({})).await;
        let tools = tools.result()["tools"].as_array().cloned();
        tools.is_some_and(|tools| !tools.is_empty())
    })
    .await;

    assert!(
        user.done(&["connect", "cursor", "--yes"])
            .await
            .contains("connected already")
    );
    user.done(&["connect", "cursor", "--undo", "--yes"]).await;
    assert_eq!(user.cursor(), CURSOR);
}

/// A file that was changed after it was connected loses the entry and nothing else.
#[tokio::test]
async fn disconnect_leaves_later_changes_of_the_file() {
    let Some(user) = User::new().await else {
        return;
    };
    user.done(&["connect", "cursor", "--yes"]).await;
    let changed = user.cursor().replace("\"x\"", "\"y\"");
    user.0.file("home/.cursor/mcp.json", &changed);
    user.done(&["connect", "cursor", "--undo", "--yes"]).await;
    assert!(user.cursor().contains("\"y\""), "{}", user.cursor());
    assert_eq!(entry(&user.cursor()), Value::Null);
}

/// Over HTTP each client has a token of its own, which is shown nowhere and lies where nobody else reads it.
#[tokio::test]
async fn over_http_a_client_has_a_token_of_its_own() {
    let Some(user) = User::new().await else {
        return;
    };
    let none = user.mgp(&["connect", "cursor", "--http", "--yes"]).await;
    let told = String::from_utf8(none.stderr).unwrap();
    assert!(told.contains("mgp up --detach"), "{told}");
    user.done(&["up", "--detach"]).await;
    let said = user.done(&["connect", "cursor", "--http", "--yes"]).await;
    let entry = entry(&user.cursor());
    let token = entry["headers"]["Authorization"].as_str().unwrap();
    let token = token.strip_prefix("Bearer ").unwrap();
    assert!(token.len() >= 32 && !said.contains(token), "{said}");
    let mode = fs::metadata(user.0.at("home/.cursor/mcp.json"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o077, 0);
    assert!(
        user.done(&["agents", "list"])
            .await
            .contains("agent.cursor")
    );
    let desktop = user
        .mgp(&["connect", "claude-desktop", "--http", "--yes"])
        .await;
    assert!(
        String::from_utf8(desktop.stderr)
            .unwrap()
            .contains("starts commands only")
    );
}

/// The agent and the token that connecting made go with the entry; what was there before, or others use, stays.
#[tokio::test]
async fn undo_revokes_the_token_that_connecting_made() {
    let Some(user) = User::new().await else {
        return;
    };
    user.done(&["up", "--detach"]).await;
    let undo = ["connect", "cursor", "--undo", "--yes"];
    user.done(&["connect", "cursor", "--http", "--yes"]).await;
    // Again: the agent is still the one that connecting made.
    let again = format!("{}\n", user.cursor());
    user.0.file("home/.cursor/mcp.json", &again);
    user.done(&["connect", "cursor", "--http", "--yes"]).await;
    let said = user.done(&undo).await;
    assert!(
        said.contains("removes agent.cursor and its token"),
        "{said}"
    );
    assert_eq!(entry(&user.cursor()), Value::Null);
    let listed = user.done(&["agents", "list"]).await;
    assert!(!listed.contains("agent.cursor"), "{listed}");

    user.done(&["agents", "add", "alice"]).await;
    user.done(&["connect", "cursor", "--http", "--agent", "alice", "--yes"])
        .await;
    let token = entry(&user.cursor())["headers"]["Authorization"].clone();
    let said = user.done(&undo).await;
    assert!(said.contains("revokes the token of agent.alice"), "{said}");
    let listed = user.done(&["agents", "list"]).await;
    assert!(listed.contains("agent.alice"), "{listed}");
    assert!(token.as_str().unwrap().len() > 32);

    user.done(&["connect", "cursor", "--http", "--agent", "both", "--yes"])
        .await;
    user.done(&["connect", "zed", "--agent", "both", "--yes"])
        .await;
    let said = user.done(&undo).await;
    assert!(
        said.contains("agent.both and its token stay: Zed uses it, too"),
        "{said}"
    );
    let listed = user.done(&["agents", "list"]).await;
    assert!(listed.contains("agent.both"), "{listed}");
}

/// A server that would start nowhere afterwards is named before it is taken out.
#[tokio::test]
async fn servers_that_do_not_start_here_are_named_before_they_are_taken_out() {
    let servers = format!(
        "{ANY_PORT}[[servers]]\nid = \"other\"\ncommand = \"x\"\nautostart = false\n\
         [[servers]]\nid = \"gh\"\ncommand = \"gh\"\nenv = {{ TOKEN = \"secret:gh/TOKEN\" }}\n"
    );
    let Some(account) = Account::new(&servers).await else {
        return;
    };
    let user = User(account);
    user.0.file("home/.cursor/mcp.json", CURSOR);
    let claude = json!({"mcpServers": {"gh": {"command": "gh", "env": {"TOKEN": "${TOKEN}"}}}});
    user.0.file("home/.claude.json", &claude.to_string());
    let shown = user
        .done(&["connect", "cursor", "--take-out", "--dry-run"])
        .await;
    assert!(
        shown.contains("other: it starts only on request here"),
        "{shown}"
    );
    let shown = user
        .done(&["connect", "claude-code", "--take-out", "--dry-run"])
        .await;
    assert!(shown.contains("there is no secret gh/TOKEN"), "{shown}");
    user.0.file("home/.config/mgp/servers.toml", "[[servers]\n");
    let refused = user
        .mgp(&["connect", "cursor", "--take-out", "--yes"])
        .await;
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        !refused.status.success() && said.contains("not TOML"),
        "{said}"
    );
    assert_eq!(user.cursor(), CURSOR);
}

/// What the kernel has, too, is taken out of the client when that is asked for, and only that.
#[tokio::test]
async fn servers_the_kernel_has_are_removed_from_a_client_on_request() {
    let Some(user) = User::new().await else {
        return;
    };
    user.done(&["import", "cursor", "--yes"]).await;
    user.done(&["connect", "cursor", "--take-out", "--yes"])
        .await;
    let text = user.cursor();
    assert!(
        !text.contains("other") && text.contains("// mine"),
        "{text}"
    );
    assert_ne!(entry(&text), Value::Null);
}

/// Decision 51: what is written leads to the set, over either door; a set that is not there is not written.
#[tokio::test]
async fn a_client_can_be_connected_to_a_set() {
    let sets = format!("{ANY_PORT}[sets.few]\ntools = [\"it:echo\"]\n");
    let servers = format!("{sets}{}", Program::fixture(&[]).entry("it"));
    let Some(account) = Account::new(&servers).await else {
        return;
    };
    let user = User(account);
    user.0.file("home/.cursor/mcp.json", CURSOR);
    user.done(&["up", "--detach"]).await;
    let none = user
        .mgp(&["connect", "cursor", "--set", "fw", "--yes"])
        .await;
    let words = String::from_utf8(none.stderr).unwrap();
    assert!(
        !none.status.success() && words.contains("did you mean few?"),
        "{words}"
    );
    assert_eq!(user.cursor(), CURSOR);

    user.done(&["connect", "cursor", "--set", "few", "--yes"])
        .await;
    let line = entry(&user.cursor());
    let words = |value: &Value| value.as_str().unwrap().to_owned();
    let args: Vec<String> = line["args"].as_array().unwrap().iter().map(words).collect();
    assert!(
        args.windows(2).any(|pair| pair == ["--set", "few"]),
        "{args:?}"
    );
    let started = Program::new(words(&line["command"]), args);
    let home = user.0.home_only();
    let variables: Vec<(&str, &Path)> = home.iter().map(|(n, v)| (*n, v.as_path())).collect();
    let mut agent = Agent::over_stdio(&user.0.runs(&started, &variables));
    agent.initialize(NEWEST, "{}").await.result();
    let list = agent.request("tools/list", json!({})).await.result();
    let names: Vec<_> = list["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["name"])
        .collect();
    assert_eq!(names, ["it__echo"]);

    user.done(&["connect", "cursor", "--set", "few", "--http", "--yes"])
        .await;
    let url = words(&entry(&user.cursor())["url"]);
    assert!(url.ends_with("/mcp/p/few"), "{url}");
}
