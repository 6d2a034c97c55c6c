//! `mgp servers update`: server-everything of npm, from one published version to the next.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use mgp_tests::harness::{Agent, DEADLINE, Kernel, Need, Peers, Program, wait_until};
use serde_json::{Value, json};

use super::both_ways::SPOKEN;

const BEFORE: &str = "@modelcontextprotocol/server-everything@2026.8.18";
const NEWEST: &str = "@modelcontextprotocol/server-everything@2026.8.31";

/// npx and npm as they are where both versions were downloaded before: the newest one is what npm says.
fn installed(folder: &Path, peers: &Peers) {
    let line =
        |program: &Program| format!("exec '{}' '{}'", program.command, program.args.join("' '"));
    let (before, newest) = (line(&peers.everything_before()), line(&peers.everything()));
    let npx = format!("case \"$2\" in {BEFORE}) {before};; {NEWEST}) {newest};; esac\nexit 9\n");
    let name = NEWEST.rsplit_once('@').unwrap().0;
    let npm = format!(
        "case \"$1 $2 $3\" in\n'view {name} version') echo 2026.8.31;;\n'view {BEFORE} version') echo 2026.8.18;;\n\
         'view gone version') echo 'npm error code E404' >&2; exit 1;;\nesac\n"
    );
    for (name, script) in [("npx", npx), ("npm", npm)] {
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

fn entry(folder: &Path, id: &str, package: &str, keys: &str) -> String {
    let npx = folder.join("npx").display().to_string();
    format!(
        "\n# what it is for\n[[servers]]\nid = \"{id}\"\ncommand = \"{npx}\"\nargs = [\n  \"-y\", # ask nothing\n  \
         \"{package}\",\n  \"stdio\",\n]\n{keys}\n"
    )
}

async fn shown(kernel: &Kernel) -> Value {
    let all = kernel.mgp_json(&["servers", "list"]).await;
    let all = all["servers"].as_array().unwrap();
    all.iter()
        .find(|server| server["id"] == "it")
        .unwrap()
        .clone()
}

/// What it says on stdout where it succeeds, else on stderr.
async fn update(kernel: &Kernel, args: &[&str]) -> Result<String, String> {
    let output = kernel.mgp(&[&["servers", "update"], args].concat()).await;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() {
        Ok(text(output.stdout))
    } else {
        Err(text(output.stderr))
    }
}

fn command_line(pid: &Value) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).into_owned()
}

/// MGP-117: the newest version is written into the entry and takes over while calls are under way: none is lost or
/// fails, each is answered by the version that it reached, and the comments of the file stay.
#[tokio::test]
async fn a_server_is_brought_up_to_date_under_load() {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let bin = tempfile::tempdir().unwrap();
    installed(bin.path(), &peers);
    let config = entry(bin.path(), "it", BEFORE, "restart_mode = \"rolling\"");
    let kernel = Kernel::start(&config).await;
    kernel.connected(&["it"]).await;
    let first = shown(&kernel).await["pid"].clone();
    assert!(command_line(&first).contains("server-everything-before"));
    let mut callers = Vec::new();
    for duration in [3, 4, 5] {
        let mut agent: Agent = kernel.http_agent(Some("it"));
        agent.initialize(SPOKEN, "{}").await.result();
        let params = json!({"name": "trigger-long-running-operation",
            "arguments": {"duration": duration, "steps": 2}});
        let call = agent.start("tools/call", params).await;
        callers.push((agent, call));
    }
    wait_until("the calls are under way", DEADLINE, async || {
        shown(&kernel).await["in_flight"] == 3
    })
    .await;
    let would = update(&kernel, &["it", "--dry-run"]).await.unwrap();
    assert!(
        would.contains("2026.8.18 -> 2026.8.31, would be"),
        "{would}"
    );
    assert_eq!(shown(&kernel).await["pid"], first);
    let done = update(&kernel, &["it"]).await.unwrap();
    assert!(
        done.contains("2026.8.18 -> 2026.8.31, written into"),
        "{done}"
    );
    assert!(done.contains("it is connected"), "{done}");
    let it = shown(&kernel).await;
    assert_eq!(
        (&it["state"], &it["rolling"]),
        (&json!("connected"), &Value::Null)
    );
    assert!(!command_line(&it["pid"]).contains("before"), "{it}");
    let written = fs::read_to_string(kernel.folder().join("mgp.toml")).unwrap();
    assert!(
        written.contains(config.replace(BEFORE, NEWEST).trim()),
        "{written}"
    );
    for (mut agent, call) in callers {
        let text = agent.answer_to(&call).await.text().to_owned();
        assert!(
            text.starts_with("Long running operation completed"),
            "{text}"
        );
    }
    wait_until("the version before has ended", DEADLINE, async || {
        command_line(&first).is_empty()
    })
    .await;
    let stays = update(&kernel, &["it"]).await.unwrap();
    assert!(stays.contains("2026.8.31 stays"), "{stays}");
}

