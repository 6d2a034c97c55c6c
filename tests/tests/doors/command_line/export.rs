//! `mgp export`: this kernel's servers become a client's, and come back as they were.

use std::fs;
use std::path::Path;
use std::process::Output;

use mgp_tests::harness::{Account, DEADLINE, Program};
use serde_json::{Value, json};

const QUIET: &str =
    "[http]\nenabled = false\n[discovery]\nembedding = \"off\"\nexposure = \"all\"\n";
/// What must be in no file unless it is asked for.
const SECRET: &str = "ghp_0123456789abcdefghijklmnop";

/// A user with two servers, one of which has a secret.
struct User(Account);

impl User {
    async fn new() -> Option<Self> {
        let fixture = Program::fixture(&[]);
        let servers = format!(
            "{QUIET}\n{}\n[servers.env]\nGITHUB_TOKEN = \"secret:gh/GITHUB_TOKEN\"\nLEVEL = \"$$5\"\n\
             [servers.limits]\nmemory_bytes = 900000000\n\n\
             [[servers]]\nid = \"docs\"\nurl = \"https://docs.example.org/mcp\"\nautostart = false\n",
            fixture.entry("gh")
        );
        let user = Self(Account::new(&servers).await?);
        user.0.file("token", SECRET);
        let mgp = Program::ours("mgp", [""; 0]).command;
        let line = format!("exec {mgp} secrets set gh/GITHUB_TOKEN < token");
        let home = user.0.home_only();
        let variables: Vec<(&str, &Path)> = home.iter().map(|(n, v)| (*n, v.as_path())).collect();
        let set = user.0.runs(&Program::new("sh", ["-c", &line]), &variables);
        let output = set.output(DEADLINE).await;
        assert!(output.status.success(), "{output:?}");
        Some(user)
    }

    async fn mgp(&self, args: &[&str]) -> Output {
        let home = self.0.home_only();
        let variables: Vec<(&str, &Path)> = home.iter().map(|(n, v)| (*n, v.as_path())).collect();
        self.0.mgp(args, &variables).output(DEADLINE).await
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

/// Printed, the entries are what most clients read; no secret is in them, and what is to be done is said.
#[tokio::test]
async fn printed_export_is_a_client_config_without_secrets() {
    let Some(user) = User::new().await else {
        return;
    };
    let printed = user.mgp(&["export"]).await;
    assert!(!words(&printed).contains(SECRET), "{printed:?}");
    let document: Value = serde_json::from_slice(&printed.stdout).unwrap();
    let env = &document["mcpServers"]["gh"]["env"];
    assert_eq!(
        env,
        &json!({"GITHUB_TOKEN": "${GITHUB_TOKEN}", "LEVEL": "$5"})
    );
    assert_eq!(
        document["mcpServers"]["docs"],
        json!({"type": "http", "url": "https://docs.example.org/mcp"})
    );
    let said = String::from_utf8_lossy(&printed.stderr);
    for part in [
        "gh: set GITHUB_TOKEN where the client is started; here it is secret:gh/GITHUB_TOKEN",
        "gh: left out limits: Claude Code has nothing like it",
        "docs: left out autostart",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// Into a client's file: its comments stay, VS Code asks for the secret, a second time there is nothing to
/// write, and another entry of the name stays unless it may be replaced.
#[tokio::test]
async fn a_clients_file_is_shown_and_then_written() {
    let Some(user) = User::new().await else {
        return;
    };
    let at = "home/.config/Code/User/mcp.json";
    let before = "{\n  // mine\n  \"servers\": { \"docs\": { \"type\": \"http\", \"url\": \"https://other\" } }\n}\n";
    user.0.file(at, before);
    let read = || fs::read_to_string(user.0.at(at)).unwrap();
    let shown = user.mgp(&["export", "--to", "vscode", "--dry-run"]).await;
    assert!(words(&shown).contains("+"), "{}", words(&shown));
    assert_eq!(read(), before);
    let refused = user.mgp(&["export", "--to", "vscode"]).await;
    assert_eq!(refused.status.code(), Some(2), "{}", words(&refused));
    assert_eq!(read(), before);

    let written = user.json(&["export", "--to", "vscode", "--yes"]).await;
    assert_eq!(written["written"], true);
    assert_eq!(written["left"][0]["id"], "docs");
    let text = read();
    assert!(
        text.contains("// mine") && text.contains("https://other"),
        "{text}"
    );
    assert!(
        text.contains("${input:mgp-gh-github-token}") && text.contains("promptString"),
        "{text}"
    );
    assert!(!text.contains(SECRET), "{text}");
    let again = user.json(&["export", "--to", "vscode", "--yes"]).await;
    assert_eq!(again["written"], false);
    let replaced = user
        .json(&["export", "--to", "vscode", "--yes", "--replace"])
        .await;
    assert_eq!(replaced["written"], true);
    assert!(!read().contains("https://other"), "{}", read());
}

/// What was written for a client is taken over from it as it was; in clear only where that was asked for,
/// and then into a file of one's own.
#[tokio::test]
async fn exported_servers_are_imported_unchanged() {
    let Some(user) = User::new().await else {
        return;
    };
    let file = user.0.at("out/mcp.json").display().to_string();
    fs::create_dir_all(user.0.at("out")).unwrap();
    let only = ["export", "--to", &*file, "--only", "gh", "--yes"];
    assert_eq!(user.json(&only).await["written"], true);
    let back = user.json(&["import", &file, "--dry-run"]).await;
    let why = back["left_out"].to_string();
    assert!(why.contains("as gh"), "{back}");

    let clear = user
        .json(&[&only[..], &["--with-values", "--replace"]].concat())
        .await;
    assert_eq!(clear["written"], true);
    assert!(fs::read_to_string(&file).unwrap().contains(SECRET));
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");

    for (args, told) in [
        (&["export", "--to", "curser"][..], "did you mean cursor?"),
        (&["export", "--only", "hg"], "no server hg"),
        (
            &["export", "--to", "claude"],
            "claude-desktop or claude-code",
        ),
        (&["export", "--to", "./x.yaml"], "name the client"),
    ] {
        let output = user.mgp(args).await;
        assert_eq!(
            output.status.code(),
            Some(2),
            "{args:?}: {}",
            words(&output)
        );
        assert!(
            words(&output).contains(told),
            "{args:?}: {}",
            words(&output)
        );
    }
    let wrong = user.mgp(&["up", "--config", &file]).await;
    let told = format!("`mgp import {file}` takes these over");
    assert!(words(&wrong).contains(&told), "{}", words(&wrong));
}
