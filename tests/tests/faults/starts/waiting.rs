//! Who waits for a server that starts slowly or fails is told what it does, and need not wait.

use mgp_tests::harness::program::Gate;
use mgp_tests::harness::wait::within;
use mgp_tests::harness::{Agent, DEADLINE, Kernel, Process, Program, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::scene::{AT_ONCE, NEWEST, entry, in_state, listed, owner, server, until};

/// A program of a line of shell.
fn shell(line: &str) -> Program {
    Program::new("sh", ["-c", line])
}

/// Point 3: WHY says what a slow start is busy with, and the newest line of its stderr, made harmless. Agents
/// read nothing of what a server writes.
#[tokio::test]
async fn slow_start_reports_its_progress() {
    let slow = shell("printf 'fetching\\033[31m 7 of 9\\n' >&2; sleep 600");
    let kernel = Kernel::start(&entry("slow", &slow, "stop_grace_ms = 100")).await;
    let mut agent = owner(&kernel).await;
    let said = |server: &Value| server["said"].is_string();
    let shown = until(&mut agent, "slow", "says what it does", said).await;
    assert_eq!(shown["state"], "connecting");
    let why = shown["reason"].as_str().unwrap();
    assert!(why.starts_with("sh has not answered yet, "), "{why}");
    let said = shown["said"].as_str().unwrap();
    assert!(
        said.contains("fetching") && !said.contains('\u{1b}'),
        "{said}"
    );
    let status = kernel.mgp(&["status"]).await;
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.contains("sh has not answered yet, "), "{status}");
    assert!(status.contains(" s: fetching"), "{status}");
}

/// Point 3: a server that ends at its start shows how, and the line that tells why: the operator, not an
/// agent.
#[tokio::test]
async fn failed_start_reports_the_reason() {
    let traceback = "printf 'Traceback (most recent call last):\\n  File \"s.py\", line 1\\nModuleNotFoundError: No module named fastmcp\\n\\n' >&2; exit 3";
    let bad = entry("bad", &shell(traceback), "restart_policy = \"never\"");
    let kernel = Kernel::start(&bad).await;
    let mut agent = owner(&kernel).await;
    let shown = in_state(&mut agent, "bad", "error").await;
    assert_eq!(shown["reason"], "exited with code 3");
    assert_eq!(
        shown["said"],
        "ModuleNotFoundError: No module named fastmcp"
    );
    let status = kernel.mgp(&["status"]).await;
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    let why = "exited with code 3: ModuleNotFoundError: No module named fastmcp";
    assert!(status.contains(why), "{status}");
    let mut stranger = kernel.http_agent(None);
    stranger.initialize(NEWEST, "{}").await.result();
    let refused = stranger.call("bad__x", json!({})).await.error().to_string();
    assert!(!refused.contains("fastmcp"), "{refused}");
}

/// Point 3: what a server wrote before its operator stopped it is no reason.
#[tokio::test]
async fn stopped_server_reports_no_reason() {
    let kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    assert!(
        kernel
            .mgp(&["servers", "stop", "it"])
            .await
            .status
            .success()
    );
    assert_eq!(listed(&kernel, "it").await["said"], Value::Null);
}

/// Point 3: `servers add` tries a program once, and says how it ended and why.
#[tokio::test]
async fn adding_a_server_tries_its_program_once() {
    let kernel = Kernel::start("").await;
    let tried = kernel.folder().join("tried").display().to_string();
    let line = format!("echo tried >> {tried}; echo 'Error: no such folder' >&2; exit 1");
    let add = [
        "servers",
        "add",
        "bad",
        "--restart",
        "never",
        "--",
        "sh",
        "-c",
        &line,
    ];
    let added = kernel.mgp(&add).await;
    assert_eq!(added.status.code(), Some(1));
    let told = String::from_utf8_lossy(&added.stderr).into_owned();
    assert!(
        told.contains("bad is error: exited with code 1: Error: no such folder"),
        "{told}"
    );
    assert_eq!(std::fs::read_to_string(&tried).unwrap(), "tried\n");
}

/// Point 3: an old server that ends at a question it does not know is still started again and asked
/// otherwise: it had read the question.
#[tokio::test]
async fn server_that_exits_at_discover_is_restarted_with_initialize() {
    let folder = tempfile::tempdir().unwrap();
    let asked = folder.path().join("asked").display().to_string();
    let line = format!("read -r question; echo \"$question\" >> {asked}; exit 1");
    let old = entry("old", &shell(&line), "restart_policy = \"never\"");
    let kernel = Kernel::start(&old).await;
    in_state(&mut owner(&kernel).await, "old", "error").await;
    let asked = std::fs::read_to_string(&asked).unwrap();
    let methods = ["server/discover", "initialize"];
    assert_eq!(asked.lines().count(), methods.len(), "{asked}");
    for (line, method) in asked.lines().zip(methods) {
        assert!(line.contains(method), "{line}");
    }
}

