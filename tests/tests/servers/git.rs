//! mcp-server-git of PyPI over stdio: what it commits is really committed.

use std::path::Path;
use std::process::Command;

use mgp_tests::harness::{Need, Peers};
use serde_json::json;

use super::both_ways::BothWays;

/// MCP-031, MCP-032: a file is added and committed through the kernel; git itself confirms it.
#[tokio::test]
async fn a_file_is_added_and_committed() {
    let Some(peers) = Peers::find(&[Need::Python, Need::Git]) else {
        return;
    };
    let folder = tempfile::TempDir::new().unwrap();
    let root = folder.path().canonicalize().unwrap();
    git(&root, &["init", "--quiet", "--initial-branch", "main"]);
    git(&root, &["config", "user.name", "Ada"]);
    git(&root, &["config", "user.email", "ada@example.com"]);
    let repo = root.display().to_string();
    let mut both = BothWays::start(&peers.python("mcp_server_git", &["--repository", &repo])).await;

    both.same_items("tools/list", "tools").await;
    for (number, (way, agent)) in both.everybody().enumerate() {
        let name = format!("file{number}.txt");
        std::fs::write(root.join(&name), "text\n").unwrap();
        let add = json!({"repo_path": repo, "files": [name]});
        agent.call("git_add", add).await.result();
        let message = format!("Committed {way}");
        let commit = json!({"repo_path": repo, "message": message});
        let committed = agent.call("git_commit", commit).await;
        assert_ne!(committed.result()["isError"], true, "{}", committed.frame);
        assert_eq!(git(&root, &["log", "-1", "--format=%s"]).trim(), message);
    }
    both.same_call("git_status", json!({"repo_path": repo}))
        .await;
    let log = both
        .same_call("git_log", json!({"repo_path": repo, "max_count": 5}))
        .await;
    assert!(log.text().contains("Committed over HTTP"), "{}", log.frame);
}

fn git(folder: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(args)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {args:?}: {told}");
    String::from_utf8(output.stdout).unwrap()
}
