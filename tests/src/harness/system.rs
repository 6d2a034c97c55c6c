//! What the kernel under test holds on this system, as `mgp doctor` reports it.

use serde_json::Value;
use tokio::sync::OnceCell;

use super::{DEADLINE, Program};

/// The findings: area and text.
async fn findings() -> &'static [(String, String)] {
    static REPORTED: OnceCell<Vec<(String, String)>> = OnceCell::const_new();
    let reported = REPORTED.get_or_init(|| async {
        let home = tempfile::tempdir().expect("a folder");
        let home = home.path().to_str().expect("UTF-8").to_owned();
        let doctor = Program::ours("mgp", ["doctor", "--json"]).env("HOME", home);
        let output = doctor.output(DEADLINE).await;
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
        let findings = report["findings"].as_array().expect("findings").iter();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        findings
            .map(|it| (text(&it["area"]), text(&it["told"])))
            .collect()
    });
    reported.await
}

/// Whether the kernel reports that this system lacks something in this area.
pub async fn is_weaker(area: &str) -> bool {
    let start = format!("{area}: ");
    let mut findings = findings().await.iter();
    findings.any(|(of, text)| of == "system" && text.starts_with(&start))
}

/// Whether the kernel reports a sandbox for servers, whole or in part.
pub async fn holds_sandbox() -> bool {
    let mut findings = findings().await.iter();
    !findings.any(|(of, text)| of == "sandbox" && text.contains("not held to all of it"))
}

/// Whether servers that are trusted least are started. Without a sandbox, a kernel that runs as root rejects them:
/// suite `mgp` shows that.
pub async fn starts_sandboxed_servers() -> bool {
    holds_sandbox().await || !nix::unistd::geteuid().is_root()
}