/// Point 3: `servers add` shows what a slow server writes, Ctrl-C ends the wait and says what stays; for
/// programs there is no word of it.
#[tokio::test]
async fn adding_a_slow_server_shows_its_log_and_can_be_interrupted() {
    let kernel = Kernel::start("").await;
    let line = "echo downloading >&2; sleep 600";
    let add = ["servers", "add", "slow", "--", "sh", "-c", line];
    let mut adding = Process::start("mgp servers add", &kernel.program(&add));
    let shown = |said: &str| said.contains("slow: downloading").then_some(());
    adding.says("what the server writes", DEADLINE, shown).await;
    adding.signal(Signal::SIGINT);
    assert_eq!(adding.end(AT_ONCE).await.code(), Some(130));
    let told = adding.stderr();
    assert!(told.contains("slow stays, and goes on starting"), "{told}");
    assert!(told.contains("mgp servers remove slow"), "{told}");
    assert_eq!(listed(&kernel, "slow").await["state"], "connecting");
    let quiet = ["servers", "restart", "slow", "--json"];
    let mut quiet = Process::start("mgp servers restart", &kernel.program(&quiet));
    let late = |said: &str| said.contains("restarting slow").then_some(());
    quiet.says("that it goes on", DEADLINE, late).await;
    quiet.signal(Signal::SIGINT);
    quiet.end(AT_ONCE).await;
    assert!(
        !quiet.stderr().contains("downloading"),
        "{}",
        quiet.stderr()
    );
}

/// Point 3: a list waits a moment for a server that is just starting, for many clients ask once and never
/// again; a greeting waits for nobody.
#[tokio::test]
async fn a_list_waits_a_moment_for_a_server_that_is_just_starting() {
    // How long the moment is depends on the clock: one start in three is quick enough on any machine.
    let mut listed = false;
    for _ in 0..3 {
        let gate = Gate::default();
        let kernel = Kernel::start(&entry("late", &gate.fixture(&[]), "")).await;
        let mut agent = kernel.http_agent(Some("late"));
        agent.initialize(NEWEST, "{}").await.result();
        let asked = agent.start("tools/list", json!({})).await;
        gate.open();
        let tools = agent.answer_to(&asked).await.result();
        listed |= !tools["tools"].as_array().unwrap().is_empty();
        if listed {
            break;
        }
    }
    assert!(listed);
}

/// Point 3: a list does not wait longer than that, and is whole once the server is there.
#[tokio::test]
async fn a_list_goes_without_a_server_that_takes_longer() {
    let gate = Gate::default();
    let servers = entry("late", &gate.fixture(&[]), "") + &server("calm", &[], "");
    let kernel = Kernel::start(&servers).await;
    kernel.connected(&["calm"]).await;
    let mut agent = owner(&kernel).await;
    let tools = agent.request("tools/list", json!({})).await.result();
    let tools = tools.to_string();
    assert!(
        tools.contains("calm__echo") && !tools.contains("late__echo"),
        "{tools}"
    );
    gate.open();
    in_state(&mut agent, "late", "connected").await;
    let tools = agent.request("tools/list", json!({})).await.result();
    assert!(tools.to_string().contains("late__echo"), "{tools}");
}

/// Point 3: `mgp stdio` greets at once, though it has to start the kernel and a server of that kernel
/// takes its time.
#[tokio::test]
async fn first_client_of_a_new_kernel_is_initialized_at_once() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).display().to_string();
    let slow = server("slow", &["--slow-start", "60000"], "stop_grace_ms = 100");
    let config = format!("[http]\nenabled = false\n[discovery]\nembedding = \"off\"\n{slow}");
    std::fs::write(at("mgp.toml"), config).unwrap();
    let stdio = Program::ours("mgp", ["stdio"])
        .env("MGP_SOCKET", at("mgp.sock"))
        .env("MGP_DATA_DIR", at("data"))
        .env("MGP_CONFIG_PATH", at("mgp.toml"));
    let mut agent = Agent::over_stdio(&stdio);
    within("initialize", AT_ONCE, agent.initialize(NEWEST, "{}"))
        .await
        .result();
    let lock = std::fs::read_to_string(at("data/kernel.lock")).unwrap();
    let pid = Pid::from_raw(lock.trim().parse().unwrap());
    agent.close().await;
    kill(pid, Signal::SIGTERM).unwrap();
    wait_until("the kernel is gone", DEADLINE, async || {
        kill(pid, None).is_err()
    })
    .await;
}
