//! server-filesystem of npm over stdio: what it does on disk is really done.

use mgp_tests::harness::{Need, Peers};
use serde_json::json;

use super::both_ways::BothWays;

/// MCP-031, MCP-033, CMCP-048: files are written, read, changed and found, and nothing else is.
#[tokio::test]
async fn files_are_written_read_changed_and_found() {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let folder = tempfile::TempDir::new().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let at = |name: &str| root.join(name).display().to_string();
    let script = "@modelcontextprotocol/server-filesystem/dist/index.js";
    let mut both = BothWays::start(&peers.node(script, &[&at("")])).await;

    let tools = both.same_items("tools/list", "tools").await;
    assert!(tools.iter().any(|tool| tool["outputSchema"].is_object()));
    let write = json!({"path": at("a.txt"), "content": "one\ntwo\n"});
    both.same_call("write_file", write).await;
    assert_eq!(
        std::fs::read_to_string(root.join("a.txt")).unwrap(),
        "one\ntwo\n"
    );
    let read = both
        .same_call("read_text_file", json!({"path": at("a.txt")}))
        .await;
    assert_eq!(read.text(), "one\ntwo\n");
    both.same_call("list_directory", json!({"path": at("")}))
        .await;
    both.same_call("search_files", json!({"path": at(""), "pattern": "*.txt"}))
        .await;

    for (number, (way, agent)) in both.everybody().enumerate() {
        let name = format!("b{number}.txt");
        let arguments = json!({"path": at(&name), "content": "old"});
        agent.call("write_file", arguments).await.result();
        let edits = json!([{"oldText": "old", "newText": "new"}]);
        agent
            .call("edit_file", json!({"path": at(&name), "edits": edits}))
            .await
            .result();
        assert_eq!(
            std::fs::read_to_string(root.join(&name)).unwrap(),
            "new",
            "{way}"
        );
    }

    let outside = both
        .same_call("read_text_file", json!({"path": "/etc/hostname"}))
        .await;
    assert_eq!(outside.result()["isError"], true);
}
