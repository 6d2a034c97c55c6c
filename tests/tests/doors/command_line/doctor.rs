//! `mgp doctor`: finds what is broken, whether or not a kernel runs, and mends what can be mended.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use mgp_tests::harness::{Account, DEADLINE, Program};
use serde_json::Value;

/// What opens no port that somebody else may have.
const QUIET: &str = "[http]\nenabled = false\n[discovery]\nembedding = \"off\"\n";

struct User(Account);

impl User {
    async fn new(more: &str) -> Option<Self> {
        let fixture = Program::fixture(&[]).entry("it");
        Some(Self(
            Account::new(&format!("{QUIET}{fixture}{more}")).await?,
        ))
    }

    async fn mgp(&self, args: &[&str]) -> Output {
        let home = self.0.home_only();
        let variables: Vec<(&str, &Path)> = home.iter().map(|(n, v)| (*n, v.as_path())).collect();
        self.0.mgp(args, &variables).output(DEADLINE).await
    }

    /// What was found, and the exit code.
    async fn doctor(&self, args: &[&str]) -> (Vec<Value>, i32) {
        let output = self.mgp(&[&["doctor", "--json"], args].concat()).await;
        let told: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
        let findings = told["findings"].as_array().unwrap().clone();
        (findings, output.status.code().unwrap())
    }
}

fn of<'f>(findings: &'f [Value], area: &str, severity: &str) -> Option<&'f Value> {
    findings
        .iter()
        .find(|it| it["area"] == area && it["condition"] == severity)
}

/// A machine that is well is told to be, with a kernel and without one.
#[tokio::test]
async fn doctor_reports_no_problem_on_a_healthy_machine() {
    let Some(user) = User::new("").await else {
        return;
    };
    let (before, code) = user.doctor(&[]).await;
    assert_eq!(code, 0, "{before:?}");
    assert_eq!(
        of(&before, "kernel", "warning").unwrap()["command"],
        "mgp up --detach"
    );
    assert!(of(&before, "programs", "good").is_some(), "{before:?}");
    let up = user.mgp(&["up", "--detach"]).await;
    assert!(up.status.success(), "{up:?}");
    let (running, code) = user.doctor(&[]).await;
    assert_eq!(code, 0, "{running:?}");
    for area in [
        "kernel",
        "configuration",
        "socket",
        "files",
        "audit",
        "clock",
    ] {
        assert!(of(&running, area, "good").is_some(), "{area}: {running:?}");
    }
    let severities: Vec<_> = running.iter().map(|it| it["condition"].as_str()).collect();
    let rank = |severity: &&Option<&str>| **severity == Some("good");
    let first_good = severities.iter().position(|severity| rank(&severity));
    assert!(
        severities[first_good.unwrap()..].iter().all(|it| rank(&it)),
        "the worst first"
    );
}

/// Each thing that is broken is named with what mends it; what others can read is closed by `--fix`.
#[tokio::test]
async fn doctor_reports_each_problem_with_its_fix() {
    let broken = "[[servers]]\nid = \"gone\"\ncommand = \"no-such-program\"\n\
                  [[servers]]\nid = \"keyed\"\ncommand = \"sh\"\nenv = { T = \"secret:nobody\" }\n";
    let Some(user) = User::new(broken).await else {
        return;
    };
    let up = user.mgp(&["up", "--detach"]).await;
    assert!(up.status.success(), "{up:?}");
    let token = user.0.at("home/.local/share/mgp/seal.key");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).unwrap();
    let client = r#"{"mcpServers": {"mgp": {"command": "/nowhere/mgp", "args": ["stdio"]}}}"#;
    user.0.file("home/.cursor/mcp.json", client);
    let (found, code) = user.doctor(&[]).await;
    assert_eq!(code, 4, "{found:?}");
    let told = |area: &str, severity: &str| of(&found, area, severity).unwrap()["told"].to_string();
    assert!(told("programs", "broken").contains("no-such-program"));
    assert!(told("secrets", "broken").contains("nobody"));
    assert!(told("files", "broken").contains("seal.key"));
    assert!(told("client", "warning").contains("/nowhere/mgp"));
    let command = &of(&found, "client", "warning").unwrap()["command"];
    assert_eq!(command, "mgp connect cursor");

    let (mended, code) = user.doctor(&["--fix"]).await;
    let done = mended.iter().find(|it| it["done"].is_string()).unwrap();
    assert!(
        done["done"].as_str().unwrap().contains("mode 600"),
        "{done}"
    );
    assert_eq!(code, 4, "the servers are still broken");
    let mode = fs::metadata(&token).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    assert!(of(&user.doctor(&[]).await.0, "files", "good").is_some());
    assert_eq!(
        fs::read_to_string(user.0.at("home/.cursor/mcp.json")).unwrap(),
        client
    );
}

/// A kernel that was started with a file of its own is judged by that file, whatever the shell would find.
#[tokio::test]
async fn doctor_checks_a_kernel_by_its_own_config_file() {
    let Some(user) = User::new("").await else {
        return;
    };
    let own = "[[servers]]\nid = \"gone\"\ncommand = \"no-such-program\"\n";
    user.0.file("own.toml", &format!("{QUIET}{own}"));
    let file = user.0.at("own.toml");
    let up = ["up", "--detach", "--config", file.to_str().unwrap()];
    let up = user.mgp(&up).await;
    assert!(up.status.success(), "{up:?}");
    let (found, _) = user.doctor(&[]).await;
    let told = of(&found, "programs", "broken").unwrap_or_else(|| panic!("{found:?}"));
    assert!(told["told"].to_string().contains("no-such-program"));
    let named = user.0.at("home/.config/mgp/servers.toml");
    let named = ["--config", named.to_str().unwrap()];
    let (found, _) = user.doctor(&named).await;
    assert!(of(&found, "programs", "good").is_some(), "{found:?}");
}

/// A-01: the user's file has another name than a project's, which is easily mistaken.
#[tokio::test]
async fn a_file_that_only_looks_as_if_it_were_read_is_named() {
    let Some(user) = User::new("").await else {
        return;
    };
    let (before, _) = user.doctor(&[]).await;
    assert!(
        of(&before, "configuration", "warning").is_none(),
        "{before:?}"
    );
    user.0
        .file("home/.config/mgp/mgp.toml", "[http]\nenabled = false\n");
    let (after, code) = user.doctor(&[]).await;
    let told = of(&after, "configuration", "warning").unwrap()["told"].to_string();
    assert!(
        told.contains("mgp.toml is not read") && told.contains("servers.toml"),
        "{told}"
    );
    assert_eq!(code, 0, "{after:?}");
}