/// What cannot be brought up to date is left as it is, and said why; a name that is misspelt is told.
#[tokio::test]
async fn failed_update_is_reported_and_changes_nothing() {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let bin = tempfile::tempdir().unwrap();
    installed(bin.path(), &peers);
    let off = "autostart = false";
    let config = entry(bin.path(), "it", BEFORE, off)
        + &entry(bin.path(), "loose", "gone@latest", off)
        + &entry(bin.path(), "gone", "gone@1.0.0", off)
        + &Program::fixture(&[]).entry("own");
    let kernel = Kernel::start(&config).await;
    let loose = update(&kernel, &["loose"]).await.unwrap();
    assert!(loose.contains("asks for no version of gone"), "{loose}");
    for (args, why) in [
        (&["gone"][..], "npm error code E404"),
        (&["own"], "does not download what it runs"),
        (&["itt"], "did you mean it?"),
        (&["it", "--to", "1 2"], "`1 2` is no version"),
        (
            &["it", "--to", "9.9.9"],
            "npm knows no version 9.9.9 of @modelcontextprotocol/server-everything",
        ),
    ] {
        let said = update(&kernel, args).await.unwrap_err();
        assert!(said.contains(why), "{args:?}: {said}");
    }
    let written = fs::read_to_string(kernel.folder().join("mgp.toml")).unwrap();
    assert!(written.contains(config.trim()), "{written}");
}

/// A program that is found in the folder.
fn script(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// What an update changes of the tools is told, one command takes it back, and what is not the newest is
/// listed; an entry that was changed by hand since is left alone.
#[tokio::test]
async fn update_reports_changed_tools_and_is_rolled_back() {
    let bin = tempfile::tempdir().unwrap();
    let fixture = Program::fixture(&[]).command;
    let tool = |name: &str, what: &str| {
        let schema = json!({"type": "object"});
        json!({"name": name, "description": what, "inputSchema": schema}).to_string()
    };
    let line = |tools: [String; 2]| {
        format!(
            "exec '{fixture}' --stdio --bare --tool '{}' --tool '{}'",
            tools[0], tools[1]
        )
    };
    let before = line([tool("stays", "as it was"), tool("goes", "x")]);
    let after = line([tool("stays", "other now"), tool("comes", "x")]);
    let npx = format!("case \"$2\" in db@1.0.0) {before};; db@1.1.0) {after};; esac\nexit 9\n");
    script(bin.path(), "npx", &npx);
    script(
        bin.path(),
        "npm",
        "case \"$2\" in db) echo 1.1.0;; db@1.0.0) echo 1.0.0;; *) exit 1;; esac\n",
    );
    let config = entry(bin.path(), "it", "db@1.0.0", "") + &Program::fixture(&[]).entry("own");
    let kernel = Kernel::start(&config).await;
    kernel.connected(&["it", "own"]).await;
    let file = kernel.folder().join("mgp.toml");
    let written = || fs::read_to_string(&file).unwrap();
    let first = written();
    let behind = kernel.mgp_json(&["servers", "outdated"]).await;
    assert_eq!(behind["servers"][0]["newest"], "1.1.0");
    assert_eq!(behind["servers"][0]["outdated"], true);
    assert_eq!(behind["not_looked_up"], json!(["own"]));
    let nothing = update(&kernel, &["it", "--undo"]).await.unwrap_err();
    assert!(
        nothing.contains("no update of it is remembered"),
        "{nothing}"
    );

    let told = update(&kernel, &["it"]).await.unwrap();
    for part in [
        "1.0.0 -> 1.1.0",
        "1 new: comes",
        "1 gone: goes",
        "1 changed: stays (description)",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let back = update(&kernel, &["it", "--undo"]).await.unwrap();
    assert!(
        back.contains("1.1.0 -> 1.0.0") && back.contains("1 new: goes"),
        "{back}"
    );
    assert_eq!(written(), first);

    update(&kernel, &["it"]).await.unwrap();
    fs::write(&file, written().replace("db@1.1.0", "db@1.0.5")).unwrap();
    let left = update(&kernel, &["it", "--undo"]).await.unwrap_err();
    assert!(left.contains("was changed since"), "{left}");
}
