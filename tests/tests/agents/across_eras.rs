//! Published SDKs on both sides of the kernel: a client of either era with a server of the other.
//!
//! Each pairing is met twice, so that each SDK is met at both doors and over both transports. Both
//! sides are the scripts of `peers/clients` and `peers/servers`: what either knows of the other,
//! it knows through the kernel.

use std::path::Path;

use mgp_tests::harness::program::remote_entry;
use mgp_tests::harness::{DEADLINE, Kernel, Need, Peers, Process, Program, wait_until};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

/// MGP-001, MGP-008: Python 1.x with Python 2.x.
#[tokio::test]
async fn a_legacy_python_client_uses_a_modern_python_server() {
    meet(PYTHON_1, PYTHON_2).await;
}

/// MGP-001, MGP-008: Python 1.x with TypeScript 2.x.
#[tokio::test]
async fn a_legacy_python_client_uses_a_modern_typescript_server() {
    meet(PYTHON_1, TYPESCRIPT_2).await;
}

/// MGP-001, MGP-008: TypeScript 1.x with Python 2.x.
#[tokio::test]
async fn a_legacy_typescript_client_uses_a_modern_python_server() {
    meet(TYPESCRIPT_1, PYTHON_2).await;
}

/// MGP-001, MGP-008: TypeScript 1.x with TypeScript 2.x.
#[tokio::test]
async fn a_legacy_typescript_client_uses_a_modern_typescript_server() {
    meet(TYPESCRIPT_1, TYPESCRIPT_2).await;
}

/// MGP-001, MGP-008: Python 2.x with Python 1.x.
#[tokio::test]
async fn a_modern_python_client_uses_a_legacy_python_server() {
    meet(PYTHON_2, PYTHON_1).await;
}

/// MGP-001, MGP-008: Python 2.x with TypeScript 1.x.
#[tokio::test]
async fn a_modern_python_client_uses_a_legacy_typescript_server() {
    meet(PYTHON_2, TYPESCRIPT_1).await;
}

/// MGP-001, MGP-008: TypeScript 2.x with Python 1.x.
#[tokio::test]
async fn a_modern_typescript_client_uses_a_legacy_python_server() {
    meet(TYPESCRIPT_2, PYTHON_1).await;
}

/// MGP-001, MGP-008: TypeScript 2.x with TypeScript 1.x.
#[tokio::test]
async fn a_modern_typescript_client_uses_a_legacy_typescript_server() {
    meet(TYPESCRIPT_2, TYPESCRIPT_1).await;
}

/// MGP-001, MGP-008: a client and a server that could do without a kernel between them, 1.x.
#[tokio::test]
async fn legacy_sdks_of_two_languages_use_each_other() {
    meet(PYTHON_1, TYPESCRIPT_1).await;
    meet(TYPESCRIPT_1, PYTHON_1).await;
}

/// MGP-001, MGP-008: a client and a server that could do without a kernel between them, 2.x.
#[tokio::test]
async fn modern_sdks_of_two_languages_use_each_other() {
    meet(PYTHON_2, TYPESCRIPT_2).await;
    meet(TYPESCRIPT_2, PYTHON_2).await;
}

/// The tools of every server of `peers/servers`.
const TOOLS: [&str; 12] = [
    "ask", "both", "echo", "fail", "grow", "log", "progress", "release", "roots", "sample",
    "touch", "wait",
];

/// What the client is asked by `ask`, `both`, `sample` and two of `ask` at once.
const ASKED: [&str; 6] = [
    "who are you",
    "who is it about",
    "a word about ada",
    "two and two",
    "who are you",
    "who are you",
];

/// An SDK in one major version: its language by what it needs, and whether it is of the version
/// without `initialize`.
#[derive(Debug, Clone, Copy)]
struct Sdk {
    language: Need,
    modern: bool,
}

const PYTHON_1: Sdk = Sdk {
    language: Need::Python,
    modern: false,
};
const PYTHON_2: Sdk = Sdk {
    language: Need::Python,
    modern: true,
};
const TYPESCRIPT_1: Sdk = Sdk {
    language: Need::Node,
    modern: false,
};
const TYPESCRIPT_2: Sdk = Sdk {
    language: Need::Node,
    modern: true,
};

