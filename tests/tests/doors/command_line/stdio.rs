//! `mgp stdio`: what a client starts.

use std::io::Write;
use std::time::{Duration, Instant};

use mgp_tests::harness::handshake::initialize;
use mgp_tests::harness::{Agent, DEADLINE, Kernel, Process, Program, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::scene::{self, NEWEST, call};

/// A running `mgp stdio` of this kernel.
fn joined(kernel: &Kernel) -> Process {
    Process::start("mgp stdio", &kernel.program(&["stdio"]))
}

/// Every whole line it wrote, each a message.
fn lines(process: &Process) -> Vec<Value> {
    let out = process.stdout();
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    let whole = out.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(parse).collect()
}

/// MCP-021: the end of input ends it with success, after what was asked has been answered.
#[tokio::test]
async fn the_end_of_input_ends_it_once_everything_is_answered() {
    let kernel = scene::kernel().await;
    let mut process = joined(&kernel);
    let mut stdin = process.take_stdin().unwrap();
    let slow = |id: u32| call(id, "it:slow", json!({"ms": 300}));
    let ready = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let said = [
        initialize(NEWEST, "{}"),
        ready.to_owned(),
        slow(1),
        slow(2),
        call(3, "it:echo", json!({"text": "x"})),
    ];
    stdin.write_all(said.join("\n").as_bytes()).unwrap();
    stdin.write_all(b"\n").unwrap();
    drop(stdin);
    assert!(process.end(DEADLINE).await.success());
    let mut ids: Vec<u64> = lines(&process)
        .iter()
        .map(|m| m["id"].as_u64().unwrap())
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, [0, 1, 2, 3]);
    let silent = joined(&kernel).take_stdin();
    drop(silent);
    let mut silent = joined(&kernel);
    drop(silent.take_stdin());
    assert!(silent.end(DEADLINE).await.success());
    assert_eq!(silent.stdout(), "");
}

/// Hosts kill what is still there some 2 s after they closed its input, and write that it crashed.
#[tokio::test]
async fn a_call_that_never_ends_does_not_outlive_the_end_of_input() {
    let kernel = scene::kernel().await;
    let mut process = joined(&kernel);
    let mut stdin = process.take_stdin().unwrap();
    let said = [initialize(NEWEST, "{}"), call(1, "it:hang", json!({}))];
    stdin.write_all(said.join("\n").as_bytes()).unwrap();
    stdin.write_all(b"\n").unwrap();
    wait_until("the handshake is answered", DEADLINE, async || {
        !lines(&process).is_empty()
    })
    .await;
    let begun = Instant::now();
    drop(stdin);
    assert!(process.end(DEADLINE).await.success());
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
}

/// MCP-068, MCP-069, CMCP-015, CMCP-016: answers, progress and questions of many calls at once never
/// mix, and blank lines are nothing.
#[tokio::test]
async fn every_line_is_one_message_however_many_write_at_once() {
    let kernel = scene::kernel().await;
    let mut agent = kernel.stdio_agent(None);
    agent.initialize(NEWEST, "{}").await.result();
    agent.send("").await;
    agent.send("  \r").await;
    let mut ids = Vec::new();
    for n in 0..64 {
        let text = format!("{n}:\n") + &"é\"\\\u{1F980}".repeat(2000);
        let steps = json!({"steps": 50});
        let params =
            json!({"name": "it:progress", "arguments": steps, "_meta": {"progressToken": n}});
        let echo = json!({"name": "it:echo", "arguments": {"text": text}});
        agent.start("tools/call", params).await;
        ids.push((agent.start("tools/call", echo).await, text));
    }
    for (id, text) in ids {
        assert_eq!(agent.answer_to(&id).await.text(), text);
    }
    assert!(agent.close().await.unwrap().success());
}

