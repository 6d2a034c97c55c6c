//! An agent of the Python SDK that makes its own tool: the program of `docs/registering.md`.

use std::path::Path;

use mgp_tests::harness::{DEADLINE, Kernel, Need, Peers, Program};
use serde_json::{Value, json};

/// What the program prints after its first line; the name of its tool stands as `NAME`.
const TOLD: &str = include_str!("registering.txt");

/// A kernel with many other tools, where `agent.coder` may register servers that `python` runs.
async fn kernel(python: &Program) -> Kernel {
    let python = &python.command;
    let may = format!(
        "\n[discovery]\nmay_register = [\"agent.coder\"]\n\
         [discovery.agents.\"agent.coder\"]\nexposure = \"pinned\"\n\
         [discovery.registered]\npython = {python:?}\n"
    );
    let others = Program::fixture(&["--tools", "100"]).entry("others");
    let door = "[http]\nlisten = \"127.0.0.1:0\"\n";
    let kernel = Kernel::with_config(&format!("{door}{may}{others}")).await;
    kernel.connected(&["others"]).await;
    kernel
}

/// The program of the docs, run by the Python of one of the SDKs.
fn program(python: &Program, kernel: &Kernel, token: &str) -> Program {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/registering.py");
    let args = [docs.display().to_string(), kernel.url().to_owned()];
    Program::new(python.command.clone(), args).env("MGP_TOKEN", token)
}
