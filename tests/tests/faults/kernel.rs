//! The kernel's own end, and a second one beside it.

mod backups;
mod ending;
mod files;
mod growth;
mod guard;
mod replay;

use std::cell::Cell;
use std::fs;
use std::path::Path;

use futures_util::future::join_all;
use mgp_tests::harness::{Agent, DEADLINE, Envelope, Kernel, Process, Program, system, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::machine::all_gone;
use crate::scene::{NEWEST, echoes, in_flight, in_state, owner, server};

/// PRJ-009: the data folder belongs to one kernel; the second one says who has it, and harms nobody.
#[tokio::test]
async fn a_second_kernel_on_the_same_data_is_refused() {
    let kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    let socket = kernel.folder().join("other.sock").display().to_string();
    for second in [
        kernel.program(&["up"]),
        kernel.program(&["up"]).env("MGP_SOCKET", socket),
    ] {
        let refused = second.output(DEADLINE).await;
        assert_eq!(refused.status.code(), Some(1));
        let words = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(words.contains(&kernel.pid().to_string()), "{words}");
    }
    let mut agent = owner(&kernel).await;
    echoes(&mut agent, "it").await;
}

/// A cleaner, or a person who takes it for stale, removes the file of the lock. A second kernel has nothing of the
/// first one in its hands then: no server ends, and no log has a hole.
#[tokio::test]
async fn a_second_kernel_changes_nothing_after_the_lock_file_was_removed() {
    let kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    kernel.mgp_json(&["grants", "add", "local", "it"]).await;
    let children = kernel.children("mgp-fixture");
    let marks = fs::read(kernel.folder().join("data/marks")).unwrap();
    fs::remove_file(kernel.folder().join("data/kernel.lock")).unwrap();
    if system::is_weaker("locks").await {
        // Without a lock on the folder, its socket keeps a second kernel out.
        let refused = kernel.program(&["up"]).output(DEADLINE).await;
        assert_eq!(refused.status.code(), Some(1));
        assert_eq!(kernel.children("mgp-fixture"), children);
        return;
    }
    let socket = kernel.folder().join("other.sock").display().to_string();
    for second in [
        kernel.program(&["up"]),
        kernel.program(&["up"]).env("MGP_SOCKET", socket),
    ] {
        let refused = second.output(DEADLINE).await;
        assert_eq!(refused.status.code(), Some(1));
        let words = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(words.contains(&kernel.pid().to_string()), "{words}");
    }
    assert_eq!(kernel.children("mgp-fixture"), children);
    let now = fs::read(kernel.folder().join("data/marks")).unwrap();
    assert_eq!(now, marks);
    assert!(!kernel.folder().join("data/kernel.lock").exists());
    kernel
        .mgp_json(&["grants", "add", "other", "it", "--yet-unknown"])
        .await;
    let report = kernel.mgp_json(&["audit", "verify"]).await;
    assert_eq!(report["whole"], json!(true), "{report}");
    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    let kernel = Kernel::again(folder).await;
    let report = kernel.mgp_json(&["audit", "verify"]).await;
    assert_eq!(report["whole"], json!(true), "{report}");
    assert_eq!(
        kernel.mgp_json(&["grants", "list"]).await["entries"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

/// A kernel whose socket is in use does nothing in its data folder before it ends.
#[tokio::test]
async fn kernel_whose_socket_is_in_use_opens_no_data() {
    let kernel = Kernel::start("").await;
    let data = kernel.folder().join("new");
    let second = kernel.program(&["up"]);
    let second = second.env("MGP_DATA_DIR", data.display().to_string());
    let refused = second.output(DEADLINE).await;
    assert_eq!(refused.status.code(), Some(1));
    let left = fs::read_dir(&data).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["kernel.lock"]);
}

/// A kernel that was killed leaves nothing that keeps the next one from starting.
#[tokio::test]
async fn a_killed_kernel_can_be_started_again_at_once() {
    let kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    let folder = kernel.end(Signal::SIGKILL, DEADLINE).await;
    let kernel = Kernel::again(folder).await;
    kernel.connected(&["it"]).await;
    let mut agent = owner(&kernel).await;
    echoes(&mut agent, "it").await;
}

/// A thousand calls while the kernel is killed twice and started again: each that reached a kernel is
/// answered by the server, however late that is there, and none reads that there is no such tool.
#[tokio::test]
async fn a_thousand_calls_around_a_killed_kernel_never_read_of_an_unknown_tool() {
    let servers = server("quick", &[], "") + &server("late", &["--slow-start", "700"], "");
    let mut kernel = Kernel::start(&servers).await;
    kernel.connected(&["quick", "late"]).await;
    let (tally, socket) = (Tally::default(), kernel.socket());
    let names = ["quick__slow", "late__slow", "late:slow"].repeat(4);
    let callers = names.iter().map(|name| calling(&socket, name, &tally));
    let kills = async {
        for answered in [300, 650] {
            let enough = async || tally.answered.get() >= answered;
            wait_until("calls are answered", DEADLINE, enough).await;
            let folder = kernel.end(Signal::SIGKILL, DEADLINE).await;
            kernel = Kernel::again(folder).await;
        }
        kernel
    };
    let (_, kernel) = tokio::join!(join_all(callers), kills);
    println!("{tally:?}");
    assert_eq!(tally.refused.get(), 0);
    assert!(tally.answered.get() >= CALLS);
    assert!(tally.lost.get() > 0, "no call was under way at a kill");
    echoes(&mut owner(&kernel).await, "late").await;
}

/// Calls that are answered before the story ends.
const CALLS: usize = 1000;

/// What became of calls.
#[derive(Debug, Default)]
struct Tally {
    answered: Cell<usize>,
    refused: Cell<usize>,
    /// The connection ended before an answer came.
    lost: Cell<usize>,
}

/// Calls again and again, over a new connection when the one before has broken.
async fn calling(socket: &Path, name: &str, tally: &Tally) {
    let params = json!({"name": name, "arguments": {"ms": 10}});
    let call = Envelope::new("{}").request(&json!(1), "tools/call", params);
    let call = call.frame() + "\n";
    while tally.answered.get() < CALLS {
        let mut joined = None;
        wait_until("a kernel listens", DEADLINE, async || {
            joined = UnixStream::connect(socket).await.ok();
            joined.is_some()
        })
        .await;
        let mut kernel = BufReader::new(joined.unwrap());
        while tally.answered.get() < CALLS {
            let mut answer = String::new();
            let written = kernel.write_all(call.as_bytes()).await.is_ok();
            if !written || !matches!(kernel.read_line(&mut answer).await, Ok(1..)) {
                tally.lost.update(|lost| lost + 1);
                break;
            }
            let answer: Value = serde_json::from_str(&answer).unwrap();
            let count = if answer["error"].is_null() {
                &tally.answered
            } else {
                println!("{answer}");
                &tally.refused
            };
            count.update(|count| count + 1);
        }
    }
}

/// MGP-142: told to end, the kernel lets calls under way finish, at every door; the one that hangs
/// is told so.
#[tokio::test]
async fn shutdown_answers_every_in_flight_call() {
    let mut kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    let mut at_doors = [
        Agent::over_socket(&kernel.socket()).await,
        kernel.stdio_agent(None),
        kernel.http_agent(None),
    ];
    let mut waiting = Vec::new();
    for agent in &mut at_doors {
        agent.initialize(NEWEST, "{}").await.result();
    }
    let mut watcher = owner(&kernel).await;
    let mut hanging = Vec::new();
    for agent in &mut at_doors {
        let hang = json!({"name": "it__hang", "arguments": {}});
        hanging.push(agent.start("tools/call", hang).await);
    }
    in_flight(&mut watcher, "it", 3).await;
    // A kernel that ends gives calls a second: half of it is for a busy machine.
    for (agent, hang) in at_doors.iter_mut().zip(hanging) {
        let slow = json!({"name": "it__slow", "arguments": {"ms": 500}});
        waiting.push((agent.start("tools/call", slow).await, hang));
    }
    in_flight(&mut watcher, "it", 6).await;
    kernel.process().signal(Signal::SIGTERM);
    for (agent, (slow, hang)) in at_doors.iter_mut().zip(&waiting) {
        assert_eq!(agent.answer_to(slow).await.text(), "slept");
        let told = agent.answer_to(hang).await;
        assert_eq!(told.error()["data"]["outcome"], "unknown");
    }
    let status = kernel.process().end(DEADLINE).await;
    assert_eq!(status.code(), Some(0));
}

/// A terminal that is closed tells its kernel so, more than once, and takes its stderr away: the kernel
/// ends as on SIGTERM, with the calls under way answered and nothing left.
#[tokio::test]
async fn a_closed_terminal_ends_the_kernel_in_order() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("mgp.sock");
    let up = format!("exec {} up", Program::ours("mgp", ["up"]).command);
    // Whoever runs the tests under `nohup` has SIGHUP ignored, and a kernel keeps to that.
    let terminal = ["--default-signal=HUP", "script", "-qec", &up, "/dev/null"];
    let up = place(&folder, Program::new("env", terminal));
    let mut terminal = Process::start("a terminal", &up);
    terminal.says("that it is up", DEADLINE, is_up).await;
    let mut agent = Agent::over_socket(&socket).await;
    agent.initialize(NEWEST, "{}").await.result();
    let server = in_state(&mut agent, "it", "connected").await;
    let server = u32::try_from(server["pid"].as_u64().unwrap()).unwrap();
    let status = agent.request("mgp/kernel/status", json!({})).await.result();
    let pid = u32::try_from(status["pid"].as_u64().unwrap()).unwrap();
    let slow = json!({"name": "it__slow", "arguments": {"ms": 700}});
    let slow = agent.start("tools/call", slow).await;
    let mut watcher = Agent::over_socket(&socket).await;
    watcher.initialize(NEWEST, "{}").await.result();
    in_flight(&mut watcher, "it", 1).await;

    terminal.signal(Signal::SIGKILL);
    terminal.end(DEADLINE).await;
    let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGHUP);
    assert_eq!(agent.answer_to(&slow).await.text(), "slept");
    all_gone(&[pid, server]).await;
    assert!(!socket.exists());
    let verify = place(&folder, Program::ours("mgp", ["audit", "verify"]));
    assert!(verify.output(DEADLINE).await.status.success());
    assert!(
        !folder.path().join("data/marks").exists(),
        "it ended in order"
    );
}

/// Who starts a kernel so that it outlives the terminal (`nohup`) is not disappointed.
#[tokio::test]
async fn a_kernel_that_is_to_ignore_the_end_of_its_terminal_does() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("mgp.sock");
    let script = format!(
        "trap '' HUP; exec {} up",
        Program::ours("mgp", ["up"]).command
    );
    let up = place(&folder, Program::new("sh", ["-c", &script]));
    let mut kernel = Process::start("mgp up", &up);
    kernel.says("that it is up", DEADLINE, is_up).await;
    let mut agent = Agent::over_socket(&socket).await;
    agent.initialize(NEWEST, "{}").await.result();
    in_state(&mut agent, "it", "connected").await;
    kernel.signal(Signal::SIGHUP);
    if system::is_weaker("signals").await {
        // What is ignored cannot be read there.
        assert_eq!(kernel.end(DEADLINE).await.code(), Some(0));
        return;
    }
    // Longer than a kernel that ends keeps its door open.
    let slow = agent.call("it__slow", json!({"ms": 700})).await;
    assert_eq!(slow.text(), "slept");
    let mut another = Agent::over_socket(&socket).await;
    another.initialize(NEWEST, "{}").await.result();
    echoes(&mut another, "it").await;
}

/// A program that knows of no kernel but one in this folder, with one server.
fn place(folder: &TempDir, program: Program) -> Program {
    let at = |name: &str| folder.path().join(name).display().to_string();
    let config = format!(
        "[http]\nenabled = false\n[discovery]\nembedding = \"off\"\nexposure = \"all\"\n{}",
        server("it", &[], "")
    );
    fs::write(at("mgp.toml"), config).unwrap();
    program
        .env("MGP_SOCKET", at("mgp.sock"))
        .env("MGP_DATA_DIR", at("data"))
        .env("MGP_CONFIG_PATH", at("mgp.toml"))
}

fn is_up(said: &str) -> Option<()> {
    said.contains("the kernel is up").then_some(())
}
