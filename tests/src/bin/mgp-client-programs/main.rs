//! The real programs of clients, as a person meets them: each is given a server by its own command, `mgp import` takes
//! these over, `mgp connect` writes the kernel in their place, and each says by itself that it is connected.
//! `cargo xtask client-test` builds what it needs and starts it. No account and no model is needed.

mod home;

use std::process::ExitCode;
use std::time::Duration;

use mgp_tests::harness::{ClientPrograms, Program};

use crate::home::Home;

/// What is typed for a client, and what it prints.
struct ClientProgram {
    /// As `mgp connect` knows it.
    name: &'static str,
    program: Program,
    /// Before the command of a server called `notes`.
    add: &'static [&'static str],
    /// Its configuration.
    file: &'static str,
    /// What it lists of the kernel: `connected` by those that try.
    listed: &'static str,
}

#[tokio::main]
async fn main() -> ExitCode {
    let programs = match ClientPrograms::install() {
        Ok(programs) => programs,
        Err(why) => {
            eprintln!("not installed: {why}");
            return ExitCode::FAILURE;
        }
    };
    let clients = [
        ClientProgram {
            name: "claude-code",
            program: programs.claude(),
            add: &["mcp", "add", "--scope", "user", "notes", "--"],
            file: ".claude.json",
            listed: "Connected",
        },
        ClientProgram {
            name: "gemini",
            program: programs.gemini(),
            add: &["mcp", "add", "--scope", "user", "notes"],
            file: ".gemini/settings.json",
            listed: "Connected",
        },
        ClientProgram {
            name: "codex",
            program: programs.codex(),
            add: &["mcp", "add", "notes", "--"],
            file: ".codex/config.toml",
            listed: "enabled",
        },
    ];
    let home = Home::new();
    let server = Program::fixture(&[]);
    for client in &clients {
        let add = client.program.clone().args(client.add).arg(&server.command);
        home.run(&add.arg("--stdio")).await;
    }
    home.mgp(&["import", "--yes"]).await;
    let servers = home.read(".config/mgp/servers.toml");
    let entries = servers.matches("[[servers]]").count();
    assert_eq!(
        entries, 1,
        "what three clients have is one server: {servers}"
    );
    home.mgp(&["up", "--detach"]).await;
    for client in &clients {
        for way in [&[][..], &["--http"]] {
            tries(&home, client, way).await;
        }
    }
    println!("each of them was connected by either way, and is as it was");
    ExitCode::SUCCESS
}

/// Connects a client, asks it, and takes the kernel out of it again.
async fn tries(home: &Home, client: &ClientProgram, way: &[&str]) {
    let connect = ["connect", client.name, "--take-out", "--yes"];
    home.mgp(&[&connect, way].concat()).await;
    let list = client.program.clone().args(&["mcp", "list"]);
    let listed = home.run(&list).await;
    let of_mgp = listed.lines().find(|line| line.contains("mgp"));
    let of_mgp = of_mgp.unwrap_or_else(|| panic!("{} does not list it", client.name));
    assert!(of_mgp.contains(client.listed), "{of_mgp}");
    assert!(
        !listed.contains("notes"),
        "what was taken out is still there"
    );
    home.mgp(&["connect", client.name, "--undo", "--yes"]).await;
    // Programs write into their own files as they run: what counts is who is in there.
    let after = home.read(client.file);
    let is_in = |text: &str| text.contains("\"mgp\"") || text.contains("mcp_servers.mgp");
    assert!(after.contains("mgp-fixture") && !is_in(&after), "{after}");
}

/// Longest that any of the programs may take: they start slowly on a busy machine.
const LONGEST: Duration = Duration::from_secs(120);
