//! Published clients that give `mgp stdio` no more of the environment than they give by themselves.

use mgp_tests::harness::{Account, DEADLINE, Need, Peers, Program};
use serde_json::Value;

/// What opens no port that somebody else may have.
const QUIET: &str =
    "[http]\nenabled = false\n[discovery]\nembedding = \"off\"\nexposure = \"all\"\n";

/// Point 1: a kernel that was started in a desktop's shell is the one that this client finds, not one with
/// the configuration that would be read without that shell's variables.
async fn finds_the_desktops_kernel(client: impl Fn(&str) -> Program) {
    let servers = |id: &str| format!("{QUIET}{}", Program::fixture(&[]).entry(id));
    let Some(user) = Account::new(&servers("wrong")).await else {
        return;
    };
    user.file("xdg/config/mgp/servers.toml", &servers("desk"));
    std::fs::create_dir_all(user.at("xdg/run")).unwrap();
    let (home, at) = (user.home(), |name: &str| user.at(name));
    let (run, data, config) = (at("xdg/run"), at("xdg/data"), at("xdg/config"));
    let desktop = [
        ("HOME", home.as_path()),
        ("XDG_RUNTIME_DIR", &run),
        ("XDG_DATA_HOME", &data),
        ("XDG_CONFIG_HOME", &config),
    ];
    let up = user
        .mgp(&["up", "--detach"], &desktop)
        .output(DEADLINE)
        .await;
    assert!(up.status.success(), "{}", text(&up.stderr));
    let command = Program::ours("mgp", [""; 0]).command;
    let seen = user
        .runs(&client(&command), &desktop)
        .output(DEADLINE)
        .await;
    let (out, err) = (text(&seen.stdout), text(&seen.stderr));
    assert!(seen.status.success(), "{err}");
    let seen: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"));
    let named = |tool: &Value| Some(tool.as_str().or(tool["name"].as_str())?.to_owned());
    let tools = seen.as_array().or(seen["tools"].as_array()).unwrap();
    let tools: Vec<String> = tools.iter().filter_map(named).collect();
    assert!(tools.len() > 60, "{tools:?}");
    assert!(
        tools.iter().any(|tool| tool.starts_with("desk")),
        "{tools:?}"
    );
    assert!(
        !tools.iter().any(|tool| tool.starts_with("wrong")),
        "{tools:?}"
    );
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn the_python_sdk_1() {
    let Some(peers) = Peers::find(&[Need::Python]) else {
        return;
    };
    let client = |mgp: &str| peers.python_script("clients/plain.py", &[mgp, "stdio"]);
    finds_the_desktops_kernel(client).await;
}

#[tokio::test]
async fn the_python_sdk_2() {
    let Some(peers) = Peers::find(&[Need::Python]) else {
        return;
    };
    let peers = peers.modern();
    let client = |mgp: &str| peers.python_script("clients/plain.py", &[mgp, "stdio"]);
    finds_the_desktops_kernel(client).await;
}

#[tokio::test]
async fn the_typescript_sdk_1() {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let client = |mgp: &str| peers.node_script("clients/plain.mjs", &[mgp, "stdio"]);
    finds_the_desktops_kernel(client).await;
}

#[tokio::test]
async fn the_typescript_sdk_2() {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let peers = peers.modern();
    let client = |mgp: &str| peers.node_script("clients/plain.mjs", &[mgp, "stdio"]);
    finds_the_desktops_kernel(client).await;
}

#[tokio::test]
async fn the_inspector() {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let script = "@modelcontextprotocol/inspector/clients/launcher/build/index.js";
    let ask = ["--cli", "--method", "tools/list", "--"];
    let client = |mgp: &str| peers.node(script, &ask).args(&[mgp, "stdio"]);
    finds_the_desktops_kernel(client).await;
}
