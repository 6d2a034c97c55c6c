//! The inspector of the protocol's makers, on its command line.

use mgp_tests::harness::{DEADLINE, Kernel, Need, Peers, Program};
use serde_json::Value;
use tempfile::TempDir;

/// MGP-008: it lists and calls over the HTTP door and over `mgp stdio`.
#[tokio::test]
async fn the_inspector_lists_and_calls() {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let home = TempDir::new().unwrap();
    let kernel = Kernel::start(&Program::fixture(&[]).entry("it")).await;
    kernel.connected(&["it"]).await;
    let door = kernel.program(&["stdio"]);
    for target in [vec![kernel.url()], vec![&door.command, "stdio"]] {
        let ask = async |args: &[&str]| {
            let script = "@modelcontextprotocol/inspector/clients/launcher/build/index.js";
            let mut inspector = peers
                .node(script, &["--cli"])
                .env("HOME", home.path().display().to_string());
            let to_child: Vec<String> = door.env.iter().map(|(n, v)| format!("{n}={v}")).collect();
            for variable in &to_child {
                inspector = inspector.args(&["-e", variable]);
            }
            let output = inspector
                .args(args)
                .arg("--")
                .args(&target)
                .output(DEADLINE)
                .await;
            let err = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{args:?} {target:?}: {err}");
            serde_json::from_slice::<Value>(&output.stdout).unwrap()
        };
        let tools = ask(&["--method", "tools/list"]).await;
        let tools = tools["tools"].as_array().unwrap();
        assert!(tools.len() > 60, "{target:?}: {tools:?}");
        let echo = tools
            .iter()
            .find(|tool| tool["description"] == "Answers its text")
            .unwrap();
        let name = echo["name"].as_str().unwrap();
        let call = [
            "--method",
            "tools/call",
            "--tool-name",
            name,
            "--tool-arg",
            "text=grüße",
        ];
        assert_eq!(
            ask(&call).await["content"][0]["text"],
            "grüße",
            "{target:?}"
        );
    }
}
