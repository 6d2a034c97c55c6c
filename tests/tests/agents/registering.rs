//! An agent of the Python SDK that makes its own tool: the program of `docs/registering.md`, at a
//! kernel that is configured as that page says.

use std::path::{Path, PathBuf};

use mgp_tests::harness::{DEADLINE, Kernel, Need, Peers, Program};
use serde_json::Value;

/// The interpreter that the page names.
const PYTHON: &str = "/srv/agents/venv/bin/python";

/// MGP-224, MGP-229, MGP-239, MGP-243, MGP-247: an agent that lacks a tool writes a server that has it,
/// registers it, finds the tool by what it is for, calls it both ways and takes the server out; both
/// generations of the SDK see what the page shows.
#[tokio::test]
async fn an_agent_that_lacks_a_tool_makes_it_and_uses_it() {
    let Some(peers) = Peers::find(&[Need::Python]) else {
        return;
    };
    let python = peers.python("x", &[]).command;
    let kernel = kernel(&python).await;
    let made = kernel.mgp_json(&["agents", "add", "coder"]).await;
    let token = made["token"].as_str().unwrap();
    let page = page();
    let program = docs().join("examples/registering.py").display().to_string();
    for agent in [&python, &peers.modern().python("x", &[]).command] {
        let agent = Program::new(agent.clone(), [program.clone(), kernel.url().to_owned()]);
        let output = agent.env("MGP_TOKEN", token).output(DEADLINE).await;
        let told = String::from_utf8_lossy(&output.stdout);
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{told}{err}");
        assert_eq!(told.lines().count(), 6, "{told}{err}");
        assert!(
            page.contains(&*told),
            "the page shows something else:\n{told}"
        );
    }
    let servers = kernel.mgp_json(&["servers", "list"]).await;
    let servers = servers["servers"].as_array().unwrap().iter();
    let ids: Vec<&Value> = servers.map(|server| &server["id"]).collect();
    assert_eq!(ids, ["others"]);
}

/// A kernel with other tools, where `agent.coder` may register servers that `python` runs.
async fn kernel(python: &str) -> Kernel {
    let page = page();
    let blocks = page.split("```toml\n").skip(1);
    let mut blocks = blocks.filter_map(|block| block.split("```").next());
    let may = blocks.find(|block| block.contains("may_register")).unwrap();
    assert!(may.contains(PYTHON), "{may}");
    let door = "[http]\nlisten = \"127.0.0.1:0\"\n";
    let others = Program::fixture(&[]).entry("others");
    let may = may.replace(PYTHON, python);
    let kernel = Kernel::with_config(&format!("{door}{may}{others}")).await;
    kernel.connected(&["others"]).await;
    kernel
}

fn page() -> String {
    std::fs::read_to_string(docs().join("registering.md")).unwrap()
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}
