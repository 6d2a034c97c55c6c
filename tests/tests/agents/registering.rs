//! An agent of the Python SDK that makes its own tool: the program of `docs/registering.md`, at a
//! kernel that is configured as that page says.

use std::path::{Path, PathBuf};

use mgp_tests::harness::{DEADLINE, Kernel, Need, Peers, Program, system};
use serde_json::{Value, json};

/// The interpreter that the page names.
const PYTHON: &str = "/srv/agents/venv/bin/python";

/// Tools that there are already.
const OTHERS: [(&str, &str); 4] = [
    ("forecast", "Tells whether it will rain tomorrow"),
    ("read_file", "Reads a file as text"),
    ("send_message", "Sends a message to somebody"),
    ("translate", "Says a text in another language"),
];

/// MGP-224, MGP-229, MGP-239, MGP-243, MGP-247: an agent that lacks a tool writes a server that has it,
/// registers it, finds the tool by what it is for, calls it both ways and takes the server out; agent and
/// server of either generation of the SDK see what the page shows.
#[tokio::test]
async fn an_agent_that_lacks_a_tool_makes_it_and_uses_it() {
    if !system::starts_sandboxed_servers().await {
        return;
    }
    let Some(peers) = Peers::find(&[Need::Python]) else {
        return;
    };
    let program = docs().join("examples/registering.py").display().to_string();
    for peers in [&peers, &peers.modern()] {
        let python = peers.python("x", &[]).command;
        let kernel = kernel(&python).await;
        let added = kernel.mgp(&["agents", "add", "coder"]).await;
        let token = String::from_utf8(added.stdout).unwrap();
        let agent = Program::new(python, [program.clone(), kernel.url().to_owned()]);
        let agent = agent.env("MGP_TOKEN", token.trim());
        let output = agent.output(DEADLINE).await;
        let told = String::from_utf8_lossy(&output.stdout);
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{told}{err}");
        assert_eq!(told.lines().count(), 6, "{told}{err}");
        assert!(
            page().contains(&*told),
            "the page shows something else:\n{told}"
        );
        let servers = kernel.mgp_json(&["servers", "list"]).await;
        let servers = servers["servers"].as_array().unwrap().iter();
        let ids: Vec<&Value> = servers.map(|server| &server["id"]).collect();
        assert_eq!(ids, ["others"]);
    }
}

/// PRJ-011: `mgp/discovery/register`, `list` and `deregister` as raw requests of the official SDK, of either generation,
/// by a client that knows nothing else of MGP and may register: the server runs, is listed and is called.
#[tokio::test]
async fn a_raw_request_of_the_sdk_registers_a_server() {
    if !system::starts_sandboxed_servers().await {
        return;
    }
    let Some(peers) = Peers::find(&[Need::Python]) else {
        return;
    };
    for peers in [&peers, &peers.modern()] {
        let kernel = kernel(&peers.python("x", &[]).command).await;
        kernel.mgp_json(&["agents", "add", "coder"]).await;
        let stdio = kernel.program(&["stdio", "--agent", "coder"]);
        let args: Vec<&str> = [stdio.command.as_str()]
            .into_iter()
            .chain(stdio.args.iter().map(String::as_str))
            .collect();
        let mut client = peers.python_script("clients/register.py", &args);
        client.env.extend(stdio.env.clone());
        let output = client.output(DEADLINE).await;
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{err}");
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(told["registered"]["status"], "connected", "{told:#}");
        assert_eq!(
            told["registered"]["tools"],
            json!(["days_between"]),
            "{told:#}"
        );
        let mut listed = told["listed"]["servers"].as_array().unwrap().iter();
        let made = listed.find(|server| server["id"] == "dynamic.made");
        let made = made.unwrap_or_else(|| panic!("it is listed: {told:#}"));
        assert_eq!(made["created_by"], "agent.coder", "{told:#}");
        assert!(told["called"].to_string().contains("32"), "{told:#}");
        assert_eq!(told["deregistered"]["id"], "dynamic.made", "{told:#}");
        let servers = kernel.mgp_json(&["servers", "list"]).await;
        assert!(!servers.to_string().contains("dynamic.made"), "{servers:#}");
    }
}

/// A kernel with other tools, where `agent.coder` may register servers that `python` runs.
async fn kernel(python: &str) -> Kernel {
    let page = page();
    let blocks = page.split("```toml\n").skip(1);
    let mut blocks = blocks.filter_map(|block| block.split("```").next());
    let may = blocks.find(|block| block.contains("may_register")).unwrap();
    assert!(may.contains(PYTHON), "{may}");
    let door = "[http]\nlisten = \"127.0.0.1:0\"\n";
    let others = OTHERS.map(|(name, description)| {
        let tool =
            json!({"name": name, "description": description, "inputSchema": {"type": "object"}});
        format!("--tool={tool}")
    });
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    let others = Program::fixture(&[&["--bare"], others.as_slice()].concat()).entry("others");
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