/// A place without a kernel. Dropping it ends the kernel that was started there, by its process id.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self::with("")
    }

    /// With more for the entry of its server.
    fn with(more: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let config = format!(
            "[http]\nlisten = \"127.0.0.1:0\"\n{}{more}",
            Program::fixture(&[]).entry("it")
        );
        std::fs::write(folder.path().join("mgp.toml"), config).unwrap();
        Self(folder)
    }

    fn program(&self, args: &[&str]) -> Program {
        let at = |name: &str| self.0.path().join(name).display().to_string();
        Program::ours("mgp", args.iter().copied())
            .env("MGP_SOCKET", at("mgp.sock"))
            .env("MGP_DATA_DIR", at("data"))
            .env("MGP_CONFIG_PATH", at("mgp.toml"))
    }

    async fn status(&self) -> Value {
        let output = self.program(&["status", "--json"]).output(DEADLINE).await;
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    fn pid(&self) -> Option<i32> {
        let lock = std::fs::read_to_string(self.0.path().join("data/kernel.lock")).ok()?;
        lock.trim().parse().ok()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            // It may have ended already, as it should have.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
    }
}

/// `mgp stdio` starts a kernel when none runs, one for all who start at once; the kernel outlives
/// them, its first client finds the tools of its servers, and `mgp down` ends it.
#[tokio::test]
async fn it_starts_a_kernel_when_none_runs_and_only_one() {
    let place = Place::new();
    assert_eq!(place.status().await, Value::Null);
    let mut agents: Vec<Agent> = (0..4)
        .map(|_| Agent::over_stdio(&place.program(&["stdio"])))
        .collect();
    for agent in &mut agents {
        agent.initialize(NEWEST, "{}").await.result();
        assert_eq!(
            agent.call("it:echo", json!({"text": "hi"})).await.text(),
            "hi"
        );
    }
    let status = place.status().await;
    let pid = status["pid"].as_i64().unwrap();
    assert_eq!(place.pid().map(i64::from), Some(pid));
    assert_eq!(status["actors"]["connection"], 5, "{status:#}");
    for agent in agents {
        assert!(agent.close().await.unwrap().success());
    }
    assert_eq!(place.status().await["pid"], pid);
    let down = place.program(&["down"]).output(DEADLINE).await;
    assert!(
        down.status.success(),
        "{}",
        String::from_utf8_lossy(&down.stderr)
    );
    assert_eq!(place.status().await, Value::Null);
}

/// Who hears everything there is, over `mgp stdio` of a place, and is at its server.
async fn subscribed(place: &Place) -> Agent {
    let mut agent = Agent::over_stdio(&place.program(&["stdio"]));
    agent.initialize(NEWEST, "{}").await.result();
    let level = json!({"level": "error"});
    agent.request("logging/setLevel", level).await.result();
    let hi = agent.call("it:echo", json!({"text": "hi"})).await;
    assert_eq!(hi.text(), "hi");
    agent
}

/// Point 4: a kernel that is stopped and started again is a pause for the client of `mgp stdio`: it need
/// not open its conversation again, and what it asks meanwhile waits.
#[tokio::test]
async fn a_restart_is_a_pause() {
    let place = Place::new();
    let mut agent = subscribed(&place).await;
    let first = place.pid();
    assert!(
        place
            .program(&["down"])
            .output(DEADLINE)
            .await
            .status
            .success()
    );
    let waits = agent.start(
        "tools/call",
        json!({"name": "it:echo", "arguments": {"text": "on"}}),
    );
    let waits = waits.await;
    assert_eq!(
        place.pid(),
        first,
        "who was stopped on purpose is not started by a client"
    );
    assert_eq!(place.status().await, Value::Null);
    let up = place.program(&["up", "--detach"]).output(DEADLINE).await;
    assert!(up.status.success());
    assert_eq!(agent.answer_to(&waits).await.text(), "on");
    assert_ne!(place.pid(), first);
    agent.hears("notifications/tools/list_changed").await;
    assert!(agent.close().await.unwrap().success());
}

