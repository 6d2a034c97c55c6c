//! Agents of both SDKs that read a stream, follow events and answer a question: the programs of
//! `docs/streaming.md`, at a kernel with the server that page has.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use mgp_tests::harness::{DEADLINE, Kernel, Need, Peers, Program};
use tempfile::TempDir;

/// The interpreter that the page names.
const PYTHON: &str = "/srv/agents/venv/bin/python";
/// The folder of the programs that the page names.
const EXAMPLES: &str = "/srv/agents/examples";

/// MGP-155, MGP-157, MGP-160, MGP-167, MGP-175, MGP-176: agents of either generation of the Python SDK
/// print what the page shows, with sessions and without.
#[tokio::test]
async fn an_agent_of_the_python_sdk_streams_follows_and_answers() {
    let Some(peers) = Peers::find(&[Need::Python]) else {
        return;
    };
    let modern = peers.modern();
    let agents = [
        ("old", &peers, "streaming_1x.py"),
        ("new", &modern, "streaming.py"),
        ("stateless", &modern, "stateless.py"),
    ];
    let kernel = kernel(&modern).await;
    for (name, peers, program) in agents {
        let python = peers.python("x", &[]).command;
        let program = examples().join(program).display().to_string();
        prints_the_page(&kernel, name, Program::new(python, [program])).await;
    }
}

/// MGP-155, MGP-157, MGP-160, MGP-167, MGP-175, MGP-176: an agent of the TypeScript SDK prints what the
/// page shows.
#[tokio::test]
async fn an_agent_of_the_typescript_sdk_streams_follows_and_answers() {
    let Some(peers) = Peers::find(&[Need::Python, Need::Node]) else {
        return;
    };
    let kernel = kernel(&peers.modern()).await;
    // Node looks for packages beside the program.
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("streaming.mjs");
    std::fs::copy(examples().join("streaming.mjs"), &program).unwrap();
    let node = peers.node("", &[]);
    symlink(&node.args[0], folder.path().join("node_modules")).unwrap();
    let agent = Program::new(node.command, [program.display().to_string()]);
    prints_the_page(&kernel, "typescript", agent).await;
}

/// Runs an agent, and looks for what it printed on the page.
async fn prints_the_page(kernel: &Kernel, name: &str, agent: Program) {
    let added = kernel.mgp(&["agents", "add", name]).await;
    let token = String::from_utf8(added.stdout).unwrap();
    let agent = agent.arg(kernel.url()).env("MGP_TOKEN", token.trim());
    let output = agent.output(DEADLINE).await;
    let told = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}{err}");
    assert!(told.lines().count() > 9, "{told}{err}");
    assert!(
        page().contains(&format!("\n{told}```")),
        "the page shows something else:\n{told}"
    );
}

/// A kernel with the server of the page.
async fn kernel(modern: &Peers) -> Kernel {
    let page = page();
    let mut blocks = page.split("```toml\n").skip(1);
    let block = blocks.find_map(|block| block.split("```").next()).unwrap();
    assert!(
        block.contains(PYTHON) && block.contains(EXAMPLES),
        "{block}"
    );
    let python = modern.python("x", &[]).command;
    let entry = block
        .replace(PYTHON, &python)
        .replace(EXAMPLES, &examples().display().to_string());
    let door = "[http]\nlisten = \"127.0.0.1:0\"\n";
    let kernel = Kernel::with_config(&format!("{door}{entry}")).await;
    kernel.connected(&["garden"]).await;
    kernel
}

fn page() -> String {
    std::fs::read_to_string(docs().join("streaming.md")).unwrap()
}

fn examples() -> PathBuf {
    docs().join("examples")
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}