impl Sdk {
    /// A script of `peers/clients` or `peers/servers`.
    fn script(self, peers: &Peers, folder: &str, args: &[&str]) -> Program {
        let (name, peers) = if self.modern {
            ("modern", peers.modern())
        } else {
            ("legacy", peers.clone())
        };
        match self.language {
            Need::Node => peers.node_script(&format!("{folder}/{name}.mjs"), args),
            Need::Python
            | Need::Go
            | Need::Hostile
            | Need::Provider
            | Need::Apps
            | Need::Skills
            | Need::Authlib
            | Need::Collector
            | Need::Browser
            | Need::Git => peers.python_script(&format!("{folder}/{name}.py"), args),
        }
    }

    /// The version it speaks with the kernel.
    fn version(self) -> &'static str {
        if self.modern {
            "2026-07-28"
        } else {
            "2025-11-25"
        }
    }
}

/// Lets `client` go through everything `server` offers: at the HTTP door with the server over
/// stdio, then the other way round.
async fn meet(client: Sdk, server: Sdk) {
    let Some(peers) = Peers::find(&[client.language, server.language]) else {
        return;
    };
    for door in ["http", "stdio"] {
        let folder = TempDir::new().unwrap();
        let witness = folder.path().join("witness");
        let upstream = if door == "http" { "stdio" } else { "http" };
        let program = server
            .script(&peers, "servers", &[upstream])
            .env("MGP_WITNESS", witness.display().to_string());
        let (entry, _running) = match upstream {
            "stdio" => (program.entry("it"), None),
            _ => {
                let (entry, running) = listening(&program).await;
                (entry, Some(running))
            }
        };
        let kernel = Kernel::start(&entry).await;
        kernel.connected(&["it"]).await;
        let seen = told(&client_at(door, &kernel, client, &peers)).await;
        is_whole(&seen, client, server);
        was_cancelled(&witness).await;
    }
}

/// A server over HTTP, and how the kernel finds it.
async fn listening(program: &Program) -> (String, Process) {
    let mut process = Process::start("the server", program);
    let port = process.says("its port", DEADLINE, |said| {
        let (_, rest) = said.split_once("listening 127.0.0.1:")?;
        rest.split_once('\n')?.0.trim().parse::<u16>().ok()
    });
    let port = port.await;
    let entry = remote_entry("it", &format!("http://127.0.0.1:{port}/mcp"));
    (entry, process)
}

/// The client at the door of the one server.
fn client_at(door: &str, kernel: &Kernel, client: Sdk, peers: &Peers) -> Program {
    match door {
        "http" => client.script(peers, "clients", &["http", &kernel.server_url("it")]),
        _ => {
            let door = kernel.program(&["stdio", "--server", "it"]);
            let mut program = client
                .script(peers, "clients", &["stdio", &door.command])
                .args(&["stdio", "--server", "it"]);
            program.env.extend(door.env);
            program
        }
    }
}

/// What a client says it saw: one object of all its lines.
async fn told(client: &Program) -> Map<String, Value> {
    let output = client.output(DEADLINE).await;
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{client:?}:\n{out}\n{err}");
    let lines = out.lines().map(serde_json::from_str::<Map<String, Value>>);
    lines.flat_map(Result::unwrap).collect()
}

/// Every feature, as each side's SDK should have it.
fn is_whole(seen: &Map<String, Value>, client: Sdk, server: Sdk) {
    let expected = json!({
        "version": client.version(),
        "tools": TOOLS,
        "resources": ["test://note"],
        "prompts": ["greet"],
        "echo": {"text": "grüße", "version": server.version()},
        "ask": "you are ada",
        "both": "of ada: four",
        "roots": "file:///home/ada",
        "sample": "the model says four",
        "at_once": ["you are ada", "you are ada"],
        "asked": ASKED,
        "fail": [true, true],
        "unknown": -32602,
        "logged": [["info", "begun"], ["warning", "nearly done"]],
        "read": [["test://note", "text/plain", "a note"]],
        "prompt": [["user", "say hello to ada"]],
        "changes": ["test://note", "tools", true],
        "after": "still there",
    });
    let mut seen = seen.clone();
    let progress = seen.remove("progress").unwrap();
    let progress: (Vec<(f64, f64, String)>, String) = serde_json::from_value(progress).unwrap();
    let steps = [1.0, 2.0, 3.0].map(|step| (step, 3.0, format!("step {step}")));
    assert_eq!(progress, (steps.into(), "done".to_owned()));
    assert_eq!(Value::Object(seen), expected, "{client:?} with {server:?}");
}

/// The server learned of the one call that was given up.
async fn was_cancelled(witness: &Path) {
    wait_until("the server is told to stop", DEADLINE, async || {
        std::fs::read_to_string(witness).is_ok_and(|said| said == "cancelled\n")
    })
    .await;
}