/// Point 4: a kernel that fell is started again, what was under way is answered with what is known of it,
/// and nothing of it is done twice.
#[tokio::test]
async fn a_kernel_that_fell_is_started_again() {
    let place = Place::new();
    let mut agent = subscribed(&place).await;
    let first = place.pid().unwrap();
    let under_way = agent.start(
        "tools/call",
        json!({"name": "it:slow", "arguments": {"ms": 60_000}}),
    );
    let under_way = under_way.await;
    let read = agent.call("it:echo", json!({"text": "it was read"})).await;
    assert_eq!(read.text(), "it was read");
    kill(Pid::from_raw(first), Signal::SIGKILL).unwrap();
    let lost = agent.answer_to(&under_way).await.frame;
    let lost: Value = serde_json::from_str(&lost).unwrap();
    assert_eq!(lost["error"]["data"]["outcome"], "unknown", "{lost:#}");
    let hi = agent.call("it:echo", json!({"text": "again"})).await;
    assert_eq!(hi.text(), "again");
    assert_ne!(place.pid(), Some(first));
    assert!(agent.close().await.unwrap().success());
}

/// The id of the question that is the `nth` the client was asked, counted from 0.
async fn question(process: &Process, nth: usize) -> Value {
    let questions = || {
        let all = lines(process);
        let asks = |line: &Value| line["method"] == "elicitation/create";
        all.into_iter().filter(asks).collect::<Vec<_>>()
    };
    let asked = async || questions().len() > nth;
    wait_until("a question", DEADLINE, asked).await;
    questions()[nth]["id"].clone()
}

/// Point 4: an answer to a question of the kernel that fell is none to a question of the next one: it
/// approves no dangerous call, alone or in a batch.
#[tokio::test]
async fn a_late_answer_settles_no_question_of_the_next_kernel() {
    let place = Place::with("[servers.tools.echo]\nrisk_level = \"dangerous\"\n");
    let mut process = Process::start("mgp stdio", &place.program(&["stdio"]));
    let mut stdin = process.take_stdin().unwrap();
    let mut say = |line: &str| stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
    let answer = |id: &Value, action: &str| {
        json!({"jsonrpc": "2.0", "id": id, "result": {"action": action, "content": {}}}).to_string()
    };
    say(&initialize("2025-03-26", r#"{"elicitation":{}}"#));
    say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    say(&call(1, "it:test_elicitation", json!({"message": "?"})));
    let old = question(&process, 0).await;
    kill(Pid::from_raw(place.pid().unwrap()), Signal::SIGKILL).unwrap();
    let taken_back = |line: &Value| line["params"]["requestId"] == old;
    let gone = async || lines(&process).iter().any(taken_back);
    wait_until("its end is noticed", DEADLINE, gone).await;
    say(&call(2, "it:echo", json!({"text": "fired"})));
    let new = question(&process, 1).await;
    assert_ne!(old, new);
    say(&answer(&old, "accept"));
    say(&format!("[{}]", answer(&old, "accept")));
    say(&answer(&new, "decline"));
    let answered = || {
        lines(&process)
            .into_iter()
            .find(|it| it["id"] == 2 && it.get("method").is_none())
    };
    wait_until("the answer", DEADLINE, async || answered().is_some()).await;
    let refused = answered().unwrap().to_string();
    assert!(!refused.contains("fired"), "{refused}");
    drop(stdin);
    assert!(process.end(DEADLINE).await.success());
}

/// A configuration the kernel cannot start with is told on stderr, with its place; stdout stays
/// clean.
#[tokio::test]
async fn failed_start_is_reported_on_stderr_alone() {
    let place = Place::new();
    std::fs::write(place.0.path().join("mgp.toml"), "[http]\nlisten = 7\n").unwrap();
    let output = place.program(&["stdio"]).output(DEADLINE).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("mgp.toml:2:10"), "{told}");
}
