//! `mgp import`: what a user's clients have becomes this kernel's.

use std::fs;
use std::path::Path;
use std::process::Output;

use mgp_tests::harness::{Account, DEADLINE, Program};
use serde_json::{Value, json};

/// What opens no port that somebody else may have.
const QUIET: &str =
    "[http]\nenabled = false\n[discovery]\nembedding = \"off\"\nexposure = \"all\"\n";
/// What must be seen nowhere but in its file.
const SECRET: &str = "ghp_0123456789abcdefghijklmnop";

/// A user with the same server in two clients, one of them with more.
struct User(Account);

impl User {
    async fn new() -> Option<Self> {
        let user = Self(Account::new(QUIET).await?);
        let fixture = Program::fixture(&[]);
        let files = json!({"command": fixture.command, "args": fixture.args});
        let claude = json!({"numStartups": 7, "mcpServers": {
            "files": files,
            "mgp": {"command": "/usr/local/bin/mgp", "args": ["stdio"]},
            "github": {"command": fixture.command, "args": fixture.args, "env": {"GITHUB_TOKEN": SECRET, "LEVEL": "$5"}},
        }});
        user.0.file("home/.claude.json", &claude.to_string());
        user.0.file(
            "home/.cursor/mcp.json",
            &format!("{{ // mine\n \"mcpServers\": {{\"fs\": {files}, \"odd\": {{}},}} }}"),
        );
        user.0.file(
            "home/.config/goose/config.yaml",
            "extensions:\n  developer:\n    type: builtin\n    enabled: true\n",
        );
        Some(user)
    }

    fn servers(&self) -> String {
        fs::read_to_string(self.0.at("home/.config/mgp/servers.toml")).unwrap()
    }

    async fn mgp(&self, args: &[&str]) -> Output {
        let home = self.0.home_only();
        let variables: Vec<(&str, &Path)> = home.iter().map(|(n, v)| (*n, v.as_path())).collect();
        let typed = self.0.mgp(args, &variables);
        let output = typed.output(DEADLINE).await;
        let said = [&*output.stdout, &*output.stderr].concat();
        assert!(!String::from_utf8_lossy(&said).contains(SECRET));
        output
    }

    async fn json(&self, args: &[&str]) -> Value {
        let output = self.mgp(&[args, &["--json"]].concat()).await;
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

fn words(output: &Output) -> String {
    let both = [&*output.stdout, &*output.stderr].concat();
    String::from_utf8(both).unwrap()
}

/// What several clients have becomes one server here; secrets lie apart; a second time there is nothing to do.
#[tokio::test]
async fn servers_of_clients_are_shown_and_then_imported() {
    let Some(user) = User::new().await else {
        return;
    };
    let shown = words(&user.mgp(&["import", "--dry-run"]).await);
    for line in [
        "+ id = \"files\"",
        "files: the same in files (Claude Code) and fs (Cursor)",
        "left out: odd in",
        "it has neither a command nor a URL",
        "left out: mgp (Claude Code): it is this kernel's own entry",
        "left out: developer in",
        "it is part of the client itself",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert_eq!(user.servers(), QUIET, "{shown}");

    let added = user.json(&["import", "--yes"]).await;
    assert_eq!(added["added"], true);
    let ids: Vec<_> = added["servers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| &s["id"])
        .collect();
    assert_eq!(ids, ["files", "github"]);
    let toml = user.servers();
    assert!(
        toml.starts_with(QUIET.trim_end()) && !toml.contains(SECRET),
        "{toml}"
    );
    assert!(toml.contains("LEVEL = \"$$5\""), "{toml}");
    assert!(
        toml.contains("GITHUB_TOKEN = \"secret:github/GITHUB_TOKEN\""),
        "{toml}"
    );
    assert_eq!(added["servers"][1]["kept"], json!(["github/GITHUB_TOKEN"]));
    let listed = user.json(&["secrets", "list"]).await;
    let users = json!([{"server": "github", "key": "env.GITHUB_TOKEN"}]);
    assert_eq!(listed["secrets"][0]["kept_in"], "file");
    assert_eq!(listed["secrets"][0]["used_by"], users);

    let again = user.json(&["import", "--yes"]).await;
    assert_eq!(
        (&again["added"], &again["servers"]),
        (&json!(false), &json!([]))
    );
    assert_eq!(user.servers(), toml);
}

/// Arguments cannot name a secret: what is in them is said to be open, and not shown.
#[tokio::test]
async fn secrets_in_arguments_are_named_and_not_shown() {
    let Some(user) = User::new().await else {
        return;
    };
    let server = json!({"command": "srv", "args": ["--api-key=hush-hush", "--token", "swordfish"]});
    let text = json!({"mcpServers": { "é": server }}).to_string();
    user.0.file("home/.cursor/mcp.json", &text);
    let shown = words(&user.mgp(&["import", "cursor", "--dry-run"]).await);
    for secret in ["hush-hush", "swordfish"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    for line in [
        "é (Cursor): called server here",
        "server: what stands behind `--api-key` looks like a secret",
        "server: what stands behind `--token` looks like a secret",
        "servers.toml has it in clear text",
        "`mgp secrets set server/NAME` keeps it",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let told = user.json(&["import", "cursor", "--dry-run"]).await;
    let open = &told["servers"][0]["open_secrets"];
    assert_eq!(open, &json!(["--api-key", "--token"]));
}

/// Nobody is there to say yes: nothing is written.
#[tokio::test]
async fn without_a_yes_nothing_is_added() {
    let Some(user) = User::new().await else {
        return;
    };
    let output = user.mgp(&["import"]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(
        words(&output).contains("`mgp import --yes`"),
        "{}",
        words(&output)
    );
    assert_eq!(user.servers(), QUIET);
    assert!(!user.0.at("home/.config/mgp/sealed").exists());
}

/// Misspelt clients, servers and files are told from others.
#[tokio::test]
async fn misspelt_client_server_or_file_gets_a_suggestion() {
    let Some(user) = User::new().await else {
        return;
    };
    for (args, told) in [
        (&["import", "curser"][..], "did you mean cursor?"),
        (
            &["import", "--only", "fils", "--yes"],
            "did you mean files?",
        ),
        (&["import", "./none.json"], "there is no file"),
        (&["import", "zed"], "zed/settings.json"),
    ] {
        let output = user.mgp(args).await;
        assert!(!output.status.success(), "{args:?}");
        assert!(
            words(&output).contains(told),
            "{args:?}: {}",
            words(&output)
        );
    }
    assert_eq!(user.servers(), QUIET);
}
